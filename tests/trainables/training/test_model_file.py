"""Files of trained models: a loaded model gives what was recorded, for every method, and bad files are refused."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest
import torch
from safetensors.torch import save
from torch import Tensor, nn

from tests.cases import for_each
from tests.trainables.methods.method_configs import ALL, QUICK, config_of
from tests.trainables.small import HERE
from tests.trainables.tasks.pairs_methods import registered
from trainables.config import keys
from trainables.contract import ConditionalDensity, ImageMethod, PairsMethod
from trainables.data.datasets.catalog import load
from trainables.data.pairs import BRANCHES, NOISE, draw_pairs
from trainables.image_trial import ImageTrial
from trainables.learners.data_parallel import seeded_generator
from trainables.metrics import neighbours
from trainables.metrics.conditional_density import HELD_OUT, equal_mixture, log_likelihood
from trainables.metrics.scores import auroc
from trainables.reports import ModelError, Report, Verdict
from trainables.sections import TrialConfig, Value
from trainables.tasks.images.model import ImageModel
from trainables.tasks.pairs import as_input
from trainables.training.model_file import TrainedModel, pack_model, unpack_model
from trainables.training.model_metadata import ENTRY, read_metadata
from trainables.training.train import Callbacks, train

EPOCHS = 1


@pytest.fixture(autouse=True)
def pairs() -> object:
    with registered():
        yield


def evaluated(name: str) -> dict[str, Value]:
    """Keys with which trials of a method report what its model can be held to."""
    method = ALL[name]
    if not issubclass(method, ImageMethod) or "score" in method.capabilities:
        return {}
    small: dict[str, Value] = {"encoder": "mlp", "width": 16, "features": 8}  # all classes are ten times as many images
    return {**small, "normal_class": None, "held_out": "", "knn": 3, "reconstructions": "decode" in method.capabilities}


def trained(configs: list[TrialConfig]) -> tuple[Report, dict[int, bytes]]:
    """The last report of a cohort, and the files of its models."""
    files: dict[int, bytes] = {}

    def keep(index: int, model: TrainedModel) -> None:
        files[index] = pack_model(model, {"kept": "all"})

    *_, last = train(configs, HERE, callbacks=Callbacks(keep=keep))
    return last, files


def recomputed(model: nn.Module, config: TrialConfig) -> Mapping[str, float]:
    """Metrics of a loaded model, computed from the data as a user has them."""
    if not isinstance(model, ImageModel):
        name = str(config.flat()["dataset"])
        pairs = draw_pairs(name, HELD_OUT, seeded_generator("held-out pairs", name))
        with torch.no_grad():
            predicted = cast(PairsMethod, model).predict(as_input(pairs.x_N[:, None], torch.device("cpu")))
        density = ConditionalDensity(*(parameter.double() for parameter in predicted))
        true = equal_mixture(BRANCHES[name].at(pairs.x_N), NOISE)
        excess_N = log_likelihood(pairs.y_N, true) - log_likelihood(pairs.y_N, density)
        return {"nll_excess": float(excess_N.mean())}
    assert isinstance(config, ImageTrial)
    digits = load("digits", HERE)
    images_NHWC = digits.test_images[:].permute(0, 2, 3, 1).numpy()
    if config.data.normal_class is not None:
        outlier_N = (digits.test_labels != config.data.normal_class).numpy()
        return {
            f"auroc_{name}": float(auroc(model.score(images_NHWC, name).double().numpy()[None], outlier_N[None])[0])
            for name in model.scores
        }
    bank_ND, test_MD = (model.embed(images)["z"] for images in (digits.train_images[:], images_NHWC))
    vote, _ = neighbours.accuracies(bank_ND, digits.train_labels, test_MD, digits.test_labels, 10, 3, 0.07)
    metrics = {"knn_z": vote}
    if "decode" in model.method.capabilities:
        floats_NCHW = digits.test_images[:].float() / digits.levels
        metrics["reconstruction_mse"] = float((model.reconstruct(floats_NCHW) - floats_NCHW).square().mean())
    return metrics


SOME = sorted(QUICK | {"csi", "deep_svdd", "goad", "moco_v2", "random", "smc_gmje"})
"""Of each kind one or two, and methods whose models have more than weights: a queue, a bank, a centre, statistics."""


@pytest.mark.slow
@for_each("name", SOME)
def test_a_loaded_model_gives_what_was_recorded(name: str) -> None:
    _assert_that_loaded_models_give_what_was_recorded(name)


@pytest.mark.slow
@pytest.mark.soak
@for_each("name", sorted(ALL.keys() - {*SOME}))
def test_a_loaded_model_of_any_other_method_gives_what_was_recorded(name: str) -> None:
    """`test_a_loaded_model_gives_what_was_recorded` asserts it of some."""
    _assert_that_loaded_models_give_what_was_recorded(name)


def _assert_that_loaded_models_give_what_was_recorded(name: str) -> None:
    epochs = EPOCHS if ALL[name].trains() else 0
    seeds = (0, 1) if name in QUICK else (0,)
    configs = [config_of(name, epochs=epochs, seed=seed, **evaluated(name)) for seed in seeds]
    last, files = trained(configs)
    assert sorted(files) == list(seeds)
    for index, data in files.items():
        loaded = unpack_model(data)
        assert loaded.config == configs[index]
        model, recorded = loaded.build(), last.members[index].metrics
        metrics = recomputed(model, configs[index])
        assert not model.training and metrics and metrics.keys() <= recorded.keys()
        for metric, value in metrics.items():
            assert value == pytest.approx(recorded[metric], rel=1e-4, abs=2e-3), metric


@pytest.fixture(scope="module")
def model() -> TrainedModel:
    """A small model that was not trained."""
    models: list[TrainedModel] = []
    for _ in train([config_of("vje", epochs=0)], HERE, callbacks=Callbacks(keep=lambda _, model: models.append(model))):
        pass
    return models[0]


def test_equal_models_have_equal_files_with_the_whole_configuration(model: TrainedModel) -> None:
    data = pack_model(model, {"trial_id": "a", "kept": "best"})
    assert data == pack_model(model, {"kept": "best", "trial_id": "a"})
    metadata = read_metadata(data)
    assert metadata["config"].keys() == keys("vje").keys() and metadata["trial_id"] == "a"
    assert {"levels", "mean", "std", "classes", "dataset"} == metadata["inputs"].keys()
    assert metadata["shapes"] == {"views": [1, 8, 8]}


@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.int64, torch.bool, torch.bfloat16])
def test_files_are_those_of_safetensors_own_function(model: TrainedModel, kind: torch.dtype) -> None:
    tensors = {**model.tensors, "extra": torch.ones(3, 0, dtype=kind), "more": torch.ones(2, 3, dtype=kind)}
    data = pack_model(replace(model, tensors=tensors), {})
    assert data == save(tensors, {ENTRY: json.dumps(read_metadata(data), sort_keys=True)})


def test_a_hyperparameter_of_infinity_survives() -> None:
    models: list[TrainedModel] = []
    for _ in train(
        [config_of("vje", epochs=0, nu=float("inf"))],
        HERE,
        callbacks=Callbacks(keep=lambda _, model: models.append(model)),
    ):
        pass
    assert unpack_model(pack_model(models[0], {})).config == models[0].config


def test_files_that_cannot_be_used_are_refused_in_one_line(model: TrainedModel) -> None:
    data = bytearray(pack_model(model, {}))
    flipped = bytearray(data)
    flipped[-1] ^= 1
    name, tensor = next(iter(model.tensors.items()))
    for damaged, reason in (
        (b"", "it is not a model of a sweep, or is damaged"),
        (data[:100], "it is not a model of a sweep, or is damaged"),
        (data[:-4], "Error while deserializing"),
        (flipped, "it is damaged: its digest differs"),
        (save({"a": tensor}), "it is not a model of a sweep, or is damaged"),
        (data.replace(b'\\"format\\": 1', b'\\"format\\": 7'), "it must have format 1, but has 7"),
        (
            data.replace(b'\\"method\\": \\"vje\\"', b'\\"method\\": \\"vja\\"'),
            "no method 'vja' (did you mean 'vje'?)",
        ),
    ):
        with pytest.raises(ModelError) as raised:
            unpack_model(bytes(damaged))
        assert str(raised.value).startswith(reason) and "\n" not in str(raised.value)
    others: list[tuple[dict[str, Tensor], str]] = [
        ({**model.tensors, "more": tensor}, "its tensors must match vje, but differ in more"),
        ({**model.tensors, name: tensor[..., :1]}, f"{name} must be torch.float32 of shape "),
        ({**model.tensors, name: tensor.double()}, f"{name} must be torch.float32 of shape "),
    ]
    for tensors, reason in others:
        with pytest.raises(ModelError, match=re.escape(reason)):
            replace(model, tensors=tensors).build()


@for_each(
    ("change", "reason"),
    [
        ({"width": 10**9}, "far more weights than it has"),
        ({"method": "simsiam", "projector_layers": 100, "projector_width": 10**6}, "far more weights than it has"),
        ({"method": "simsiam", "projector_layers": 10**9}, "`projector_layers <= 100` must hold"),
        ({"shapes": {"views": [10**9, 8, 8]}}, "far more weights than it has"),
        ({"shapes": {"views": [1, -8, 8]}}, "shapes.views[1]: must be int >= 1"),
        ({"shapes": {}}, "it cannot be built from it"),
        ({"shapes": {"views": [8]}}, "it cannot be built from it"),
        ({"shapes": [1]}, "shapes: must be object"),
        ({"inputs": {}}, "must have the key classes"),
        ({"inputs": {"classes": [], "levels": 0, "mean": [0], "std": [1]}}, "levels: must be int >= 1"),
        ({"inputs": {"classes": [], "levels": 1, "mean": [], "std": []}}, "mean and std must have 1 values"),
        ({"config": "vje"}, "config: must be object"),
        ({"config": {"method": ["vje"]}}, "config.method: must be"),
        ({"digest": 7}, "digest: must be str"),
        ({"kept": [7]}, "kept: must be str"),
    ],
)
def test_metadata_declare_nothing_that_the_weights_are_not(
    model: TrainedModel, change: dict[str, Any], reason: str
) -> None:
    """Nothing of the declared size is allocated: 10**9 wide layers would need terabytes."""
    data = pack_model(model, {})
    content = read_metadata(data)
    keys_of_config = {key: value for key, value in change.items() if key not in (*content, "kept")}
    if "method" in keys_of_config:
        content["config"] = {**dict(config_of("simsiam").flat()), **keys_of_config}
    content["config"].update(keys_of_config)
    content.update({key: value for key, value in change.items() if key not in keys_of_config})
    with pytest.raises(ModelError) as raised:
        unpack_model(save(dict(model.tensors), {ENTRY: json.dumps(content)})).build()
    expected = reason.replace("it cannot", f"{model.config.method} cannot")
    assert expected in str(raised.value) and "\n" not in str(raised.value)


def test_only_members_that_finish_are_kept() -> None:
    """The second diverges in the first epoch, the third is pruned after it."""
    configs = [config_of("vje", epochs=2, lr=lr) for lr in (0.01, 1e30, 0.02)]
    kept: list[int] = []

    def judge(report: Report) -> Verdict:
        return Verdict(pruned={2: "it is the third"})

    *_, last = train(configs, HERE, callbacks=Callbacks(judge, keep=lambda index, _: kept.append(index)))
    assert [member.status for member in last.members] == ["finished", "diverged", "pruned"] and kept == [0]
