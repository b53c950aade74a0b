"""The sections of a trial on images: data, networks, batches. Those of views and of evaluations are imported."""

from dataclasses import dataclass

from torch import nn

from trainables.config.trial_config import TrialConfig
from trainables.data.augmentation.pixel_views import PixelViews
from trainables.data.augmentation.views import Views
from trainables.data.datasets.catalog import DATASETS
from trainables.networks.decoders import DECODERS, Decoder, build_decoder
from trainables.networks.encoders import ENCODERS, build_encoder
from trainables.networks.heads import hidden_widths
from trainables.tasks.images.evaluation_config import ContentEvaluation, Evaluation, Generation
from trainables.validation import between, choices, truth, whole

PUBLISHED_SIZES = ("resnet18", "resnet50")
"""Encoders whose widths and sizes are fixed."""


@dataclass(frozen=True)
class Data:
    """The data set, and which of its images are used."""

    dataset: str = "digits"
    """Name of the data set."""
    normal_class: int | None = None
    """Index of the only class that is trained on; the other classes are outliers. None trains on all classes."""
    held_out: str = ""
    """Indices of classes, joined by +, that are neither trained on nor tested, for use as outliers: `0+3`."""
    validation: float = 0.0
    """Share of each class's labelled training images that is held out, in [0, 0.5]; the same images for every seed.
    Every metric is then also reported on these images, as `val_METRIC`, to choose by. 0 holds out none."""

    def __post_init__(self) -> None:
        choices("dataset", self.dataset, sorted(DATASETS))
        if self.normal_class is not None:
            whole("normal_class", self.normal_class, 0)
        if self.held_out:
            names = self.held_out.split("+")
            indices = sorted({int(name) for name in names if name.isdecimal() and len(name) < 19})
            if names != [*map(str, indices)]:
                raise ValueError(
                    f"held_out must be ascending class indices joined by +, but got held_out={self.held_out}"
                )
        between("validation", self.validation, 0, 0.5)

    @property
    def held_out_classes(self) -> tuple[int, ...]:
        """Indices of the classes in `held_out`."""
        return tuple(int(name) for name in self.held_out.split("+")) if self.held_out else ()


@dataclass(frozen=True)
class Encoder:
    """The encoder and its size."""

    encoder: str = "mlp"
    """Name of the encoder."""
    width: int = 128
    """Hidden units of the `mlp`, or channels of the `convnet`'s first layer. ResNets have their published widths."""
    features: int = 64
    """Size D of the representation of the `mlp` and the `convnet`. ResNets have their published sizes."""
    small_stem: bool = True
    """ResNets only: use the stem for 32x32 images, a 3x3 convolution of stride 1 without max-pooling."""

    def __post_init__(self) -> None:
        choices("encoder", self.encoder, ENCODERS)
        whole("width", self.width, 1)
        whole("features", self.features, 1)
        truth("small_stem", self.small_stem)


@dataclass(frozen=True)
class Layers:
    """The layers of the encoders and decoders of autoencoders."""

    hidden: str = "500+500+2000"
    """Widths of the hidden layers of the encoder `relu_mlp`, joined by +."""
    stem_pool: bool = True
    """`simvae_resnet` only: max-pooling in its stem."""
    decoder: str = "relu_mlp"
    """Name of the decoder."""
    decoder_hidden: str = "2000+500+500"
    """Widths of the hidden layers of the decoder `relu_mlp`, from the latents on, joined by +."""

    def __post_init__(self) -> None:
        hidden_widths(self.hidden)
        truth("stem_pool", self.stem_pool)
        choices("decoder", self.decoder, DECODERS)
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


@dataclass(frozen=True)
class Batches:
    """What the size of a batch counts."""

    batch_unit: str = "images"
    """`images`: `batch_size` counts images, and an epoch is a pass over all of them. `views`: it counts all views that
    a step encodes, so there are `batch_size` over J images, and an epoch encodes as many views as there are images.
    Trials with other numbers J of views then cost the same."""

    def __post_init__(self) -> None:
        choices("batch_unit", self.batch_unit, ("images", "views"))


@dataclass(frozen=True, kw_only=True)
class ImageTrial(TrialConfig):
    """Everything that one training run on images depends on."""

    optional = TrialConfig.optional | {"layers", "pixel_views", "batches", "content", "generation"}

    data: Data
    encoder: Encoder
    layers: Layers
    views: Views
    pixel_views: PixelViews
    batches: Batches
    evaluation: Evaluation
    content: ContentEvaluation
    generation: Generation

    @property
    def networks(self) -> Networks:
        """Builds its networks."""
        return Networks(self.encoder, self.layers)
