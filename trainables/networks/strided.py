"""Strided convolutions down to a small map and back up: the encoder and decoder of GMJE's generation (P.4).

Sides are halved while both are even and above 2: 32x32 pixels have four levels, 8x8 two. Images may have any size.
Shapes: B images of C channels, H by W pixels; D features, L dimensions of a latent.
"""

import itertools

from torch import nn

HIDDEN = 256
"""Units of the hidden linear layer of encoder and decoder."""
WIDTH = 32
"""Channels of the decoder's last map."""


def strided_convnet(image_shape: tuple[int, int, int], width: int, features: int) -> nn.Sequential:
    """3x3 convolutions with stride 2 to `width`, `2 * width`, `4 * width`, ... channels, each with BatchNorm and ReLU,
    then a hidden linear layer with BatchNorm and ReLU, and a linear layer to the features."""
    channels, (height, columns) = _maps(image_shape, width)
    layers: list[nn.Module] = []
    for fan_in, fan_out in itertools.pairwise(channels):
        layers += [nn.Conv2d(fan_in, fan_out, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(fan_out), nn.ReLU()]
    hidden = nn.Linear(channels[-1] * height * columns, HIDDEN, bias=False)
    head = (hidden, nn.BatchNorm1d(HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, features))
    return nn.Sequential(*layers, nn.Flatten(), *head)


def strided_deconv(features: int, image_shape: tuple[int, int, int]) -> nn.Sequential:
    """Two linear layers with ReLU to the smallest map, then 4x4 transposed convolutions with stride 2 through the same
    channels back to the pixels, with BatchNorm and ReLU between them."""
    channels, (height, columns) = _maps(image_shape, WIDTH)
    top = channels[-1]
    layers: list[nn.Module] = [nn.Linear(features, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, top * height * columns)]
    layers += [nn.Unflatten(1, (top, height, columns))]
    for fan_in, fan_out in itertools.pairwise(reversed(channels[1:])):
        layers += [nn.ReLU(), nn.ConvTranspose2d(fan_in, fan_out, 4, stride=2, padding=1, bias=False)]
        layers += [nn.BatchNorm2d(fan_out)]
    if len(channels) > 1:
        layers += [nn.ReLU(), nn.ConvTranspose2d(channels[1], channels[0], 4, stride=2, padding=1)]
    return nn.Sequential(*layers)


def _maps(image_shape: tuple[int, int, int], width: int) -> tuple[tuple[int, ...], tuple[int, int]]:
    """The channels of the image and of each smaller map, and the height and width of the smallest map."""
    channels, height, columns = image_shape
    widths: list[int] = []
    while height % 2 == columns % 2 == 0 and min(height, columns) > 2:
        widths.append(width << len(widths))
        height, columns = height // 2, columns // 2
    return (channels, *widths), (height, columns)
