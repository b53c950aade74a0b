"""The data set: labelled images for training and testing.

Shapes: N images, C channels, H rows, W columns.
"""

from dataclasses import dataclass

from torch import Tensor

from trainables.data.image_files.decoding import Images

UNLABELLED = -1
"""The label of training images of unknown class."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Labelled images for training and testing, on the CPU."""

    name: str
    """Its name in DATASETS."""
    train_images: Images
    """uint8 `[N, C, H, W]`, pixels in 0..levels."""
    train_labels: Tensor
    """int64 `[N]`, indices of `classes`, or UNLABELLED."""
    test_images: Images
    """Like `train_images`."""
    test_labels: Tensor
    """int64 `[N]`, indices of `classes`."""
    classes: tuple[str, ...]
    """Names of the classes."""
    levels: int
    """The pixel value of white."""
    mean: tuple[float, ...]
    """Mean of each channel over the training images, for pixels scaled to [0, 1]."""
    std: tuple[float, ...]
    """Standard deviation of each channel over the training images, for pixels scaled to [0, 1]."""
