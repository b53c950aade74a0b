"""Parametric GMJE: prototypes are the modes of the joint density of an image's two views (arXiv 2603.26799).

Shapes: B images, D features, P dimensions of the projection, J = 2P of a joint embedding, M prototypes.
"""

import math
from collections.abc import Mapping
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainables.contract import Batch, Losses, NetworkBuilder, Shapes
from trainables.losses.linear_algebra import cholesky, log_det, positive_factor
from trainables.losses.mixtures import (
    component_exponents,
    isotropic_exponents,
    marginal,
    prototype_nll,
    shared_exponents,
)
from trainables.losses.moments import alignment, averaged_moment, entropy
from trainables.methods.projected import ProjectedConfig, ProjectedMethod
from trainables.validation import above, at_least, between, checked, one_of

COVARIANCES = ("shared", "component")


@checked
class ParametricGMJEConfig(ProjectedConfig):
    tau: Annotated[float, above(0)] = 0.1
    """Temperature, `tau > 0`: the variance of a component in every direction; with `covariance=component` that at the
    start."""
    entropy_weight: Annotated[float, at_least(0)] = 1.0
    """Weight of the entropy, lambda in the paper, times 2P, at least 0."""
    alignment_weight: Annotated[float, at_least(0)] = 0.0
    """Weight of the squared distance between the views, at least 0. It is not in the paper."""
    ema: Annotated[float, between(0, 1, below=True)] = 0.99
    """Share of its value that the moving average of the joint moment keeps per step, at least 0 and less than 1. The
    weight of the entropy is divided by `1 - ema`, the factor of the gradient."""
    epsilon: Annotated[float, above(0)] = 1e-4
    """Added to the diagonal of the joint moment, above 0."""
    prototypes: Annotated[int, at_least(2)] = 512
    """Number M of prototypes, at least 2."""
    tied: bool = False
    """Whether a prototype is the same point for both views."""
    covariance: Annotated[str, one_of(*COVARIANCES)] = "shared"
    """`shared`: tau times the identity. `component`: each component learns its own covariance, with `4 P^2` numbers
    each."""


class ParametricGMJE(ProjectedMethod):
    """Fusible: `tau`, the weights, `ema`. Embeddings and both halves of a prototype have unit length. The
    covariances are parameters, never the batch's: under its own moment, a batch's distance from the mean is constant.
    """

    Config = ParametricGMJEConfig
    capabilities = ProjectedMethod.capabilities | {"density", "score"}
    scores = ("density",)
    fusible = frozenset({"tau", "entropy_weight", "alignment_weight", "ema"})
    loss_parts = ("nll", "entropy", "alignment")

    tau: Tensor
    entropy_weight: Tensor
    alignment_weight: Tensor
    ema: Tensor
    moment_JJ: Tensor

    def __init__(self, config: ParametricGMJEConfig, networks: NetworkBuilder, shapes: Shapes) -> None:
        super().__init__(config, networks, shapes)
        count, size = config.prototypes, self.projection
        self.prototypes = nn.Parameter(torch.randn(count, 1 if config.tied else 2, size) / math.sqrt(size))
        self.logits_M = nn.Parameter(torch.zeros(count))
        if config.covariance == "component":
            self.raw_factors_MJJ = nn.Parameter(torch.zeros(count, 2 * size, 2 * size))
        self.register_buffer("moment_JJ", torch.eye(2 * size) / size)

    @property
    def means_MJ(self) -> Tensor:
        """The prototypes as joint embeddings."""
        return F.normalize(self.prototypes, dim=-1).expand(-1, 2, -1).flatten(1)

    def density(self) -> dict[str, Tensor]:
        """Of the first view: the marginal of the mixture whose components are at the prototypes, all with the averaged
        moment of the embeddings as their covariance, as the paper samples it (section 5.3)."""
        moment_MJJ = self.moment_JJ.expand(self.config.prototypes, -1, -1)
        means_MP, covariances_MPP = marginal(self.means_MJ, moment_MJJ, slice(self.projection))
        return {"logits": self.logits_M, "means": means_MP, "covariances": covariances_MPP}

    def score(self, images_BCHW: Tensor, noise: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Negative log density of the projection, of unit length, under `density`."""
        z_BP, size = F.normalize(self.project(images_BCHW), dim=-1), self.projection
        factor_PP = cholesky(self.moment_JJ[:size, :size], self.config.epsilon)
        exponents_BM = shared_exponents(z_BP, self.means_MJ[:, :size], factor_PP)
        return {"density": prototype_nll(exponents_BM, self.logits_M) + log_det(factor_PP) / 2}

    def losses(self, batch: Batch, noise: Mapping[str, Tensor]) -> Losses:
        """Negative log-likelihood of the joint embeddings minus the weighted entropy, whose place in the likelihood the
        volume of the shared covariance would take."""
        first_BP, second_BP = (F.normalize(self.project(view_BCHW), dim=-1) for view_BCHW in batch["views"])
        joint_BJ = torch.cat([first_BP, second_BP], dim=-1)
        moment_JJ = averaged_moment(self.moment_JJ.clone(), joint_BJ, self.ema)
        self.moment_JJ.copy_(moment_JJ.detach())
        parts = {
            "nll": prototype_nll(self._exponents(joint_BJ), self.logits_M).mean(),
            "entropy": entropy(moment_JJ, self.config.epsilon),
            "alignment": alignment(first_BP, second_BP).mean(),
        }
        weight = self.entropy_weight / (2 * self.projection * (1 - self.ema))
        total = parts["nll"] - weight * parts["entropy"] + self.alignment_weight * parts["alignment"]
        return Losses(total, parts)

    def _exponents(self, joint_BJ: Tensor) -> Tensor:
        """Logarithms `[B, M]` of the components' densities, without the volume of a shared covariance."""
        if self.config.covariance == "shared":
            return isotropic_exponents(joint_BJ, self.means_MJ, self.tau)
        factors_MJJ = self.tau.sqrt() * positive_factor(self.raw_factors_MJJ)
        return component_exponents(joint_BJ, self.means_MJ, factors_MJJ)
