"""Batched augmentations with parameters per image: crop, rotation and shift, blur, and torchvision's colour
adjustments.

All functions are pure, run on the images' device and never wait for it. Colour adjustments take images in [0, 1]; a
factor of 1 (hue: 0) changes nothing, and saturation and hue leave one-channel images unchanged. Shapes: B images
(float32), C channels (1 or 3), H rows, W columns, S pixels along a side, K taps of a kernel.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

CROP_ATTEMPTS = 10
"""Random boxes tried for an image before the central one is used, as in torchvision's RandomResizedCrop."""


def draw_boxes(
    generator: torch.Generator, n: int, height: int, width: int, crop_scale: float, crop_ratio: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Draw `n` random crops like torchvision's RandomResizedCrop: returns top, left, height and width, float32 `[n]`
    each, in whole pixels.

    The area is uniform in [crop_scale, 1] of the image, the aspect ratio log-uniform in [1/crop_ratio, crop_ratio]. The
    first of ten candidates that fits is used. If none fits, the result is the largest central box of an allowed ratio.
    """
    area_NA, ratio_NA = torch.rand((2, n, CROP_ATTEMPTS), generator=generator)
    area_NA = (crop_scale + (1 - crop_scale) * area_NA) * (height * width)
    ratio_NA = torch.exp((2 * ratio_NA - 1) * math.log(crop_ratio))
    w_NA, h_NA = (area_NA * ratio_NA).sqrt().round(), (area_NA / ratio_NA).sqrt().round()
    fits_NA = (w_NA > 0) & (w_NA <= width) & (h_NA > 0) & (h_NA <= height)
    first_N1 = fits_NA.int().argmax(dim=1, keepdim=True)
    any_fits_N = fits_NA.any(dim=1)

    central_w = min(width, round(height * crop_ratio))
    central_h = min(height, round(width * crop_ratio))
    w_N = torch.where(any_fits_N, w_NA.gather(1, first_N1).squeeze(1), float(central_w))
    h_N = torch.where(any_fits_N, h_NA.gather(1, first_N1).squeeze(1), float(central_h))
    position_2N = torch.rand((2, n), generator=generator)
    top_N = torch.where(any_fits_N, (position_2N[0] * (height - h_N + 1)).floor(), float((height - central_h) // 2))
    left_N = torch.where(any_fits_N, (position_2N[1] * (width - w_N + 1)).floor(), float((width - central_w) // 2))
    return top_N, left_N, h_N, w_N


def resized_crop(images_BCHW: Tensor, top_B: Tensor, left_B: Tensor, height_B: Tensor, width_B: Tensor) -> Tensor:
    """Enlarge each image's box bilinearly to the size of the image, `[B, C, H, W]`. A box is never larger than the
    image, so antialiasing is not needed."""
    height, width = images_BCHW.shape[-2:]
    rows_BHH = _enlarging_weights(top_B, height_B, height)
    columns_BWW = _enlarging_weights(left_B, width_B, width)
    return _separable(images_BCHW, rows_BHH, columns_BWW)


def rotate_and_shift(images_BCHW: Tensor, degrees_B: Tensor, right_B: Tensor, down_B: Tensor) -> Tensor:
    """Rotate each image clockwise about its centre, then shift it by a real number of pixels. Interpolation is
    bilinear; pixels outside the image are 0."""
    height, width = images_BCHW.shape[-2:]
    radians_B = degrees_B * (math.pi / 180)
    cos_B, sin_B = radians_B.cos(), radians_B.sin()
    source_x_B, source_y_B = -cos_B * right_B - sin_B * down_B, sin_B * right_B - cos_B * down_B
    matrix_B6 = torch.stack(
        [cos_B, sin_B * (height / width), source_x_B * (2 / width),
         sin_B * (-width / height), cos_B, source_y_B * (2 / height)], dim=1,
    )  # fmt: skip
    grid_BHW2 = F.affine_grid(matrix_B6.view(-1, 2, 3), list(images_BCHW.shape), align_corners=False)
    return F.grid_sample(images_BCHW, grid_BHW2, mode="bilinear", padding_mode="zeros", align_corners=False)


def blur_kernel_size(height: int, width: int) -> int:
    """Number of taps of the blur kernel: about a tenth of the shorter side, odd, at least 3 (3 at 32 pixels, 9 at 96,
    23 at 224)."""
    return max(3, 2 * (min(height, width) // 20) + 1)


def gaussian_blur(images_BCHW: Tensor, sigma_B: Tensor) -> Tensor:
    """Blur each image with a Gaussian of its own `sigma > 0` (pixels) and `blur_kernel_size` taps. Edges are
    reflected."""
    height, width = images_BCHW.shape[-2:]
    taps = blur_kernel_size(height, width)
    offset_K = torch.arange(taps, device=images_BCHW.device) - taps // 2
    kernel_BK = torch.softmax(-0.5 * (offset_K / sigma_B[:, None]) ** 2, dim=1)
    return _separable(images_BCHW, _blurring_weights(kernel_BK, height), _blurring_weights(kernel_BK, width))


def _separable(images_BCHW: Tensor, rows_BHH: Tensor, columns_BWW: Tensor) -> Tensor:
    """Apply one linear map to the rows and another to the columns of each image: `rows @ image @ columns^T`."""
    return rows_BHH[:, None] @ images_BCHW @ columns_BWW[:, None].mT


def _enlarging_weights(start_B: Tensor, length_B: Tensor, side: int) -> Tensor:
    """`[B, S, S]`: the weight of input pixel j in output pixel i when `[start, start + length)` is stretched to S."""
    pixel_S = torch.arange(side, device=start_B.device) + 0.5
    start_B11, length_B11 = start_B[:, None, None], length_B[:, None, None]
    centre_BS1 = start_B11 + pixel_S[:, None] * (length_B11 / side)
    weights_BSS = (1 - (pixel_S - centre_BS1).abs()).clamp_min(0)
    inside_B1S = (pixel_S > start_B11) & (pixel_S < start_B11 + length_B11)
    weights_BSS = weights_BSS * inside_B1S
    return weights_BSS / weights_BSS.sum(dim=2, keepdim=True)


def _blurring_weights(kernel_BK: Tensor, side: int) -> Tensor:
    """`[B, S, S]`: the convolution with each kernel as a matrix. Indices beyond an edge are reflected."""
    taps = kernel_BK.shape[1]
    pixel_S = torch.arange(side, device=kernel_BK.device)
    offset_K11 = torch.arange(taps, device=kernel_BK.device)[:, None, None] - taps // 2
    source_KS1 = (side - 1) - ((side - 1) - (pixel_S[:, None] + offset_K11).abs()).abs()
    taken_KSS = (source_KS1 == pixel_S).to(kernel_BK.dtype)
    return torch.einsum("bk,kij->bij", kernel_BK, taken_KSS)


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
    """The largest channel, its difference from the smallest, and the hue in sixths of the circle, each `[B, H, W]`."""
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
    """One channel of a pixel whose hue is `sextant` sixths of the circle away from the hue at which the channel
    vanishes."""
    distance_BHW = sextant_BHW.remainder(6)
    return value_BHW - chroma_BHW * torch.minimum(distance_BHW, 4 - distance_BHW).clamp(0, 1)
