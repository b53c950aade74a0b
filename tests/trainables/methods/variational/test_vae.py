"""VAE, beta-VAE and CR-VAE against their bounds written out in float64, and the VAE's collapse on the digits.

Shapes: B images, P = 2 (plain and augmented), L latent dimensions.
"""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from tests.cases import for_each
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
from trainables.methods.variational.beta_vae import BetaVAE, BetaVAEConfig
from trainables.methods.variational.cr_vae import CRVAE, CRVAEConfig
from trainables.methods.variational.vae import VAE, VAEConfig
from trainables.training.cohort import TrainingCohort

B = 6
NOISE = {"posterior": drawn(B, L)}
BATCH: Batch = {"views": indices([5, 1, 9, 20, 0, 7]), "view_pixels": pixels(1, B)}


@for_each(("likelihood", "nll"), [("gaussian", gaussian_nll), ("bernoulli", bernoulli_nll)])
@for_each("sigma_x2", [1.0, 0.1, 0.01005])
def test_loss_is_the_negative_elbo(likelihood: str, nll: Any, sigma_x2: float) -> None:
    model = built(VAE, VAEConfig(sigma_x2, likelihood))
    total, parts = model.losses(BATCH, NOISE)
    (view_BCHW,), (pixels_BCHW,) = BATCH["views"], BATCH["view_pixels"]
    mu_BL, sd_BL = posterior_of(model, view_BCHW)
    mean_BCHW = decoded(model, mu_BL + sd_BL * NOISE["posterior"].double().numpy())
    expected = {"reconstruction": nll(pixels_BCHW, mean_BCHW, sigma_x2), "kl": kl(mu_BL, sd_BL).mean()}
    assert {name: part.item() for name, part in parts.items()} == pytest.approx(expected, rel=1e-5)
    assert total.item() == pytest.approx(sum(expected.values()), rel=1e-5) and total.shape == ()


@for_each("sampled_prior", [False, True])
@for_each("entropy_weight", [0.0, 1.0, 2 * math.pi])
@for_each(("likelihood", "nll"), [("gaussian", gaussian_nll), ("bernoulli", bernoulli_nll)])
def test_the_halves_of_the_kl_can_be_weighted_and_sampled(
    likelihood: str, nll: Any, entropy_weight: float, sampled_prior: bool
) -> None:
    """`sampled_prior` with the weight 2 pi is the loss of the authors' code: `-log p(x|z) - 2 pi H[q] - log p(z)` of
    one sample z, up to constants. The loss is that with weight 1, and the expectation of the last term."""
    model = built(VAE, VAEConfig(0.01005, likelihood, sampled_prior, entropy_weight))
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
    model = built(VAE, VAEConfig(0.01005, "bernoulli", sampled_prior=True, entropy_weight=2 * math.pi)).double()
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
    model = built(VAE, VAEConfig())
    assert VAE.view_count(model.config) == VAE.encoded_count(model.config) == 1
    assert model.noise(B) == {"posterior": Noise((B, L), batch_dim=0)}


@pytest.mark.slow
def test_the_digits_collapse_with_a_variance_of_1_but_not_of_one_tenth() -> None:
    """The posterior of a collapsed VAE is the prior, whatever the image. Members of one cohort, alike but for the
    variance."""
    shared: dict[str, Any] = {
        "method": "vae", "encoder": "relu_mlp", "hidden": "64", "decoder_hidden": "64", "features": 4, "epochs": 8,
        "batch_size": 60, "optimiser": "adam", "lr": 0.01, "normalise": False,
    }  # fmt: skip
    configs = [resolve({**shared, "sigma_x2": sigma_x2}) for sigma_x2 in (1.0, 0.1)]
    cohort = TrainingCohort(configs, HERE, torch.device("cpu"), None)
    history = [cohort.epoch(epoch) for epoch in range(8)]
    collapsed_kl, sound_kl = history[-1]["loss_kl"]
    collapsed_variance, sound_variance = cohort.evaluate(last=True)["var_mean"]
    assert collapsed_kl < 0.02 and abs(collapsed_variance - 1) < 0.02
    assert sound_kl > 1 and sound_variance < 0.8


BETA_B = 5
BETA_NOISE = {"posterior": drawn(BETA_B, L)}
BETA_BATCH: Batch = {"views": indices([3, 14, 1, 0, 8]), "view_pixels": pixels(1, BETA_B)}


