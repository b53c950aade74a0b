"""A cohort whose members leave or move: their stacks, their streams, and no effect on the other members; its initial
models, one for all members with equal data and seeds; its noise, of each stream, epoch, step and purpose its own.

The cohorts are `six`: members of the streams 0, 1, 0, 1, 2, 2.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.cases import for_each
from tests.trainables.small import HERE
from tests.trainables.tasks.pairs_methods import GaussianMLP
from tests.trainables.training.judged import float64, members_of, six, smooth
from trainables.config import resolve, stream_key
from trainables.contract import Batch, Losses, Noise, Noises
from trainables.learners import data_parallel
from trainables.learners.members import StackedMembers
from trainables.reports import Move
from trainables.sections import TrialConfig, Value
from trainables.tasks.images import stream
from trainables.training.cohort import TrainingCohort
from trainables.training.stacks import build_models, build_stack

pytestmark = pytest.mark.usefixtures("pairs")

CPU = torch.device("cpu")
MOVED = {"lr": 0.03, "weight_decay": 0.05, "beta": 2.5, "nu": 3.0}


def _cohort(configs: list[TrialConfig], width: int | None = None, epochs: int = 0) -> TrainingCohort:
    cohort = TrainingCohort(configs, HERE, CPU, width)
    for epoch in range(epochs):
        cohort.epoch(epoch)
    return cohort


def _assert_same(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    for name, tensor in expected.items():
        torch.testing.assert_close(actual[name], tensor, rtol=1e-8, atol=1e-9)


@pytest.mark.slow
@for_each(("stay", "width"), [((1, 4), None), ((0, 2, 3, 5), 4), ((3,), 2), ((3,), 1), ((0, 1, 2, 3, 4), 2)])
def test_remaining_members_train_on_as_if_none_had_left(
    stay: tuple[int, ...], width: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with float64(monkeypatch):
        whole, cohort = (_cohort(six(), width, epochs=1) for _ in range(2))
        cohort.keep(stay)
        assert cohort.members == stay
        expected, losses = whole.epoch(1), cohort.epoch(1)
        for name, of in expected.items():
            np.testing.assert_allclose(losses[name], of[list(stay)], rtol=1e-8, atol=1e-9)
        expected, metrics = whole.evaluate(last=True), cohort.evaluate(last=True)
        assert metrics.keys() == expected.keys()
        for name, of in expected.items():
            np.testing.assert_allclose(metrics[name], of[list(stay)], rtol=1e-8, atol=1e-9)
        for index in stay:
            _assert_same(members_of(cohort)[index], members_of(whole)[index])


def test_members_of_different_classes_have_their_own_outliers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each class has its own mask of outliers among the test images."""
    configs = [smooth(normal_class=normal, batch_size=100) for normal in (0, 6, 8)]
    with float64(monkeypatch):
        cohort = _cohort(configs, epochs=1)
        whole = cohort.evaluate(last=False)
        cohort.keep([1, 2])
        for name, of in cohort.evaluate(last=False).items():
            np.testing.assert_allclose(of, whole[name][1:], rtol=1e-8)
    assert len(set(whole["auroc_joint"].tolist())) == 3


