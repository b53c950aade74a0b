"""Encoders map images to a representation. Each has the attribute `features`, the size D of the representation.

SimVAE has two residual encoders for colour images: one from the paper's Table 4 and one from the authors' code.

Shapes: B images of C channels, H by W pixels, normalised; D features.
"""

import itertools
import math
from collections.abc import Mapping
from typing import Any, Literal

from torch import Tensor, nn

from trainables.networks.heads import hidden_widths, mlp
from trainables.networks.strided import strided_convnet

LENETS: Mapping[str, tuple[int, ...]] = {"lenet": (8, 4), "lenet_wide": (32, 64, 128)}
"""Encoders of Deep SVDD -> the channels of their convolutions."""
ENCODERS = (
    "convnet",
    *LENETS,
    "mlp",
    "relu_mlp",
    "resnet18",
    "resnet50",
    "simvae_resnet",
    "simvae_resnet_authors",
    "strided_convnet",
    "wide_resnet10_4",
)


class MLP(nn.Module):
    """Linear, tanh, Linear on the flattened pixels, for images as small as `digits`. It has no BatchNorm, because
    normalising by the statistics of a single class hides outliers: on the digits the best class-averaged AUROC of nine
    cells was 0.934 with BatchNorm and ReLU, and 0.954 without."""

    def __init__(self, pixels: int, width: int, features: int) -> None:
        super().__init__()
        self.features = features
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(pixels, width), nn.Tanh(), nn.Linear(width, features))

    def forward(self, images_BCHW: Tensor) -> Tensor:
        return self.layers(images_BCHW)


class ReLUMLP(nn.Module):
    """Linear layers of `hidden` widths with ReLU between them, on the flattened pixels: SimVAE's encoder for grey
    images (Table 3)."""

    def __init__(self, pixels: int, hidden: tuple[int, ...], features: int) -> None:
        super().__init__()
        self.features = features
        self.layers = nn.Sequential(nn.Flatten(), *mlp(pixels, *hidden, features, norm=None))

    def forward(self, images_BCHW: Tensor) -> Tensor:
        return self.layers(images_BCHW)


