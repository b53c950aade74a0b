"""JEPA on pairs: a network predicts y from x with squared error.

The deterministic baseline of arXiv 2603.26799, section 5.1: the method `jepa` with y instead of the target's embedding.
If several values of y are possible, it predicts their mean. Shapes: B examples, X inputs.
"""

import math
from collections.abc import Mapping
from typing import Annotated

import torch
from torch import Tensor

from trainables.contract import Batch, ConditionalDensity, Losses, PairsMethod, PairStatistics, Shapes
from trainables.losses.moments import alignment
from trainables.networks.heads import mlp
from trainables.validation import at_least, between, checked


@checked
class JEPAPairsConfig:
    width: Annotated[int, at_least(1)] = 64
    """Hidden units of each of the three layers."""
    ema: Annotated[float, between(0, 1, below=True)] = 0.9
    """Share of its value that the moving average of the squared error keeps per step."""


class JEPAPairs(PairsMethod):
    """Fusible: none of its own hyperparameters. The density is a Gaussian whose variance is the moving average of the
    training error."""

    Config = JEPAPairsConfig

    variance: Tensor

    def __init__(self, config: JEPAPairsConfig, networks: PairStatistics, shapes: Shapes) -> None:
        super().__init__(config, networks, shapes)
        self.predictor = mlp(math.prod(shapes["x"]), config.width, config.width, config.width, 1, norm=None)
        self.register_buffer("variance", torch.ones(()))

    def losses(self, batch: Batch, noise: Mapping[str, Tensor]) -> Losses:
        """The mean squared error of the prediction."""
        predicted_B1 = self.predictor(batch["x"]).float()
        error = alignment(predicted_B1, batch["y"][:, None]).mean()
        self.variance.mul_(self.config.ema).add_((1 - self.config.ema) * error.detach())
        return Losses(error, {})

    def predict(self, x_BX: Tensor) -> ConditionalDensity:
        mean_B1 = self.predictor(x_BX).float()
        return ConditionalDensity(torch.zeros_like(mean_B1), mean_B1, self.variance.sqrt().expand_as(mean_B1))
