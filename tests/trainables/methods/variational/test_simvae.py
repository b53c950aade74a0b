"""SimVAE against the paper's prior (Eq. 9) and bound (Eq. 4) in float64, and what may and may not be permuted.

Shapes: B images, J views, X = B * J views, those of one image contiguous, L latent dimensions.
"""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from tests.trainables.methods.autoencoders import (
    SHAPE,
    L,
    bernoulli_nll,
    built,
    decoded,
    drawn,
    gaussian_nll,
    pixels,
    posterior_of,
)
from tests.trainables.methods.plain import Array
from trainables.contract import Batch, Noise
from trainables.methods.variational.simvae import SimVAE
from trainables.methods.variational.simvae import SimVAEConfig as Config

B = 4
each_number_of_views = pytest.mark.parametrize("views", [2, 5])
CENTRES: tuple[dict[str, Any], ...] = (
    *({}, {"centre_precision": 1.0}, {"centre_precision": 30.0}, {"authors_centre": True}),
    *({"expected_prior": True}, {"expected_prior": True, "centre_precision": 0.5}),
)
each_centre = pytest.mark.parametrize("centre", CENTRES)


def _config(views: int, **changes: Any) -> Config:
    return Config(**{"views": views, **changes})


def _batch(rows_X: Tensor, pixels_X: Tensor, views: int) -> Batch:
    """The batch whose views, flattened, are these rows of the table and these pixels."""
    rows_JB, pixels_JB = rows_X.view(B, views).T, pixels_X.unflatten(0, (B, views)).transpose(0, 1)
    return {"views": tuple(row_B.view(B, 1, 1, 1).float() for row_B in rows_JB), "view_pixels": tuple(pixels_JB)}


def _inputs(views: int) -> tuple[Tensor, Tensor, Tensor]:
    """Rows `[X]`, pixels `[X, C, H, W]` and noise `[X, L]`, of which no two are equal."""
    rows_X = torch.randperm(B * views, generator=torch.Generator().manual_seed(3))
    return rows_X, pixels(1, B * views)[0], drawn(B * views, L)


def _losses(model: SimVAE, rows_X: Tensor, pixels_X: Tensor, noise_X: Tensor) -> dict[str, float]:
    views = model.config.views
    losses = model.losses(_batch(rows_X, pixels_X, views), {"posterior": noise_X.unflatten(0, (B, views))})
    return {"total": losses.total.item(), **{name: part.item() for name, part in losses.parts.items()}}


def _precision_JJ(views: int, sigma2: float, precision: float) -> Array:
    """Inverse covariance of a group's latents in one dimension."""
    uniform_JJ = (np.eye(views) - 1 / views) / sigma2
    return np.asarray(np.linalg.inv(sigma2 * np.eye(views) + 1 / precision) if precision else uniform_JJ, np.float64)


def _prior(config: Config, mu_JL: Array, sd_JL: Array, z_JL: Array) -> float:
    """Negative log prior of one group: a quadratic form in each dimension, or its expectation."""
    matrix_JJ = _precision_JJ(config.views, config.sigma2, config.centre_precision)
    if config.expected_prior:
        quadratic = np.trace(mu_JL.T @ matrix_JJ @ mu_JL) + (np.diag(matrix_JJ) @ sd_JL**2).sum()
    else:
        quadratic = np.trace(z_JL.T @ matrix_JJ @ z_JL)
    return float(quadratic + config.authors_centre * (z_JL.mean(0) ** 2).sum()) / 2


def _expected(model: SimVAE, rows_X: Tensor, pixels_X: Tensor, noise_X: Tensor) -> dict[str, float]:
    config, groups = model.config, (B, model.config.views, L)
    mu_XL, sd_XL = posterior_of(model, rows_X)
    z_XL = mu_XL + sd_XL * noise_X.double().numpy()
    by_group = zip(*(x_XL.reshape(groups) for x_XL in (mu_XL, sd_XL, z_XL)), strict=True)
    nll = bernoulli_nll if config.likelihood == "bernoulli" else gaussian_nll
    parts = {
        "reconstruction": nll(pixels_X, decoded(model, z_XL), config.sigma_x2),
        "entropy": float(stats.norm.entropy(scale=sd_XL).sum(1).mean()),
        "prior": sum(_prior(config, *group) for group in by_group) / len(z_XL),
        "centre_norm": float(np.linalg.norm(z_XL.reshape(groups).mean(1), axis=-1).mean()),
    }
    total = parts["reconstruction"] - config.entropy_weight * parts["entropy"] + parts["prior"]
    return {"total": total, **parts}


@each_number_of_views
@each_centre
@pytest.mark.parametrize("others", [{}, {"sigma2": 2.0, "sigma_x2": 1.0, "entropy_weight": 2 * math.pi}])
def test_loss_is_reconstruction_less_entropy_and_the_prior_of_each_group(
    views: int, centre: dict[str, Any], others: dict[str, Any]
) -> None:
    """Averaged over all views."""
    model, inputs = built(SimVAE, _config(views, **centre, **others)), _inputs(views)
    assert _losses(model, *inputs) == pytest.approx(_expected(model, *inputs), rel=1e-5)


@each_number_of_views
def test_a_bernoulli_likelihood_takes_the_cross_entropy_of_pixels(views: int) -> None:
    model, inputs = built(SimVAE, _config(views, likelihood="bernoulli", sigma_x2=0.01005)), _inputs(views)
    assert _losses(model, *inputs) == pytest.approx(_expected(model, *inputs), rel=1e-5)


