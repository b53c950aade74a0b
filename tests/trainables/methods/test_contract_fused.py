"""What every method that trains promises (`trainables.contract`) of a training: it learns, and fused equals alone.

Shapes: K members of a cohort.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache

import pytest
import torch
from torch import Tensor

from tests.cases import for_each
from tests.trainables.methods import method_configs
from tests.trainables.methods.method_configs import (
    ALL,
    BY_GRADIENTS,
    CPU,
    FACTORS,
    HERE,
    QUICK,
    arguments_of,
    config_of,
    members,
    named,
    trained,
)
from trainables.sections import TrialConfig, Value
from trainables.tasks import pairs
from trainables.training.cohort import TrainingCohort

SMOOTH: Mapping[str, Mapping[str, Value]] = {"images": {"encoder": "mlp", "width": 32}, "pairs": {}, "patchcore": {}}
"""Task, or a method of no gradients that needs feature maps -> networks without ReLU and BatchNorm; the projectors have
them."""

pytestmark = pytest.mark.usefixtures("pairs")
every_trained = pytest.mark.parametrize("name", trained())

LEARNED: Mapping[str, tuple[str, float, Mapping[str, Value]]] = {
    "images": ("knn_z", 0.02, {"normal_class": None, "knn": 20}),
    "pairs": ("nll_excess", -0.02, {"examples": 600, "epochs": 5}),
    "classifier": ("accuracy", 0.1, {}),
    "deep_svdd": ("auroc_distance", 0.02, {}),
    "geom": ("auroc_log_probability", 0.02, {}),
    "goad": ("auroc_log_probability", 0.02, {}),
    "patchcore": ("auroc_patch_distance", 0.02, {}),
    "rotation_prediction": ("auroc_probability", 0.02, {}),
}
"""Task, or a method of another purpose -> a metric, by how much it changes at least, and the keys that ask for it."""
FALLS: Mapping[str, float] = {"jepa_pairs": 0.01}
"""Method -> the share of its loss by which that falls at least, if not 0.05. Most of JEPA's error on pairs is the
distance of the branches from their mean."""


@every_trained
def test_learns_and_everything_stays_finite(name: str) -> None:
    """The loss falls, and the metric improves."""
    metric, least, asked = LEARNED[name if name in LEARNED else ALL[name].task]
    cohort = TrainingCohort([config_of(name, **asked)], HERE, CPU, None)
    untrained = cohort.evaluate(last=False)[metric].item()
    history = [cohort.epoch(epoch)["loss"].item() for epoch in range(cohort.epochs)]
    assert history[-1] < history[0] - FALLS.get(name, 0.05) * abs(history[0])
    assert (cohort.evaluate(last=False)[metric].item() - untrained) / least > 1
    for tensors in cohort.state()[0].values():
        numbers = [tensor for name, tensor in tensors.items() if name != "clip_grad_norm"]  # which may be infinite
        assert all(tensor.isfinite().all() for tensor in numbers if tensor.is_floating_point())


@pytest.mark.parametrize("name", trained(BY_GRADIENTS))
def test_training_moves_every_parameter(name: str) -> None:
    """By more than rounding, which alone would move a bias that does not affect the loss."""
    cohort = TrainingCohort([config_of(name)], HERE, CPU, None)
    before = cohort.state()[0]["parameters"]
    cohort.epoch(0)
    after = cohort.state()[0]["parameters"]
    assert [key for key in before if (after[key] - before[key]).abs().max() < 1e-5] == []


@dataclass(frozen=True)
class Outcome:
    """The result of a training: losses `[epochs, K]` by name, and `[K, ...]` weights, buffers, moments and what
    evaluators ask of the members."""

    losses: dict[str, Tensor]
    tensors: dict[str, Tensor]


def _train(configs: list[TrialConfig], width: int | None) -> Outcome:
    cohort = TrainingCohort(configs, HERE, CPU, width)
    reached = [cohort.epoch(epoch) for epoch in range(cohort.epochs)]
    losses = {  # those of a phase are of its epochs alone
        name: torch.stack([torch.from_numpy(epoch[name]) for epoch in reached if name in epoch])
        for name in dict.fromkeys(name for epoch in reached for name in epoch)
    }
    states = cohort.state()
    tensors = {
        f"{kind}.{key}": torch.cat([state[kind][key] for state in states])
        for kind in states[0]
        for key in states[0][kind]
    }
    for verb, arguments in arguments_of(configs[0].method).items():
        evaluated = [stack.evaluate(verb, *arguments) for stack in cohort._stacks]
        outputs = [named(verb, output) for output in evaluated]
        tensors |= {f"{verb}.{key}": torch.cat([output[key] for output in outputs]) for key in outputs[0]}
    return Outcome(losses, tensors)


def _each_alone(configs: list[TrialConfig]) -> Outcome:
    """The outcome of training each member in a cohort of its own, concatenated."""
    outcomes = [_train([config], None) for config in configs]
    return Outcome(
        {key: torch.cat([outcome.losses[key] for outcome in outcomes], dim=1) for key in outcomes[0].losses},
        {key: torch.cat([outcome.tensors[key] for outcome in outcomes]) for key in outcomes[0].tensors},
    )


def _smooth_members(name: str) -> list[TrialConfig]:
    return members(name, **SMOOTH[name if name in SMOOTH else ALL[name].task])


@cache
def _alone(name: str) -> Outcome:
    return _each_alone(_smooth_members(name))


def _assert_equal(actual: Outcome, expected: Outcome, tolerance: float) -> None:
    for ours, theirs in ((actual.losses, expected.losses), (actual.tensors, expected.tensors)):
        assert ours.keys() == theirs.keys()
        for key, value in ours.items():
            differs = (value - theirs[key]).abs().masked_fill(value == theirs[key], 0)  # infinite rates are equal
            difference, largest = (tensor.abs().max().item() for tensor in (differs, theirs[key]))
            assert math.isfinite(largest) or key == "rates.clip_grad_norm"
            assert difference <= tolerance * max(1.0, largest), f"{key} differs by {difference}"


FLOAT32 = {"swav": 1e-2}
"""Tolerance where rounding grows: cosines are divided by an epsilon of down to 0.0125."""


@every_trained
def test_fused_equals_alone(name: str) -> None:
    """Members that differ in all that is fusible, in stacks of three and one, and of some methods in one stack, too; 6
    steps in float32: losses, weights, buffers (queues, averaged weights), moments, and all that evaluators ask of the
    members."""
    for width in (3, None) if name in QUICK else (3,):
        _assert_equal(_train(_smooth_members(name), width), _alone(name), FLOAT32.get(name, 3e-4))


VARIANTS: tuple[tuple[str, dict[str, Value]], ...] = (
    ("vje", {"shared_variance": False, "target_gradient": True}),
    ("vje", {"likelihood": "euclidean"}),
    ("vje", {"radial_scale": "normalised"}),
    ("simvae", {"reconstruction_weight": 0.0}),
    ("simclr", {"similarity": "dot", "tau": 5.0}),
    ("simclr", {"rotated_negatives": True}),
    ("gje", {"alignment_weight": 0.0}),
    ("jepa", {"symmetric": True, "standardise": False}),
    ("deep_svdd", {"objective": "one_class", "pretrain_epochs": 2, "decoder_hidden": "16"}),
)
"""Trials with keys of their methods that are no defaults, and that choose what is computed."""


@pytest.mark.slow
@for_each(("name", "keys"), VARIANTS)
def test_variants_fused_equal_alone(name: str, keys: dict[str, Value]) -> None:
    configs = members(name, **SMOOTH[ALL[name].task], **keys)
    _assert_equal(_train(configs, None), _each_alone(configs), FLOAT32.get(name, 3e-4))


OPTIONS: tuple[dict[str, Value], ...] = (
    {"optimiser": "adamw", "lr_schedule": "exponential", "accumulate": 2},
    {"optimiser": "lars", "lr": 0.3, "lr_schedule": "step", "lr_drop_every": 2},
    {"optimiser": "sgd", "lr_schedule": "one_cycle", "accumulate": 3},
)
"""Ways to train, each with members of different largest gradients and decays of the learning rate."""


@pytest.mark.parametrize("name", trained(BY_GRADIENTS))
def test_every_way_to_train_fused_equals_alone(name: str) -> None:
    """Its results are finite, and those of the optimiser's state, too. All ways of one method that looks at one example
    at a time and of one that compares those of a batch; one of each other method, in turn."""
    turn = BY_GRADIENTS.index(name) % len(OPTIONS)
    for options in OPTIONS if name in ("vje", "simclr") else OPTIONS[turn : turn + 1]:
        _fused_equals_alone_with(name, options)


def _fused_equals_alone_with(name: str, options: dict[str, Value]) -> None:
    plain = config_of(name, **{"adam_epsilon": 1e-2, **SMOOTH[ALL[name].task], **options})
    configs = [
        replace(
            plain,
            training=replace(plain.gradient, clip_grad_norm=limit),
            optimiser=replace(plain.optimiser, lr_gamma=gamma),
        )
        for limit, gamma in ((0.05, 0.9), (math.inf, 0.1), (1.0, 0.5))
    ]
    fused = _train(configs, None)
    _assert_equal(fused, _each_alone(configs), FLOAT32.get(name, 3e-4))
    assert all(tensor.isfinite().all() for key, tensor in fused.tensors.items() if key.startswith("parameters."))
    first, second, _ = (
        torch.cat([tensor[slot].flatten() for key, tensor in fused.tensors.items() if key.startswith("parameters.")])
        for slot in range(3)
    )
    assert not torch.allclose(first, second, rtol=1e-3)


@pytest.fixture
def in_float64(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A test that computes everything in double precision, and leaves no data of that precision to other tests."""
    monkeypatch.setattr(Tensor, "float", Tensor.double)
    for module, cached in ((pairs, "_draw"), (method_configs, "_loaded")):
        monkeypatch.setattr(module, cached, getattr(module, cached).__wrapped__)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize("name", ["vje", "beta_vae", "gaussian_mlp"])
