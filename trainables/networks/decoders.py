"""Decoders map latents to images (SimVAE, Tables 3 and 4).

SimVAE has two transposed-convolution decoders: one from the paper's Table 4 and one from the authors' code. In both a
BatchNorm follows every convolution but the last, so these convolutions have no bias; weights have PyTorch's initial
values, as in the authors' code.

Shapes: B latents of L dimensions; images of C channels, H by W pixels in [0, 1].
"""

import itertools
import math

import torch
from torch import Tensor, nn

from trainables.networks.encoders import LENET_EPSILON, LENETS
from trainables.networks.heads import hidden_widths, mlp
from trainables.networks.strided import strided_deconv
from trainables.validation import choices

SHRINK = 16
"""Ratio of the image's height and width to those of the first map."""


SHRINKING = ("simvae_deconv", "simvae_deconv_authors")
"""Decoders that need image sides that are multiples of `SHRINK`."""
DECODERS = ("relu_mlp", *LENETS, "simvae_deconv", "simvae_deconv_authors", "strided_deconv")


class Decoder(nn.Module):
    """The mean pixel values given latents: `layers`, then a sigmoid. Attributes: `features`, the size L of the latents,
    and `image_shape`, the `(C, H, W)` of the images."""

    def __init__(self, layers: nn.Module, features: int, image_shape: tuple[int, int, int]) -> None:
        super().__init__()
        self.features = features
        self.image_shape = image_shape
        self.layers = layers

    def logits(self, z_BL: Tensor) -> Tensor:
        """The input of the sigmoid, `[B, C, H, W]`, in at least float32 whatever the precision of the layers."""
        logits_BCHW: Tensor = self.layers(z_BL)
        return logits_BCHW.to(torch.promote_types(logits_BCHW.dtype, torch.float32))

    def forward(self, z_BL: Tensor) -> Tensor:
        """The means `[B, C, H, W]` in [0, 1]."""
        return self.logits(z_BL).sigmoid()


def check_decoder(name: str, image_shape: tuple[int, int, int]) -> None:
    """Raises ValueError unless `name` is one of DECODERS and decodes to images `(C, H, W)`."""
    choices("decoder", name, DECODERS)
    _, height, width = image_shape
    if name in SHRINKING and (height % SHRINK or width % SHRINK):
        raise ValueError(
            f"height and width must be multiples of {SHRINK} (32x32, 64x64) for decoder={name}, but are "
            f"{height}x{width}; relu_mlp and strided_deconv decode to any size"
        )
    least = 1 << len(LENETS.get(name, ()))
    if min(height, width) < least:
        raise ValueError(f"height and width must be at least {least} for decoder={name}, but are {height}x{width}")


def build_decoder(
    name: str, features: int, image_shape: tuple[int, int, int], *, hidden: str | tuple[int, ...] = "2000+500+500"
) -> Decoder:
    """Build the decoder `name` of DECODERS from latents of size `features` to images `(C, H, W)`, initialised from
    torch's global generator. `hidden`: the widths of the `relu_mlp`'s hidden layers, beginning at the latents. Raises
    ValueError as `check_decoder` does."""
    check_decoder(name, image_shape)
    layers: nn.Module
    if name == "relu_mlp":
        pixels = mlp(features, *hidden_widths(hidden), math.prod(image_shape), norm=None)
        layers = nn.Sequential(*pixels, nn.Unflatten(-1, image_shape))
    elif name in LENETS:
        layers = lenet_deconv(features, image_shape, LENETS[name])
    elif name == "strided_deconv":
        layers = strided_deconv(features, image_shape)
    else:
        layers = (simvae_deconv if name == "simvae_deconv" else simvae_deconv_authors)(features, image_shape)
    return Decoder(layers, features, image_shape)


def lenet_deconv(features: int, image_shape: tuple[int, int, int], widths: tuple[int, ...]) -> nn.Sequential:
    """The mirror image of `encoders.LeNet`: a linear layer to its last map, then for each convolution nearest-neighbour
    upsampling to the previous map's size and a 5x5 transposed convolution. Layers have no bias, and BatchNorms have no
    weights."""
    channels, height, width = image_shape
    sides = [(height >> level, width >> level) for level in range(len(widths) + 1)]
    top = widths[-1] * math.prod(sides[-1])
    layers: list[nn.Module] = [nn.Linear(features, top, bias=False), nn.BatchNorm1d(top, LENET_EPSILON, affine=False)]
    layers += [nn.LeakyReLU(), nn.Unflatten(-1, (widths[-1], *sides[-1]))]
    fans = list(itertools.pairwise((*reversed(widths), channels)))
    for (fan_in, fan_out), side in zip(fans, reversed(sides[:-1]), strict=True):
        layers += [nn.Upsample(side), nn.ConvTranspose2d(fan_in, fan_out, 5, padding=2, bias=False)]
        layers += [nn.BatchNorm2d(fan_out, LENET_EPSILON, affine=False), nn.LeakyReLU()]
    return nn.Sequential(*layers[:-2])


class UpsamplingBlock(nn.Module):
    """A 3x3 transposed convolution with stride 2, a ReLU and a 3x3 transposed convolution with stride 1; added to a 1x1
    transposed convolution of the input with stride 2; then a ReLU. Doubles height and width."""

    def __init__(self, fan_in: int, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.ConvTranspose2d(fan_in, width, 3, stride=2, padding=1, output_padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.ConvTranspose2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
        )
        self.shortcut = nn.Sequential(
            nn.ConvTranspose2d(fan_in, width, 1, stride=2, output_padding=1, bias=False), nn.BatchNorm2d(width)
        )

    def forward(self, x_BCHW: Tensor) -> Tensor:
        return (self.layers(x_BCHW) + self.shortcut(x_BCHW)).relu()


def plain_block(width: int) -> nn.Sequential:
    """Two 3x3 transposed convolutions, each with BatchNorm and ReLU, without a shortcut."""
    layers: list[nn.Module] = []
    for _ in range(2):
        layers += [nn.ConvTranspose2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    return nn.Sequential(*layers)


def simvae_deconv(features: int, image_shape: tuple[int, int, int]) -> nn.Sequential:
    """The paper's table: a linear layer to 256 channels, four upsampling blocks to 128, 64, 32 and 16 channels, a 5x5
    convolution to the pixels."""
    blocks = [UpsamplingBlock(fan_in, width) for fan_in, width in itertools.pairwise((256, 128, 64, 32, 16))]
    last = nn.Conv2d(16, image_shape[0], 5, padding=2)
    return nn.Sequential(*_first_map(features, 256, image_shape), *blocks, last)


def simvae_deconv_authors(features: int, image_shape: tuple[int, int, int]) -> nn.Sequential:
    """The authors' code: a linear layer to 512 channels, three pairs of a plain and an upsampling block to 256, 128 and
    64 channels, two plain blocks, a 7x7 transposed convolution with stride 2 to the pixels."""
    blocks: list[nn.Module] = []
    for fan_in, width in itertools.pairwise((512, 256, 128, 64)):
        blocks += [plain_block(fan_in), UpsamplingBlock(fan_in, width)]
    last = nn.ConvTranspose2d(64, image_shape[0], 7, stride=2, padding=3, output_padding=1)
    return nn.Sequential(*_first_map(features, 512, image_shape), *blocks, plain_block(64), plain_block(64), last)


def _first_map(features: int, channels: int, image_shape: tuple[int, int, int]) -> tuple[nn.Linear, nn.Unflatten]:
    height, width = (side // SHRINK for side in image_shape[1:])
    return nn.Linear(features, channels * height * width), nn.Unflatten(-1, (channels, height, width))
