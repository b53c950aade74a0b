"""DaM-GMJE: the images of a batch are the modes of the joint density of their views (arXiv 2603.26799, section 4.6).

Shapes: B images, D features, P dimensions of the projection.
"""

from collections.abc import Mapping
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor

from trainables.contract import Batch, Losses
from trainables.losses.mixtures import data_as_mode_nll, matching_mode_nll
from trainables.methods.projected import ProjectedConfig, ProjectedMethod
from trainables.validation import above, checked, one_of

NUMERATORS = ("matching", "all")


@checked
class DaMGMJEConfig(ProjectedConfig):
    tau: Annotated[float, above(0)] = 0.1
    """Temperature: the variance of a mode in every direction."""
    numerator: Annotated[str, one_of(*NUMERATORS)] = "matching"
    """Modes that may explain a target: only the `matching` mode of its own image, which makes the loss InfoNCE, or
    `all` modes, as in the exact density, which is largest if all images coincide."""


class DaMGMJE(ProjectedMethod):
    """Fusible: `tau`. Each view is the context of the other in turn. Both halves of a mode are the target embedding,
    and all modes have gradients. Embeddings have unit length."""

    Config = DaMGMJEConfig
    fusible = frozenset({"tau"})

    tau: Tensor

    def losses(self, batch: Batch, noise: Mapping[str, Tensor]) -> Losses:
        """Negative log-likelihood of one view given the other, without the volume of a mode, averaged over both
        directions."""
        first_BP, second_BP = (F.normalize(self.project(view_BCHW), dim=-1) for view_BCHW in batch["views"])
        nll_2B = torch.stack([self._nll(first_BP, second_BP), self._nll(second_BP, first_BP)])
        return Losses(nll_2B.mean(), {})

    def _nll(self, context_BP: Tensor, target_BP: Tensor) -> Tensor:
        if self.config.numerator == "matching":
            return matching_mode_nll(context_BP, target_BP, self.tau)
        return data_as_mode_nll(context_BP, target_BP, target_BP, target_BP, self.tau)
