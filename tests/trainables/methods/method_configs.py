"""A small trial of every method, its model and one batch, for the contract suite.

A new method gets the whole suite by its entry in the catalog; OVERRIDES is for one that COMMON does not suit. Two
small methods of pairs, which are in the tests only, keep the suite and the contract free of what only images have.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from tests.trainables.tasks.pairs_methods import PAIRS_METHODS
from trainables.catalog import METHODS, task_of
from trainables.config import resolve
from trainables.contract import Batch, Capability, ConditionalDensity, ImageMethod, Losses, Method, Noises, Shapes
from trainables.data.datasets.catalog import load
from trainables.data.datasets.dataset import Dataset
from trainables.data.views import normalise, scale_pixels
from trainables.learners.data_parallel import SINGLE_PROCESS, draw_noise
from trainables.sections import TrialConfig, Value
from trainables.tasks.task import LoadedTask
from trainables.training.stacks import build_models

B, EPOCHS = 60, 3
"""The images of one class of the digits make two batches of 60, and so do the pairs, so this is 6 steps."""
CPU = torch.device("cpu")
HERE = Path()
"""Neither the digits nor the pairs need a folder."""

ALL: Mapping[str, type[Method]] = dict(sorted({**METHODS, **PAIRS_METHODS}.items()))
TRAINED = [name for name, method in ALL.items() if method.trains()]
FITTED = [name for name in TRAINED if ALL[name].fitted()]
BY_GRADIENTS = [name for name in TRAINED if not ALL[name].fitted()]
UNTRAINED = [name for name in ALL if name not in TRAINED]
QUICK = {"byol", "classifier", "gje", "gmje_em", "gmje_mdn_pairs", "simclr", "simvae", "vje"}
"""Of each kind of method one or two, of which `make check` asks what takes a training; of the others the tests marked
slow do."""
IMAGE_METHODS = [name for name, method in ALL.items() if issubclass(method, ImageMethod)]

COMMON: Mapping[str, Mapping[str, Value]] = {
    "images": {
        "dataset": "digits", "normal_class": 3, "encoder": "convnet", "width": 8, "features": 16,
        "rotation": 10.0, "shift": 0.25,
    },
    "pairs": {"examples": 120},
}  # fmt: skip
"""Task -> what all small trials on it have."""
DATA: Mapping[str, tuple[str, tuple[Value, Value]]] = {
    "images": ("normal_class", (3, 8)),
    "pairs": ("dataset", ("synthetic_a", "synthetic_b")),
    "classifier": ("normal_class", (None, None)),
}
"""Task, or a method that needs other data -> a key that chooses the data, and two values of it. Members that learn from
labels all have the same data."""
ADAM: Mapping[str, Value] = {"optimiser": "adam", "adam_epsilon": 1e-4}
AUTOENCODER: Mapping[str, Value] = {**ADAM, "lr": 0.003, "decoder": "relu_mlp", "decoder_hidden": "32"}
GMJE: Mapping[str, Value] = {**ADAM, "lr": 0.01, "ema": 0.5, "alignment_weight": 1.0}
OVERRIDES: Mapping[str, Mapping[str, Value]] = {
    "autoencoder": AUTOENCODER,
    "barlow_twins": {"projector_width": 16},
    "beta_vae": AUTOENCODER,
    "byol": {"projector_width": 16, "projection": 8, "predictor_width": 16},
    "cr_vae": AUTOENCODER,
    "classifier": {"normal_class": None, "held_out": "0+1+2+3+4+5+6+7", "mixup": 0.4, "smoothing": 0.2},
    "csi": {"projector_width": 16, "projection": 8, "bank": 150},
    "dam_gmje": {"projector_width": 16, "projection": 8},
    "deep_svdd": {**ADAM, "lr": 0.003, "objective": "soft_boundary", "radius_epochs": 0},
    "gaussian_mlp": ADAM,
    "geom": {**ADAM, "translation": 0.0},
    "gje": {"entropy_weight": 0.5, "projector_width": 16, "projection": 8},
    "gmje_mdn": {"projector_width": 16, "projection": 8, "parameter_width": 16, "components": 3},
    "gmje_em": {"components": 6, "iterations": 3, "jitter": 0.1},
    "gmje_gng": {"nodes": 8, "steps": 200, "insert_every": 20, "jitter": 0.1},
    "gmje_mdn_pairs": {**ADAM, "initial_floor": 1.0, "sigma_floor": 0.2, "anneal_share": 0.8, "width": 16},
    "gmje_parametric": {**GMJE, "prototypes": 12, "projector_width": 16, "projection": 8},
    "goad": {**ADAM, "translation": 0.0},
    "gpje": {"lr": 0.1, "projector_width": 16, "projection": 8},
    "hsic": {"lr": 0.1, "entropy_weight": 0.1, "projector_width": 16, "projection": 8},
    "jepa": {"projector_width": 16, "projection": 8, "predictor_width": 16},
    "jepa_pairs": {**ADAM, "width": 16},
    "moco_v2": {"queue": 150, "projector_width": 16, "projection": 8},
    "patchcore": {"bank": 40},
    "rotation_prediction": {**ADAM, "translation": 0.0},
    "simclr": {"projector_width": 16, "projection": 8},
    "simsiam": {"projector_width": 16, "predictor_width": 8},
    "simvae": {**AUTOENCODER, "views": 3},
    "smc_gmje": {**ADAM, "lr": 0.003, "bank": 150, "projector_width": 16, "projection": 8},
    "smc_joint_gmje": {**ADAM, "lr": 0.01, "ema": 0.5, "bank": 150, "projector_width": 16, "projection": 8},
    "swav": {"prototypes": 12, "projector_width": 16, "projection": 8},
    "vae": {**AUTOENCODER, "sigma_x2": 0.1},
    "vicreg": {"projector_width": 16},
    "vje": {"bottleneck": 16},
}
"""Method -> what its small trial needs beyond COMMON and its own defaults."""

FACTORS = (1.0, 0.5, 0.8, 0.25)
"""Members of a cohort differ in each fusible hyperparameter by these factors of its default."""


def trained(names: Iterable[str] = TRAINED) -> list[Any]:
    """These methods as parameters of a test that trains: slow but for those that are QUICK."""
    return [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in names]


def config_of(name: str, **changes: Value) -> TrialConfig:
    gradient: Mapping[str, Value] = {} if name in FITTED else {"batch_size": B, "lr": 0.02}
    epochs = 0 if name in UNTRAINED else EPOCHS
    small = {"epochs": epochs, **gradient, **COMMON[ALL[name].task], **OVERRIDES.get(name, {})}
    return resolve({"method": name, **small, **changes})


def members(name: str, **changes: Value) -> list[TrialConfig]:
    """Members that differ in everything in which the members of one cohort may; the last shares the first's stream.

    `changes` are made to all.
    """
    first = config_of(name, **changes)
    own = {key: getattr(first.options, key) or 0.1 for key in ALL[name].fusible}
    seeds, data = (0, 1, 0, 0), (0, 0, 1, 0)
    data_key, data_values = DATA[name if name in DATA else ALL[name].task]
    rates: list[dict[str, Value]] = [{} for _ in FACTORS]
    if name in BY_GRADIENTS:
        shares, decays = (1.0, 0.5, 1.5, 0.75), (0.0, 0.01, 0.1, 0.05)
        rates = [
            {"lr": share * first.gradient.lr, "weight_decay": decay}
            for share, decay in zip(shares, decays, strict=True)
        ]
    return [
        config_of(
            name,
            **{
                **changes, **{key: value * factor for key, value in own.items()}, **rate, "seed": seed,
                data_key: data_values[index],
            },
        )
        for factor, rate, seed, index in zip(FACTORS, rates, seeds, data, strict=True)
    ]  # fmt: skip


@cache
def _loaded(name: str) -> LoadedTask:
    config = config_of(name)
    return task_of(name).load([config], ALL[name], HERE, CPU, SINGLE_PROCESS, lambda: None)


def model_shapes(name: str) -> Shapes:
    """What a small trial's model is built for."""
    return _loaded(name).shapes


