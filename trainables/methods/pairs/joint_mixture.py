"""Base class of Gaussian mixtures over pairs: the joint density of (x, y), and the density of y given x (GMJE).

Shapes: B examples, X inputs, M components, E = X + 1 dimensions of a pair.
"""

import math
from typing import Any

import torch
from torch import Tensor

from trainables.contract import Batch, ConditionalDensity, PairsMethod, PairStatistics, Shapes
from trainables.losses.linear_algebra import cholesky
from trainables.losses.mixtures import component_exponents, conditional, prototype_nll

LEAST_WEIGHT = 1e-30
"""Weight of a component without assigned pairs, so that its logarithm is finite."""


class JointMixture(PairsMethod):
    """A mixture over pairs that is fitted without gradients. If a covariance is not positive definite, the density is
    NaN, so that only this member diverges. Before the first `fit` the density is standard normal."""

    weights_M: Tensor
    means_ME: Tensor
    covariances_MEE: Tensor

    def __init__(self, config: Any, networks: PairStatistics, shapes: Shapes, components: int) -> None:
        super().__init__(config, networks, shapes)
        size = math.prod(shapes["x"]) + 1
        self.register_buffer("weights_M", torch.full((components,), 1 / components))
        self.register_buffer("means_ME", torch.zeros(components, size))
        self.register_buffer("covariances_MEE", torch.eye(size).repeat(components, 1, 1))

    def predict(self, x_BX: Tensor) -> ConditionalDensity:
        mixture = conditional(x_BX, self._logits_M(), self.means_ME, self.covariances_MEE)
        sigma_M = mixture.covariances_MTT[:, 0, 0].sqrt()
        means_BM = mixture.means_BMT[..., 0]
        return ConditionalDensity(mixture.log_weights_BM, means_BM, sigma_M.expand_as(means_BM))

    def nll(self, pairs_BE: Tensor) -> Tensor:
        """Mean negative log density of pairs, `[]`."""
        exponents_BM = component_exponents(pairs_BE, self.means_ME, cholesky(self.covariances_MEE))
        constant = pairs_BE.shape[-1] / 2 * math.log(2 * math.pi)
        return prototype_nll(exponents_BM, self._logits_M()).mean() + constant

    def set_mixture(self, weights_M: Tensor, means_ME: Tensor, covariances_MEE: Tensor) -> None:
        """Replace the mixture, in place."""
        self.weights_M.copy_(weights_M)
        self.means_ME.copy_(means_ME)
        self.covariances_MEE.copy_(covariances_MEE)

    def _logits_M(self) -> Tensor:
        return self.weights_M.clamp_min(LEAST_WEIGHT).log()


def joined(batch: Batch) -> Tensor:
    """The pairs of a batch as vectors `[B, E]`."""
    return torch.cat([batch["x"], batch["y"][:, None]], dim=-1)
