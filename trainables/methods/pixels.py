"""The input image itself as its representation, the baseline for all encoders.

Shapes: B images of C channels, H by W pixels; D = C * H * W.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from trainables.contract import Method


@dataclass(frozen=True)
class PixelsConfig:
    """No hyperparameters."""


class Pixels(Method):
    """Does not train: its trials have `epochs=0`. The encoder is not used, so every seed gives the same result."""

    Config = PixelsConfig

    @property
    def features(self) -> int:
        """Number of values of an image, D."""
        return math.prod(self.encoder.image_shape)  # type: ignore[arg-type]

    def forward(self, images_BCHW: Tensor) -> Tensor:
        """The normalised pixels that encoders get, `[B, D]`, in float32."""
        return images_BCHW.flatten(1).float()