def test_accumulated_parts_equal_the_batch(name: str) -> None:
    """Of methods that look at one example at a time, without BatchNorm."""
    whole, parts = (
        [config_of(name, **SMOOTH[ALL[name].task], accumulate=count, seed=seed) for seed in (0, 1)] for count in (1, 4)
    )
    _assert_equal(_train(parts, None), _train(whole, None), 1e-9)


@pytest.mark.usefixtures("in_float64")
@every_trained
def test_fused_equals_alone_in_float64(name: str) -> None:
    """Two members, 6 steps with convolutions and ReLU, which turn the rounding of float32 into other gradients where a
    unit is near zero."""
    pair = members(name)[1:3]
    fused = _train(pair, None)
    learned = "parameters." if name in BY_GRADIENTS else "buffers."
    numbers = [tensor for key, tensor in fused.tensors.items() if key.startswith(learned)]
    assert {tensor.dtype for tensor in numbers if tensor.is_floating_point()} == {torch.float64}
    _assert_equal(fused, _each_alone(pair), 1e-10)


@every_trained
def test_members_of_the_cohort_differ(name: str) -> None:
    """Otherwise the test above would prove nothing."""
    losses_K = _alone(name).losses["loss"][-1]
    differing = {str(config) for config in _smooth_members(name)}  # without fusible keys two members are the same
    assert len({round(loss, 3) for loss in losses_K.tolist()}) == len(differing) >= len(FACTORS) - 1


@every_trained
def test_every_fusible_hyperparameter_matters(name: str) -> None:
    """A member that differs from the first in one hyperparameter only becomes different within the training."""
    default, changed = config_of(name), sorted(ALL[name].fusible)
    halves = {key: 0.5 * (getattr(default.options, key) or 0.1) for key in changed}
    outcome = _train([default, *(config_of(name, **{key: half}) for key, half in halves.items())], None)
    learned = "parameters." if name in BY_GRADIENTS else "buffers."
    for member, hyperparameter in enumerate(changed, 1):
        tensors = [
            tensor
            for key, tensor in outcome.tensors.items()
            if key.startswith(learned) and key != f"buffers.method.{hyperparameter}"
        ]
        assert any(not torch.allclose(tensor[0], tensor[member], rtol=1e-3, atol=1e-4) for tensor in tensors), (
            hyperparameter
        )
