"""Methods whose loss compares projections of the representation, with a two-layer projector or none (SimCLR).

Shapes: B images, C channels, H rows, W columns, P dimensions of the projection.
"""

from typing import Annotated, ClassVar, Literal

from trainables.contract import ImageMethod, NetworkBuilder, Shapes
from trainables.networks.heads import projector
from trainables.validation import at_least, checked


@checked
class ProjectedConfig:
    projector_width: Annotated[int, at_least(0)] = 512
    """Hidden units of the two-layer projector; 0 for no projector, so that the loss compares representations."""
    projection: Annotated[int, at_least(1)] = 128
    """Dimensions P of the projection."""


class ProjectedMethod(ImageMethod):
    """A method with the projector that its config describes."""

    projector_norm: ClassVar[Literal["batch"] | None] = "batch"
    """Norm after the hidden layer of the projector."""

    def __init__(self, config: ProjectedConfig, networks: NetworkBuilder, shapes: Shapes) -> None:
        super().__init__(config, networks, shapes)
        width, norm = config.projector_width, self.projector_norm
        self.projector = projector(self.features, width, config.projection, norm)
        self.projection = config.projection if width else self.features
        """Dimensions P of the vectors that the loss compares."""
