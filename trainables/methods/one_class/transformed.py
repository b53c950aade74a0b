"""Base class of methods that classify the transformations of an image.

Shapes: T transformations, B images of C channels, H by W pixels; D dimensions of a representation.
"""

from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor

from trainables.contract import ImageMethod, NetworkBuilder, Shapes
from trainables.data.transformations import (
    Transformation,
    shift_in_pixels,
    transformations,
    transformed,
)
from trainables.validation import between, checked


@checked
class TransformedConfig:
    translation: Annotated[float, between(0, 0.5)] = 0.25
    """Distance by which copies of an image are shifted left, right, up and down, as a share of its side. 0 for
    rotations without shifts."""


class TransformedMethod(ImageMethod):
    """A step encodes all transformed copies of a view in one pass."""

    capabilities = frozenset({"embed", "score"})
    flips: ClassVar[bool] = False
    """Whether the copies include mirror images."""

    def __init__(self, config: TransformedConfig, networks: NetworkBuilder, shapes: Shapes) -> None:
        super().__init__(config, networks, shapes)
        self.pixels = shift_in_pixels(config.translation, self.image_shape)
        self.transformations = self.transformations_of(config)

    @classmethod
    def view_count(cls, config: Any) -> int:
        return 1

    @classmethod
    def encoded_count(cls, config: Any) -> int:
        return len(cls.transformations_of(config))

    @classmethod
    def transformations_of(cls, config: Any) -> tuple[Transformation, ...]:
        """The T transformations to classify."""
        return transformations(shifts=config.translation > 0, flips=cls.flips)

    @classmethod
    def check_images(cls, config: Any, image_shape: tuple[int, ...]) -> None:
        shift_in_pixels(config.translation, image_shape)

    def copies(self, images_BCHW: Tensor) -> Tensor:
        """The representations `[T, B, D]` of all copies, from one pass of the encoder."""
        copies_TBCHW = transformed(images_BCHW, self.transformations, self.pixels)
        return self(copies_TBCHW.flatten(0, 1)).unflatten(0, copies_TBCHW.shape[:2])

    def copies_in_turn(self, images_BCHW: Tensor) -> Tensor:
        """As `copies`, with the memory of one transformation at a time. In evaluation mode images do not affect each
        other."""
        return torch.stack([self(each(images_BCHW, self.pixels)) for each in self.transformations])
