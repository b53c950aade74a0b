"""The Gaussian process is scikit-learn's, and one whose covariance is singular is not a number."""

from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from torch import Tensor

from tests.trainables.methods.pairs.known import SHAPES, Known
from trainables.data.pairs import draw_pairs
from trainables.methods.pairs.gaussian_process import GaussianProcess, GaussianProcessConfig

COUNT = 100
NO_NOISE = MappingProxyType[str, Tensor]({})
PAIRS = draw_pairs("synthetic_b", COUNT, torch.Generator().manual_seed(0))
BATCH = {"x": PAIRS.x_N[:, None].float(), "y": PAIRS.y_N.float()}


def _model(**options: Any) -> GaussianProcess:
    return GaussianProcess(GaussianProcessConfig(**options), Known(COUNT), SHAPES)


def test_predictions_are_scikit_learns_with_the_noise_of_y() -> None:
    model = _model()
    model.fit(BATCH, NO_NOISE)
    kernel = RBF(0.3, "fixed") + WhiteKernel(0.5, "fixed")
    expected = GaussianProcessRegressor(kernel, optimizer=None).fit(PAIRS.x_N[:, None].numpy(), PAIRS.y_N.numpy())
    x = torch.linspace(-1.5, 1.5, 7)[:, None]
    mean, sigma = expected.predict(x.double().numpy(), return_std=True)
    log_weights, means, sigmas = model.predict(x)
    assert means[:, 0].tolist() == pytest.approx(mean, abs=1e-4) and (log_weights == 0).all()
    assert sigmas[:, 0].tolist() == pytest.approx(sigma, rel=1e-4), (
        "the WhiteKernel's level is a variance, and included"
    )


def test_before_it_is_fitted_it_is_the_prior() -> None:
    model = _model(noise_variance=0.44)
    _, means, sigmas = model.predict(torch.tensor([[0.0], [0.7]]))
    assert means.flatten().tolist() == [0, 0] and sigmas.flatten().tolist() == pytest.approx([1.2, 1.2])
    loss, again = model.fit(BATCH, NO_NOISE).total.item(), model.fit(BATCH, NO_NOISE).total.item()
    y = BATCH["y"].double().numpy()
    assert loss == pytest.approx((np.square(y) / 1.44).mean() / 2 + np.log(1.2) + np.log(2 * np.pi) / 2, rel=1e-5)
    assert again < loss


def test_a_singular_covariance_makes_its_predictions_not_a_number() -> None:
    model = _model(noise_variance=1e-30)
    model.fit({name: values[:1].expand_as(values) for name, values in BATCH.items()}, NO_NOISE)
    assert model.predict(torch.zeros(3, 1)).means_BM.isnan().all()
