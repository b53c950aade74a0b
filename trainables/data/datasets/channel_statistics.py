"""Mean and standard deviation of the channels of images.

Shapes: N images, C channels, H rows, W columns.
"""

import torch
from torch import Tensor


def channel_statistics(images_NCHW: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each channel, float64 `[C]`, of uint8 images whose pixels in 0..255 are scaled to
    [0, 1]: exact, from counts."""
    counts = torch.stack([torch.bincount(channel.flatten(), minlength=256) for channel in images_NCHW.unbind(1)])
    share = counts.double() / counts.sum(dim=1, keepdim=True)
    value = torch.arange(256, dtype=torch.float64) / 255
    mean = share @ value
    return mean, (share @ value.square() - mean.square()).clamp(min=0).sqrt()
