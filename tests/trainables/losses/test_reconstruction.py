"""Likelihoods of images against scipy, in float64. Shapes: B images, J views of each, C channels, H by W pixels."""

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from scipy import stats
from torch import Tensor

from tests.trainables.losses.samples import close
from trainables.losses.densities import bernoulli_reconstruction, gaussian_reconstruction

B, J, SHAPE = 5, 2, (3, 2, 4)
GENERATOR = torch.Generator().manual_seed(0)
IMAGES = torch.rand(B, J, *SHAPE, dtype=torch.float64, generator=GENERATOR)
LOGITS = 3 * torch.randn(B, J, *SHAPE, dtype=torch.float64, generator=GENERATOR)

Loss = Callable[[Tensor, Tensor, float | Tensor], Tensor]
both_losses = pytest.mark.parametrize("loss", [gaussian_reconstruction, bernoulli_reconstruction])


@pytest.mark.parametrize("sigma2", [0.01005, 0.02, 1.0])
def test_gaussian_is_a_density_of_the_pixels(sigma2: float) -> None:
    mean = LOGITS.sigmoid()
    log_density = stats.norm.logpdf(IMAGES.numpy(), mean.numpy(), math.sqrt(sigma2)).sum((-3, -2, -1))
    constant = math.prod(SHAPE) / 2 * math.log(2 * math.pi * sigma2)
    close(gaussian_reconstruction(IMAGES, mean, sigma2) + constant, -log_density, rtol=1e-9)


@pytest.mark.parametrize("divisor", [0.01005, 1.0])
def test_bernoulli_is_the_mass_of_binary_pixels(divisor: float) -> None:
    binary = (IMAGES > 0.5).double()
    log_mass = stats.bernoulli.logpmf(binary.numpy(), LOGITS.sigmoid().numpy()).sum((-3, -2, -1))
    close(bernoulli_reconstruction(binary, LOGITS, divisor), -log_mass / divisor, rtol=1e-9)


def test_grey_pixels_mix_the_two_outcomes() -> None:
    """Cross-entropy is linear in the pixel."""
    white, black = (bernoulli_reconstruction(torch.full_like(IMAGES, value), LOGITS, 1.0) for value in (1.0, 0.0))
    close(bernoulli_reconstruction(torch.full_like(IMAGES, 0.3), LOGITS, 1.0), 0.3 * white + 0.7 * black)


def test_both_are_least_at_the_images_themselves() -> None:
    inside = IMAGES.clamp(0.1, 0.9)
    logits = inside.logit().requires_grad_()
    for value in (
        gaussian_reconstruction(inside, logits.sigmoid(), 0.02),
        bernoulli_reconstruction(inside, logits, 0.01005),
    ):
        (slope,) = torch.autograd.grad(value.sum(), logits)
        assert slope.abs().max() < 1e-11
    assert torch.equal(gaussian_reconstruction(inside, inside, 0.02), torch.zeros(B, J, dtype=torch.float64))


def test_certain_logits_stay_finite_in_float32() -> None:
    """A saturated sigmoid has no logarithm in float32, but its logit has a loss."""
    logits = torch.tensor([200.0, -200.0, 1e4, -1e4]).reshape(4, 1, 1, 1).requires_grad_()
    wrong = (logits < 0).float()
    loss = bernoulli_reconstruction(wrong, logits, 1.0)
    close(loss, [200.0, 200.0, 1e4, 1e4])
    (slope,) = torch.autograd.grad(loss.sum(), logits)
    close(slope.flatten(), [1.0, -1.0, 1.0, -1.0])


@both_losses
def test_one_value_an_image(loss: Loss) -> None:
    """And per view, where there are views."""
    before = IMAGES.clone()
    by_view = loss(IMAGES, LOGITS, 0.3)
    assert by_view.shape == (B, J) and torch.equal(IMAGES, before)
    close(loss(IMAGES[:, 0], LOGITS[:, 0], 0.3), by_view[:, 0])


@both_losses
def test_gradients_equal_finite_differences(loss: Loss) -> None:
    inputs = LOGITS.clone().requires_grad_(), torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(partial(loss, IMAGES), inputs)


@both_losses
def test_members_of_a_stack_have_their_own_variance(loss: Loss) -> None:
    variances = torch.tensor([0.25, 1.0, 2.0])
    fused = torch.vmap(loss, (None, None, 0))(IMAGES, LOGITS, variances)
    for value, variance in zip(fused, variances.tolist(), strict=True):
        close(value, loss(IMAGES, LOGITS, variance))
