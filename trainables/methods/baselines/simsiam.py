"""SimSiam: one view predicts the other view's projection, which is held fixed (arXiv 2011.10566).

Shapes: B images, D features, P dimensions of the projection.
"""

from collections.abc import Mapping
from typing import Annotated

from torch import Tensor, nn

from trainables.contract import Batch, ImageMethod, Losses, NetworkBuilder, Shapes
from trainables.losses.similarity import negative_cosine
from trainables.networks.heads import mlp
from trainables.validation import at_least, at_most, checked


@checked
class SimSiamConfig:
    projector_layers: Annotated[int, at_least(1), at_most(100)] = 2
    """Number of layers of the projector. The paper uses 2 for CIFAR-10 and 3 for ImageNet."""
    projector_width: Annotated[int, at_least(1)] = 2048
    """Width of the projector's layers, including the projection."""
    predictor_width: Annotated[int, at_least(1)] = 512
    """Hidden units of the two-layer predictor."""


class SimSiam(ImageMethod):
    """None of its own hyperparameters is fusible, because all determine tensor shapes. Unlike in the paper, the
    predictor follows the learning-rate schedule of all other weights instead of staying at the peak."""

    Config = SimSiamConfig
    per_example = True

    projector: nn.Sequential

    def __init__(self, config: SimSiamConfig, networks: NetworkBuilder, shapes: Shapes) -> None:
        super().__init__(config, networks, shapes)
        width = config.projector_width
        self.projector = mlp(self.features, *[width] * config.projector_layers, norm="batch", last=True)
        self.predictor = mlp(width, config.predictor_width, width, norm="batch")

    def losses(self, batch: Batch, noise: Mapping[str, Tensor]) -> Losses:
        """Negative cosine, averaged over both directions; no gradient flows into the predicted projection."""
        first_BP, second_BP = (self.projector(self(view_BCHW)) for view_BCHW in batch["views"])
        loss_B = negative_cosine(self.predictor(first_BP).float(), second_BP.float().detach())
        loss_B = loss_B + negative_cosine(self.predictor(second_BP).float(), first_BP.float().detach())
        return Losses(loss_B.mean() / 2, {})
