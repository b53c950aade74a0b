"""Where a loss left the finite numbers: the step, its parts, and the norm of the gradient before."""

import re
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.cases import for_each
from tests.trainables.small import HERE, config_of
from tests.trainables.training.judged import without_seconds
from trainables.contract import Losses
from trainables.methods.variational.vje import VJE
from trainables.reports import Report
from trainables.sections import TrialConfig
from trainables.training import divergence
from trainables.training.cohort import TrainingCohort
from trainables.training.divergence import Divergence, LossWatch, last_measured
from trainables.training.train import Callbacks, Checkpointing, train

SPOILT = 7.0
"""Value of beta of the members whose losses are spoilt."""
KEYS: dict[str, Any] = {"epochs": 5, "report_every": 1, "batch_size": 12}
"""Of ten steps an epoch."""


def spoil(monkeypatch: pytest.MonkeyPatch, at: int, **parts: float) -> None:
    """From step `at` on, counted over all epochs from 0, members with that beta have these values of parts of the loss,
    which are part of their total."""
    made = {"step": -1}
    real_step, real_losses = TrainingCohort.step, VJE.losses

    def step(self: TrainingCohort, epoch: int, number: int, *rest: Any) -> dict[str, Tensor]:
        made["step"] = epoch * self.steps + number
        return real_step(self, epoch, number, *rest)

    def losses(self: VJE, *inputs: Any) -> Losses:
        found = real_losses(self, *inputs)
        if made["step"] < at:
            return found
        bad = self.beta == SPOILT
        odd = {name: torch.where(bad, value, found.parts[name]) for name, value in parts.items()}
        return Losses(torch.where(bad, found.total + sum(parts.values()), found.total), {**found.parts, **odd})

    monkeypatch.setattr(TrainingCohort, "step", step)
    monkeypatch.setattr(VJE, "losses", losses)


def cohort() -> list[TrialConfig]:
    return [config_of(beta=0.5, **KEYS), config_of(beta=SPOILT, **KEYS), config_of(beta=2.0, seed=1, **KEYS)]


def error_of(reports: list[Report], member: int = 1) -> str:
    return str(reports[-1].members[member].error)


@for_each("width", [None, 1])
def test_the_step_and_the_parts_are_those_where_it_began(width: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch, at=43, kl=torch.inf)
    reports = list(train(cohort(), HERE, width=width))
    found = re.fullmatch(
        r"loss was not finite in epoch 5, first at step 4 of 10 \(loss_kl\); "
        r"the norm of its gradient was ([\d.e+-]+) at step 3 of epoch 4",
        error_of(reports),
    )
    assert found and float(found[1]) > 0
    assert [member.status for member in reports[-1].members] == ["finished", "diverged", "finished"]


def test_before_the_first_measurement_there_is_no_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch, at=0, kl=torch.nan)
    assert error_of(list(train(cohort(), HERE))) == "loss was not finite in epoch 1, first at step 1 of 10 (loss_kl)"


