"""The sections of a trial on images that its networks are built from."""

from dataclasses import dataclass
from typing import Annotated

from torch import nn

from trainables.networks.decoders import DECODERS, Decoder, build_decoder
from trainables.networks.encoders import ENCODERS, build_encoder
from trainables.networks.heads import hidden_widths
from trainables.validation import at_least, checked, one_of

PUBLISHED_SIZES = ("resnet18", "resnet50")
"""Encoders whose widths and sizes are fixed."""


@checked
class Encoder:
    """The encoder and its size."""

    encoder: Annotated[str, one_of(*ENCODERS)] = "mlp"
    """Name of the encoder."""
    width: Annotated[int, at_least(1)] = 128
    """Hidden units of the `mlp`, or channels of the first layer of the `convnet` and the `strided_convnet`. ResNets
    have their published widths."""
    features: Annotated[int, at_least(1)] = 64
    """Size D of the representation of the `mlp`, the `convnet` and the `strided_convnet`. ResNets have their published
    sizes."""
    small_stem: bool = True
    """ResNets only: use the stem for 32x32 images, a 3x3 convolution of stride 1 without max-pooling."""


@checked
class Layers:
    """The layers of the encoders and decoders of autoencoders."""

    hidden: str = "500+500+2000"
    """Widths of the hidden layers of the encoder `relu_mlp`, joined by +."""
    stem_pool: bool = True
    """`simvae_resnet` only: max-pooling in its stem."""
    decoder: Annotated[str, one_of(*DECODERS)] = "relu_mlp"
    """Name of the decoder."""
    decoder_hidden: str = "2000+500+500"
    """Widths of the hidden layers of the decoder `relu_mlp`, from the latents on, joined by +."""

    def __post_init__(self) -> None:
        hidden_widths(self.hidden)
        hidden_widths(self.decoder_hidden, "decoder_hidden")


@dataclass(frozen=True)
class Networks:
    """Builds the networks that a trial asks for."""

    encoder: Encoder
    layers: Layers

    def build(self, image_shape: tuple[int, ...], outputs: int = 1) -> nn.Module:
        """A new encoder of images `(C, H, W)` with `outputs` times as many outputs as `features` says."""
        encoder, layers = self.encoder, self.layers
        return build_encoder(
            encoder.encoder,
            _image_shape(image_shape),
            width=encoder.width,
            features=outputs * encoder.features,
            small_stem=encoder.small_stem,
            hidden=layers.hidden,
            stem_pool=layers.stem_pool,
        )

    def build_decoder(self, features: int, image_shape: tuple[int, ...]) -> Decoder:
        """A new decoder of latents of size `features` to images `(C, H, W)`."""
        layers = self.layers
        return build_decoder(layers.decoder, features, _image_shape(image_shape), hidden=layers.decoder_hidden)


def _image_shape(shape: tuple[int, ...]) -> tuple[int, int, int]:
    channels, height, width = shape
    return channels, height, width
