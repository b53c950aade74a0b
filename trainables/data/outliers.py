"""Images that a model was not trained for, to be told from the test images: other sets, held-out classes, corruptions.

Shapes: N images, C channels, H rows, W columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from trainables.data.dataset import Dataset, Images
from trainables.data.datasets import RESIDENT, load
from trainables.data.declarations import DECLARATIONS
from trainables.data.folders import Folder
from trainables.data.splits import Split, choose
from trainables.validation import choices

BLOCK = 512
"""Images worked on at a time; fixed, because the noise of corruptions is drawn for each such block."""
NOISE = 0.2
"""Standard deviation of the noise over white: between severities 3 and 4 of ImageNet-C, past the strongest of
CIFAR-10-C. A person still sees what is shown."""
BLUR = 4
"""Side of an image over that of the smaller one to which blurring reduces it."""
MOST = 10_000
"""Outliers made from a set that is not resident: as many test images as CIFAR has, evenly spaced in their order."""

Corruption = Callable[[Tensor, torch.Generator], Tensor]


def noise(images_NCHW: Tensor, generator: torch.Generator) -> Tensor:
    """Gaussian noise of standard deviation NOISE on images in [0, 1]."""
    return images_NCHW + NOISE * torch.randn(images_NCHW.shape, generator=generator)


def inverted(images_NCHW: Tensor, generator: torch.Generator) -> Tensor:
    """White for black."""
    return 1 - images_NCHW


def shuffled(images_NCHW: Tensor, generator: torch.Generator) -> Tensor:
    """The pixels of each image in an order of its own, each with its colour: the histogram stays."""
    flat_NCP = images_NCHW.flatten(2)
    order_NP = torch.rand((len(flat_NCP), flat_NCP.shape[2]), generator=generator).argsort(dim=1)
    return flat_NCP.gather(2, order_NP[:, None].expand_as(flat_NCP)).view_as(images_NCHW)


def blurred(images_NCHW: Tensor, generator: torch.Generator) -> Tensor:
    """What is left of each image at a quarter of its side."""
    height, width = images_NCHW.shape[2:]
    return resized(resized(images_NCHW, (max(1, height // BLUR), max(1, width // BLUR))), (height, width))


CORRUPTIONS: Mapping[str, Corruption] = {
    "noise": noise, "inverted": inverted, "shuffled": shuffled, "blurred": blurred,
}  # fmt: skip
"""Name -> float images in [0, 1], corrupted with the help of a generator; the result is cut to [0, 1]."""

OUTLIERS = (*RESIDENT, "held_out", *CORRUPTIONS)
"""The names of all outliers."""


def outliers(name: str, dataset: Dataset, split: Split, root: Path) -> Tensor:
    """uint8 `[N, C, H, W]` as the test images of `split`, a split of `dataset`: same C, H and W, pixels in 0..levels.

    The test images of another set, resized and rescaled, those of the held-out classes, or the inliers among the test
    images, corrupted; always the same ones. ValueError for an unknown name, the data set itself, one of other channels,
    or held-out classes where there are none. DataError where the other set cannot be had from `root`.
    """
    check(name, dataset, split)
    if name == "held_out":
        assert split.held_out_images is not None
        return _some(split.held_out_images)
    if name in CORRUPTIONS:
        normal = split.test_images if split.outlier is None else choose(split.test_images, ~split.outlier)
        return _corrupted(_some(normal), CORRUPTIONS[name], split.levels)
    other = load(name, root)
    height, width = split.test_images.shape[2:]
    return _fitted(_some(other.test_images), (height, width), other.levels, split.levels)


def check(name: str, dataset: Dataset, split: Split) -> None:
    """ValueError where `outliers` would raise one; no pixel is looked at, and nothing is loaded."""
    choices("outliers", name, OUTLIERS)
    if name == "held_out" and split.held_out_images is None:
        raise ValueError("the outliers 'held_out' need classes that are held out, but none are")
    if name not in DECLARATIONS:
        return
    if name == dataset.name:
        raise ValueError(f"outliers must come from another set than the one trained on, but got {name!r} for both")
    channels, (theirs, _, _) = dataset.test_images.shape[1], DECLARATIONS[name].shape
    if theirs != channels:
        raise ValueError(
            f"outliers must have as many channels as the images of {dataset.name}, {channels}, but those of {name!r} "
            f"have {theirs}"
        )


def resized(images_NCHW: Tensor, size: tuple[int, int]) -> Tensor:
    """Float images at another height and width: bilinear, antialiased where they shrink."""
    return F.interpolate(images_NCHW, size, mode="bilinear", antialias=True, align_corners=False)


def _some(images: Images) -> Tensor:
    """All of a tensor, MOST of a folder."""
    if not isinstance(images, Folder):
        return images
    count = min(MOST, len(images))
    return images[torch.arange(count) * len(images) // count]


def _corrupted(images_NCHW: Tensor, corruption: Corruption, levels: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return _in_blocks(images_NCHW, lambda block: corruption(block / levels, generator), levels)


def _fitted(images_NCHW: Tensor, size: tuple[int, int], levels: int, wanted: int) -> Tensor:
    if (images_NCHW.shape[2:], levels) == (size, wanted):
        return images_NCHW
    return _in_blocks(images_NCHW, lambda block: resized(block / levels, size), wanted)


def _in_blocks(images_NCHW: Tensor, change: Callable[[Tensor], Tensor], levels: int) -> Tensor:
    """`change` gives floats, where 1 is white, which become uint8 in 0..levels."""
    return torch.cat([(change(block) * levels).round().clamp(0, levels).byte() for block in images_NCHW.split(BLOCK)])