def test_members_of_different_training_images_train_as_they_do_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as an epoch has equally many steps, here one."""
    changes: list[dict[str, Value]] = [
        {},
        {"normal_images": 80},
        {"contamination": 0.1},
        {"normal_images": 80, "seed": 1},
    ]
    configs = [smooth(normal_class=3, batch_size=72, **own) for own in changes]
    with float64(monkeypatch):
        together = _cohort(configs, epochs=2)
        alone = [_cohort([config], epochs=2) for config in configs]
        metrics = together.evaluate(last=True)
        assert len(set(metrics["auroc_joint"].tolist())) == 4
        for index, cohort in enumerate(alone):
            for name, of in cohort.evaluate(last=True).items():
                np.testing.assert_allclose(metrics[name][index], of[0], rtol=1e-8, atol=1e-9)


@for_each("width", [1, 2, 4, 6])
def test_remaining_members_fill_as_few_stacks_as_possible(width: int) -> None:
    """However few are left, down to none."""
    cohort = _cohort(six(), width)
    for stay in ((0, 1, 3, 4, 5), (1, 4, 5), (1, 5), (5,), ()):
        cohort.keep(stay)
        _assert_as_few_stacks_as_possible(cohort, len(stay), width)


def _assert_as_few_stacks_as_possible(cohort: TrainingCohort, members: int, width: int) -> None:
    sizes = [len(state["rates"]["lr"]) for state in cohort.state()]
    assert len(sizes) == -(-members // width) and sum(sizes) == members and all(size <= width for size in sizes)


def _drawn(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """What streams draw from now on: which kind, of which seed."""
    drawn: list[tuple[str, int]] = []
    real = data_parallel.seeded_generator

    def generator(*key: Any) -> torch.Generator:
        drawn.append((key[0], key[1][2]))
        return real(*key)

    for module in (data_parallel, stream):
        monkeypatch.setattr(module, "seeded_generator", generator)
    return drawn


@pytest.mark.parametrize(("stay", "seeds"), [((0, 1, 5), {0, 1, 2}), ((0, 2, 4), {0, 2}), ((1,), {1})])
def test_streams_without_members_are_dropped(
    stay: tuple[int, ...], seeds: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    cohort = _cohort(six(), width=2)
    cohort.keep(stay)
    drawn = _drawn(monkeypatch)
    cohort.epoch(0)
    assert {kind: {seed for drawn_kind, seed in drawn if drawn_kind == kind} for kind, _ in drawn} == dict.fromkeys(
        ("order", "views", "noise"), seeds
    )


def test_a_last_remaining_member_runs_without_vmap(monkeypatch: pytest.MonkeyPatch) -> None:
    cohort = _cohort(six())
    cohort.keep([3])
    monkeypatch.delattr(torch, "vmap")
    cohort.epoch(0)
    assert cohort.evaluate(last=True)["auroc_joint"].shape == (1,)


def test_keeping_all_members_does_not_change_the_stacks() -> None:
    cohort = _cohort(six(), width=4)
    before = cohort._stacks
    cohort.keep(range(6))
    assert cohort._stacks is before


@for_each(("source", "width"), [(0, None), (5, None), (2, 1), (0, 2), (5, 2)])
def test_a_moved_member_has_the_weights_of_its_source_and_its_new_hyperparameters(
    source: int, width: int | None
) -> None:
    cohort = _cohort(six(), width, epochs=1)
    before = members_of(cohort)
    cohort.move({1: Move(source, MOVED)})
    after = members_of(cohort)
    for index in (0, 2, 3, 4, 5):
        assert all(torch.equal(tensor, before[index][name]) for name, tensor in after[index].items())
    own = {"buffers.method.beta": 2.5, "buffers.method.nu": 3.0, "rates.lr": 0.03, "rates.weight_decay": 0.05}
    for name, tensor in after[1].items():
        if name in own:
            torch.testing.assert_close(tensor.item(), own[name], rtol=1e-7, atol=0.0)
        else:
            assert torch.equal(tensor, before[source][name]), name
    assert any(not torch.equal(tensor, before[1][name]) for name, tensor in after[1].items() if name not in own)


def test_a_moved_member_keeps_its_other_hyperparameters() -> None:
    cohort = _cohort(six(), epochs=1)
    cohort.move({1: Move(4, {"lr": 0.03})})
    own = members_of(cohort)[1]
    assert own["buffers.method.beta"].item() == pytest.approx(0.8)
    assert own["rates.weight_decay"].item() == 0.002 and own["rates.lr"].item() == 0.03


@pytest.mark.parametrize("width", [None, 2])
def test_sources_are_copied_as_they_were_before_any_move(width: int | None) -> None:
    """Two members change places, and a third follows one of them."""
    cohort = _cohort(six(), width, epochs=1)
    before = members_of(cohort)
    cohort.move({0: Move(3, {}), 3: Move(0, {}), 4: Move(3, {})})
    after = members_of(cohort)
    for index, source in ((0, 3), (3, 0), (4, 3)):
        for name in (name for name in before[source] if name.startswith(("parameters", "velocity"))):
            assert torch.equal(after[index][name], before[source][name])


@for_each("width", [None, 2])
def test_a_moved_member_trains_like_one_that_always_had_its_state(
    width: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads its own stream still: against a cohort of one, set up with the source's weights and momentum."""
    with float64(monkeypatch):
        cohort = _cohort(six(), width, epochs=1)
        source = members_of(cohort)[2]
        cohort.move({5: Move(2, MOVED)})
        alone = _cohort([smooth(seed=2, **MOVED)])
        assert stream_key(smooth(seed=2)) == stream_key(six()[5])
        (state,) = alone.state()
        hyper = {"method.beta", "method.nu"}
        alone.load_state(
            [
                {
                    kind: {
                        name: tensor if kind == "rates" or name in hyper else source[f"{kind}.{name}"][None]
                        for name, tensor in tensors.items()
                    }
                    for kind, tensors in state.items()
                }
            ]
        )
        for epoch in (1, 2):
            np.testing.assert_allclose(cohort.epoch(epoch)["loss"][5], alone.epoch(epoch)["loss"][0], rtol=1e-8)
        _assert_same(members_of(cohort)[5], members_of(alone)[0])


@pytest.mark.parametrize(("index", "move"), [(1, Move(2, {})), (2, Move(1, {})), (7, Move(1, {})), (1, Move(7, {}))])
def test_only_members_still_in_the_cohort_can_move(index: int, move: Move) -> None:
    cohort = _cohort(six())
    cohort.keep([0, 1, 5])
    with pytest.raises(
        ValueError,
        match=rf"^a member can only copy another running member, but got {index} copying {move.source}; .*: 0, ",
    ):
        cohort.move({index: move})


