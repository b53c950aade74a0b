"""RBF-GJE: a Gaussian process from x to y, with a fixed kernel (arXiv 2603.26799, section 5.1).

Shapes: B examples, N training pairs, X inputs.
"""

import math
from collections.abc import Mapping
from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from trainables.contract import Batch, ConditionalDensity, Losses, PairsMethod, PairStatistics, Shapes
from trainables.losses.kernels import gaussian_process_posterior
from trainables.losses.mixtures import log_mixture_density
from trainables.validation import above, checked


@checked
class GaussianProcessConfig:
    length: Annotated[float, above(0)] = 0.3
    """Length scale of the RBF kernel, whose variance is 1."""
    noise_variance: Annotated[float, above(0)] = 0.5
    """Variance of y around the function."""


class GaussianProcess(PairsMethod):
    """Fusible: `length`, `noise_variance`. One epoch fits it: it keeps the training pairs and the factor of their
    covariance, `N^2` numbers. If the covariance is not positive definite, it predicts NaN."""

    Config = GaussianProcessConfig
    fusible = frozenset({"length", "noise_variance"})

    length: Tensor
    noise_variance: Tensor
    inputs_NX: Tensor
    factor_NN: Tensor
    dual_N: Tensor

    def __init__(self, config: GaussianProcessConfig, networks: PairStatistics, shapes: Shapes) -> None:
        """Until `fit`, the covariance is I and all pairs are infinitely far away, as if there were no targets."""
        super().__init__(config, networks, shapes)
        count = networks.count
        self.register_buffer("inputs_NX", torch.full((count, math.prod(shapes["x"])), 1e6))
        self.register_buffer("factor_NN", torch.eye(count))
        self.register_buffer("dual_N", torch.zeros(count))

    def fit(self, data: Batch, noise: Mapping[str, Tensor]) -> Losses:
        """The loss is the mean negative log density of y given x."""
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import RBF, WhiteKernel

        losses = Losses(self._nll(data), {})
        kernel = RBF(self.length.item(), "fixed") + WhiteKernel(self.noise_variance.item(), "fixed")
        regressor = GaussianProcessRegressor(kernel, alpha=0.0, optimizer=None)
        x_NX, y_N = (data[name].double().cpu().numpy() for name in ("x", "y"))
        self.inputs_NX.copy_(data["x"])
        try:
            regressor.fit(x_NX, y_N)
        except np.linalg.LinAlgError:
            self.dual_N.fill_(torch.nan)
            return losses
        self.factor_NN.copy_(torch.from_numpy(regressor.L_))
        self.dual_N.copy_(torch.from_numpy(regressor.alpha_))
        return losses

    def predict(self, x_BX: Tensor) -> ConditionalDensity:
        mean_B, variance_B = gaussian_process_posterior(x_BX, self.inputs_NX, self.factor_NN, self.dual_N, self.length)
        sigma_B = (variance_B + self.noise_variance).sqrt()
        return ConditionalDensity(torch.zeros_like(mean_B)[:, None], mean_B[:, None], sigma_B[:, None])

    def _nll(self, data: Batch) -> Tensor:
        log_weights_B1, mean_B1, sigma_B1 = self.predict(data["x"])
        return -log_mixture_density(data["y"][:, None], log_weights_B1, mean_B1[..., None], sigma_B1[..., None]).mean()
