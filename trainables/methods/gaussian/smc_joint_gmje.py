"""General SMC-GMJE: particles are modes of the joint density of an image's two views (arXiv 2603.26799, appendix N).

Shapes: B images, D features, P dimensions of the projection, J = 2P of a joint embedding, M particles of the bank,
S = M + B particles of the pool.
"""

from collections.abc import Mapping
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainables.contract import Batch, Losses, NetworkBuilder, Noise, Noises, Shapes
from trainables.losses.linear_algebra import log_det, positive_factor
from trainables.losses.mixtures import prototype_nll, shared_exponents
from trainables.losses.moments import alignment, averaged_moment, entropy
from trainables.losses.particles import (
    RESAMPLERS,
    distinct_share,
    drawn_indices,
    effective_sample_size,
    mean_age,
    pool_identities,
    reweighted,
    uniforms_of,
)
from trainables.methods.projected import ProjectedConfig, ProjectedMethod
from trainables.validation import above, at_least, between, checked, one_of


@checked
class JointSMCGMJEConfig(ProjectedConfig):
    tau: Annotated[float, above(0)] = 1.0
    """Temperature: the variance of a component in every direction; with `learned`, its initial variance."""
    learned: bool = True
    """Whether the shared covariance of all components is learned (`4 P^2` entries) and its volume is part of the
    likelihood. Otherwise the covariance is tau times the identity."""
    entropy_weight: Annotated[float, at_least(0)] = 3.2
    """Weight of the entropy: lambda in the paper times 2P."""
    alignment_weight: Annotated[float, at_least(0)] = 2.0
    """Weight of the squared distance between the views, a term that is not in the paper."""
    ema: Annotated[float, between(0, 1, below=True)] = 0.99
    """Share of its value that the moving average of the joint moment keeps per step. The entropy weight is divided by
    `1 - ema`, the factor by which averaging scales the gradient."""
    epsilon: Annotated[float, above(0)] = 1e-4
    """Added to the diagonal of the joint moment."""
    bank: Annotated[int, at_least(1)] = 512
    """Number M of particles in the bank."""
    resampling: Annotated[str, one_of(*RESAMPLERS)] = "multinomial"
    """How the next bank is drawn from the pool: `multinomial` makes M independent draws, as does `alias`, from
    a table instead of cumulative weights; `systematic` takes M equal steps from one random offset, which gives the
    least variable counts."""


class JointSMCGMJE(ProjectedMethod):
    """Fusible: `tau`, the weights, `ema`. Both views have gradients; particles do not.

    A particle's weight is the responsibility that the batch assigns to it, and the bank's weights are the mixture
    weights. The next bank is then drawn from the pool of bank and batch, so its particles have equal weights again.
    This is largely our reconstruction, because the paper does not state the weights at the start of a step.
    """

    Config = JointSMCGMJEConfig
    capabilities = ProjectedMethod.capabilities | {"score"}
    scores = ("density",)
    fusible = frozenset({"tau", "entropy_weight", "alignment_weight", "ema"})
    loss_parts = ("nll", "entropy", "alignment", "ess", "bank_distinct", "bank_age")
    measures = frozenset({"ess", "bank_distinct", "bank_age"})

    tau: Tensor
    entropy_weight: Tensor
    alignment_weight: Tensor
    ema: Tensor
    bank_MJ: Tensor
    identities_M: Tensor
    moment_JJ: Tensor

    def __init__(self, config: JointSMCGMJEConfig, networks: NetworkBuilder, shapes: Shapes) -> None:
        super().__init__(config, networks, shapes)
        if config.learned:
            self.raw_factor_JJ = nn.Parameter(torch.zeros(2 * self.projection, 2 * self.projection))
        halves = F.normalize(torch.randn(config.bank, 2, self.projection), dim=-1)
        self.register_buffer("bank_MJ", halves.flatten(1))
        self.register_buffer("identities_M", torch.arange(config.bank))
        self.register_buffer("moment_JJ", torch.eye(2 * self.projection) / self.projection)

    def noise(self, batch: int) -> Noises:
        return {"resampling": Noise((uniforms_of(self.config.resampling, self.config.bank),), kind="uniform")}

    def losses(self, batch: Batch, noise: Mapping[str, Tensor]) -> Losses:
        """Negative log-likelihood of the joint embeddings under the bank, minus the weighted entropy. The noise affects
        only the draw of the next bank."""
        first_BP, second_BP = (F.normalize(self.project(view_BCHW), dim=-1) for view_BCHW in batch["views"])
        joint_BJ = torch.cat([first_BP, second_BP], dim=-1)
        nll, log_weights_S = self._nll(joint_BJ)
        indices_M = drawn_indices(self.config.resampling, log_weights_S, noise["resampling"], self.config.bank)
        self.bank_MJ.copy_(torch.cat([self.bank_MJ, joint_BJ.detach()])[indices_M])
        identities_M = pool_identities(self.identities_M, len(joint_BJ))[indices_M]
        self.identities_M.copy_(identities_M)
        moment_JJ = averaged_moment(self.moment_JJ.clone(), joint_BJ, self.ema)
        self.moment_JJ.copy_(moment_JJ.detach())
        parts = {
            "nll": nll,
            "entropy": entropy(moment_JJ, self.config.epsilon),
            "alignment": alignment(first_BP, second_BP).mean(),
            "ess": effective_sample_size(log_weights_S),
            "bank_distinct": distinct_share(identities_M),
            "bank_age": mean_age(identities_M, len(joint_BJ)),
        }
        weight = self.entropy_weight / (2 * self.projection * (1 - self.ema))
        return Losses(nll - weight * parts["entropy"] + self.alignment_weight * parts["alignment"], parts)

    def score(self, images_BCHW: Tensor, noise: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Negative log density of the unit-length projection under the marginal of the bank's first view."""
        z_BP, size = F.normalize(self.project(images_BCHW), dim=-1), self.projection
        factor_PP = self._covariance(z_BP)[0][:size, :size]
        exponents_BM = shared_exponents(z_BP, self.bank_MJ[:, :size], factor_PP)
        return {"density": prototype_nll(exponents_BM, torch.zeros_like(self.bank_MJ[:, 0])) + log_det(factor_PP) / 2}

    def _nll(self, joint_BJ: Tensor) -> tuple[Tensor, Tensor]:
        """Mean negative log-likelihood under the bank, and log weights `[S]` of the new pool."""
        pool_SJ = torch.cat([self.bank_MJ.clone(), joint_BJ.detach()])
        factor_JJ, half_volume = self._covariance(joint_BJ)
        exponents_BS = shared_exponents(joint_BJ, pool_SJ, factor_JJ)
        seen_BS = exponents_BS.detach()
        uniform_S, size = torch.zeros_like(seen_BS[0]), self.config.bank
        log_weights_M = reweighted(uniform_S[:size], seen_BS[:, :size])
        nll = prototype_nll(exponents_BS[:, :size], log_weights_M).mean() + half_volume
        return nll, reweighted(uniform_S, seen_BS)

    def _covariance(self, joint_BJ: Tensor) -> tuple[Tensor, Tensor]:
        """Lower factor of the shared covariance and half its log-determinant, which is 0 if it is not learned."""
        if self.config.learned:
            factor_JJ = self.tau.sqrt() * positive_factor(self.raw_factor_JJ)
            return factor_JJ, log_det(factor_JJ) / 2
        identity_JJ = torch.eye(joint_BJ.shape[-1], dtype=joint_BJ.dtype, device=joint_BJ.device)
        return self.tau.sqrt() * identity_JJ, torch.zeros_like(joint_BJ[0, 0])
