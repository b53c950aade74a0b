"""Pictures to look at: samples of each class, and reconstructions below their originals, as PNG files.

Shapes: R rows of M images, C channels (1 or 3), H rows and W columns of pixels. Pixels are in [0, 1].
"""

import io
from collections.abc import Mapping, Sequence

import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

SIDE = 48
"""Smallest height and width of an image in a picture, in pixels. Smaller images are enlarged by a whole factor."""
GAP = 2
"""Pixels between images."""
BACKGROUND = 255
"""Grey level between images: white."""


def sample_sheet(samples_RMCHW: Tensor, class_names: Sequence[str]) -> bytes:
    """A PNG file with a row of samples for each class."""
    return _png(image_grid(samples_RMCHW), class_names)


def reconstruction_sheet(originals_MCHW: Tensor, reconstructions: Mapping[str, Tensor]) -> bytes:
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


def _png(grid_HWC: Tensor, labels: Sequence[str]) -> bytes:
    """A PNG file of the picture, with a label to the left of each row. Rows are equally high."""
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