def test_the_norm_is_that_of_the_gradient_of_the_member(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of plain gradient descent changes the weights by the gradient times the rate."""
    configs = [config_of(beta=beta, lr=lr, momentum=0.0, weight_decay=0.0, **KEYS) for beta, lr in ((1, 0.5), (7, 0.1))]
    trained = TrainingCohort(configs, HERE, torch.device("cpu"), None)

    def weights(member: int) -> Tensor:
        names = trained._stacks[0].parameters
        tensors = trained.tensors_of(member)
        return torch.cat([tensors[name.removeprefix("method.")].flatten().double() for name in names])

    orders = trained.orders(0)
    trained.begin_epoch(0)
    before = [weights(member) for member in range(2)]
    trained.step(0, 0, orders, 1.0)
    for member, config in enumerate(configs):
        change = float((weights(member) - before[member]).norm())
        lr = float(config.flat()["lr"])  # type: ignore[arg-type]
        assert trained._stacks[0].gradient_norm(member) == pytest.approx(change / lr, rel=1e-3)
    first = trained._stacks[0].gradient_norm(0)
    trained.step(0, 1, orders, 1.0)
    assert trained._stacks[0].gradient_norm(0) == first, "it is measured at every 32nd step alone"


@for_each("looked", [3, 256])
def test_a_training_that_was_cut_off_anywhere_says_the_same(looked: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(divergence, "LOOKED_EVERY", looked)
    spoil(monkeypatch, at=14, kl=torch.inf)
    saved: list[bytes] = []
    whole = list(train(cohort(), HERE, checkpointing=Checkpointing(save=saved.append, every=0.0)))
    assert "first at step 5 of 10 (loss_kl); the norm of its gradient was" in error_of(whole)
    assert len(saved) > 40
    for checkpoint in saved[8:22]:
        resumed = list(train(cohort(), HERE, checkpointing=Checkpointing(checkpoint)))
        assert without_seconds(resumed) == without_seconds(whole)


def test_all_parts_that_left_at_the_same_step_are_named() -> None:
    def losses(**values: float) -> Mapping[str, Tensor]:
        return {name: torch.tensor([0.0, value]) for name, value in values.items()}

    watch, nan = LossWatch({}), float("nan")
    steps = (losses(loss=1.0, a=1.0, b=1.0), losses(loss=nan, a=nan, b=-torch.inf), losses(loss=nan, a=nan, b=nan))
    sums = {name: torch.zeros(2) for name in steps[0]}
    for step, each in enumerate(steps):
        sums = {name: sums[name] + value for name, value in each.items()}
        watch.add(step, each, sums)
    watch.look(sums)
    found = watch.departure(1)
    assert found and (found.step, found.parts) == (1, ("a", "b")) and watch.departure(0) is None


def test_losses_are_looked_at_only_once_their_sum_is_not_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = list[int]()
    monkeypatch.setattr(LossWatch, "_find", lambda self: looked.append(len(self._kept)))
    list(train(cohort(), HERE))
    assert looked == []


@for_each(("step", "measured"), [(0, None), (1, 0), (32, 0), (33, 32), (80, 64)])
def test_the_last_measured_step_lies_before(step: int, measured: int | None) -> None:
    assert last_measured(step) == measured


def test_a_gradient_that_is_not_finite_is_said_where_its_loss_still_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """The derivative of a square root at 0 is infinite, and that of what is multiplied by it is not a number."""
    real = VJE.losses

    def losses(self: VJE, *inputs: Any) -> Losses:
        found = real(self, *inputs)
        root = (found.total - found.total).sqrt() if self.epoch == 1 else 0.0
        return Losses(found.total + root, found.parts)

    monkeypatch.setattr(VJE, "losses", losses)
    with pytest.raises(Divergence, match=r"step 2 of 10 of epoch 2: loss nan.*the gradient was not finite at the step"):
        list(train([config_of(**KEYS)], HERE, callbacks=Callbacks(stop_at_divergence=True)))


def test_a_debugger_stops_at_the_step_with_the_model_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch, at=12, kl=torch.inf)
    callbacks = Callbacks(stop_at_divergence=True)
    line = r"at step 3 of 10 of epoch 2: loss inf.*loss_kl inf.*gradient was .* at the step before"
    with pytest.raises(Divergence, match=line) as raised:
        list(train([config_of(beta=SPOILT, **KEYS)], HERE, callbacks=callbacks))
    frame = raised.traceback[-1].frame
    method, batch, noise = (frame.f_locals[name] for name in ("method", "batch", "noise"))
    assert all(parameter.isfinite().all() for parameter in method.parameters())
    again = method.losses(batch, noise)
    assert again.parts["kl"].isinf() and again.total.isinf()
    monkeypatch.undo()
    assert method.losses(batch, noise).total.isfinite()
