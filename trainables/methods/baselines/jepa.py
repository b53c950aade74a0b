"""JEPA: one view's embedding predicts the other view's embedding by a slowly moving target encoder, with squared error.

The deterministic baseline of arXiv 2603.26799. Shapes: B images, D features, P dimensions of the projection.
"""

from collections.abc import Mapping
from typing import Annotated

from torch import Tensor, nn

from trainables.contract import Batch, ImageMethod, Losses, NetworkBuilder, Shapes
from trainables.losses.moments import alignment
from trainables.networks.heads import MovingAverage, mlp
from trainables.validation import added, at_least, between, checked


@checked
class JEPAConfig:
    ema: Annotated[float, between(0, 1)] = 0.996
    """Decay of the target network's moving average: the share of its value that a weight keeps per step."""
    projector_width: Annotated[int, at_least(1)] = 512
    """Hidden units of the two-layer projector."""
    projection: Annotated[int, at_least(1)] = 128
    """Dimensions P of the projection."""
    predictor_width: Annotated[int, at_least(1)] = 512
    """Hidden units of the two-layer predictor."""
    symmetric: bool = added(False)
    """Whether targets come from the online network, with gradients, instead of from a target network."""
    standardise: bool = added(True)
    """Whether each dimension of the projections is standardised to mean 0 and variance 1 over the batch, so that
    projections cannot collapse to one point."""


class JEPA(ImageMethod):
    """Fusible: `ema`. The context is the first view, the target the second. Unlike in BYOL, the loss is not
    symmetrised, and projections are standardised over the batch (unless `standardise=false`) instead of scaled to unit
    length."""

    Config = JEPAConfig
    fusible = frozenset({"ema"})
    per_example = True

    ema: Tensor

    def __init__(self, config: JEPAConfig, networks: NetworkBuilder, shapes: Shapes) -> None:
        super().__init__(config, networks, shapes)
        widths = (self.features, config.projector_width, config.projection)
        self.projector = mlp(*widths, norm="batch", last=config.standardise)
        self.predictor = mlp(config.projection, config.predictor_width, config.projection, norm="batch")
        if not config.symmetric:
            self.target = MovingAverage(nn.Sequential(self.encoder, self.projector))

    def losses(self, batch: Batch, noise: Mapping[str, Tensor]) -> Losses:
        """Squared error of the prediction, averaged over images and dimensions; no gradient reaches a target
        network."""
        context_BCHW, target_BCHW = batch["views"]
        predicted_BP = self.predictor(self.projector(self(context_BCHW))).float()
        target_BP = self.project(target_BCHW) if self.config.symmetric else self.target(target_BCHW).float()
        return Losses(alignment(predicted_BP, target_BP).mean() / self.config.projection, {})

    def after_step(self, noise: Mapping[str, Tensor]) -> None:
        if self.config.symmetric:
            return
        self.target.update(nn.Sequential(self.encoder, self.projector), self.ema)
