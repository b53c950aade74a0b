"""The transposed-convolution decoders of SimVAE (section 5.3): that of the paper's table, and that of its code. Both
return logits, for images whose height and width are multiples of `SHRINK`.

Shapes: B latents of L dimensions; images of C channels, H by W pixels. BatchNorms follow all convolutions but the last,
so these have no bias. Weights have PyTorch's initial values, as in the authors' code.
"""

import itertools

from torch import Tensor, nn

SHRINK = 16
"""Height and width of the image, over those of the first map."""


class UpsamplingBlock(nn.Module):
    """A 3x3 transposed convolution of stride 2, then a 3x3 one of stride 1, with a ReLU between them; the sum with a
    1x1 transposed convolution of stride 2 of the input; a ReLU. Doubles height and width."""

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
    """Twice a 3x3 transposed convolution, BatchNorm and ReLU, without a shortcut."""
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
    """The authors' code: a linear layer to 512 channels, three times a plain and an upsampling block to 256, 128 and 64
    channels, two plain blocks, a 7x7 transposed convolution of stride 2 to the pixels."""
    blocks: list[nn.Module] = []
    for fan_in, width in itertools.pairwise((512, 256, 128, 64)):
        blocks += [plain_block(fan_in), UpsamplingBlock(fan_in, width)]
    last = nn.ConvTranspose2d(64, image_shape[0], 7, stride=2, padding=3, output_padding=1)
    return nn.Sequential(*_first_map(features, 512, image_shape), *blocks, plain_block(64), plain_block(64), last)


def _first_map(features: int, channels: int, image_shape: tuple[int, int, int]) -> tuple[nn.Linear, nn.Unflatten]:
    height, width = (side // SHRINK for side in image_shape[1:])
    return nn.Linear(features, channels * height * width), nn.Unflatten(-1, (channels, height, width))
