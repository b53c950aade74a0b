"""Alignment and contrast against scipy, loops in numpy, limits and each other; float64 unless a test is about less."""

import math

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cosine
from scipy.special import logsumexp
from torch import Tensor

from tests.cases import for_each
from trainables.losses.similarity import info_nce, info_nce_of, negative_cosine, nt_xent, unit_squared_distance

B, D, M, K = 6, 5, 7, 3
every_loss = pytest.mark.parametrize("loss", [negative_cosine, unit_squared_distance])


@pytest.fixture
def pair() -> tuple[Tensor, Tensor]:
    prediction, target = torch.randn(2, B, D, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 2
    return prediction, target


def _close(actual: Tensor, expected: object, rtol: float = 1e-11, atol: float = 1e-12) -> None:
    torch.testing.assert_close(actual, torch.as_tensor(expected, dtype=actual.dtype), rtol=rtol, atol=atol)


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


TAUS = (0.07, 0.7, 5.0)


@pytest.fixture
def views() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    first, second = torch.randn(2, B, D, dtype=torch.float64, generator=generator) * 3
    return first, second


@pytest.fixture
def queue() -> Tensor:
    return torch.randn(M, D, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def _cosine(x: np.ndarray, y: np.ndarray) -> float:
    return float(x @ y / np.linalg.norm(x) / np.linalg.norm(y))


def _rotation() -> Tensor:
    orthogonal, _ = torch.linalg.qr(torch.randn(D, D, dtype=torch.float64, generator=torch.Generator().manual_seed(2)))
    return orthogonal


@pytest.mark.parametrize("tau", TAUS)
def test_nt_xent_is_the_log_sum_of_all_others_less_the_positive(views: tuple[Tensor, Tensor], tau: float) -> None:
    unit = torch.cat([view / view.norm(dim=1, keepdim=True) for view in views])
    logits = (unit @ unit.T / tau).numpy()
    others = logits[~np.eye(2 * B, dtype=bool)].reshape(2 * B, 2 * B - 1)
    positive = np.concatenate([np.diag(logits, B), np.diag(logits, -B)])
    _close(nt_xent(*views, tau), logsumexp(others, axis=1) - positive)


@pytest.mark.parametrize("tau", TAUS)
def test_nt_xent_is_equation_8_written_as_a_loop(views: tuple[Tensor, Tensor], tau: float) -> None:
    vectors = [row for view in views for row in view.numpy()]
    expected = []
    for i, vector in enumerate(vectors):
        weights = {k: math.exp(_cosine(vector, other) / tau) for k, other in enumerate(vectors) if k != i}
        expected.append(-math.log(weights[(i + B) % (2 * B)] / sum(weights.values())))
    _close(nt_xent(*views, tau), expected)


@pytest.mark.parametrize("tau", TAUS)
def test_info_nce_is_equation_9_written_as_a_loop(views: tuple[Tensor, Tensor], queue: Tensor, tau: float) -> None:
    expected = []
    for query, key in zip(views[0].numpy(), views[1].numpy(), strict=True):
        exponents = [_cosine(query, other) / tau for other in (key, *queue.numpy())]
        expected.append(logsumexp(exponents) - exponents[0])
    _close(info_nce(*views, queue, tau), expected)


@pytest.mark.parametrize("tau", [0.01, 0.5, 100.0])
def test_where_all_are_equal_it_guesses(tau: float) -> None:
    same = torch.tensor([1.0, -2.0, 0.5, 3.0, -1.0], dtype=torch.float64)
    _close(nt_xent(same.expand(B, D), 2 * same.expand(B, D), tau), [math.log(2 * B - 1)] * 2 * B)
    _close(info_nce(same.expand(B, D), 2 * same.expand(B, D), same.expand(M, D), tau), [math.log(M + 1)] * B)


def test_where_it_is_hot_it_guesses(views: tuple[Tensor, Tensor], queue: Tensor) -> None:
    _close(nt_xent(*views, 1e9), [math.log(2 * B - 1)] * 2 * B, atol=1e-8)
    _close(info_nce(*views, queue, 1e9), [math.log(M + 1)] * B, atol=1e-8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_zero_where_the_positive_alone_is_near(dtype: torch.dtype) -> None:
    axes = torch.eye(D, dtype=dtype)
    _close(nt_xent(axes, 5 * axes, 0.01), [0.0] * 2 * D)
    _close(info_nce(axes, 5 * axes, -axes, 0.01), [0.0] * D)
    _close(nt_xent(axes, axes.roll(1, 0), 0.01), [100.0] * 2 * D, rtol=1e-6)
    _close(info_nce(axes, -axes, axes, 0.01), [200.0] * D, rtol=1e-6)


def test_nothing_to_tell_apart_costs_nothing(views: tuple[Tensor, Tensor], queue: Tensor) -> None:
    first, second = views
    _close(nt_xent(first[:1], second[:1], 0.1), [0.0, 0.0])
    _close(info_nce(first, second, queue[:0], 0.1), [0.0] * B)


@pytest.mark.parametrize("tau", [0.07, 2.0])
def test_a_queue_of_the_other_vectors_makes_one_loss_of_the_two(views: tuple[Tensor, Tensor], tau: float) -> None:
    first, second = views
    for i in range(B):
        rest = torch.cat([view[torch.arange(B) != i] for view in views])
        _close(info_nce(first[i : i + 1], second[i : i + 1], rest, tau)[0], nt_xent(first, second, tau)[i])


@pytest.mark.parametrize("tau", [0.07, 0.7])
def test_sees_neither_length_nor_rotation(views: tuple[Tensor, Tensor], queue: Tensor, tau: float) -> None:
    first, second = views
    lengths = torch.linspace(0.01, 50, B, dtype=torch.float64)[:, None]
    for query, key, negatives in (
        (lengths * first, second / lengths, queue * 1e3),
        (first @ _rotation(), second @ _rotation(), queue @ _rotation()),
    ):
        _close(nt_xent(query, key, tau), nt_xent(first, second, tau), rtol=1e-10)
        _close(info_nce(query, key, negatives, tau), info_nce(first, second, queue, tau), rtol=1e-10)


def test_permuting_images_permutes_losses_and_permuting_the_queue_does_nothing(
    views: tuple[Tensor, Tensor], queue: Tensor
) -> None:
    (first, second), order = views, torch.tensor([3, 1, 5, 0, 2, 4])
    moved = nt_xent(first[order], second[order], 0.3)
    _close(moved, nt_xent(first, second, 0.3)[torch.cat([order, order + B])])
    _close(nt_xent(second, first, 0.3), nt_xent(first, second, 0.3).roll(B))
    _close(info_nce(first[order], second[order], queue.flip(0), 0.3), info_nce(first, second, queue, 0.3)[order])
    assert (nt_xent(first[order], second, 0.3) - nt_xent(first, second, 0.3)).abs().max() > 0.1


def test_gradients_equal_finite_differences(views: tuple[Tensor, Tensor], queue: Tensor) -> None:
    inputs = [value.clone().requires_grad_() for value in (*views, queue)]
    tau = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(nt_xent, (*inputs[:2], tau))
    assert torch.autograd.gradcheck(info_nce, (*inputs, tau))


@pytest.mark.parametrize("loss", [nt_xent, info_nce])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_stacked_members_with_their_own_tau_equal_each_alone(loss, dtype: torch.dtype) -> None:
    shapes = [(K, B, D), (K, B, D), (K, M, D)][: 2 if loss is nt_xent else 3]
    generator = torch.Generator().manual_seed(3)
    inputs = [torch.randn(shape, dtype=dtype, generator=generator).requires_grad_() for shape in shapes]
    tau_K = torch.tensor([0.05, 0.5, 5.0])  # float32, as buffers are: it does not change what is computed in
    fused = torch.vmap(loss)(*inputs, tau_K)
    alone = torch.stack([loss(*(value[k] for value in inputs), float(tau_K[k])) for k in range(K)])
    assert fused.dtype == alone.dtype == dtype
    tight = 1e-5 if dtype == torch.float32 else 1e-12
    weights = torch.linspace(-1, 1, fused.numel(), dtype=dtype).view_as(fused)
    torch.testing.assert_close(fused, alone, rtol=tight, atol=tight)
    pairs = (torch.autograd.grad((weights * value).sum(), inputs) for value in (fused, alone))
    for actual, expected in zip(*pairs, strict=True):
        torch.testing.assert_close(actual, expected, rtol=10 * tight, atol=10 * tight)


@for_each("scale", [0.0, 1e-12, 1e-6, 1e6, 1e30])
@for_each("tau", [0.01, 100.0])
def test_extreme_vectors_stay_finite_in_float32_in_contrast(
    views: tuple[Tensor, Tensor], queue: Tensor, scale: float, tau: float
) -> None:
    first, second, many = [(scale * value.float()).requires_grad_() for value in (*views, queue)]
    for loss, inputs in (
        (nt_xent(first, second, tau), (first, second)),
        (nt_xent(first, views[1].float(), tau), (first,)),
        (nt_xent(first, first, tau), (first,)),
        (info_nce(first, second, many, tau), (first, second, many)),
    ):
        assert torch.isfinite(loss).all() and (loss > -1e-4).all()
        assert all(torch.isfinite(slope).all() for slope in torch.autograd.grad(loss.sum(), inputs))


@pytest.mark.parametrize("tau", [0.01, torch.tensor([0.01])])
def test_autocast_does_not_cost_precision(views: tuple[Tensor, Tensor], queue: Tensor, tau: float | Tensor) -> None:
    """Cosines of bfloat16 are off by 0.004; divided by 0.01 that would be 0.4."""
    first, second, negatives = (value.float() for value in (*views, queue))
    expected = nt_xent(*views, float(tau)), info_nce(*views, queue, float(tau))
    with torch.autocast("cpu", torch.bfloat16):
        assert (first @ second.T).dtype == torch.bfloat16
        if isinstance(tau, Tensor):
            actual = torch.vmap(nt_xent, (None, None, 0))(first, second, tau)[0]
            actual_nce = torch.vmap(info_nce, (None, None, None, 0))(first, second, negatives, tau)[0]
        else:
            actual, actual_nce = nt_xent(first, second, tau), info_nce(first, second, negatives, tau)
    for value, exact in zip((actual, actual_nce), expected, strict=True):
        assert value.dtype == torch.float32
        _close(value.double(), exact, rtol=1e-5, atol=1e-4)


def test_inputs_are_left_as_they_were(views: tuple[Tensor, Tensor], queue: Tensor) -> None:
    before = [value.clone() for value in (*views, queue)]
    assert nt_xent(*views, 0.1).shape == (2 * B,) and info_nce(*views, queue, 0.1).shape == (B,)
    assert all(torch.equal(value, old) for value, old in zip((*views, queue), before, strict=True))


@pytest.mark.parametrize("correlation", [0.3, 0.9, 0.999])
def test_info_nce_bounds_mutual_information_from_below(correlation: float) -> None:
    """Of correlated normal numbers, with the logarithm of their density ratio as similarity: log(1 + negatives) less
    the loss exceeds neither the information, which is known, nor log(1 + negatives)."""
    source, queries, negatives = torch.Generator().manual_seed(0), 4000, 63
    x, noise = torch.randn(2, queries, generator=source, dtype=torch.float64)
    y = correlation * x + math.sqrt(1 - correlation**2) * noise
    others = torch.randn(queries, negatives, generator=source, dtype=torch.float64)

    def log_ratio(first: Tensor, second: Tensor) -> Tensor:
        rest = 1 - correlation**2
        distance = (second - correlation * first).square() / rest
        return (second.square() - distance - math.log(rest)) / 2

    loss = info_nce_of(log_ratio(x, y), log_ratio(x[:, None], others))
    bound, information = math.log(1 + negatives) - loss.mean().item(), -math.log(1 - correlation**2) / 2
    error = 3 * loss.std().item() / math.sqrt(queries)
    assert bound <= information + error and bound <= math.log(1 + negatives)
    assert correlation > 0.99 or bound == pytest.approx(information, abs=error + 0.05)
