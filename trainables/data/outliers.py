"""Outliers that a model should distinguish from the test images: other data sets, held-out classes, corrupted images.

Shapes: N images, C channels, H rows, W columns.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from trainables.data.datasets.catalog import DATASETS, load
from trainables.data.datasets.dataset import Dataset
from trainables.data.image_files import Images
from trainables.data.splits import Split, select_images
from trainables.data.views import scale_pixels
from trainables.validation import choices

BLOCK_SIZE = 512
"""Images processed at a time. Fixed, because the noise of corruptions is drawn per block."""
NOISE_STD = 0.2
"""Standard deviation of the noise, on a scale where white is 1. This lies between severities 3 and 4 of ImageNet-C and
beyond the strongest of CIFAR-10-C; people still recognise the images."""
BLUR_FACTOR = 4
"""Factor by which blurring shrinks the side of an image before enlarging it again."""
MAX_OUTLIERS = 10_000
"""Maximum number of outliers (evenly spaced) from images that are decoded on demand: the number of CIFAR test
images."""

Corruption = Callable[[Tensor, torch.Generator], Tensor]


def noise(images_NCHW: Tensor, generator: torch.Generator) -> Tensor:
    """Add Gaussian noise of standard deviation NOISE_STD."""
    return images_NCHW + NOISE_STD * torch.randn(images_NCHW.shape, generator=generator)


def inverted(images_NCHW: Tensor, generator: torch.Generator) -> Tensor:
    """Exchange black and white."""
    return 1 - images_NCHW


def shuffled(images_NCHW: Tensor, generator: torch.Generator) -> Tensor:
    """Permute the pixels of each image in its own random order. Colours and the histogram stay the same."""
    flat_NCP = images_NCHW.flatten(2)
    order_NP = torch.rand((len(flat_NCP), flat_NCP.shape[2]), generator=generator).argsort(dim=1)
    return flat_NCP.gather(2, order_NP[:, None].expand_as(flat_NCP)).view_as(images_NCHW)


def blurred(images_NCHW: Tensor, generator: torch.Generator) -> Tensor:
    """Shrink each image to a quarter of its side and enlarge it again."""
    height, width = images_NCHW.shape[2:]
    return resize(resize(images_NCHW, (max(1, height // BLUR_FACTOR), max(1, width // BLUR_FACTOR))), (height, width))


CORRUPTIONS: Mapping[str, Corruption] = {
    "noise": noise, "inverted": inverted, "shuffled": shuffled, "blurred": blurred,
}  # fmt: skip
"""Name -> corruption of float images in [0, 1]. It may draw from a generator; results are clipped to [0, 1]."""

IN_MEMORY = tuple(name for name, source in DATASETS.items() if not source.declaration.files)
OUTLIERS = (*IN_MEMORY, "held_out", *CORRUPTIONS)
"""Names of all outlier sets."""


def load_outliers(name: str, dataset: Dataset, split: Split, root: Path) -> Tensor:
    """The outlier set `name`, uint8 `[N, C, H, W]`, with C, H, W and levels of the test images of `split`, a split of
    `dataset`. The result is deterministic.

    - name of a data set: its test images, resized and rescaled
    - `held_out`: the test images of the held-out classes
    - name of a corruption: the inliers among the test images, corrupted

    Raises ValueError for an unknown name, for `dataset` itself, for a data set with a different number of channels, and
    for `held_out` without held-out classes. Raises DataError if the other data set cannot be loaded from `root`.
    """
    check_outliers(name, dataset, split)
    if name == "held_out":
        assert split.held_out_images is not None
        return _at_most(split.held_out_images)
    if name in CORRUPTIONS:
        inliers = split.test_images if split.outlier is None else select_images(split.test_images, ~split.outlier)
        corrupt, generator = CORRUPTIONS[name], torch.Generator().manual_seed(0)
        return _in_blocks(
            _at_most(inliers), lambda block: corrupt(scale_pixels(block, split.levels), generator), split.levels
        )
    other = load(name, root)
    images, (height, width) = _at_most(other.test_images), split.test_images.shape[2:]
    if images.shape[2:] == (height, width) and other.levels == split.levels:
        return images
    return _in_blocks(images, lambda block: resize(block / other.levels, (height, width)), split.levels)


def check_outliers(name: str, dataset: Dataset, split: Split) -> None:
    """Raises ValueError as `load_outliers`, without reading or loading any image."""
    choices("outliers", name, OUTLIERS)
    if name == "held_out" and split.held_out_images is None:
        raise ValueError("the outliers 'held_out' need held-out classes, but got held_out=''")
    if name not in DATASETS:
        return
    if name == dataset.name:
        raise ValueError(
            f"outliers must come from another data set than the training images, but got {name!r} for both"
        )
    channels, (outlier_channels, _, _) = dataset.test_images.shape[1], DATASETS[name].declaration.shape
    if outlier_channels != channels:
        raise ValueError(
            f"outliers must have as many channels as the images of {dataset.name}, {channels}, but those of {name!r} "
            f"have {outlier_channels}"
        )


def resize(images_NCHW: Tensor, size: tuple[int, int]) -> Tensor:
    """Resize float images to another height and width: bilinear, with antialiasing."""
    return F.interpolate(images_NCHW, size, mode="bilinear", antialias=True, align_corners=False)


def _at_most(images: Images) -> Tensor:
    """All images of a tensor, or at most MAX_OUTLIERS of images that are decoded on demand."""
    if isinstance(images, Tensor):
        return images
    count = min(MAX_OUTLIERS, len(images))
    return images[torch.arange(count) * len(images) // count]


def _in_blocks(images_NCHW: Tensor, change: Callable[[Tensor], Tensor], levels: int) -> Tensor:
    """Apply `change`, which returns float images with white as 1, and convert the result to uint8 in 0..levels."""
    return torch.cat(
        [(change(block) * levels).round().clamp(0, levels).byte() for block in images_NCHW.split(BLOCK_SIZE)]
    )
