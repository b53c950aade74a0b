"""Baselines that do not train, so their trials have `epochs=0`: a random encoder, and the pixels themselves.

Shapes: B images of C channels, H by W pixels; D = C * H * W.
"""

import math
from dataclasses import dataclass
from typing import cast

from torch import Tensor

from trainables.contract import Method


@dataclass(frozen=True)
class UntrainedConfig:
    """No hyperparameters."""


class RandomEncoder(Method):
    """The encoder as initialised, the baseline for all training (SimVAE, section 4)."""

    Config = UntrainedConfig


class Pixels(Method):
    """The image as its representation, the baseline for all encoders. Every seed gives the same result."""

    Config = UntrainedConfig

    @property
    def features(self) -> int:
        """Number of values of an image, D."""
        return math.prod(cast(tuple[int, int, int], self.encoder.image_shape))

    def forward(self, images_BCHW: Tensor) -> Tensor:
        """The normalised pixels that encoders get, `[B, D]`, in float32."""
        return images_BCHW.flatten(1).float()
