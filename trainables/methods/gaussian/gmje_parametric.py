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
    """Temperature: the variance of a component in every direction; with `covariance=component`, its initial
    variance."""
    entropy_weight: Annotated[float, at_least(0)] = 1.0
    """Weight of the entropy: lambda in the paper times 2P."""
    alignment_weight: Annotated[float, at_least(0)] = 0.0
    """Weight of the squared distance between the views, a term that is not in the paper."""
    ema: Annotated[float, between(0, 1, below=True)] = 0.99
    """Share of its value that the moving average of the joint moment keeps per step. The entropy weight is divided by
    `1 - ema`, the factor by which averaging scales the gradient."""
    epsilon: Annotated[float, above(0)] = 1e-4
    """Added to the diagonal of the joint moment."""
    prototypes: Annotated[int, at_least(2)] = 512
    """Number M of prototypes."""
    tied: bool = False
    """Whether both views share the same prototype point."""
    covariance: Annotated[str, one_of(*COVARIANCES)] = "shared"
    """`shared`: tau times the identity. `component`: each component learns its own covariance, with `4 P^2` entries."""


class ParametricGMJE(ProjectedMethod):
    """Fusible: `tau`, the weights, `ema`. Embeddings and both halves of a prototype have unit length. The covariances
    are parameters instead of batch statistics, because a batch's distance from the mean under its own moment is
    constant.
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
        """The density of the first view, as sampled in the paper (section 5.3): the marginal of the mixture with
        components at the prototypes, all with the averaged moment of the embeddings as covariance."""
        moment_MJJ = self.moment_JJ.expand(self.config.prototypes, -1, -1)
        means_MP, covariances_MPP = marginal(self.means_MJ, moment_MJJ, slice(self.projection))
        return {"logits": self.logits_M, "means": means_MP, "covariances": covariances_MPP}

    def score(self, images_BCHW: Tensor, noise: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Negative log density of the unit-length projection under `density`."""
        z_BP, size = F.normalize(self.project(images_BCHW), dim=-1), self.projection
        factor_PP = cholesky(self.moment_JJ[:size, :size], self.config.epsilon)
        exponents_BM = shared_exponents(z_BP, self.means_MJ[:, :size], factor_PP)
        return {"density": prototype_nll(exponents_BM, self.logits_M) + log_det(factor_PP) / 2}

    def losses(self, batch: Batch, noise: Mapping[str, Tensor]) -> Losses:
        """Negative log-likelihood of the joint embeddings minus the weighted entropy, which replaces the volume of the
        shared covariance in the likelihood."""
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
        """Log densities `[B, M]` of the components, without the volume of a shared covariance."""
        if self.config.covariance == "shared":
            return isotropic_exponents(joint_BJ, self.means_MJ, self.tau)
        factors_MJJ = self.tau.sqrt() * positive_factor(self.raw_factors_MJJ)
        return component_exponents(joint_BJ, self.means_MJ, factors_MJJ)