@each_number_of_views
@each_centre
def test_views_of_an_image_may_be_permuted(views: int, centre: dict[str, Any]) -> None:
    """Those of each image differently."""
    model, inputs = built(SimVAE, _config(views, **centre)), _inputs(views)
    order_BJ = torch.rand(B, views, generator=torch.Generator().manual_seed(4)).argsort(1)
    order_X = (torch.arange(B)[:, None] * views + order_BJ).flatten()
    assert not torch.equal(order_X, torch.arange(B * views))
    permuted = _losses(model, *(values_X[order_X] for values_X in inputs))
    assert permuted == pytest.approx(_losses(model, *inputs), rel=1e-5)


@each_number_of_views
@each_centre
def test_views_of_other_images_change_the_prior_alone(views: int, centre: dict[str, Any]) -> None:
    """Guards against groups across images."""
    model, inputs = built(SimVAE, _config(views, **centre)), _inputs(views)
    order_X = torch.arange(B * views).view(B, views).T.flatten()
    got, expected = _losses(model, *(values_X[order_X] for values_X in inputs)), _losses(model, *inputs)
    for name in ("reconstruction", "entropy"):
        assert got[name] == pytest.approx(expected[name], rel=1e-5)
    assert abs(got["prior"] - expected["prior"]) > 0.01 * expected["prior"]


@each_number_of_views
def test_gradient_of_the_prior_flows_through_the_centre(views: int) -> None:
    """Under a Gaussian centre it would be another one without."""
    model, (rows_X, pixels_X, noise_X) = built(SimVAE, _config(views, centre_precision=2.0)), _inputs(views)
    losses = model.losses(_batch(rows_X, pixels_X, views), {"posterior": noise_X.unflatten(0, (B, views))})
    (gradient,) = torch.autograd.grad(losses.parts["prior"], model.encoder.get_parameter("rows"), retain_graph=True)
    mu_XL, sd_XL = posterior_of(model, rows_X)
    z_BJL = (mu_XL + sd_XL * noise_X.double().numpy()).reshape(B, views, L)
    slope_XL = np.einsum("jk,bkl->bjl", _precision_JJ(views, 0.15, 2.0), z_BJL).reshape(-1, L) / (B * views)
    np.testing.assert_allclose(gradient[rows_X, :L].double().numpy(), slope_XL, rtol=1e-4, atol=1e-6)
    assert not losses.parts["centre_norm"].requires_grad


@each_number_of_views
def test_the_expected_prior_has_no_noise(views: int) -> None:
    model, (rows_X, pixels_X, noise_X) = built(SimVAE, _config(views, expected_prior=True)), _inputs(views)
    first, other = (_losses(model, rows_X, pixels_X, noise) for noise in (noise_X, -noise_X))
    assert first["prior"] == other["prior"] and first["reconstruction"] != other["reconstruction"]


def _rescaled(model: SimVAE, scale: float) -> SimVAE:
    """The model with all latents times `scale`, and a decoder that takes them back."""
    with torch.no_grad():
        rows = model.encoder.get_parameter("rows")
        rows[:, :L] *= scale
        rows[:, L:] += 2 * math.log(scale)
        model.decoder.get_parameter("layers.0.weight").div_(scale)
    return model


@each_number_of_views
@pytest.mark.parametrize("scale", [0.2, 3.0])
def test_under_a_uniform_centre_sigma2_only_sets_the_scale_of_the_latents(views: int, scale: float) -> None:
    """`(z, sigma2) -> (c z, c^2 sigma2)` shifts the loss by a constant, that of the entropy. Under a
    Gaussian centre its precision must follow."""
    inputs = _inputs(views)
    for centre, precision, alike in ((0.0, 0.0, True), (2.0, 2.0 / scale**2, True), (2.0, 2.0, False)):
        before = _losses(built(SimVAE, _config(views, sigma2=0.15, centre_precision=centre)), *inputs)
        other = built(SimVAE, _config(views, sigma2=0.15 * scale**2, centre_precision=precision))
        after = _losses(_rescaled(other, scale), *inputs)
        assert after["reconstruction"] == pytest.approx(before["reconstruction"], rel=1e-4)
        assert after["entropy"] == pytest.approx(before["entropy"] + L * math.log(scale), rel=1e-4)
        assert (after["prior"] == pytest.approx(before["prior"], rel=1e-4)) == alike


@each_number_of_views
def test_views_and_noise_are_as_many_as_the_config_says(views: int) -> None:
    model = built(SimVAE, _config(views))
    assert SimVAE.view_count(model.config) == SimVAE.encoded_count(model.config) == views
    assert model.noise(B) == {"posterior": Noise((B, views, L), batch_dim=0)}
    assert model.image_shape == SHAPE


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"authors_centre": True, "centre_precision": 1.0},
            "authors_centre needs centre_precision=0, but got centre_precision=1.0",
        ),
        (
            {"authors_centre": True, "expected_prior": True},
            "authors_centre needs expected_prior=false, because it uses one sample, but both are true",
        ),
    ],
)
def test_the_authors_centre_excludes_other_priors(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as error:
        Config(**given)
    assert str(error.value) == message


@each_number_of_views
def test_without_reconstruction_the_loss_does_not_see_pixels(views: int) -> None:
    """The weight multiplies that part alone."""
    rows_X, pixels_X, noise_X = _inputs(views)
    none, full, double = (
        _losses(built(SimVAE, _config(views, reconstruction_weight=weight)), rows_X, pixels_X, noise_X)
        for weight in (0.0, 1.0, 2.0)
    )
    assert full["total"] - none["total"] == pytest.approx(full["reconstruction"], rel=1e-5)
    assert double["total"] - none["total"] == pytest.approx(2 * full["reconstruction"], rel=1e-5)
    other = _losses(built(SimVAE, _config(views, reconstruction_weight=0.0)), rows_X, 1 - pixels_X, noise_X)
    assert other["total"] == none["total"] and other["reconstruction"] != none["reconstruction"]
