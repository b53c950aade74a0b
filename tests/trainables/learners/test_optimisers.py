"""The stacked optimisers, against torch's own on each member alone, and their schedules. Shapes: K members."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from trainables.learners.optimisers import LARS_TRUST, StackedAdam, StackedLARS, StackedSGD
from trainables.learners.stack import MakeOptimiser
from trainables.sections import SCHEDULES, Optimiser, constant, cosine, drops, exponential, one_cycle

K, STEPS = 3, 20
SHAPES = ((4, 3), (5,), ())
Rates = tuple[float, ...]


class Kind(NamedTuple):
    """A stacked optimiser, and torch's own."""

    stacked: MakeOptimiser
    torchs: Callable[..., torch.optim.Optimizer]


KINDS = {
    "SGD without momentum": Kind(partial(StackedSGD, momentum=0.0), torch.optim.SGD),
    "SGD": Kind(partial(StackedSGD, momentum=0.9), partial(torch.optim.SGD, momentum=0.9)),
    "Adam": Kind(partial(StackedAdam, epsilon=1e-8), torch.optim.Adam),
    "Adam with a large epsilon": Kind(partial(StackedAdam, epsilon=0.1), partial(torch.optim.Adam, eps=0.1)),
    "AdamW": Kind(partial(StackedAdam, epsilon=1e-8, decoupled=True), torch.optim.AdamW),
}

every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def _start() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(K, *shape, generator=generator) for shape in SHAPES]


