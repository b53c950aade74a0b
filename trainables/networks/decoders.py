"""Decoders map latents to images (SimVAE, sections 5.1 and 5.3).

Shapes: B latents of L dimensions; images of C channels, H by W pixels in [0, 1].
"""

import math

import torch
from torch import Tensor, nn

from trainables.networks.heads import hidden_widths, mlp
from trainables.networks.simvae_deconv import SHRINK, simvae_deconv, simvae_deconv_authors
from trainables.networks.strided import strided_deconv
from trainables.validation import choices

SHRINKING = ("simvae_deconv", "simvae_deconv_authors")
"""Decoders of images whose sides are multiples of `SHRINK`."""
DECODERS = ("relu_mlp", "simvae_deconv", "simvae_deconv_authors", "strided_deconv")


class Decoder(nn.Module):
    """The means of pixels given latents: `layers`, then a sigmoid. Has two attributes: `features`, the size L of the
    latents, and `image_shape`, the `(C, H, W)` of the images."""

    def __init__(self, layers: nn.Module, features: int, image_shape: tuple[int, int, int]) -> None:
        super().__init__()
        self.features = features
        self.image_shape = image_shape
        self.layers = layers

    def logits(self, z_BL: Tensor) -> Tensor:
        """What the sigmoid is taken of, `[B, C, H, W]`; at least in float32 whatever the precision of the layers."""
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


def build_decoder(
    name: str, features: int, image_shape: tuple[int, int, int], *, hidden: str | tuple[int, ...] = "2000+500+500"
) -> Decoder:
    """Build the decoder `name` of DECODERS from latents of size `features` to images `(C, H, W)`, initialised from
    torch's global generator. `hidden`: the widths of the `relu_mlp`'s hidden layers, from the latents on. Raises
    ValueError as `check_decoder` does."""
    check_decoder(name, image_shape)
    layers: nn.Module
    if name == "relu_mlp":
        pixels = mlp(features, *hidden_widths(hidden), math.prod(image_shape), norm=None)
        layers = nn.Sequential(*pixels, nn.Unflatten(-1, image_shape))
    elif name == "strided_deconv":
        layers = strided_deconv(features, image_shape)
    else:
        layers = (simvae_deconv if name == "simvae_deconv" else simvae_deconv_authors)(features, image_shape)
    return Decoder(layers, features, image_shape)
