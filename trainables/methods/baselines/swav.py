"""SwAV: a view predicts the other view's prototypes, whose assignments are balanced over the batch (arXiv 2006.09882).

Two views of full size, without multi-crop and without a queue. Shapes: B images, D features, P dimensions of the
projection, M prototypes.
"""

from collections.abc import Mapping
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from trainables.contract import Batch, ImageMethod, Losses, NetworkBuilder, Shapes
from trainables.losses.similarity import sinkhorn, swapped_prediction
from trainables.networks.heads import mlp
from trainables.validation import above, at_least, checked


@checked
class SwAVConfig:
    tau: Annotated[float, above(0)] = 0.1
    """Temperature of the prediction."""
    epsilon: Annotated[float, above(0)] = 0.05
    """Entropy regularisation of the assignment. Smaller values give harder assignments."""
    sinkhorn_iterations: Annotated[int, at_least(1)] = 3
    """Iterations of the Sinkhorn algorithm, each of which normalises columns and rows."""
    prototypes: Annotated[int, at_least(2)] = 512
    """Number of prototypes M."""
    projector_width: Annotated[int, at_least(1)] = 2048
    """Hidden units of the two-layer projector."""
    projection: Annotated[int, at_least(1)] = 128
    """Dimensions of the projection."""


class SwAV(ImageMethod):
    """Fusible: `tau`, `epsilon`. Prototypes have unit length by construction and are trained from the first step."""

    Config = SwAVConfig
    fusible = frozenset({"tau", "epsilon"})

    tau: Tensor
    epsilon: Tensor

    def __init__(self, config: SwAVConfig, networks: NetworkBuilder, shapes: Shapes) -> None:
        super().__init__(config, networks, shapes)
        self.projector = mlp(self.features, config.projector_width, config.projection, norm="batch")
        self.prototypes_MP = nn.Parameter(F.normalize(torch.randn(config.prototypes, config.projection), dim=-1))

    def losses(self, batch: Batch, noise: Mapping[str, Tensor]) -> Losses:
        """Cross-entropy between each view's prediction and the other view's assignment (a constant), averaged over
        both."""
        first_BM, second_BM = (self._scores(self.project(view_BCHW)) for view_BCHW in batch["views"])
        loss_B = swapped_prediction(first_BM, self._assigned(second_BM), self.tau)
        loss_B = loss_B + swapped_prediction(second_BM, self._assigned(first_BM), self.tau)
        return Losses(loss_B.mean() / 2, {})

    def _scores(self, projection_BP: Tensor) -> Tensor:
        """Cosines with the prototypes, in float32 even under autocast, because they are divided by small numbers."""
        with torch.autocast(projection_BP.device.type, enabled=False):
            return F.normalize(projection_BP, dim=-1) @ F.normalize(self.prototypes_MP, dim=-1).T

    def _assigned(self, scores_BM: Tensor) -> Tensor:
        return sinkhorn(scores_BM.detach(), self.epsilon, self.config.sinkhorn_iterations)
