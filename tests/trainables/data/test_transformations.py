"""Fixed transformations of images compared with NumPy's `rot90`, `pad` and `flip`, one image at a time.

Shapes: T transformations, N images, C channels, H by W pixels.
"""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainables.data.transformations import (
    Transformation,
    shift_in_pixels,
    transformations,
    transformed,
)

DIRECTIONS = st.sampled_from([-1, 0, 1])


@given(
    *(st.integers(0, 3), DIRECTIONS, DIRECTIONS, st.booleans(), st.integers(1, 8), st.integers(0, 4)),
    st.integers(0, 2**16),
)
def test_a_transformation_is_numpys_flip_then_shift_then_rotation(
    turns: int, rows: int, columns: int, flip: bool, side: int, most: int, seed: int
) -> None:
    """A shift is a window of the image with mirrored borders."""
    pixels = min(most, side)
    images = np.random.default_rng(seed).normal(size=(2, 3, side, side))
    actual = Transformation(turns, rows, columns, flip)(torch.from_numpy(images), pixels)
    for image_CHW, own_CHW in zip(images, actual.numpy(), strict=True):
        for channel_HW, own_HW in zip(image_CHW, own_CHW, strict=True):
            mirrored_HW = np.fliplr(channel_HW) if flip else channel_HW
            padded_HW = np.pad(mirrored_HW, pixels, mode="symmetric") if pixels else mirrored_HW
            top, left = pixels - rows * pixels, pixels - columns * pixels
            window_HW = padded_HW[top : top + side, left : left + side]
            np.testing.assert_array_equal(np.rot90(window_HW, turns), own_HW)


@pytest.mark.parametrize(
    ("shifts", "flips", "count"), [(False, False, 4), (False, True, 8), (True, False, 36), (True, True, 72)]
)
def test_all_transformations_differ_and_the_first_changes_nothing(shifts: bool, flips: bool, count: int) -> None:
    each = transformations(shifts=shifts, flips=flips)
    images = torch.arange(64.0).view(1, 1, 8, 8)
    copies = transformed(images, each, 2)
    assert len(each) == len({tuple(copy.flatten().tolist()) for copy in copies}) == count
    assert torch.equal(copies[0], images)


def test_under_vmap_each_member_has_its_own_images() -> None:
    each, images = transformations(shifts=True, flips=True), torch.randn(3, 2, 1, 8, 8)
    together = torch.vmap(lambda own: transformed(own, each, 2))(images)
    assert torch.equal(together, torch.stack([transformed(own, each, 2) for own in images]))


def test_a_shift_is_a_share_of_the_side_and_at_least_a_pixel() -> None:
    assert [shift_in_pixels(0.25, (1, side, side)) for side in (8, 28, 32)] == [2, 7, 8]
    with pytest.raises(ValueError, match=r"at least 0\.125 for images of 8x8, but got translation=0\.05$"):
        shift_in_pixels(0.05, (1, 8, 8))
