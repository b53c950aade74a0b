"""The residual encoders of SimVAE for colour images (section 5.2): that of the paper's table, and that of its code.

Shapes: B images of C channels, H by W pixels; D features.
"""

from torch import Tensor, nn


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions with BatchNorm and a ReLU between them, the first with the stride, then the sum with the
    input and a ReLU. `project`: the input passes through a 1x1 convolution and BatchNorm first."""

    def __init__(self, fan_in: int, width: int, stride: int, project: bool) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            _convolution(fan_in, width, 3, stride=stride, padding=1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            _convolution(width, width, 3, padding=1),
            nn.BatchNorm2d(width),
        )
        self.shortcut = (
            nn.Sequential(_convolution(fan_in, width, 1, stride=stride), nn.BatchNorm2d(width))
            if project
            else nn.Identity()
        )

    def forward(self, x_BCHW: Tensor) -> Tensor:
        return (self.layers(x_BCHW) + self.shortcut(x_BCHW)).relu()


class SimVAEResNet(nn.Module):
    """A stem, stages of two residual blocks, and a linear layer on all pixels of the last stage. The first stage has
    stride 1, the others 2. `sides` are the height and width after the stem."""

    def __init__(
        self, stem: nn.Sequential, stem_width: int, widths: tuple[int, ...], sides: tuple[int, int], features: int
    ) -> None:
        super().__init__()
        self.features = features
        self.stem = stem
        self.stages = nn.Sequential()
        for stage, (fan_in, width) in enumerate(zip((stem_width, *widths), widths, strict=False)):
            self.stages.append(ResidualBlock(fan_in, width, stride=2 if stage else 1, project=True))
            self.stages.append(ResidualBlock(width, width, stride=1, project=False))
        height, width = (_halved(side, len(widths) - 1) for side in sides)
        self.head = nn.Linear(widths[-1] * height * width, features)

    def forward(self, images_BCHW: Tensor) -> Tensor:
        return self.head(self.stages(self.stem(images_BCHW)).flatten(1))


def simvae_resnet(image_shape: tuple[int, int, int], features: int, *, stem_pool: bool) -> SimVAEResNet:
    """The paper's table: a 4x4 convolution to 16 channels, max-pooling (unless `stem_pool` is false), four stages of 32
    to 256 channels."""
    channels, *pixels = image_shape
    pool = nn.MaxPool2d(3, stride=2, padding=1) if stem_pool else nn.Identity()
    stem = nn.Sequential(_convolution(channels, 16, 4, padding=1), nn.BatchNorm2d(16), nn.ReLU(), pool)
    height, width = (_halved(side - 1, 1 if stem_pool else 0) for side in pixels)
    return SimVAEResNet(stem, 16, (32, 64, 128, 256), (height, width), features)


def simvae_resnet_authors(image_shape: tuple[int, int, int], features: int) -> SimVAEResNet:
    """The authors' code: a convolution to 64 channels without padding, which is 3x3 with a bias for images of up to 32
    pixels and else 4x4 without, max-pooling, three stages of 32 to 128 channels. The stem has PyTorch's initial
    weights, the other convolutions He's, as there."""
    channels, *pixels = image_shape
    kernel = 3 if max(pixels) <= 32 else 4
    convolution = nn.Conv2d(channels, 64, kernel, bias=kernel == 3)
    stem = nn.Sequential(convolution, nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, stride=2, padding=1))
    height, width = (_halved(side - kernel + 1, 1) for side in pixels)
    return SimVAEResNet(stem, 64, (32, 64, 128), (height, width), features)


def _convolution(fan_in: int, width: int, kernel: int, *, stride: int = 1, padding: int = 0) -> nn.Conv2d:
    """Without a bias, which BatchNorm would remove; initialised by He's rule for the fan-out."""
    convolution = nn.Conv2d(fan_in, width, kernel, stride, padding, bias=False)
    nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
    return convolution


def _halved(side: int, times: int) -> int:
    """Height or width after so many layers of stride 2, each of which rounds up."""
    return -(-side // 2**times)
