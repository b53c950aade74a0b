"""The input image itself as its representation: what any encoder, trained or not, has to beat.

Shapes: B images of C channels, H by W pixels; D = C * H * W.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from trainables.contract import Method


@dataclass(frozen=True)
class PixelsConfig:
    """It has no hyperparameters."""


class Pixels(Method):
    """Has no losses, so its trials have `epochs=0`. The encoder is not used: every seed has the same result."""

    Config = PixelsConfig

    @property
    def features(self) -> int:
        """D, the number of values of an image."""
        return math.prod(self.encoder.image_shape)  # type: ignore[arg-type]

    def forward(self, images_BCHW: Tensor) -> Tensor:
        """The normalised pixels as encoders see them, `[B, D]`, in float32."""
        return images_BCHW.flatten(1).float()
