import math

import pytest
import torch
from torch import Tensor

from trainables.learners.optimisers import StackedSGD

K, STEPS = 3, 20
SHAPES = ((4, 3), (5,), ())


def _start() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(K, *shape, generator=generator) for shape in SHAPES]


def _gradients(step: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(100 + step)
    return [torch.randn(K, *shape, generator=generator) for shape in SHAPES]


def _schedule(step: int) -> float:
    return (1 + math.cos(math.pi * step / STEPS)) / 2 if step != 7 else 0.0


def _by_torch(member: int, lr: float, weight_decay: float, momentum: float) -> list[Tensor]:
    parameters = [value[member].clone().requires_grad_() for value in _start()]
    sgd = torch.optim.SGD(parameters, lr=lr, weight_decay=weight_decay, momentum=momentum)
    for step in range(STEPS):
        for parameter, gradient in zip(parameters, _gradients(step), strict=True):
            parameter.grad = gradient[member].clone()
        sgd.param_groups[0]["lr"] = lr * _schedule(step)
        sgd.step()
    return [parameter.detach() for parameter in parameters]


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("lr", [(0.1, 0.1, 0.1), (0.3, 0.01, 0.0)])
@pytest.mark.parametrize("weight_decay", [(0.0, 0.0, 0.0), (0.05, 0.05, 0.05), (0.2, 0.0, 0.01)])
def test_every_member_is_torchs_sgd(lr: tuple[float, ...], weight_decay: tuple[float, ...], momentum: float) -> None:
    parameters = _start()
    optimiser = StackedSGD(parameters, lr, weight_decay, momentum)
    for step in range(STEPS):
        optimiser.step(_gradients(step), _schedule(step))
    for member in range(K):
        expected = _by_torch(member, lr[member], weight_decay[member], momentum)
        for value, reference in zip(parameters, expected, strict=True):
            torch.testing.assert_close(value[member], reference, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("lr", [(0.1, 0.1, 0.1), (0.3, 0.01, 0.1)])
def test_a_step_does_not_change_the_gradients(lr: tuple[float, ...]) -> None:
    optimiser = StackedSGD(_start(), lr, (0.1, 0.0, 0.2), 0.9)
    for step in range(2):
        gradients = _gradients(step)
        optimiser.step(gradients, 0.5)
        assert all(torch.equal(gradient, drawn) for gradient, drawn in zip(gradients, _gradients(step), strict=True))


@pytest.mark.parametrize("lr", [(0.1, 0.1, 0.1), (0.3, 0.01, 0.1)])
def test_a_diverged_member_affects_no_other(lr: tuple[float, ...]) -> None:
    clean, spoilt = _start(), _start()
    for parameters, poison in ((clean, 0.0), (spoilt, math.nan)):
        optimiser = StackedSGD(parameters, lr, (0.1, 0.0, 0.2), 0.9)
        for step in range(3):
            gradients = _gradients(step)
            for gradient in gradients:
                gradient[1] += poison
            optimiser.step(gradients, 1.0)
    for value, reference in zip(spoilt, clean, strict=True):
        assert torch.equal(value[[0, 2]], reference[[0, 2]]) and value[1].isnan().all()


def test_a_cohort_of_equal_rates_may_be_cut_differently() -> None:
    """The fast path for equal rates and the path for different ones take the same steps."""
    equal, different = _start(), _start()
    for parameters, lr in ((equal, (0.1, 0.1, 0.1)), (different, (0.1, 0.1, 0.7))):
        optimiser = StackedSGD(parameters, lr, (0.05, 0.05, lr[2]), 0.9)
        for step in range(STEPS):
            optimiser.step(_gradients(step), _schedule(step))
    for value, reference in zip(different, equal, strict=True):
        torch.testing.assert_close(value[:2], reference[:2], rtol=1e-5, atol=1e-6)
        assert not torch.allclose(value[2], reference[2])


@pytest.mark.parametrize("later", [((0.1, 0.1, 0.1), (0.0, 0.0, 0.0)), ((0.05, 0.3, 0.1), (0.0, 0.2, 0.05))])
def test_rates_that_change_midway_are_torchs_with_the_momentum_kept(later: tuple[tuple[float, ...], ...]) -> None:
    parameters, first = _start(), ((0.2, 0.01, 0.1), (0.1, 0.0, 0.0))
    optimiser = StackedSGD(parameters, *first, 0.9)
    for step in range(STEPS):
        if step == 8:
            optimiser.set_rates(*later)
        optimiser.step(_gradients(step), 1.0)
    for member in range(K):
        alone = [value[member].clone().requires_grad_() for value in _start()]
        sgd = torch.optim.SGD(alone, lr=1.0, momentum=0.9)
        for step in range(STEPS):
            lr, decay = later if step >= 8 else first
            sgd.param_groups[0].update(lr=lr[member], weight_decay=decay[member])
            for parameter, gradient in zip(alone, _gradients(step), strict=True):
                parameter.grad = gradient[member].clone()
            sgd.step()
        for value, reference in zip(parameters, alone, strict=True):
            torch.testing.assert_close(value[member], reference.detach(), rtol=1e-5, atol=1e-6)


def test_rates_of_double_precision_parameters_are_not_rounded() -> None:
    parameters = [torch.zeros(2, 1, dtype=torch.float64)]
    StackedSGD(parameters, (0.1, 0.3), (0.0, 0.0), 0.0).step([torch.ones(2, 1, dtype=torch.float64)], 1.0)
    assert parameters[0].flatten().tolist() == [-0.1, -0.3]
