"""The data set: labelled images for training and testing.

Shapes: N images, C channels, H rows, W columns.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from trainables.data.image_files.decoding import Images

UNLABELLED = -1
"""The label of training images of unknown class, and of images for which an attribute is not defined."""


@dataclass(frozen=True, eq=False)
class Attribute:
    """A second label of every image beside its class, such as the hair colour of a face."""

    train_labels: Tensor
    """int64 `[N]`, in 0..classes-1, or UNLABELLED; in the order of the training images."""
    test_labels: Tensor
    """The same for the test images."""
    classes: int
    """Number of values that the attribute takes."""


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
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    """Name -> attribute of the images. Most data sets have none."""
