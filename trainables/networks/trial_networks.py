"""The networks of a trial on images: their configuration sections and their builder."""

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
"""Encoders with fixed width and representation size."""


@checked
class Encoder:
    """The encoder and its size."""

    encoder: Annotated[str, one_of(*ENCODERS, *TORCHVISION, own="my_nets:TinyViT")] = "mlp"
    """Name of the encoder; `torchvision:NAME` for a torchvision network with your own `weights`, or `my_nets:TinyViT`
    for your own module."""
    width: Annotated[int, at_least(1)] = 128
    """Hidden units of the `mlp`, or channels of the first layer of the `convnet` and the `strided_convnet`. ResNets
    keep their published widths."""
    features: Annotated[int, at_least(1)] = 64
    """Size D of the representation of the `mlp`, the `convnet`, the `strided_convnet` and Deep SVDD's `lenet` and
    `lenet_wide`. ResNets keep their published sizes."""
    small_stem: bool = True
    """torchvision's ResNets only: use the stem for 32x32 images, a 3x3 convolution with stride 1 and no max-pooling."""


@checked
class Layers:
    """The layers of autoencoders' encoders and decoders."""

    hidden: str = "500+500+2000"
    """Widths of the hidden layers of the encoder `relu_mlp` (joined by +)."""
    stem_pool: bool = True
    """`simvae_resnet` only: use max-pooling in the stem."""
    decoder: Annotated[str, one_of(*DECODERS)] = "relu_mlp"
    """Name of the decoder."""
    decoder_hidden: str = "2000+500+500"
    """Widths of the hidden layers of the decoder `relu_mlp` (joined by +), beginning at the latents."""

    def __post_init__(self) -> None:
        hidden_widths(self.hidden)
        hidden_widths(self.decoder_hidden, "decoder_hidden")


@checked
class Pretrained:
    """The weights of torchvision's encoders."""

    weights: str = ""
    """PyTorch or safetensors file with a state dict of the encoder `torchvision:NAME`. Nothing is downloaded. The
    trial's id depends on the file's content, not on its path."""
    weights_digest: str = ""
    """Hash of the content of `weights`, filled in from the file."""
    frozen: bool = False
    """Freeze the pretrained weights, so that only the layers outside the encoder are trained."""
    frozen_parts: str = added("")
    """Parts of the pretrained encoder whose weights and statistics are frozen (joined by +):
    conv1+bn1+layer1+layer2."""
    pretrained_size: Annotated[int, at_least(32)] = 224
    """Height and width, in pixels, to which images are resized for the pretrained encoder."""

    def __post_init__(self) -> None:
        if not all(char in "0123456789abcdef" for char in self.weights_digest):
            raise ValueError(f"weights_digest must be hexadecimal, but got weights_digest={self.weights_digest}")
        if self.frozen and self.frozen_parts:
            raise ValueError(
                "frozen=true freezes all parts, so frozen_parts must be empty, but got "
                f"frozen_parts={self.frozen_parts}"
            )


@dataclass(frozen=True)
class Networks:
    """Builds the networks of a trial."""

    encoder: Encoder
    layers: Layers
    pretrained: Pretrained = field(default_factory=Pretrained)
    initial: bool = False
    """Whether encoders load the weights from the trial's file, if it names one. A trained model has its own weights."""

    def build(self, image_shape: tuple[int, ...], outputs: int = 1) -> nn.Module:
        """A new encoder of images `(C, H, W)` with `outputs` times `features` outputs."""
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
        """A new decoder from latents of size `features` to images `(C, H, W)`."""
        layers = self.layers
        return build_decoder(layers.decoder, features, _image_shape(image_shape), hidden=layers.decoder_hidden)


def _image_shape(shape: tuple[int, ...]) -> tuple[int, int, int]:
    channels, height, width = shape
    return channels, height, width
