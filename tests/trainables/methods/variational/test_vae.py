"""The VAE against Eq. 6 of SimVAE in float64, and its collapse on the digits.

Shapes: B images, L latent dimensions.
"""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

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
from tests.trainables.small import HERE
from trainables.config import resolve
from trainables.contract import Batch, Noise
from trainables.methods.variational.vae import VAE
from trainables.methods.variational.vae import VAEConfig as Config
from trainables.training.cohort import Cohort

B = 6
NOISE = {"posterior": drawn(B, L)}
BATCH: Batch = {"views": indices([5, 1, 9, 20, 0, 7]), "view_pixels": pixels(1, B)}


@pytest.mark.parametrize(("likelihood", "nll"), [("gaussian", gaussian_nll), ("bernoulli", bernoulli_nll)])
@pytest.mark.parametrize("sigma_x2", [1.0, 0.1, 0.01005])
def test_loss_is_the_negative_elbo(likelihood: str, nll: Any, sigma_x2: float) -> None:
    model = built(VAE, Config(sigma_x2, likelihood))
    total, parts = model.losses(BATCH, NOISE)
    (view_BCHW,), (pixels_BCHW,) = BATCH["views"], BATCH["view_pixels"]
    mu_BL, sd_BL = posterior_of(model, view_BCHW)
    mean_BCHW = decoded(model, mu_BL + sd_BL * NOISE["posterior"].double().numpy())
    expected = {"reconstruction": nll(pixels_BCHW, mean_BCHW, sigma_x2), "kl": kl(mu_BL, sd_BL).mean()}
    assert {name: part.item() for name, part in parts.items()} == pytest.approx(expected, rel=1e-5)
    assert total.item() == pytest.approx(sum(expected.values()), rel=1e-5) and total.shape == ()


@pytest.mark.parametrize("sampled_prior", [False, True])
@pytest.mark.parametrize("entropy_weight", [0.0, 1.0, 2 * math.pi])
@pytest.mark.parametrize(("likelihood", "nll"), [("gaussian", gaussian_nll), ("bernoulli", bernoulli_nll)])
def test_the_halves_of_the_kl_can_be_weighted_and_sampled(
    likelihood: str, nll: Any, entropy_weight: float, sampled_prior: bool
) -> None:
    """`sampled_prior` with the weight 2 pi is the loss of the authors' code: `-log p(x|z) - 2 pi H[q] - log p(z)` of
    one sample z, up to constants. Eq. 6 is that with weight 1, and the expectation of the last term."""
    model = built(VAE, Config(0.01005, likelihood, sampled_prior, entropy_weight))
    total, parts = model.losses(BATCH, NOISE)
    (view_BCHW,), (pixels_BCHW,) = BATCH["views"], BATCH["view_pixels"]
    mu_BL, sd_BL = posterior_of(model, view_BCHW)
    z_BL = mu_BL + sd_BL * NOISE["posterior"].double().numpy()
    reconstruction = nll(pixels_BCHW, decoded(model, z_BL), 0.01005)
    entropy = stats.norm.entropy(mu_BL, sd_BL).sum(-1).mean()
    constant = L / 2 * math.log(2 * math.pi)
    cross_entropy = -stats.norm.logpdf(z_BL).sum(-1).mean() if sampled_prior else (kl(mu_BL, sd_BL).mean() + entropy)
    expected = reconstruction - entropy_weight * entropy + cross_entropy - constant
    if not sampled_prior and entropy_weight == 1.0:
        expected, shown = expected + constant, {"reconstruction", "kl"}
    else:
        shown = {"reconstruction", "entropy", "prior"}
        assert parts["entropy"].item() == pytest.approx(entropy, rel=1e-5)
        assert parts["prior"].item() == pytest.approx(cross_entropy - constant, rel=1e-5)
    assert set(parts) == shown and total.item() == pytest.approx(expected, rel=1e-5)


def test_its_gradient_is_that_of_the_authors_formulas() -> None:
    """Their sums over a batch, with `torch.distributions`, over the number of images. Posteriors are in float32."""
    model = built(VAE, Config(0.01005, "bernoulli", sampled_prior=True, entropy_weight=2 * math.pi)).double()
    (view_BCHW,), pixels_BCHW = BATCH["views"], BATCH["view_pixels"][0].double()
    noise_BL = NOISE["posterior"].double()
    batch: Batch = {"views": (view_BCHW,), "view_pixels": (pixels_BCHW,)}
    rows = model.encoder.get_parameter("rows")
    (gradient,) = torch.autograd.grad(model.losses(batch, {"posterior": noise_BL}).total, rows)

    mu_BL, logvar_BL = rows[view_BCHW.flatten().long()].split(L, dim=-1)
    posterior = torch.distributions.Normal(mu_BL, (0.5 * logvar_BL).exp())
    z_BL = posterior.loc + posterior.scale * noise_BL
    x_given_z = torch.distributions.Bernoulli(model.decode(z_BL), validate_args=False)
    reconstruction = -x_given_z.log_prob(pixels_BCHW).sum() / 0.01005
    prior = torch.distributions.Normal(0.0, 1.0).log_prob(z_BL).sum()
    (expected,) = torch.autograd.grad((reconstruction - 2 * math.pi * posterior.entropy().sum() - prior) / B, rows)
    np.testing.assert_allclose(gradient.numpy(), expected.numpy(), rtol=1e-4, atol=1e-4)


def test_trials_with_the_loss_of_eq_6_have_the_keys_that_they_had_before() -> None:
    """So that their ids stay."""
    plain = resolve({"method": "vae"}).flat()
    assert not {"sampled_prior", "entropy_weight"} & set(plain)
    assert resolve({"method": "vae", "sampled_prior": False, "entropy_weight": 1}).flat() == plain
    assert resolve({"method": "vae", "sampled_prior": True}).flat() == {**plain, "sampled_prior": True}


def test_it_takes_one_view_and_noise_of_each_image() -> None:
    model = built(VAE, Config())
    assert VAE.view_count(model.config) == VAE.encoded_count(model.config) == 1
    assert model.noise(B) == {"posterior": Noise((B, L), batch_dim=0)}


def test_the_digits_collapse_with_a_variance_of_1_but_not_of_one_tenth() -> None:
    """The posterior of a collapsed VAE is the prior, whatever the image. Members of one cohort, alike but for the
    variance."""
    shared: dict[str, Any] = {
        "method": "vae", "encoder": "relu_mlp", "hidden": "64", "decoder_hidden": "64", "features": 4, "epochs": 8,
        "batch_size": 60, "optimiser": "adam", "lr": 0.01, "normalise": False,
    }  # fmt: skip
    configs = [resolve({**shared, "sigma_x2": sigma_x2}) for sigma_x2 in (1.0, 0.1)]
    cohort = Cohort(configs, HERE, torch.device("cpu"), None)
    history = [cohort.epoch(epoch) for epoch in range(8)]
    collapsed_kl, sound_kl = history[-1]["loss_kl"]
    collapsed_variance, sound_variance = cohort.evaluate(last=True)["var_mean"]
    assert collapsed_kl < 0.02 and abs(collapsed_variance - 1) < 0.02
    assert sound_kl > 1 and sound_variance < 0.8
