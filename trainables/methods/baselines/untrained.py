"""Baselines that do not train (`epochs=0`): a random encoder, and the pixels themselves.

Shapes: B images of C channels, H by W pixels; D = C * H * W.
"""

import math
from dataclasses import dataclass

from torch import Tensor

from trainables.contract import ImageMethod


@dataclass(frozen=True)
class UntrainedConfig:
    """No hyperparameters."""


class RandomEncoder(ImageMethod):
    """The randomly initialised encoder, the baseline for all training (SimVAE, Table 1)."""

    Config = UntrainedConfig


class Pixels(ImageMethod):
    """The image as its representation, the baseline for all encoders. Every seed gives the same result."""

    Config = UntrainedConfig
    embeds_pixels = True

    @property
    def features(self) -> int:
        """Number of values of an image, D."""
        return math.prod(self.image_shape)

    def forward(self, images_BCHW: Tensor) -> Tensor:
        """The normalised pixels `[B, D]` that encoders receive, in float32."""
        return images_BCHW.flatten(1).float()
