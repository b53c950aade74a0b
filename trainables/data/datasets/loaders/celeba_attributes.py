"""The attributes of CelebA that are used as labels: the hair colour, and binary attributes, by torchvision's names in
lower case.

Shapes: N images, A hair colours.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from trainables.data.datasets.dataset import UNLABELLED

CONTENT = "male"
"""The binary attribute that tells the classes."""
HAIR = ("bald", "black_hair", "blond_hair", "brown_hair", "gray_hair")
"""The binary attributes that make the attribute `hair`, in the order of its values."""
BINARY = (
    *("5_o_clock_shadow", "bags_under_eyes", "bangs", "big_lips", "big_nose", "bushy_eyebrows", "eyeglasses"),
    *("heavy_makeup", "high_cheekbones", "male", "mouth_slightly_open", "no_beard", "oval_face", "pointy_nose"),
    *("smiling", "straight_hair", "wavy_hair", "wearing_earrings", "wearing_lipstick", "young"),
)
"""The 20 binary attributes that are labels of their own."""
ATTRIBUTES: Mapping[str, int] = {"hair": len(HAIR), **dict.fromkeys(BINARY, 2)}
"""Name of each attribute of the data set -> its number of classes."""


def hair_colour(positive_NA: Tensor) -> Tensor:
    """The hair colour, int64 `[N]`: the only positive one of an image's binary attributes (`[N, A]`, 0 or 1), or
    UNLABELLED if none or several are positive."""
    return torch.where(positive_NA.sum(dim=1) == 1, positive_NA.long().argmax(dim=1), UNLABELLED)
