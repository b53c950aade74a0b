"""torchvision's ResNet-18 and ResNet-50 as encoders: they return pooled features instead of class scores."""

from __future__ import annotations

from typing import Any

from torch import nn

FEATURES = {18: 512, 50: 2048}
"""Depth -> size D of the pooled features."""


def resnet(depth: int, channels: int = 3, small_stem: bool = False) -> nn.Module:
    """A ResNet that maps images `[B, channels, H, W]` to global-average-pooled features `[B, D]`; its attribute
    `features` is D.

    `small_stem` selects the stem for 32x32 images (VJE, section 4): a 3x3 convolution of stride 1 without max-pooling,
    so that `layer1` sees every pixel. Without it, and with 3 channels, torchvision's published weights can be loaded,
    except those of `fc`. Raises ValueError for another depth.
    """
    if depth not in FEATURES:
        raise ValueError(f"no ResNet of depth {depth!r}; there are: {', '.join(map(str, FEATURES))}")
    from torchvision.models import resnet18, resnet50  # imported here because it takes seconds

    network: Any = {18: resnet18, 50: resnet50}[depth]()
    kernel, stride = (3, 1) if small_stem else (7, 2)
    stem = nn.Conv2d(channels, 64, kernel, stride, padding=kernel // 2, bias=False)
    nn.init.kaiming_normal_(stem.weight, mode="fan_out", nonlinearity="relu")
    network.conv1 = stem
    if small_stem:
        network.maxpool = nn.Identity()
    network.fc = nn.Identity()
    network.features = FEATURES[depth]
    encoder: nn.Module = network
    return encoder
