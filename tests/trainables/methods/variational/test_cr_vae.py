"""CR-VAE against Eq. 7 of SimVAE in float64: both ELBOs, and which posterior is pulled towards which.

Shapes: B images, P = 2 (plain and augmented), L latent dimensions.
"""

from typing import Any

import pytest
import torch
from torch import Tensor

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
from trainables.contract import Batch, Noise
from trainables.methods.variational.cr_vae import CRVAE
from trainables.methods.variational.cr_vae import CRVAEConfig as Config

B = 5
NOISE = {"posterior": drawn(B, 2, L)}
PLAIN, VIEW = [4, 0, 11, 7, 2], [1, 16, 3, 20, 9]
PIXELS = pixels(2, B)
BATCH: Batch = {
    "plain": indices(PLAIN), "views": indices(VIEW), "plain_pixels": PIXELS[:1], "view_pixels": PIXELS[1:],
}  # fmt: skip


def _picked(batch: Batch, order: list[int]) -> dict[str, Any]:
    return {name: tuple(image[order] for image in images) for name, images in batch.items()}


def _parts(model: CRVAE, batch: Batch, noise: Tensor) -> dict[str, float]:
    parts: dict[str, float] = {
        name: part.item() for name, part in model.losses(batch, {"posterior": noise}).parts.items()
    }
    return parts


@pytest.mark.parametrize(("likelihood", "nll"), [("gaussian", gaussian_nll), ("bernoulli", bernoulli_nll)])
@pytest.mark.parametrize(("weight", "sigma_x2"), [(0.1, 0.02), (3.0, 1.0), (0.0, 0.02)])
def test_loss_is_both_elbos_and_the_divergence_from_the_view_to_the_plain_image(
    likelihood: str, nll: Any, weight: float, sigma_x2: float
) -> None:
    """Averaged over both images of each pair."""
    model = built(CRVAE, Config(weight, sigma_x2, likelihood))
    total, parts = model.losses(BATCH, NOISE)
    posteriors = [posterior_of(model, BATCH[name][0]) for name in ("plain", "views")]
    noise_BPL, negative_elbos = NOISE["posterior"].double().numpy(), []
    for index, (mu_BL, sd_BL) in enumerate(posteriors):
        reconstruction = nll(PIXELS[index], decoded(model, mu_BL + sd_BL * noise_BPL[:, index]), sigma_x2)
        negative_elbos.append(reconstruction + kl(mu_BL, sd_BL).mean())
    consistency = kl(*posteriors[1], *posteriors[0]).mean()
    assert 2 * total.item() == pytest.approx(sum(negative_elbos) + weight * consistency, rel=1e-5)
    assert 2 * parts["consistency"].item() == pytest.approx(consistency, rel=1e-5)
    assert abs(consistency - kl(*posteriors[0], *posteriors[1]).mean()) > 0.1  # the other direction


def test_pairs_are_images_and_their_own_views() -> None:
    """Pairs may be permuted, but not one side of them."""
    model, order = built(CRVAE, Config()), [2, 4, 0, 1, 3]
    expected = _parts(model, BATCH, NOISE["posterior"])
    assert _parts(model, _picked(BATCH, order), NOISE["posterior"][order]) == pytest.approx(expected, rel=1e-5)
    mixed = {**BATCH, **{name: _picked(BATCH, order)[name] for name in ("views", "view_pixels")}}
    noise_PBL = NOISE["posterior"].transpose(0, 1)
    got = _parts(model, mixed, torch.stack([noise_PBL[0], noise_PBL[1][order]], dim=1))
    assert got["reconstruction"] == pytest.approx(expected["reconstruction"], rel=1e-5)
    assert got["kl"] == pytest.approx(expected["kl"], rel=1e-5)
    assert abs(got["consistency"] - expected["consistency"]) > 0.1


def test_swapping_image_and_view_changes_the_direction_of_their_divergence_alone() -> None:
    model = built(CRVAE, Config())
    swapped = {
        "plain": BATCH["views"], "views": BATCH["plain"], "plain_pixels": PIXELS[1:], "view_pixels": PIXELS[:1],
    }  # fmt: skip
    got, expected = _parts(model, swapped, NOISE["posterior"].flip(1)), _parts(model, BATCH, NOISE["posterior"])
    assert got["reconstruction"] == pytest.approx(expected["reconstruction"], rel=1e-5)
    assert got["kl"] == pytest.approx(expected["kl"], rel=1e-5)
    posteriors = [posterior_of(model, BATCH[name][0]) for name in ("plain", "views")]
    assert 2 * got["consistency"] == pytest.approx(kl(*posteriors[0], *posteriors[1]).mean(), rel=1e-5)


def test_equal_posteriors_are_consistent() -> None:
    model = built(CRVAE, Config())
    equal = {**BATCH, "views": BATCH["plain"]}
    assert _parts(model, equal, NOISE["posterior"])["consistency"] == 0


def test_gradients_of_the_consistency_flow_through_both_posteriors() -> None:
    """With the gradient that finite differences of the divergence have."""
    model = built(CRVAE, Config())
    rows = model.encoder.get_parameter("rows")
    (gradient,) = torch.autograd.grad(model.losses(BATCH, NOISE).parts["consistency"], rows)

    def consistency() -> float:
        posteriors = [posterior_of(model, BATCH[name][0]) for name in ("plain", "views")]
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
    model = built(CRVAE, Config())
    assert CRVAE.view_count(model.config) == 1 and CRVAE.encoded_count(model.config) == 2
    assert model.noise(B) == {"posterior": Noise((B, 2, L), batch_dim=0)}