@for_each(("likelihood", "nll"), [("gaussian", gaussian_nll), ("bernoulli", bernoulli_nll)])
@for_each(("beta", "sigma_x2"), [(1.0, 0.02), (0.0, 0.5), (4.0, 1.0)])
def test_loss_is_the_reconstruction_and_the_weighted_kl(
    likelihood: str, nll: Any, beta: float, sigma_x2: float
) -> None:
    model = built(BetaVAE, BetaVAEConfig(beta, sigma_x2, likelihood))
    total, parts = model.losses(BETA_BATCH, BETA_NOISE)
    mu_BL, sd_BL = posterior_of(model, BETA_BATCH["views"][0])
    mean_BCHW = decoded(model, mu_BL + sd_BL * BETA_NOISE["posterior"].double().numpy())
    expected = {
        "reconstruction": nll(BETA_BATCH["view_pixels"][0], mean_BCHW, sigma_x2),
        "kl": kl(mu_BL, sd_BL).mean(),
    }
    assert {name: part.item() for name, part in parts.items()} == pytest.approx(expected, rel=1e-5)
    assert total.item() == pytest.approx(expected["reconstruction"] + beta * expected["kl"], rel=1e-5)


@pytest.mark.parametrize("sigma_x2", [0.02, 1.0])
def test_with_a_weight_of_1_it_is_the_vae(sigma_x2: float) -> None:
    """Losses, parts and gradients of equal weights."""
    ours, theirs = built(BetaVAE, BetaVAEConfig(1.0, sigma_x2)), built(VAE, VAEConfig(sigma_x2))
    losses, expected = (model.losses(BETA_BATCH, BETA_NOISE) for model in (ours, theirs))
    assert torch.equal(losses.total, expected.total) and losses.parts == expected.parts
    gradients, others = (
        torch.autograd.grad(loss.total, list(model.parameters()))
        for loss, model in ((losses, ours), (expected, theirs))
    )
    assert all(torch.equal(gradient, other) for gradient, other in zip(gradients, others, strict=True))


@pytest.mark.parametrize(("beta", "sigma_x2"), [(1.0, 0.02), (3.0, 0.1), (0.5, 4.0)])
def test_the_variance_of_pixels_is_a_scale_and_a_weight(beta: float, sigma_x2: float) -> None:
    """The loss of `beta` and `sigma_x2` is that of `beta * sigma_x2` and 1, over `sigma_x2`."""
    scaled = built(BetaVAE, BetaVAEConfig(beta, sigma_x2)).losses(BETA_BATCH, BETA_NOISE).total
    plain = built(BetaVAE, BetaVAEConfig(beta * sigma_x2, 1.0)).losses(BETA_BATCH, BETA_NOISE).total
    assert scaled.item() == pytest.approx(plain.item() / sigma_x2, rel=1e-5)


CR_B = 5
CR_NOISE = {"posterior": drawn(CR_B, 2, L)}
PLAIN, VIEW = [4, 0, 11, 7, 2], [1, 16, 3, 20, 9]
PIXELS = pixels(2, CR_B)
CR_BATCH: Batch = {
    "plain": indices(PLAIN), "views": indices(VIEW), "plain_pixels": PIXELS[:1], "view_pixels": PIXELS[1:],
}  # fmt: skip


def _picked(batch: Batch, order: list[int]) -> dict[str, Any]:
    return {name: tuple(image[order] for image in images) for name, images in batch.items()}


def _parts(model: CRVAE, batch: Batch, noise: Tensor) -> dict[str, float]:
    parts: dict[str, float] = {
        name: part.item() for name, part in model.losses(batch, {"posterior": noise}).parts.items()
    }
    return parts


@for_each(("likelihood", "nll"), [("gaussian", gaussian_nll), ("bernoulli", bernoulli_nll)])
@for_each(("weight", "sigma_x2"), [(0.1, 0.02), (3.0, 1.0), (0.0, 0.02)])
def test_loss_is_both_elbos_and_the_divergence_from_the_view_to_the_plain_image(
    likelihood: str, nll: Any, weight: float, sigma_x2: float
) -> None:
    """Averaged over both images of each pair."""
    model = built(CRVAE, CRVAEConfig(weight, sigma_x2, likelihood))
    total, parts = model.losses(CR_BATCH, CR_NOISE)
    posteriors = [posterior_of(model, CR_BATCH[name][0]) for name in ("plain", "views")]
    noise_BPL, negative_elbos = CR_NOISE["posterior"].double().numpy(), []
    for index, (mu_BL, sd_BL) in enumerate(posteriors):
        reconstruction = nll(PIXELS[index], decoded(model, mu_BL + sd_BL * noise_BPL[:, index]), sigma_x2)
        negative_elbos.append(reconstruction + kl(mu_BL, sd_BL).mean())
    consistency = kl(*posteriors[1], *posteriors[0]).mean()
    assert 2 * total.item() == pytest.approx(sum(negative_elbos) + weight * consistency, rel=1e-5)
    assert 2 * parts["consistency"].item() == pytest.approx(consistency, rel=1e-5)
    assert abs(consistency - kl(*posteriors[0], *posteriors[1]).mean()) > 0.1  # the other direction