def _gradients(step: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(100 + step)
    return [torch.randn(K, *shape, generator=generator) for shape in SHAPES]


def _schedule(step: int) -> float:
    return (1 + math.cos(math.pi * step / STEPS)) / 2 if step != 7 else 0.0


def _assert_torchs(
    parameters: Sequence[Tensor],
    kind: Kind,
    rates_at: Callable[[int], tuple[Rates, Rates]],
    share: Callable[[int], float],
) -> None:
    """`rates_at`: step -> the members' learning rates and weight decays, of whose rates it makes the given share."""
    for member in range(K):
        alone = [value[member].clone().requires_grad_() for value in _start()]
        optimiser = kind.torchs(alone, lr=1.0)
        for step in range(STEPS):
            lr, decay = rates_at(step)
            optimiser.param_groups[0].update(lr=share(step) * lr[member], weight_decay=decay[member])
            for parameter, gradient in zip(alone, _gradients(step), strict=True):
                parameter.grad = gradient[member].clone()
            optimiser.step()
        for value, reference in zip(parameters, alone, strict=True):
            torch.testing.assert_close(value[member], reference.detach(), rtol=1e-5, atol=1e-6)


@every_kind
@pytest.mark.parametrize("lr", [(0.1, 0.1, 0.1), (0.3, 0.01, 0.0)])
@pytest.mark.parametrize("weight_decay", [(0.0, 0.0, 0.0), (0.05, 0.05, 0.05), (0.2, 0.0, 0.01)])
def test_every_member_is_torchs_own(kind: Kind, lr: Rates, weight_decay: Rates) -> None:
    parameters = _start()
    optimiser = kind.stacked(parameters, lr, weight_decay)
    for step in range(STEPS):
        optimiser.step(_gradients(step), _schedule(step))
    _assert_torchs(parameters, kind, lambda step: (lr, weight_decay), _schedule)


@every_kind
@pytest.mark.parametrize("later", [((0.1, 0.1, 0.1), (0.0, 0.0, 0.0)), ((0.05, 0.3, 0.1), (0.0, 0.2, 0.05))])
def test_rates_that_change_midway_are_torchs_with_the_moments_kept(kind: Kind, later: tuple[Rates, Rates]) -> None:
    parameters, first = _start(), ((0.2, 0.01, 0.1), (0.1, 0.0, 0.0))
    optimiser = kind.stacked(parameters, *first)
    for step in range(STEPS):
        if step == 8:
            optimiser.set_rates(*later)
        optimiser.step(_gradients(step), 1.0)
    _assert_torchs(parameters, kind, lambda step: later if step >= 8 else first, lambda step: 1.0)


@every_kind
@pytest.mark.parametrize("lr", [(0.1, 0.1, 0.1), (0.3, 0.01, 0.1)])
def test_a_step_does_not_change_the_gradients(kind: Kind, lr: Rates) -> None:
    optimiser = kind.stacked(_start(), lr, (0.1, 0.0, 0.2))
    for step in range(2):
        gradients = _gradients(step)
        optimiser.step(gradients, 0.5)
        assert all(torch.equal(gradient, drawn) for gradient, drawn in zip(gradients, _gradients(step), strict=True))


@every_kind
@pytest.mark.parametrize("lr", [(0.1, 0.1, 0.1), (0.3, 0.01, 0.1)])
def test_a_diverged_member_affects_no_other(kind: Kind, lr: Rates) -> None:
    clean, spoilt = _start(), _start()
    for parameters, poison in ((clean, 0.0), (spoilt, math.nan)):
        optimiser = kind.stacked(parameters, lr, (0.1, 0.0, 0.2))
        for step in range(3):
            gradients = _gradients(step)
            for gradient in gradients:
                gradient[1] += poison
            optimiser.step(gradients, 1.0)
    for value, reference in zip(spoilt, clean, strict=True):
        assert torch.equal(value[[0, 2]], reference[[0, 2]]) and value[1].isnan().all()


@every_kind
def test_a_cohort_of_equal_rates_may_be_cut_differently(kind: Kind) -> None:
    """The fast path for equal rates and the path for different ones take the same steps."""
    equal, different = _start(), _start()
    for parameters, lr in ((equal, (0.1, 0.1, 0.1)), (different, (0.1, 0.1, 0.7))):
        optimiser = kind.stacked(parameters, lr, (0.05, 0.05, lr[2]))
        for step in range(STEPS):
            optimiser.step(_gradients(step), _schedule(step))
    for value, reference in zip(different, equal, strict=True):
        torch.testing.assert_close(value[:2], reference[:2], rtol=1e-5, atol=1e-6)
        assert not torch.allclose(value[2], reference[2])


@every_kind
@pytest.mark.parametrize("lr", [(0.1, 0.1, 0.1), (0.3, 0.01, 0.1)])
def test_parameters_and_moments_are_all_that_a_new_optimiser_needs(kind: Kind, lr: Rates) -> None:
    parameters, resumed, decay = _start(), [torch.zeros_like(value) for value in _start()], (0.1, 0.0, 0.2)
    first, second = kind.stacked(parameters, lr, decay), kind.stacked(resumed, lr, decay)
    for step in range(8):
        first.step(_gradients(step), _schedule(step))
    for other, value in zip(resumed, parameters, strict=True):
        other.copy_(value)
    for name, moments in first.moments().items():
        assert all(len(moment) == K for moment in moments)
        for other, moment in zip(second.moments()[name], moments, strict=True):
            other.copy_(moment)
    for step in range(8, STEPS):
        first.step(_gradients(step), _schedule(step))
        second.step(_gradients(step), _schedule(step))
    assert all(torch.equal(other, value) for other, value in zip(resumed, parameters, strict=True))


def test_rates_of_double_precision_parameters_are_not_rounded() -> None:
    parameters = [torch.zeros(2, 1, dtype=torch.float64)]
    StackedSGD(parameters, (0.1, 0.3), (0.0, 0.0), 0.0).step([torch.ones(2, 1, dtype=torch.float64)], 1.0)
    assert parameters[0].flatten().tolist() == [-0.1, -0.3]


def test_adams_first_step_is_its_rate_whatever_the_scale_of_the_gradient() -> None:
    """The averages are corrected for their start at zero."""
    parameters = [torch.zeros(2, 2)]
    StackedAdam(parameters, (0.1, 0.3), (0.0, 0.0), 1e-8).step([torch.tensor([[1e-3, -5.0], [2.0, -1e2]])], 0.5)
    torch.testing.assert_close(parameters[0], torch.tensor([[-0.05, 0.05], [-0.15, 0.15]]))


class LARS(torch.optim.Optimizer):
    """One model alone, a parameter at a time, as the authors of Barlow Twins print it."""

    def __init__(self, parameters: Sequence[Tensor], lr: float) -> None:
        super().__init__(parameters, {"lr": lr, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for weight in group["params"]:
                step = weight.grad.double()
                if weight.ndim > 1:
                    step = step + group["weight_decay"] * weight.double()
                    step = step * LARS_TRUST * weight.double().norm() / step.norm()
                velocity = self.state[weight].get("velocity", torch.zeros_like(step)) * 0.9 + step
                self.state[weight]["velocity"] = velocity
                weight -= group["lr"] * velocity


@pytest.mark.parametrize("lr", [(30.0, 30.0, 30.0), (30.0, 10.0, 0.0)])
def test_lars_is_that_of_each_member_alone(lr: Rates) -> None:
    """Its weights are scaled and decayed, its vectors and scalars are neither."""
    parameters, decay = _start(), (0.2, 0.0, 0.01)
    optimiser = StackedLARS(parameters, lr, decay, 0.9)
    for step in range(STEPS):
        optimiser.step(_gradients(step), _schedule(step))
    _assert_torchs(parameters, Kind(optimiser, LARS), lambda step: (lr, decay), _schedule)  # type: ignore[arg-type]


@every_kind
@pytest.mark.parametrize("limits", [(0.5, 0.5, 0.5), (0.1, math.inf, 100.0)])
def test_gradients_are_clipped_as_those_of_each_member_alone(kind: Kind, limits: Rates) -> None:
    parameters, rates = _start(), ((0.1, 0.3, 0.2), (0.1, 0.0, 0.2))
    optimiser = kind.stacked(parameters, *rates)
    optimiser.set_rates(*rates, limits)
    for step in range(STEPS):
        optimiser.step(_gradients(step), 1.0)
    for member, limit in enumerate(limits):
        alone = [value[member].clone().requires_grad_() for value in _start()]
        torchs = kind.torchs(alone, lr=rates[0][member], weight_decay=rates[1][member])
        for step in range(STEPS):
            for parameter, gradient in zip(alone, _gradients(step), strict=True):
                parameter.grad = gradient[member].clone()
            torch.nn.utils.clip_grad_norm_(alone, limit)
            torchs.step()
        for value, reference in zip(parameters, alone, strict=True):
            torch.testing.assert_close(value[member], reference.detach(), rtol=1e-5, atol=1e-6)


@every_kind
def test_a_member_that_clips_changes_no_bit_of_another(kind: Kind) -> None:
    plain, clipped = _start(), _start()
    for parameters, limits in ((plain, ()), (clipped, (0.1, math.inf, math.inf))):
        optimiser = kind.stacked(parameters, (0.1, 0.3, 0.2), (0.1, 0.0, 0.2))
        optimiser.set_rates((0.1, 0.3, 0.2), (0.1, 0.0, 0.2), limits)
        for step in range(STEPS):
            optimiser.step(_gradients(step), 1.0)
    for value, reference in zip(clipped, plain, strict=True):
        assert torch.equal(value[1:], reference[1:])


@every_kind
@pytest.mark.parametrize("lr", [(0.1, 0.1, 0.1), (0.3, 0.01, 0.1)])
def test_members_may_have_schedules_of_their_own(kind: Kind, lr: Rates) -> None:
    shares = torch.tensor([1.0, 0.5, 0.1], dtype=torch.float64)
    own, folded, decay = _start(), _start(), (0.1, 0.0, 0.2)
    first = kind.stacked(own, lr, decay)
    second = kind.stacked(folded, [share * rate for share, rate in zip(shares.tolist(), lr, strict=True)], decay)
    for step in range(STEPS):
        first.step(_gradients(step), shares)
        second.step(_gradients(step), 1.0)
    for value, reference in zip(own, folded, strict=True):
        torch.testing.assert_close(value, reference, rtol=1e-5, atol=1e-6)


def _of_torch(make: Callable[[torch.optim.Optimizer], torch.optim.lr_scheduler.LRScheduler], steps: int) -> list[float]:
    """The rates of a scheduler of torch, of which the peak is 1."""
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    scheduler, rates = make(optimiser), list[float]()
    for _ in range(steps):
        rates.append(float(scheduler.get_last_lr()[0]))
        optimiser.step()
        scheduler.step()
    return rates


def test_schedules_of_epochs_are_those_of_torch() -> None:
    """Each epoch has 4 steps."""
    stepped = _of_torch(lambda optimiser: torch.optim.lr_scheduler.StepLR(optimiser, 3, 0.5), 10)
    falling = _of_torch(lambda optimiser: torch.optim.lr_scheduler.ExponentialLR(optimiser, 0.9), 10)
    for step in range(40):
        assert drops(step, 40, gamma=0.5, drop=12) == pytest.approx(stepped[step // 4], abs=1e-12)
        assert exponential(step, 40, gamma=0.9, per_epoch=4) == pytest.approx(falling[step // 4], abs=1e-12)


@pytest.mark.parametrize("steps", [10, 50, 57])
def test_one_cycle_is_that_of_torch(steps: int) -> None:
    rates = _of_torch(lambda optimiser: torch.optim.lr_scheduler.OneCycleLR(optimiser, 1.0, steps), steps)
    assert [one_cycle(step, steps) for step in range(steps)] == pytest.approx(rates, abs=1e-12)


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_one_cycle_of_few_steps_is_in_its_range(steps: int) -> None:
    assert all(0 < one_cycle(step, steps) <= 1 for step in range(steps))


def test_half_cosine_is_that_of_torch() -> None:
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    reference = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=50)
    for step in range(50):
        assert cosine(step, 50) == pytest.approx(reference.get_last_lr()[0], abs=1e-12)
        optimiser.step()
        reference.step()


def test_values_without_warmup() -> None:
    actual = [cosine(step, 4) for step in range(5)]
    assert actual == pytest.approx([1, 0.5 + math.sqrt(0.125), 0.5, 0.5 - math.sqrt(0.125), 0])
    assert [constant(step, 4) for step in range(5)] == [1.0] * 5


@pytest.mark.parametrize("name", sorted(SCHEDULES.keys() - {"one_cycle"}))
def test_warmup_rises_linearly_to_the_peak_then_the_schedule_takes_over(name: str) -> None:
    schedule = SCHEDULES[name]
    assert [schedule(step, 14, 10) for step in range(11)] == pytest.approx([step / 10 for step in range(11)])
    assert [schedule(10 + step, 14, 10) for step in range(5)] == pytest.approx([schedule(step, 4) for step in range(5)])


def test_a_trial_can_ask_for_every_schedule_and_no_other() -> None:
    assert [Optimiser(lr_schedule=name).lr_schedule for name in SCHEDULES] == list(SCHEDULES)
    with pytest.raises(ValueError, match=rf"no lr_schedule 'linear'; there are: {', '.join(SCHEDULES)}$"):
        Optimiser(lr_schedule="linear")