class ConvNet(nn.Module):
    """A small convolutional network: three 3x3 convolutions of `width`, `2 * width` and `features` channels and strides
    1, 2 and 2, each with BatchNorm and ReLU, then the mean over all pixels."""

    def __init__(self, channels: int, width: int, features: int) -> None:
        super().__init__()
        self.features = features
        self.layers = nn.Sequential(
            nn.Conv2d(channels, width, 3, stride=1, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(),
            nn.Conv2d(2 * width, features, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(features),
            nn.ReLU(),
        )

    def forward(self, images_BCHW: Tensor) -> Tensor:
        return self.layers(images_BCHW).mean((-2, -1))


class StridedConvNet(nn.Module):
    """Strided convolutions and a head of two linear layers, whose output may have any sign (`networks.strided`)."""

    def __init__(self, image_shape: tuple[int, int, int], width: int, features: int) -> None:
        super().__init__()
        self.features = features
        self.layers = strided_convnet(image_shape, width, features)

    def forward(self, images_BCHW: Tensor) -> Tensor:
        return self.layers(images_BCHW)


LENET_EPSILON = 1e-4
"""Term that the BatchNorms of Deep SVDD add to the variance."""


class LeNet(nn.Module):
    """Deep SVDD's encoder: 5x5 convolutions, each with BatchNorm, leaky ReLU and 2x2 max-pooling, then a linear layer.
    Layers have no bias, and BatchNorms have no weights, so that no weights make the output constant."""

    def __init__(self, image_shape: tuple[int, int, int], widths: tuple[int, ...], features: int) -> None:
        super().__init__()
        self.features = features
        channels, height, width = image_shape
        layers: list[nn.Module] = []
        for fan_in, fan_out in itertools.pairwise((channels, *widths)):
            layers.append(nn.Conv2d(fan_in, fan_out, 5, padding=2, bias=False))
            layers += [nn.BatchNorm2d(fan_out, LENET_EPSILON, affine=False), nn.LeakyReLU(), nn.MaxPool2d(2)]
        places = (height >> len(widths)) * (width >> len(widths))
        self.layers = nn.Sequential(*layers, nn.Flatten(), nn.Linear(widths[-1] * places, features, bias=False))

    def forward(self, images_BCHW: Tensor) -> Tensor:
        return self.layers(images_BCHW)


def check_encoder(name: str, image_shape: tuple[int, int, int]) -> None:
    """Raises ValueError if images `(C, H, W)` are too small for the encoder."""
    least, (_, height, width) = 1 << len(LENETS.get(name, ())), image_shape
    if min(height, width) < least:
        raise ValueError(f"height and width must be at least {least} for encoder={name}, but are {height}x{width}")


def resnet(depth: Literal[18, 50], channels: int = 3, small_stem: bool = False) -> nn.Module:
    """torchvision's ResNet up to its pooled features `[B, D]`, for images `[B, channels, H, W]`.

    `small_stem` selects VJE's stem for 32x32 images: a 3x3 convolution with stride 1 and no max-pooling, so that
    `layer1` sees every pixel. Without it, and with 3 channels, torchvision's published weights can be loaded, except
    those of `fc`.
    """
    from torchvision.models import resnet18, resnet50  # imported here because it takes seconds

    network: Any = {18: resnet18, 50: resnet50}[depth]()
    kernel, stride = (3, 1) if small_stem else (7, 2)
    stem = nn.Conv2d(channels, 64, kernel, stride, padding=kernel // 2, bias=False)
    nn.init.kaiming_normal_(stem.weight, mode="fan_out", nonlinearity="relu")
    network.conv1 = stem
    if small_stem:
        network.maxpool = nn.Identity()
    network.features, network.fc = network.fc.in_features, nn.Identity()
    return network


def build_encoder(
    name: str,
    image_shape: tuple[int, int, int],
    *,
    width: int,
    features: int,
    small_stem: bool,
    hidden: str | tuple[int, ...] = "500+500+2000",
    stem_pool: bool = True,
) -> nn.Module:
    """Build the encoder `name` of ENCODERS for images `(C, H, W)`, initialised from torch's global generator.

    `width` is for the `mlp`, the `convnet` and the `strided_convnet`. `features`: the size D of the representation,
    fixed for torchvision's ResNets and the wide ResNet. `small_stem` is for torchvision's ResNets. `hidden`: the widths
    of the `relu_mlp`'s hidden layers. `stem_pool`: whether the `simvae_resnet` has max-pooling in its stem. Raises
    ValueError as `check_encoder` does.
    """
    network: Any
    check_encoder(name, image_shape)
    if name == "convnet":
        network = ConvNet(image_shape[0], width, features)
    elif name in LENETS:
        network = LeNet(image_shape, LENETS[name], features)
    elif name == "mlp":
        network = MLP(math.prod(image_shape), width, features)
    elif name == "relu_mlp":
        network = ReLUMLP(math.prod(image_shape), hidden_widths(hidden), features)
    elif name == "simvae_resnet":
        network = simvae_resnet(image_shape, features, stem_pool=stem_pool)
    elif name == "simvae_resnet_authors":
        network = simvae_resnet_authors(image_shape, features)
    elif name == "strided_convnet":
        network = StridedConvNet(image_shape, width, features)
    elif name == "wide_resnet10_4":
        network = WideResNet(image_shape[0], blocks=1, widen=4)
    else:
        network = resnet(18 if name == "resnet18" else 50, image_shape[0], small_stem)
    return network


class WideResidualBlock(nn.Module):
    """BatchNorm, ReLU and a 3x3 convolution, twice (the first with the stride), then added to the input. If the shape
    changes, the result is added to a 1x1 convolution of the input after its BatchNorm and ReLU."""

    def __init__(self, fan_in: int, width: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.BatchNorm2d(fan_in), nn.ReLU())
        self.layers = nn.Sequential(
            _convolution(fan_in, width, 3, stride=stride, padding=1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            _convolution(width, width, 3, padding=1),
        )
        same = fan_in == width and stride == 1
        self.shortcut = None if same else _convolution(fan_in, width, 1, stride=stride)

    def forward(self, x_BCHW: Tensor) -> Tensor:
        hidden_BCHW = self.first(x_BCHW)
        return self.layers(hidden_BCHW) + (self.shortcut(hidden_BCHW) if self.shortcut else x_BCHW)


class WideResNet(nn.Module):
    """A wide residual network of three stages (Zagoruyko and Komodakis 2016), with `blocks` blocks of two convolutions
    per stage and `widen` times 16, 32 and 64 channels, so its depth is 6 blocks + 4. The representation is the mean
    over all pixels after a final BatchNorm and ReLU."""

    def __init__(self, channels: int, blocks: int, widen: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(_convolution(channels, 16, 3, padding=1))
        fan_in = 16
        for stage, width in enumerate((16 * widen, 32 * widen, 64 * widen)):
            for block in range(blocks):
                self.layers.append(WideResidualBlock(fan_in, width, stride=2 if stage and not block else 1))
                fan_in = width
        self.layers.extend([nn.BatchNorm2d(fan_in), nn.ReLU()])
        self.features = fan_in

    def forward(self, images_BCHW: Tensor) -> Tensor:
        return self.layers(images_BCHW).mean((-2, -1))


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions (the first with the stride) with BatchNorm and a ReLU between them, then added to the input,
    and a ReLU. `project` first applies a 1x1 convolution and BatchNorm to the input."""

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
    stride 1, the others have stride 2. `sides` are the height and width after the stem."""

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
    """The authors' code: a convolution to 64 channels without padding (3x3 with a bias for images of up to 32 pixels,
    otherwise 4x4 without a bias), max-pooling, three stages of 32 to 128 channels. As in their code, the stem has
    PyTorch's initial weights and the other convolutions have He's."""
    channels, *pixels = image_shape
    kernel = 3 if max(pixels) <= 32 else 4
    convolution = nn.Conv2d(channels, 64, kernel, bias=kernel == 3)
    stem = nn.Sequential(convolution, nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, stride=2, padding=1))
    height, width = (_halved(side - kernel + 1, 1) for side in pixels)
    return SimVAEResNet(stem, 64, (32, 64, 128), (height, width), features)


def _convolution(fan_in: int, width: int, kernel: int, *, stride: int = 1, padding: int = 0) -> nn.Conv2d:
    """A convolution without a bias, which BatchNorm would remove; initialised by He's rule for the fan-out."""
    convolution = nn.Conv2d(fan_in, width, kernel, stride, padding, bias=False)
    nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
    return convolution


def _halved(side: int, times: int) -> int:
    """Height or width after this many layers of stride 2, each rounding up."""
    return -(-side // 2**times)
