"""Grids of images: samples of each class, and reconstructions below their originals, as PNG files; and the most and
least anomalous images for reports, as an NPZ file.

Shapes: R rows of M images, N test images, A images shown; C channels (1 or 3), H rows and W columns of pixels. Pixels
are in [0, 1].
"""

import io
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from trainables.data.image_files import Images
from trainables.data.views import scale_pixels

SIDE = 48
"""Smallest height and width of an image in a picture, in pixels. Smaller images are enlarged by an integer factor."""
GAP = 2
"""Pixels between images."""
MOST_ANOMALIES = 20
"""Maximum number of images that a report shows at each end of a trial's anomaly scores."""
BACKGROUND = 255
"""Grey level between images: white."""


def sample_grid(samples_RMCHW: Tensor, class_names: Sequence[str]) -> bytes:
    """A PNG file with a row of samples for each class."""
    return _png(image_grid(samples_RMCHW), class_names)


def reconstruction_grid(originals_MCHW: Tensor, reconstructions: Mapping[str, Tensor]) -> bytes:
    """A PNG file with two rows for each method: the originals, and below them its reconstructions `[M, C, H, W]`."""
    rows = [row_MCHW for own_MCHW in reconstructions.values() for row_MCHW in (originals_MCHW, own_MCHW)]
    labels = [label for name in reconstructions for label in ("original", name)]
    return _png(image_grid(torch.stack([row_MCHW.cpu() for row_MCHW in rows])), labels)


def image_grid(images_RMCHW: Tensor) -> Tensor:
    """Arrange images in a uint8 picture `[height, width, 3]`, with `GAP` pixels around each.

    Each pixel is enlarged to a square, so that the sides of an image have at least `SIDE` pixels. Pixels outside of
    [0, 1] are clipped, those that are not numbers are black, and a grey channel is repeated. Raises ValueError for
    images with 2 or more than 3 channels.
    """
    channels, height, width = images_RMCHW.shape[2:]
    if channels not in (1, 3):
        raise ValueError(f"a picture shows images of 1 or 3 channels, but got {channels}")
    factor = max(1, -(-SIDE // min(height, width)))
    pixels_RMCHW = (images_RMCHW.detach().cpu().float().nan_to_num(0).clamp(0, 1) * 255).round().byte()
    large_RMCHW = pixels_RMCHW.repeat_interleave(factor, -2).repeat_interleave(factor, -1)
    framed_RMCHW = torch.nn.functional.pad(large_RMCHW, (GAP, 0, GAP, 0), value=BACKGROUND)
    grid_HWC = framed_RMCHW.permute(0, 3, 1, 4, 2).flatten(2, 3).flatten(0, 1)
    closed_CHW = torch.nn.functional.pad(grid_HWC.permute(2, 0, 1), (0, GAP, 0, GAP), value=BACKGROUND)
    return closed_CHW.permute(1, 2, 0).expand(-1, -1, 3).contiguous()


def anomaly_data(
    images: Images,
    scores_N: NDArray[np.float64],
    labels_N: NDArray[np.int64],
    outlier_N: NDArray[np.bool_],
    *,
    levels: int,
    classes: Sequence[str],
    score: str,
    held_out_M: NDArray[np.float64],
) -> bytes:
    """The most and the least anomalous test images by one score, as an NPZ file: `shown`, uint8 `[A, H, W, C]`, at most
    `MOST_ANOMALIES` images of each end, most anomalous first; `places` `[A]`, their indices; `scores`, `labels` and
    `outlier` `[N]` of all test images; and `held_out` `[M]`, the scores of held-out normal images."""
    order_N = np.argsort(-scores_N, kind="stable")
    end = min(MOST_ANOMALIES, len(order_N) // 2)
    places_A = np.concatenate([order_N[:end], order_N[len(order_N) - end :]])
    pixels_ACHW = scale_pixels(images[torch.from_numpy(places_A)], levels)
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        shown=(pixels_ACHW * BACKGROUND).round().byte().permute(0, 2, 3, 1).cpu().numpy(),
        places=places_A,
        scores=scores_N.astype(np.float32),
        labels=labels_N.astype(np.int16),
        outlier=outlier_N,
        held_out=held_out_M.astype(np.float32),
        classes=np.array(classes, dtype=np.str_),
        score=np.array(score),
    )
    return buffer.getvalue()


def _png(grid_HWC: Tensor, labels: Sequence[str]) -> bytes:
    """A PNG file of the picture, with a label to the left of each row. All rows have the same height."""
    height, width, _ = grid_HWC.shape
    row_height = (height - GAP) // len(labels)
    font = ImageFont.load_default()
    margin = GAP + max(int(font.getlength(label)) + 1 for label in labels)
    picture = Image.new("RGB", (margin + width, height), (BACKGROUND,) * 3)
    picture.paste(Image.fromarray(grid_HWC.numpy()), (margin, 0))
    draw = ImageDraw.Draw(picture)
    for row, label in enumerate(labels):
        centre = row * row_height + (row_height + GAP) // 2
        draw.text((margin, centre), label, fill="black", font=font, anchor="rm")
    buffer = io.BytesIO()
    picture.save(buffer, "PNG")
    return buffer.getvalue()
