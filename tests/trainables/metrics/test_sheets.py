"""Pictures hold every image at its place, enlarged without a blur."""

import io
import math

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from trainables.metrics.sheets import GAP, image_grid, reconstruction_sheet, sample_sheet


def images(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0))


def pixels_of(png: bytes) -> np.ndarray:
    picture = Image.open(io.BytesIO(png))
    assert picture.format == "PNG" and picture.mode == "RGB"
    return np.asarray(picture)


def levels_of(image_CHW: Tensor) -> np.ndarray:
    """The image as uint8 `[H, W, 3]`."""
    return np.broadcast_to(
        np.rint(image_CHW.numpy() * 255).astype(np.uint8).transpose(1, 2, 0), (*image_CHW.shape[1:], 3)
    )


@pytest.mark.parametrize(
    ("shape", "factor"), [((1, 8, 8), 6), ((1, 28, 28), 2), ((3, 32, 32), 2), ((3, 64, 64), 1), ((3, 10, 20), 5)]
)
def test_each_pixel_of_each_image_is_a_square_at_its_place(shape: tuple[int, int, int], factor: int) -> None:
    images_RMCHW, (_, height, width) = images(2, 3, *shape), shape
    grid = image_grid(images_RMCHW).numpy()
    high, wide = GAP + height * factor, GAP + width * factor
    assert grid.shape == (2 * high + GAP, 3 * wide + GAP, 3) and grid.dtype == np.uint8
    covered = np.zeros(grid.shape[:2], dtype=bool)
    for row in range(2):
        for column in range(3):
            square = np.s_[row * high + GAP : (row + 1) * high, column * wide + GAP : (column + 1) * wide]
            expected = np.kron(levels_of(images_RMCHW[row, column]), np.ones((factor, factor, 1), dtype=np.uint8))
            np.testing.assert_array_equal(grid[square], expected)
            covered[square] = True
    assert (grid[~covered] == 255).all()


def test_pixels_out_of_range_are_clipped_and_nan_is_black() -> None:
    row = torch.tensor([-3.0, 0.5, 7.0, math.nan]).view(1, 4, 1, 1, 1).expand(1, 4, 1, 64, 64)
    grid = image_grid(row).numpy()
    assert [grid[GAP, GAP + column * (64 + GAP), 0] for column in range(4)] == [0, 128, 255, 0]


def test_a_sample_sheet_has_a_row_for_each_class_right_of_its_name() -> None:
    samples_RMCHW = images(3, 5, 1, 8, 8)
    pixels, grid = pixels_of(sample_sheet(samples_RMCHW, ("0", "1", "2"))), image_grid(samples_RMCHW).numpy()
    margin = pixels.shape[1] - grid.shape[1]
    np.testing.assert_array_equal(pixels[:, margin:], grid)
    rows = np.array_split(pixels[:, :margin], 3)
    assert all((row < 128).any() for row in rows) and not np.array_equal(rows[0], rows[1])


def test_a_reconstruction_sheet_has_the_originals_above_those_of_each_method() -> None:
    originals_MCHW, own = (
        images(4, 3, 32, 32),
        {"SimVAE": images(4, 3, 32, 32) / 2, "a longer name": images(4, 3, 32, 32) / 3},
    )
    pixels = pixels_of(reconstruction_sheet(originals_MCHW, own))
    rows = torch.stack([originals_MCHW, own["SimVAE"], originals_MCHW, own["a longer name"]])
    grid = image_grid(rows).numpy()
    margin = pixels.shape[1] - grid.shape[1]
    np.testing.assert_array_equal(pixels[:, margin:], grid)
    first, second, third, fourth = np.array_split(pixels[: grid.shape[0] - GAP, :margin], 4)
    np.testing.assert_array_equal(first, third)
    assert not np.array_equal(second, fourth)
    assert (pixels[:, 0] == 255).all(), "the longest name fits"


def test_images_of_two_channels_are_refused() -> None:
    with pytest.raises(ValueError, match="images of 1 or 3 channels, but got 2"):
        image_grid(torch.zeros(1, 1, 2, 8, 8))