def model_of(name: str) -> Method:
    """A new model, the same at every call."""
    return build_models([config_of(name)], model_shapes(name))[0]


class Step(NamedTuple):
    """What a step of training takes."""

    batch: Batch
    noise: dict[str, Tensor]
    after_noise: dict[str, Tensor]
    size: int
    """Examples in the batch."""


def step_of(name: str, noise_seed: int = 0) -> Step:
    """The first step of a training: its batch and noise."""
    (stream,), model = _loaded(name).streams.values(), model_of(name)
    noise = draw_noise(model.noise(stream.batch_size), "noise", noise_seed)
    after_noise = draw_noise(model.after_step_noise(), "after_step", noise_seed)
    return Step(stream.batch(stream.order(0)[0], 0, 0), noise, after_noise, stream.batch_size)


def rows(name: str, step: Step, indices: Tensor) -> tuple[Batch, dict[str, Tensor]]:
    """The batch and the noise of these examples alone."""
    noises = model_of(name).noise(step.size)
    return tree_map(lambda entry: entry[indices], step.batch), noise_rows(noises, step.noise, indices)


def noise_rows(noises: Noises, noise: Mapping[str, Tensor], indices: Tensor) -> dict[str, Tensor]:
    """The noise of these examples alone, where it has the dimension of the batch."""

    def part(values: Tensor, batch_dim: int | None) -> Tensor:
        return values if batch_dim is None else values.index_select(batch_dim, indices)

    return {name: part(values, noises[name].batch_dim) for name, values in noise.items()}


