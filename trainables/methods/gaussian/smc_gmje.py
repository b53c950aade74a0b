"""SMC-GMJE: MoCo with particles as negatives, resampled by their similarity to the queries (arXiv 2603.26799).

Shapes: B images, D features, P dimensions of the projection, M particles of the bank, S = M + B particles of the pool.
"""

from collections.abc import Mapping
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainables.contract import Batch, Losses, NetworkBuilder, Noise, Noises, Shapes
from trainables.losses.mixtures import isotropic_exponents, prototype_nll
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
from trainables.losses.similarity import info_nce_of, similarities
from trainables.methods.projected import ProjectedConfig, ProjectedMethod
from trainables.networks.heads import MovingAverage
from trainables.validation import above, at_least, between, checked, one_of


@checked
class SMCGMJEConfig(ProjectedConfig):
    tau: Annotated[float, above(0)] = 0.1
    """Temperature of the loss and of the particles' weights."""
    ema: Annotated[float, between(0, 1)] = 0.99
    """Decay of the key encoder's moving average: the share of its value that a weight keeps per step."""
    bank: Annotated[int, at_least(1)] = 4096
    """Number M of particles in the bank."""
    resampling: Annotated[str, one_of(*RESAMPLERS)] = "multinomial"
    """How the next bank is drawn from the pool: `multinomial` makes M independent draws, as does `alias`, from
    a table instead of cumulative weights; `systematic` takes M equal steps from one random offset, which gives the
    least variable counts."""


class SMCGMJE(ProjectedMethod):
    """Fusible: `tau`, `ema`. The size of the bank is not fusible, because it determines a tensor shape.

    Queries come from the first view, keys from the second. The bank is resampled in every step, so all its particles
    have equal weight. `ess` is the effective sample size of the pool before resampling, from 1 to M + B. It ignores
    copies; `bank_distinct` and `bank_age` report the share of distinct particles in the new bank and their age.
    """

    Config = SMCGMJEConfig
    capabilities = ProjectedMethod.capabilities | {"score"}
    scores = ("density",)
    fusible = frozenset({"tau", "ema"})
    projector_norm = None
    loss_parts = ("ess", "bank_distinct", "bank_age")
    measures = frozenset({"ess", "bank_distinct", "bank_age"})

    tau: Tensor
    ema: Tensor
    bank_MP: Tensor
    identities_M: Tensor

    def __init__(self, config: SMCGMJEConfig, networks: NetworkBuilder, shapes: Shapes) -> None:
        super().__init__(config, networks, shapes)
        self.keys = MovingAverage(nn.Sequential(self.encoder, self.projector))
        self.register_buffer("bank_MP", F.normalize(torch.randn(config.bank, self.projection), dim=-1))
        self.register_buffer("identities_M", torch.arange(config.bank))

    def noise(self, batch: int) -> Noises:
        return {"resampling": Noise((uniforms_of(self.config.resampling, self.config.bank),), kind="uniform")}

    def losses(self, batch: Batch, noise: Mapping[str, Tensor]) -> Losses:
        """InfoNCE of the queries against their own keys and the bank. The next bank is then drawn from the bank and the
        keys. The noise affects only this draw."""
        query_images_BCHW, key_images_BCHW = batch["views"]
        query_BP = self.project(query_images_BCHW)
        key_BP = F.normalize(self.keys(key_images_BCHW).float(), dim=-1)
        pool_SP = torch.cat([self.bank_MP, key_BP])  # one similarity matrix serves both the loss and the weights
        exponents_BS = similarities(query_BP, pool_SP, self.tau)
        negative_BM, key_BB = exponents_BS.split((self.config.bank, len(key_BP)), dim=-1)
        loss_B = info_nce_of(key_BB.diagonal(), negative_BM)
        log_weights_S = reweighted(torch.zeros_like(pool_SP[:, 0]), exponents_BS.detach())
        indices_M = drawn_indices(self.config.resampling, log_weights_S, noise["resampling"], self.config.bank)
        self.bank_MP.copy_(pool_SP[indices_M])
        identities_M = pool_identities(self.identities_M, len(key_BP))[indices_M]
        self.identities_M.copy_(identities_M)
        parts = {
            "ess": effective_sample_size(log_weights_S),
            "bank_distinct": distinct_share(identities_M),
            "bank_age": mean_age(identities_M, len(key_BP)),
        }
        return Losses(loss_B.mean(), parts)

    def score(self, images_BCHW: Tensor, noise: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Negative log density of the unit-length projection under the bank's particles as modes of variance tau and
        equal weight, without their volume, which is the same for all images."""
        exponents_BM = isotropic_exponents(F.normalize(self.project(images_BCHW), dim=-1), self.bank_MP, self.tau)
        return {"density": prototype_nll(exponents_BM, torch.zeros_like(self.bank_MP[:, 0]))}

    def after_step(self, noise: Mapping[str, Tensor]) -> None:
        self.keys.update(nn.Sequential(self.encoder, self.projector), self.ema)
