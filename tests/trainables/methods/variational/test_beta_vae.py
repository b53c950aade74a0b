"""beta-VAE against Eq. 6 of SimVAE in float64, and against the VAE.

Shapes: B images, L latent dimensions.
"""

from typing import Any

import pytest
import torch

from tests.trainables.methods.autoencoders import (
    L,
    bernoulli_nll,
    built,
    decoded,
    drawn,
    gaussian_nll,
    indices,
    kl,
    pixels,
    posterior_of,
)
from trainables.contract import Batch
from trainables.methods.variational.beta_vae import BetaVAE
from trainables.methods.variational.beta_vae import BetaVAEConfig as Config
from trainables.methods.variational.vae import VAE, VAEConfig

B = 5
NOISE = {"posterior": drawn(B, L)}
BATCH: Batch = {"views": indices([3, 14, 1, 0, 8]), "view_pixels": pixels(1, B)}


@pytest.mark.parametrize(("likelihood", "nll"), [("gaussian", gaussian_nll), ("bernoulli", bernoulli_nll)])
@pytest.mark.parametrize(("beta", "sigma_x2"), [(1.0, 0.02), (0.0, 0.5), (4.0, 1.0)])
def test_loss_is_the_reconstruction_and_the_weighted_kl(
    likelihood: str, nll: Any, beta: float, sigma_x2: float
) -> None:
    model = built(BetaVAE, Config(beta, sigma_x2, likelihood))
    total, parts = model.losses(BATCH, NOISE)
    mu_BL, sd_BL = posterior_of(model, BATCH["views"][0])
    mean_BCHW = decoded(model, mu_BL + sd_BL * NOISE["posterior"].double().numpy())
    expected = {"reconstruction": nll(BATCH["view_pixels"][0], mean_BCHW, sigma_x2), "kl": kl(mu_BL, sd_BL).mean()}
    assert {name: part.item() for name, part in parts.items()} == pytest.approx(expected, rel=1e-5)
    assert total.item() == pytest.approx(expected["reconstruction"] + beta * expected["kl"], rel=1e-5)


@pytest.mark.parametrize("sigma_x2", [0.02, 1.0])
def test_with_a_weight_of_1_it_is_the_vae(sigma_x2: float) -> None:
    """Losses, parts and gradients of equal weights."""
    ours, theirs = built(BetaVAE, Config(1.0, sigma_x2)), built(VAE, VAEConfig(sigma_x2))
    losses, expected = (model.losses(BATCH, NOISE) for model in (ours, theirs))
    assert torch.equal(losses.total, expected.total) and losses.parts == expected.parts
    gradients, others = (
        torch.autograd.grad(loss.total, list(model.parameters()))
        for loss, model in ((losses, ours), (expected, theirs))
    )
    assert all(torch.equal(gradient, other) for gradient, other in zip(gradients, others, strict=True))


@pytest.mark.parametrize(("beta", "sigma_x2"), [(1.0, 0.02), (3.0, 0.1), (0.5, 4.0)])
def test_the_variance_of_pixels_is_a_scale_and_a_weight(beta: float, sigma_x2: float) -> None:
    """The loss of `beta` and `sigma_x2` is that of `beta * sigma_x2` and 1, over `sigma_x2`."""
    scaled = built(BetaVAE, Config(beta, sigma_x2)).losses(BATCH, NOISE).total
    plain = built(BetaVAE, Config(beta * sigma_x2, 1.0)).losses(BATCH, NOISE).total
    assert scaled.item() == pytest.approx(plain.item() / sigma_x2, rel=1e-5)
