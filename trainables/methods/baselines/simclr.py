"""SimCLR: two views of an image are each other's positive among all views of the batch (arXiv 2002.05709).

Shapes: B images, D features, P dimensions of the projection.
"""

from collections.abc import Mapping
from typing import Annotated

from torch import Tensor

from trainables.contract import Batch, Losses
from trainables.data.transformations import TURNS, transformations, transformed
from trainables.losses.similarity import nt_xent
from trainables.methods.projected import ProjectedConfig, ProjectedMethod
from trainables.validation import above, added, checked, one_of

SIMILARITIES = ("cosine", "dot")
ROTATIONS = transformations(shifts=False, flips=False)


@checked
class SimCLRConfig(ProjectedConfig):
    tau: Annotated[float, above(0)] = 0.5
    """Temperature."""
    similarity: Annotated[str, one_of(*SIMILARITIES)] = added("cosine")
    """Similarity of two projections: `cosine` or `dot` product. With `dot` lengths may grow."""
    rotated_negatives: bool = added(False)
    """Whether each image's rotations by 90, 180 and 270 degrees are added to the batch as separate images, and thus as
    negatives: the distribution augmentation of Sohn et al. (2021) for one-class data."""


class SimCLR(ProjectedMethod):
    """Fusible: `tau`. The loss compares the images of a batch, so a batch is not split over devices. Unlike in the
    paper, the projector has a BatchNorm after its hidden layer, which has 512 units by default instead of the width of
    the representation (2048 for a ResNet-50), and the optimiser is SGD instead of LARS."""

    Config = SimCLRConfig
    fusible = frozenset({"tau"})

    tau: Tensor

    @classmethod
    def encoded_count(cls, config: SimCLRConfig) -> int:
        return cls.view_count(config) * (TURNS if config.rotated_negatives else 1)

    def losses(self, batch: Batch, noise: Mapping[str, Tensor]) -> Losses:
        """NT-Xent of the projections."""
        views = batch["views"]
        if self.config.rotated_negatives:
            views = tuple(transformed(view_BCHW, ROTATIONS).flatten(0, 1) for view_BCHW in views)
        first_BP, second_BP = (self.project(view_BCHW) for view_BCHW in views)
        cosine = self.config.similarity == "cosine"
        return Losses(nt_xent(first_BP, second_BP, self.tau, cosine).mean(), {})
