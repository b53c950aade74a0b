"""Fixed transformations of square images that a network learns to classify: mirroring, shifts and rotations. They need
no random numbers and keep the image size.

Shapes: T transformations, B images of C channels, H rows and W columns.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

TURNS = 4
"""Number of rotations by multiples of 90 degrees, including 0."""
DIRECTIONS = (-1, 0, 1)
"""Directions of a shift along one axis."""


@dataclass(frozen=True)
class Transformation:
    """Mirroring, then a shift, then a rotation."""

    turns: int = 0
    """Number of rotations by 90 degrees, counter-clockwise."""
    rows: int = 0
    """Direction of the shift along the columns: 1 is down."""
    columns: int = 0
    """Direction of the shift along the rows: 1 is right."""
    flip: bool = False
    """Whether left and right are swapped."""

    def __call__(self, images_BCHW: Tensor, pixels: int) -> Tensor:
        """The transformed images; `pixels` is the distance of a shift."""
        images_BCHW = images_BCHW.flip(-1) if self.flip else images_BCHW
        images_BCHW = shifted(shifted(images_BCHW, self.rows * pixels, -2), self.columns * pixels, -1)
        return torch.rot90(images_BCHW, self.turns, (-2, -1)) if self.turns else images_BCHW


def transformations(*, shifts: bool, flips: bool) -> tuple[Transformation, ...]:
    """All rotations, optionally combined with all shifts and mirrorings: 4, 8, 36 or 72. The first is the identity."""
    directions = sorted(DIRECTIONS, key=abs) if shifts else (0,)
    return tuple(
        Transformation(turns, rows, columns, flip)
        for flip, rows, columns, turns in itertools.product(
            (False, True) if flips else (False,), directions, directions, range(TURNS)
        )
    )


def transformed(images_BCHW: Tensor, each: Sequence[Transformation], pixels: int = 0) -> Tensor:
    """The images under each transformation, `[T, B, C, H, W]`."""
    return torch.stack([transformation(images_BCHW, pixels) for transformation in each])


def shifted(images_BCHW: Tensor, pixels: int, dim: int) -> Tensor:
    """The images moved by `pixels` along a dimension, towards larger indices if positive. The gap is filled by
    reflection."""
    size, distance = images_BCHW.shape[dim], abs(pixels)
    if not pixels:
        return images_BCHW
    if pixels < 0:
        return shifted(images_BCHW.flip(dim), distance, dim).flip(dim)
    border = images_BCHW.narrow(dim, 0, distance).flip(dim)
    return torch.cat([border, images_BCHW.narrow(dim, 0, size - distance)], dim)


def shift_in_pixels(translation: float, image_shape: tuple[int, ...]) -> int:
    """The distance in pixels of a shift by this share of an image's side. Raises ValueError if the share is above 0 but
    less than one pixel of images `(C, H, W)`."""
    side = image_shape[-1]
    pixels = round(translation * side)
    if translation and not pixels:
        raise ValueError(
            f"a shift must be at least one pixel, so translation must be 0 or at least {1 / side:.3g} for images of "
            f"{side}x{side}, but got translation={translation}"
        )
    return pixels
