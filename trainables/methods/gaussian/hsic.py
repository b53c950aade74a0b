"""HSIC: maximises the kernel-measured dependence between the views of an image (arXiv 2603.26799, appendix I).

Shapes: B images, D features, P dimensions of the projection.
"""

from collections.abc import Mapping
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor

from trainables.contract import Batch, Losses
from trainables.losses.kernels import hsic, median_length, rbf_kernel
from trainables.losses.moments import entropy, second_moment
from trainables.methods.projected import ProjectedConfig, ProjectedMethod
from trainables.validation import above, at_least, checked

SHORTEST = 1e-2
"""Minimum length scale, because the median distance between collapsed embeddings is 0."""


@checked
class HSICConfig(ProjectedConfig):
    length: Annotated[float, at_least(0)] = 0.0
    """Length scale of the kernels; 0 takes the median distance between each view's embeddings."""
    entropy_weight: Annotated[float, at_least(0)] = 1.0
    """Weight of the entropies of both views, times 2P. At 0 the embeddings form two clusters."""
    epsilon: Annotated[float, above(0)] = 1e-4
    """Added to the diagonal of the moments."""


class HSIC(ProjectedMethod):
    """Fusible: `entropy_weight`, `epsilon`. Embeddings have unit length. Both views have gradients; the median does
    not."""

    Config = HSICConfig
    fusible = frozenset({"entropy_weight", "epsilon"})
    loss_parts = ("hsic", "entropy")

    entropy_weight: Tensor
    epsilon: Tensor

    def losses(self, batch: Batch, noise: Mapping[str, Tensor]) -> Losses:
        """The negative dependence between the views, minus their weighted entropies."""
        embeddings = [F.normalize(self.project(view_BCHW), dim=-1) for view_BCHW in batch["views"]]
        parts = {
            "hsic": hsic(*(self._kernel(z_BP) for z_BP in embeddings)),
            "entropy": entropy(second_moment(torch.stack(embeddings)), self.epsilon).sum(),
        }
        weight = self.entropy_weight / (2 * self.projection)
        return Losses(-parts["hsic"] - weight * parts["entropy"], parts)

    def _kernel(self, z_BP: Tensor) -> Tensor:
        return rbf_kernel(z_BP, z_BP, self.config.length or median_length(z_BP.detach(), SHORTEST))
