"""SimCLR: two views of an image are each other's positive among all views of the batch (arXiv 2002.05709).

Shapes: B images, D features, P dimensions of the projection.
"""

from collections.abc import Mapping
from typing import Annotated

from torch import Tensor

from trainables.contract import Batch, Losses
from trainables.losses.similarity import nt_xent
from trainables.methods.projected import ProjectedConfig, ProjectedMethod
from trainables.validation import above, added, checked, one_of

SIMILARITIES = ("cosine", "dot")


@checked
class SimCLRConfig(ProjectedConfig):
    tau: Annotated[float, above(0)] = 0.5
    """Temperature, `tau > 0`."""
    similarity: Annotated[str, one_of(*SIMILARITIES)] = added("cosine")
    """Similarity of two projections: their `cosine`, or their `dot` product, with which lengths may grow."""


class SimCLR(ProjectedMethod):
    """Fusible: `tau`. The loss compares the images of a batch, so a batch is not split over devices. Unlike in the
    paper, the projector has a BatchNorm after its hidden layer, which is 512 wide by default; the paper's is as wide as
    the representation (2048 for a ResNet-50). The optimiser is the SGD of all methods instead of LARS."""

    Config = SimCLRConfig
    fusible = frozenset({"tau"})

    tau: Tensor

    def losses(self, batch: Batch, noise: Mapping[str, Tensor]) -> Losses:
        """NT-Xent of the projections."""
        first_BP, second_BP = (self.project(view_BCHW) for view_BCHW in batch["views"])
        cosine = self.config.similarity == "cosine"
        return Losses(nt_xent(first_BP, second_BP, self.tau, cosine).mean(), {})
