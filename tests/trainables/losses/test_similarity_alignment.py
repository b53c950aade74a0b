"""Against scipy's cosine distance, the angle between vectors, and each other; float64 unless a test is about less."""

import math

import pytest
import torch
from scipy.spatial.distance import cosine
from torch import Tensor

from trainables.losses.similarity import negative_cosine, unit_squared_distance

B, D, K = 6, 5, 3
every_loss = pytest.mark.parametrize("loss", [negative_cosine, unit_squared_distance])


@pytest.fixture
def pair() -> tuple[Tensor, Tensor]:
    prediction, target = torch.randn(2, B, D, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 2
    return prediction, target


def _close(actual: Tensor, expected: object, atol: float = 1e-12) -> None:
    torch.testing.assert_close(actual, torch.as_tensor(expected, dtype=actual.dtype), rtol=1e-11, atol=atol)


def test_both_equal_scipy(pair: tuple[Tensor, Tensor]) -> None:
    distance = torch.tensor([cosine(p, t) for p, t in zip(*(value.numpy() for value in pair), strict=True)])
    _close(negative_cosine(*pair), distance - 1)
    _close(unit_squared_distance(*pair), 2 * distance)


def test_one_is_the_other_doubled_and_shifted(pair: tuple[Tensor, Tensor]) -> None:
    inputs = [value.clone().requires_grad_() for value in pair]
    simsiam, byol = negative_cosine(*inputs), unit_squared_distance(*inputs)
    _close(byol.detach(), 2 + 2 * simsiam.detach())
    slopes = (torch.autograd.grad(value.sum(), inputs) for value in (simsiam, byol))
    for simsiam_slope, byol_slope in zip(*slopes, strict=True):
        assert simsiam_slope.abs().max() > 0.01
        _close(byol_slope, 2 * simsiam_slope)


@pytest.mark.parametrize("angle", [0.0, 0.3, math.pi / 2, 2.0, math.pi])
def test_depends_on_the_angle_alone(angle: float) -> None:
    prediction = torch.tensor([[0.1, 0.0], [7.0, 0.0]], dtype=torch.float64)
    target = torch.tensor([[math.cos(angle), math.sin(angle)]], dtype=torch.float64) * torch.tensor([[3.0], [0.02]])
    _close(negative_cosine(prediction, target), [-math.cos(angle)] * 2)
    _close(unit_squared_distance(prediction, target), [(2 * math.sin(angle / 2)) ** 2] * 2)


def test_a_small_distance_keeps_its_digits_in_float32() -> None:
    """`2 - 2 cos` of an angle of 1e-4 would be 0 in float32."""
    prediction, target = torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 1e-4]])
    assert unit_squared_distance(prediction, target).item() == pytest.approx(1e-8, rel=1e-3)
    assert negative_cosine(prediction, target).item() == -1


@every_loss
def test_symmetric_and_blind_to_rotation_and_order(loss, pair: tuple[Tensor, Tensor]) -> None:
    prediction, target = pair
    rotation, _ = torch.linalg.qr(prediction.T[:, :D])
    _close(loss(target, prediction), loss(prediction, target))
    _close(loss(prediction @ rotation, target @ rotation), loss(prediction, target))
    _close(loss(prediction.flip(0), target.flip(0)), loss(prediction, target).flip(0))
    assert (loss(prediction.flip(0), target) - loss(prediction, target)).abs().max() > 0.1


@every_loss
def test_gradients_equal_finite_differences_and_do_not_change_length(loss, pair: tuple[Tensor, Tensor]) -> None:
    inputs = [value.clone().requires_grad_() for value in pair]
    assert torch.autograd.gradcheck(loss, inputs)
    for value, slope in zip(inputs, torch.autograd.grad(loss(*inputs).sum(), inputs), strict=True):
        assert slope.abs().max() > 0.01
        _close((value * slope).sum(-1).detach(), [0.0] * B)


@every_loss
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_stacked_members_equal_each_alone(loss, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(3)
    inputs = [torch.randn(K, B, D, dtype=dtype, generator=generator).requires_grad_() for _ in range(2)]
    fused = torch.vmap(loss)(*inputs)
    alone = torch.stack([loss(*(value[k] for value in inputs)) for k in range(K)])
    assert fused.dtype == dtype and fused.shape == (K, B)
    torch.testing.assert_close(fused, alone)
    weights = torch.linspace(-1, 1, fused.numel(), dtype=dtype).view_as(fused)
    pairs = (torch.autograd.grad((weights * value).sum(), inputs) for value in (fused, alone))
    for actual, expected in zip(*pairs, strict=True):
        torch.testing.assert_close(actual, expected)


@every_loss
@pytest.mark.parametrize("scale", [0.0, 1e-12, 1e-6, 1e6, 1e30])
def test_extreme_vectors_stay_finite_in_float32(loss, pair: tuple[Tensor, Tensor], scale: float) -> None:
    prediction, target = (value.float() for value in pair)
    for scaled in ((scale * prediction, target), (prediction, scale * target), (scale * prediction, scale * target)):
        inputs = [value.clone().requires_grad_() for value in scaled]
        value = loss(*inputs)
        assert torch.isfinite(value).all()
        assert all(torch.isfinite(slope).all() for slope in torch.autograd.grad(value.sum(), inputs))


@every_loss
def test_stops_no_gradient_and_leaves_inputs_as_they_were(loss, pair: tuple[Tensor, Tensor]) -> None:
    before = [value.clone() for value in pair]
    prediction, target = (value.requires_grad_() for value in pair)
    (slope,) = torch.autograd.grad(loss(prediction, target).sum(), target)
    assert slope.abs().max() > 0.01
    (stopped,) = torch.autograd.grad(loss(prediction, target.detach()).sum(), prediction)
    _close(stopped, torch.autograd.grad(loss(prediction, target).sum(), prediction)[0])
    assert all(torch.equal(value, old) for value, old in zip(pair, before, strict=True))