def learn(model: Method, batch: Batch, noise: Mapping[str, Tensor]) -> Losses:
    """What a step asks of the method."""
    if not model.fitted():
        return model.losses(batch, noise)
    with torch.no_grad():
        return model.fit(batch, noise)


def arguments_of(name: str, count: int = B) -> dict[Capability, tuple[Any, ...]]:
    """The arguments of each capability of a method, for `count` examples."""
    model, source = model_of(name), torch.Generator().manual_seed(0)
    if not isinstance(model, ImageMethod):
        return {"predict": (3 * torch.rand(count, 1, generator=source),)}
    images = images_of_tests()[:count]
    pixels = [torch.rand(images.shape, generator=source)] if model.scores_pixels else []
    arguments: dict[Capability, tuple[Any, ...]] = {
        "embed": (images,),
        "score": (images, draw_noise(model.score_noise(count), "scores", 0), *pixels),
        "heat": (images,),
        "decode": (torch.randn(count, model.features, generator=source),),
        "density": (),
        "classify": (images,),
    }
    return {verb: arguments[verb] for verb in arguments if verb in model.capabilities}


def named(verb: str, output: Any) -> dict[str, Tensor]:
    """The tensors that a capability returned, by name."""
    if isinstance(output, ConditionalDensity):
        return output._asdict()
    return {verb: output} if isinstance(output, Tensor) else dict(output)


def outputs(model: Method, verb: str, arguments: tuple[Any, ...]) -> dict[str, Tensor]:
    """What a capability returns, by name."""
    with torch.no_grad():
        output = getattr(model, verb)(*arguments)
    return named(verb, output)


def images_of_tests() -> Tensor:
    """All test images `[N, 1, 8, 8]` as evaluation gives them."""
    digits = _digits()
    assert isinstance(digits.test_images, Tensor)
    return normalise(scale_pixels(digits.test_images, digits.levels), digits.mean, digits.std)


@cache
def _digits() -> Dataset:
    return load("digits", HERE)
