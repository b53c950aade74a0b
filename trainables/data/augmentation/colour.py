"""Colour augmentations: torchvision's colour adjustments for a whole batch, with a factor for each image.

Shapes: B images, C channels (1 or 3), H rows, W columns. Images are float in [0, 1]; a factor of 1 (hue: 0) changes
nothing. Saturation and hue leave images of one channel unchanged. All functions are pure, run on the images' device and
never wait for it.
"""

import torch
from torch import Tensor


def adjust_brightness(images_BCHW: Tensor, factor_B: Tensor) -> Tensor:
    """Multiply pixels by `factor >= 0`; the result is clipped to [0, 1]."""
    return (images_BCHW * factor_B[:, None, None, None]).clamp(0, 1)


def adjust_contrast(images_BCHW: Tensor, factor_B: Tensor) -> Tensor:
    """Move pixels away from (`factor > 1`) or towards (`factor < 1`) their image's mean grey; clipped to [0, 1]."""
    mean_B111 = _grey(images_BCHW).mean(dim=(1, 2, 3), keepdim=True)
    return torch.lerp(mean_B111, images_BCHW, factor_B[:, None, None, None]).clamp(0, 1)


def adjust_saturation(images_BCHW: Tensor, factor_B: Tensor) -> Tensor:
    """Move pixels away from (`factor > 1`) or towards (`factor < 1`) their own grey; clipped to [0, 1]."""
    if images_BCHW.shape[1] == 1:
        return images_BCHW
    return torch.lerp(_grey(images_BCHW), images_BCHW, factor_B[:, None, None, None]).clamp(0, 1)


def adjust_hue(images_BCHW: Tensor, turn_B: Tensor) -> Tensor:
    """Turn the hue by `turn` in [-0.5, 0.5] of the colour circle. Value and chroma stay the same."""
    if images_BCHW.shape[1] == 1:
        return images_BCHW
    value_BHW, chroma_BHW, sextant_BHW = _value_chroma_hue(images_BCHW)
    sextant_BHW = sextant_BHW + 6 * turn_B[:, None, None]
    channels = [_channel(value_BHW, chroma_BHW, sextant_BHW + corner) for corner in (5, 3, 1)]
    return torch.stack(channels, dim=1)


def greyscale(images_BCHW: Tensor) -> Tensor:
    """Replace all channels of a pixel by its grey value (luma, ITU-R 601)."""
    return _grey(images_BCHW).expand_as(images_BCHW)


def _grey(images_BCHW: Tensor) -> Tensor:
    """Grey values `[B, 1, H, W]`."""
    if images_BCHW.shape[1] == 1:
        return images_BCHW
    red_B1HW, green_B1HW, blue_B1HW = images_BCHW.split(1, dim=1)
    return 0.2989 * red_B1HW + 0.587 * green_B1HW + 0.114 * blue_B1HW


def _value_chroma_hue(images_BCHW: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The largest channel, its distance to the smallest, and the hue in sixths of the circle, each `[B, H, W]`."""
    red_BHW, green_BHW, blue_BHW = images_BCHW.unbind(dim=1)
    value_BHW = torch.maximum(torch.maximum(red_BHW, green_BHW), blue_BHW)
    chroma_BHW = value_BHW - torch.minimum(torch.minimum(red_BHW, green_BHW), blue_BHW)
    divisor_BHW = torch.where(chroma_BHW == 0, 1, chroma_BHW)
    from_green_BHW = 2 + (blue_BHW - red_BHW) / divisor_BHW
    from_blue_BHW = 4 + (red_BHW - green_BHW) / divisor_BHW
    hue_BHW = torch.where(value_BHW == green_BHW, from_green_BHW, from_blue_BHW)
    hue_BHW = torch.where(value_BHW == red_BHW, (green_BHW - blue_BHW) / divisor_BHW, hue_BHW)
    return value_BHW, chroma_BHW, hue_BHW


def _channel(value_BHW: Tensor, chroma_BHW: Tensor, sextant_BHW: Tensor) -> Tensor:
    """One channel of a pixel `sextant` sixths of the circle away from where that channel vanishes."""
    distance_BHW = sextant_BHW.remainder(6)
    return value_BHW - chroma_BHW * torch.minimum(distance_BHW, 4 - distance_BHW).clamp(0, 1)
