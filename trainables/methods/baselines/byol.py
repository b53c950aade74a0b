"""BYOL: one view predicts the other view's projection by a slowly moving target network (arXiv 2006.07733).

Shapes: B images, D features, P dimensions of the projection.
"""

from collections.abc import Mapping
from typing import Annotated

from torch import Tensor, nn

from trainables.contract import Batch, ImageMethod, Losses, NetworkBuilder, Shapes
from trainables.losses.similarity import unit_squared_distance
from trainables.networks.heads import MovingAverage, mlp
from trainables.validation import at_least, between, checked


@checked
class BYOLConfig:
    ema: Annotated[float, between(0, 1)] = 0.996
    """Decay of the target network's moving average: the share of its value that a weight keeps per step."""
    projector_width: Annotated[int, at_least(1)] = 4096
    """Hidden units of the two-layer projector."""
    projection: Annotated[int, at_least(1)] = 256
    """Dimensions of the projection."""
    predictor_width: Annotated[int, at_least(1)] = 4096
    """Hidden units of the two-layer predictor."""


class BYOL(ImageMethod):
    """Fusible: `ema`. Unlike in the paper, `ema` is constant instead of rising from 0.996 to 1 along half a cosine, and
    the optimiser is SGD instead of LARS, so that weight decay also applies to biases and norms."""

    Config = BYOLConfig
    fusible = frozenset({"ema"})
    per_example = True

    ema: Tensor
    projector: nn.Sequential

    def __init__(self, config: BYOLConfig, networks: NetworkBuilder, shapes: Shapes) -> None:
        super().__init__(config, networks, shapes)
        self.projector = mlp(self.features, config.projector_width, config.projection, norm="batch", bias=False)
        self.predictor = mlp(config.projection, config.predictor_width, config.projection, norm="batch", bias=False)
        self.target = MovingAverage(nn.Sequential(self.encoder, self.projector))

    def losses(self, batch: Batch, noise: Mapping[str, Tensor]) -> Losses:
        """Squared distance of unit vectors, summed over both directions; no gradient reaches the target."""
        predicted_BP = [self.predictor(self.projector(self(view_BCHW))).float() for view_BCHW in batch["views"]]
        target_BP = [self.target(view_BCHW).float() for view_BCHW in batch["views"]]
        loss_B = unit_squared_distance(predicted_BP[0], target_BP[1])
        loss_B = loss_B + unit_squared_distance(predicted_BP[1], target_BP[0])
        return Losses(loss_B.mean(), {})

    def after_step(self, noise: Mapping[str, Tensor]) -> None:
        self.target.update(nn.Sequential(self.encoder, self.projector), self.ema)
