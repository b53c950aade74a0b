"""The networks of a trial on images: the sections of its configuration that are about them, and what builds them."""

from dataclasses import dataclass, field
from typing import Annotated

from torch import nn

from trainables.networks.decoders import DECODERS, Decoder, build_decoder
from trainables.networks.encoders import ENCODERS, build_encoder
from trainables.networks.heads import hidden_widths
from trainables.networks.own_encoder import build_own_encoder
from trainables.networks.pretrained import TORCHVISION, PretrainedEncoder, read_weights
from trainables.validation import added, at_least, checked, is_own, one_of

PUBLISHED_SIZES = ("resnet18", "resnet50", "wide_resnet10_4", *TORCHVISION)
"""Encoders whose widths and sizes are fixed."""


@checked
class Encoder:
    """The encoder and its size."""

    encoder: Annotated[str, one_of(*ENCODERS, *TORCHVISION, own="my_nets:TinyViT")] = "mlp"
    """Name of the encoder; `torchvision:NAME` for one with `weights` of your own, or `my_nets:TinyViT` for your own
    module."""
    width: Annotated[int, at_least(1)] = 128
    """Hidden units of the `mlp`, or channels of the first layer of the `convnet` and the `strided_convnet`. ResNets
    have their published widths."""
    features: Annotated[int, at_least(1)] = 64
    """Size D of the representation of the `mlp`, the `convnet`, the `strided_convnet` and Deep SVDD's `lenet` and
    `lenet_wide`. ResNets have their published sizes."""
    small_stem: bool = True
    """torchvision's ResNets only: use the stem for 32x32 images, a 3x3 convolution of stride 1 without max-pooling."""


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


@checked
class Pretrained:
    """The weights of encoders of torchvision."""

    weights: str = ""
    """File of a state dict of the encoder `torchvision:NAME`, of PyTorch or safetensors. It is never downloaded. The
    trial is identified by its content, wherever it lies."""
    weights_digest: str = ""
    """Hash of that file's content, filled in from it."""
    frozen: bool = False
    """Keep these weights as they are, so that only what is beside the encoder is trained."""
    frozen_parts: str = added("")
    """Parts of that encoder whose weights and statistics stay as they are, joined by +: conv1+bn1+layer1+layer2."""
    pretrained_size: Annotated[int, at_least(32)] = 224
    """Pixels of the sides that images are resized to for that encoder."""

    def __post_init__(self) -> None:
        if not all(char in "0123456789abcdef" for char in self.weights_digest):
            raise ValueError(f"weights_digest must be hexadecimal, but got weights_digest={self.weights_digest}")
        if self.frozen and self.frozen_parts:
            raise ValueError(f"frozen keeps all parts as they are, so frozen_parts={self.frozen_parts} must not be set")


@dataclass(frozen=True)
class Networks:
    """Builds the networks that a trial asks for."""

    encoder: Encoder
    layers: Layers
    pretrained: Pretrained = field(default_factory=Pretrained)
    initial: bool = False
    """Whether encoders get the weights of the file that the trial names, if it does. A trained model has its own."""

    def build(self, image_shape: tuple[int, ...], outputs: int = 1) -> nn.Module:
        """A new encoder of images `(C, H, W)` with `outputs` times as many outputs as `features` says."""
        encoder, layers, pretrained = self.encoder, self.layers, self.pretrained
        if encoder.encoder in TORCHVISION:
            parts = tuple(filter(None, pretrained.frozen_parts.split("+")))
            network = PretrainedEncoder(encoder.encoder, pretrained.pretrained_size, pretrained.frozen, parts)
            if self.initial:
                network.load(read_weights(pretrained.weights, pretrained.weights_digest), pretrained.weights)
            return network
        if is_own(encoder.encoder):
            shape, features = _image_shape(image_shape), outputs * encoder.features
            return build_own_encoder(encoder.encoder, shape, width=encoder.width, features=features)
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
