"""The sections of a trial on images: data, encoder, views, evaluation."""

from dataclasses import dataclass

from torch import nn

from trainables.config.trial_config import TrialConfig
from trainables.data.augmentation.pixel_views import PixelViews
from trainables.data.augmentation.views import Views
from trainables.data.datasets.catalog import DATASETS
from trainables.data.outliers import OUTLIERS
from trainables.networks.decoders import DECODERS, Decoder, build_decoder
from trainables.networks.encoders import ENCODERS, build_encoder
from trainables.networks.heads import hidden_widths
from trainables.validation import between, choices, positive, truth, whole

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
        hidden_widths(self.decoder_hidden)


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
class Evaluation:
    """The evaluation of trials on all classes. Trials on one class are evaluated by their anomaly scores only."""

    knn: int = 0
    """Number k of nearest neighbours that classify a test image, at every report. 0 for no k-NN evaluation."""
    knn_temperature: float = 0.07
    """Temperature of the weighted vote, in which a neighbour's weight is `exp(cosine / knn_temperature)`. The plain
    majority vote is reported, too."""
    probe_epochs: int = 0
    """Epochs that linear probes on the representations train, at the end of training. 0 for no probes."""
    probe_lr: float = 0.1
    """Peak learning rate of the probes for batches of 256; it is scaled in proportion to the batch size."""
    probe_batch_size: int = 256
    """Images per step of the probes."""
    probe_standardize: bool = False
    """Shift and scale each feature to mean 0 and standard deviation 1 over the training images before probing. Without
    this, probes of small or unequally scaled features do not converge within the papers' epochs."""
    outliers: str = ""
    """Sets of outliers, joined by +, that anomaly scores must tell from the test images: `svhn+noise`."""

    def __post_init__(self) -> None:
        whole("knn", self.knn, 0)
        positive("knn_temperature", self.knn_temperature)
        whole("probe_epochs", self.probe_epochs, 0)
        positive("probe_lr", self.probe_lr)
        whole("probe_batch_size", self.probe_batch_size, 1)
        truth("probe_standardize", self.probe_standardize)
        for name in self.outlier_sets:
            choices("outliers", name, sorted(OUTLIERS))
        if len(set(self.outlier_sets)) < len(self.outlier_sets):
            raise ValueError(f"each set of outliers must be named once, but got outliers={self.outliers}")

    @property
    def outlier_sets(self) -> tuple[str, ...]:
        """Names of the sets in `outliers`."""
        return tuple(self.outliers.split("+")) if self.outliers else ()


@dataclass(frozen=True)
class Batches:
    """What the size of a batch counts."""

    batch_unit: str = "images"
    """`images`: `batch_size` counts images, and an epoch is a pass over all of them. `views`: it counts all views that
    a step encodes, so there are `batch_size` over J images, and an epoch encodes as many views as there are images.
    Trials with other numbers J of views then cost the same."""

    def __post_init__(self) -> None:
        choices("batch_unit", self.batch_unit, ("images", "views"))


@dataclass(frozen=True)
class ContentEvaluation:
    """The evaluation of representations as the SimVAE paper has it (section 8), at the end of training."""

    content_probe_epochs: int = 0
    """Epochs that a linear probe and an MLP probe train by Adam on the representation. 0 for neither."""
    content_probe_lr: float = 3e-4
    """Learning rate of these probes."""
    content_probe_batch_size: int = 128
    """Images per step of these probes."""
    content_probe_width: int = 0
    """Hidden units of the MLP probe; 0 for as many as the representation has dimensions."""
    content_knn: int = 0
    """Largest k of the nearest neighbours by Euclidean distance; the accuracy of each k from 1 on and the best are
    reported. 0 for none."""
    gmm_n_init: int = 0
    """Initialisations of a Gaussian mixture with as many components as classes, whose clusters are compared with the
    classes. 0 for no mixture."""
    styles: str = ""
    """Attributes of the data set, joined by +, on which MLP probes are trained with the settings above: `hue+ink`."""

    def __post_init__(self) -> None:
        whole("content_probe_epochs", self.content_probe_epochs, 0)
        positive("content_probe_lr", self.content_probe_lr)
        whole("content_probe_batch_size", self.content_probe_batch_size, 1)
        whole("content_probe_width", self.content_probe_width, 0)
        whole("content_knn", self.content_knn, 0)
        whole("gmm_n_init", self.gmm_n_init, 0)
        if self.styles and not self.content_probe_epochs:
            raise ValueError(f"styles needs content_probe_epochs of at least 1, but got styles={self.styles}")
        if len(set(self.style_names)) < len(self.style_names):
            raise ValueError(f"each attribute must be named once, but got styles={self.styles}")

    @property
    def style_names(self) -> tuple[str, ...]:
        """Names of the attributes in `styles`."""
        return tuple(self.styles.split("+")) if self.styles else ()


@dataclass(frozen=True)
class Generation:
    """The evaluation of decoded images (SimVAE, section 8), at the end of training."""

    reconstructions: bool = False
    """Decode the representations of the test images, and report the squared error of their pixels."""
    samples_per_class: int = 0
    """Images that are sampled of each class: a Gaussian is fitted to the representations of its training images, and
    samples of it are decoded. 0 for none."""
    adhoc_epochs: int = 0
    """Most epochs that a decoder is trained on the frozen representations of a method that has no decoder. 0 for no
    such decoder."""
    adhoc_lr: float = 1e-4
    """Adam's learning rate of that decoder."""
    adhoc_patience: int = 10
    """Epochs without a lower validation loss after which its training ends."""
    fid_weights: str = ""
    """File of the weights of Inception-v3, with which the FID of the samples is computed. Without it there is no
    `fid`."""
    sheets: bool = False
    """Keep pictures of reconstructions and samples beside the tables."""

    def __post_init__(self) -> None:
        truth("reconstructions", self.reconstructions)
        whole("samples_per_class", self.samples_per_class, 0)
        whole("adhoc_epochs", self.adhoc_epochs, 0)
        positive("adhoc_lr", self.adhoc_lr)
        whole("adhoc_patience", self.adhoc_patience, 1)
        truth("sheets", self.sheets)
        if self.fid_weights and not self.samples_per_class:
            raise ValueError("fid_weights needs samples_per_class of at least 1, but got samples_per_class=0")

    @property
    def decodes(self) -> bool:
        """Whether any image is decoded."""
        return self.reconstructions or self.samples_per_class > 0


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