def test_load_state_restores_the_rates() -> None:
    """Moves change them, and a new cohort of the same configs knows nothing of that."""
    cohort, other = (_cohort(six(), width=4, epochs=epochs) for epochs in (1, 0))
    cohort.move({1: Move(4, MOVED), 5: Move(0, {"lr": 1 / 3, "weight_decay": 0.1})})
    for either in (cohort, other):
        either.keep([1, 3, 5])
    other.load_state(cohort.state())
    assert cohort.epoch(1)["loss"].tolist() == other.epoch(1)["loss"].tolist()
    for index, tensors in members_of(cohort).items():
        assert all(torch.equal(tensor, members_of(other)[index][name]) for name, tensor in tensors.items())
    assert members_of(other)[5]["rates.lr"].item() == 1 / 3


VALUES = ((0.5, 3.0), (2.0, 7.0), (0.5, 0.1))
"""Beta and nu of each member."""


def _stack() -> StackedMembers:
    shared: dict[str, Value] = {"method": "vje", "normal_class": 3, "width": 8, "features": 4, "bottleneck": 4}
    configs = [resolve({**shared, "beta": beta, "nu": nu}) for beta, nu in VALUES]
    return build_stack(build_models(configs, SHAPES), configs, [0] * len(configs), torch.device("cpu"))


def test_each_member_has_its_own_fusible_hyperparameters() -> None:
    buffers = _stack().buffers
    values = zip(buffers["method.beta"], buffers["method.nu"], strict=True)
    assert [(beta.item(), nu.item()) for beta, nu in values] == [(beta, torch.tensor(nu).item()) for beta, nu in VALUES]


def test_members_start_with_equal_weights_that_are_their_own() -> None:
    stack = _stack()
    for name, weight_K in stack.parameters.items():
        assert torch.equal(weight_K[0], weight_K[1])
        with torch.no_grad():
            weight_K[0] += 1
        assert not torch.equal(weight_K[0], weight_K[1]), name


SHAPES = {"views": (1, 8, 8)}


def _config(**changes: Value) -> TrialConfig:
    given: dict[str, Value] = {"method": "vje", "normal_class": 3, "width": 8, "features": 4, "bottleneck": 4}
    return resolve({**given, **changes})


def test_members_of_one_stream_share_one_model() -> None:
    first, second, third = build_models([_config(beta=0.5), _config(beta=2.0, nu=7.0), _config(seed=1)], SHAPES)
    assert first is second
    assert not any(torch.equal(a, b) for a, b in zip(first.parameters(), third.parameters(), strict=True) if a.ndim > 1)


def test_weights_do_not_depend_on_the_cohort_or_on_torchs_own_generator() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    together = build_models([_config(seed=1), _config()], SHAPES)[1]
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(2)
    (alone,) = build_models([_config()], SHAPES)
    assert all(torch.equal(a, b) for a, b in zip(together.parameters(), alone.parameters(), strict=True))


def test_the_generators_of_accelerators_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    seeded: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded.append)
    build_models([_config()], SHAPES)
    assert not seeded


class Recorder:
    """Keeps the noise of every call of `losses` and `after_step`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.losses: list[Tensor] = []
        self.after_step: list[Tensor] = []
        compute_losses = GaussianMLP.losses

        def losses(model: GaussianMLP, batch: Batch, noise: Mapping[str, Tensor]) -> Losses:
            self.losses.append(noise["jitter"])
            return compute_losses(model, batch, noise)

        def after_step_noise(model: GaussianMLP) -> Noises:
            return {"jitter": Noise((60, 1), kind="uniform")}

        def after_step(model: GaussianMLP, noise: Mapping[str, Tensor]) -> None:
            self.after_step.append(noise["jitter"])

        monkeypatch.setattr(GaussianMLP, "losses", losses)
        monkeypatch.setattr(GaussianMLP, "after_step_noise", after_step_noise)
        monkeypatch.setattr(GaussianMLP, "after_step", after_step)


def _train(epochs: int, seeds: tuple[int, ...]) -> None:
    """Members in stacks of one, whose methods see plain tensors; two steps an epoch."""
    configs = [resolve({"method": "gaussian_mlp", "examples": 120, "batch_size": 60, "seed": seed}) for seed in seeds]
    cohort = TrainingCohort(configs, HERE, torch.device("cpu"), width=1)
    for epoch in range(epochs):
        cohort.epoch(epoch)


def test_every_stream_epoch_step_and_purpose_has_its_own_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(monkeypatch)
    _train(epochs=2, seeds=(0, 1))
    noises = [*recorder.losses, *recorder.after_step]
    assert len(noises) == 2 * 2 * 2 * 2 and {noise.shape for noise in noises} == {(60, 1)}
    assert not any(torch.equal(noises[i], noises[j]) for i in range(len(noises)) for j in range(i))


def test_members_of_one_stream_share_their_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(monkeypatch)
    _train(epochs=1, seeds=(3, 3))
    for noises in (recorder.losses, recorder.after_step):
        assert len(noises) == 4 and torch.equal(noises[0], noises[1]) and torch.equal(noises[2], noises[3])
