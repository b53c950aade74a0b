"""What is done to the pixels of a view beside its augmentations: the directions of flips, the order, and the scale.

They are apart from `Views` because every key of `Views` is part of every trial's id.
"""

from collections.abc import Mapping
from typing import Annotated

from trainables.validation import checked, one_of

FLIPS: Mapping[str, tuple[str, ...]] = {
    "horizontal": ("flip",),
    "vertical": ("flip_vertical",),
    "both": ("flip", "flip_vertical"),
}
"""Direction -> the parameters of its flips."""


@checked
class PixelViews:
    """How views are flipped, ordered and scaled. The defaults are those of MoCo v2."""

    flip_direction: Annotated[str, one_of(*FLIPS)] = "horizontal"
    """Direction of flips: horizontal, vertical, or both, which are two independent flips of the same probability."""
    jitter_first: bool = False
    """Jitter colours before the crop instead of after it. The contrast is then that of the whole image. Image files are
    cropped while they are decoded, so for them this is impossible."""
    normalise: bool = True
    """Subtract the mean and divide by the standard deviation of each channel. False leaves pixels in [0, 1]."""
    binarise: bool = False
    """Make pixels above 0.5 white and all others black, after the augmentation, and in evaluation, too."""


DEFAULT = PixelViews()
"""Views as most papers make them."""
