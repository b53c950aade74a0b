"""SimCLR: two views of an image are each other's positive among all views of the batch (arXiv 2002.05709).

Shapes: B images, D features, P dimensions of the projection.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from trainables.contract import Batch, ImageMethod, Losses, NetworkBuilder, Shapes
from trainables.losses.similarity import nt_xent
from trainables.networks.heads import projector
from trainables.validation import positive, whole


@dataclass(frozen=True)
class SimCLRConfig:
    tau: float = 0.5
    """Temperature, `tau > 0`."""
    projector_width: int = 512
    """Hidden units of the two-layer projector; 0 for no projector, so that the loss compares representations."""
    projection: int = 128
    """Dimensions of the projection."""

    def __post_init__(self) -> None:
        positive("tau", self.tau)
        whole("projector_width", self.projector_width, 0)
        whole("projection", self.projection, 1)


class SimCLR(ImageMethod):
    """Fusible: `tau`. The loss compares the images of a batch, so a batch is not split over devices. Unlike in the
    paper, the projector has a BatchNorm after its hidden layer, which is 512 wide by default; the paper's is as wide as
    the representation (2048 for a ResNet-50). The optimiser is the SGD of all methods instead of LARS."""

    Config = SimCLRConfig
    fusible = frozenset({"tau"})

    tau: Tensor

    def __init__(self, config: SimCLRConfig, networks: NetworkBuilder, shapes: Shapes) -> None:
        super().__init__(config, networks, shapes)
        self.projector = projector(self.features, config.projector_width, config.projection, norm="batch")

    def losses(self, batch: Batch, noise: Mapping[str, Tensor]) -> Losses:
        """NT-Xent of the projections."""
        first_BP, second_BP = (self.projector(self(view_BCHW)).float() for view_BCHW in batch["views"])
        return Losses(nt_xent(first_BP, second_BP, self.tau).mean(), {})