def test_pairs_are_images_and_their_own_views() -> None:
    """Pairs may be permuted, but not one side of them."""
    model, order = built(CRVAE, CRVAEConfig()), [2, 4, 0, 1, 3]
    expected = _parts(model, CR_BATCH, CR_NOISE["posterior"])
    assert _parts(model, _picked(CR_BATCH, order), CR_NOISE["posterior"][order]) == pytest.approx(expected, rel=1e-5)
    mixed = {**CR_BATCH, **{name: _picked(CR_BATCH, order)[name] for name in ("views", "view_pixels")}}
    noise_PBL = CR_NOISE["posterior"].transpose(0, 1)
    got = _parts(model, mixed, torch.stack([noise_PBL[0], noise_PBL[1][order]], dim=1))
    assert got["reconstruction"] == pytest.approx(expected["reconstruction"], rel=1e-5)
    assert got["kl"] == pytest.approx(expected["kl"], rel=1e-5)
    assert abs(got["consistency"] - expected["consistency"]) > 0.1


def test_swapping_image_and_view_changes_the_direction_of_their_divergence_alone() -> None:
    model = built(CRVAE, CRVAEConfig())
    swapped = {
        "plain": CR_BATCH["views"], "views": CR_BATCH["plain"], "plain_pixels": PIXELS[1:], "view_pixels": PIXELS[:1],
    }  # fmt: skip
    got, expected = (
        _parts(model, swapped, CR_NOISE["posterior"].flip(1)),
        _parts(model, CR_BATCH, CR_NOISE["posterior"]),
    )
    assert got["reconstruction"] == pytest.approx(expected["reconstruction"], rel=1e-5)
    assert got["kl"] == pytest.approx(expected["kl"], rel=1e-5)
    posteriors = [posterior_of(model, CR_BATCH[name][0]) for name in ("plain", "views")]
    assert 2 * got["consistency"] == pytest.approx(kl(*posteriors[0], *posteriors[1]).mean(), rel=1e-5)


def test_equal_posteriors_are_consistent() -> None:
    model = built(CRVAE, CRVAEConfig())
    equal = {**CR_BATCH, "views": CR_BATCH["plain"]}
    assert _parts(model, equal, CR_NOISE["posterior"])["consistency"] == 0


def test_gradients_of_the_consistency_flow_through_both_posteriors() -> None:
    """With the gradient that finite differences of the divergence have."""
    model = built(CRVAE, CRVAEConfig())
    rows = model.encoder.get_parameter("rows")
    (gradient,) = torch.autograd.grad(model.losses(CR_BATCH, CR_NOISE).parts["consistency"], rows)

    def consistency() -> float:
        posteriors = [posterior_of(model, CR_BATCH[name][0]) for name in ("plain", "views")]
        return float(kl(*posteriors[1], *posteriors[0]).mean() / 2)

    for row in (*PLAIN, *VIEW):
        for column in (0, L):
            with torch.no_grad():
                values = []
                for step in (0.01, -0.01):
                    rows[row, column] += step
                    values.append(consistency())
                    rows[row, column] -= step
            slope = (values[0] - values[1]) / 0.02
            assert gradient[row, column].item() == pytest.approx(slope, rel=1e-2, abs=1e-4)
    assert (gradient[[*PLAIN, *VIEW]].abs().amax(1) > 1e-3).all()


def test_it_takes_one_view_beside_the_plain_image() -> None:
    model = built(CRVAE, CRVAEConfig())
    assert CRVAE.view_count(model.config) == 1 and CRVAE.encoded_count(model.config) == 2
    assert model.noise(CR_B) == {"posterior": Noise((CR_B, 2, L), batch_dim=0)}
