"""The sections of a trial on images: its networks, its data, its views and its evaluation."""

import math
from dataclasses import dataclass
from typing import Annotated

from trainables.data.datasets.catalog import DATASETS
from trainables.data.datasets.class_folders import FOLDER
from trainables.data.datasets.dataset import Declaration, listed
from trainables.data.datasets.own_data import SOURCES
from trainables.data.outliers import OUTLIERS
from trainables.data.views import PixelViews, Views
from trainables.metrics.meanings import FITTED_SCORES
from trainables.networks.trial_networks import Encoder, Layers, Networks, Pretrained
from trainables.sections import TrialConfig
from trainables.validation import above, added, at_least, below, between, checked, choices, one_of

FITTED = ("gaussian", "gmm")
"""Densities that are fitted to the representations of the training images."""
OWN = ("own", "own_weighted")
"""Densities that the method has itself."""
REFERENCES = ("latents", "images")
"""What is judged in place of samples, for comparison."""
GRID = 16
"""Samples that are drawn from one seed."""


@checked
class LatentDensity:
    """The evaluation of a density of representations, scaled to unit length, at the end of training (GMJE, 5.3)."""

    density: Annotated[str, one_of("none", *FITTED, *OWN, *REFERENCES)] = "none"
    """`gaussian` (one, with their mean and covariance) or `gmm` (a mixture of full covariances), fitted to the
    representations of the training images; `own`, the method's own mixture with uniform weights, or `own_weighted` with
    its learned ones. For comparison `latents`, which decodes the test images' representations, and `images`, the test
    images themselves. `none` for no such evaluation."""
    density_components: Annotated[int, at_least(1)] = 50
    """Gaussians of `gmm`."""
    density_steps: Annotated[int, at_least(1)] = 20
    """Most steps of EM that fit `gmm`."""
    density_images: Annotated[int, at_least(1)] = 10_000
    """Most training images that a density is fitted to."""
    density_samples: Annotated[int, at_least(GRID)] = 1600
    """Samples that are decoded and judged, a multiple of 16: each sixteen have a seed, 1000 and so on."""
    density_confidence: Annotated[float, between(0.5, 1, above=True, below=True)] = 0.9
    """Probability of a class from which on the classifier of real images is sure of it, in (0.5, 1)."""
    density_pictures: bool = False
    """Keep a sample grid of decoded samples, and a map by t-SNE of samples among the test images' representations."""

    def __post_init__(self) -> None:
        if self.density_samples % GRID:
            raise ValueError(
                f"density_samples must be a multiple of {GRID}, but got density_samples={self.density_samples}"
            )

    @property
    def evaluated(self) -> bool:
        """Whether anything is asked for."""
        return self.density != "none"

    @property
    def decoded(self) -> bool:
        """Whether representations are decoded."""
        return self.density not in ("none", "images")

    @property
    def sampled(self) -> bool:
        """Whether there is a density to sample."""
        return self.density in FITTED + OWN


ALL = "all"
"""Stands for all scores in `one_class_scores`."""


@checked
class Evaluation:
    """The evaluation of representations by classes, and of anomaly scores. Trials on one class are evaluated by anomaly
    scores only."""

    knn: Annotated[int, at_least(0)] = 0
    """Number k of nearest neighbours that classify a test image, at every report. 0 for no k-NN evaluation."""
    knn_temperature: Annotated[float, above(0)] = 0.07
    """Temperature of the weighted vote, in which a neighbour's weight is `exp(cosine / knn_temperature)`. The plain
    majority vote is reported, too."""
    probe_epochs: Annotated[int, at_least(0)] = 0
    """Epochs that linear probes on the representations train, at the end of training. 0 for no probes."""
    probe_lr: Annotated[float, above(0)] = 0.1
    """Peak learning rate of the probes for batches of 256; it is scaled in proportion to the batch size."""
    probe_batch_size: Annotated[int, at_least(1)] = 256
    """Images per step of the probes."""
    probe_standardize: bool = False
    """Shift and scale each feature to mean 0 and standard deviation 1 over the training images before probing. Without
    this, probes of small or unequally scaled features do not converge within the papers' epochs."""
    outliers: str = ""
    """Sets of outliers, joined by +, that anomaly scores must tell from the test images: `svhn+noise`."""
    one_class_scores: str = added("")
    """Anomaly scores, joined by +, that are fitted to the vectors of the training images of a `normal_class` at the end
    of training: `knn1+kde`, or `all`. The vectors are the representations, and the projection where there is one."""
    one_class_standardize: bool = added(False)
    """Shift and scale each number of these vectors to mean 0 and standard deviation 1 over the training images first;
    for `method=pixels` this standardises each pixel."""

    def __post_init__(self) -> None:
        for name in self.outlier_sets:
            choices("outliers", name, sorted(OUTLIERS))
        if len(set(self.outlier_sets)) < len(self.outlier_sets):
            raise ValueError(f"each set of outliers must be named once, but got outliers={self.outliers}")
        for name in self.fitted_scores:
            choices("one_class_scores", name, [*FITTED_SCORES, ALL])
        if len(set(self.fitted_scores)) < len(self.fitted_scores):
            raise ValueError(f"each score must be named once, but got one_class_scores={self.one_class_scores}")
        if self.one_class_standardize and not self.one_class_scores:
            raise ValueError("one_class_standardize needs one_class_scores, but there are none")

    @property
    def outlier_sets(self) -> tuple[str, ...]:
        """Names of the sets in `outliers`."""
        return tuple(self.outliers.split("+")) if self.outliers else ()

    @property
    def fitted_scores(self) -> tuple[str, ...]:
        """Names of the scores in `one_class_scores`."""
        if self.one_class_scores == ALL:
            return tuple(FITTED_SCORES)
        return tuple(self.one_class_scores.split("+")) if self.one_class_scores else ()


@checked
class ContentEvaluation:
    """The evaluation of representations as the SimVAE paper has it (Tables 1, 5 and 6), at the end of training."""

    content_probe_epochs: Annotated[int, at_least(0)] = 0
    """Epochs that a linear probe and an MLP probe train by Adam on the representation. 0 for neither."""
    content_probe_lr: Annotated[float, above(0)] = 3e-4
    """Learning rate of these probes."""
    content_probe_batch_size: Annotated[int, at_least(1)] = 128
    """Images per step of these probes."""
    content_probe_width: Annotated[int, at_least(0)] = 0
    """Hidden units of the MLP probe; 0 for as many as the representation has dimensions."""
    content_knn: Annotated[int, at_least(0)] = 0
    """Largest k of the nearest neighbours by Euclidean distance; the accuracy of each k from 1 on and the best are
    reported. 0 for none."""
    gmm_n_init: Annotated[int, at_least(0)] = 0
    """Initialisations of a Gaussian mixture with as many components as classes, whose clusters are compared with the
    classes. 0 for no mixture."""
    styles: str = ""
    """Attributes of the data set, joined by +, on which MLP probes are trained with the settings above: `hue+ink`."""

    def __post_init__(self) -> None:
        if self.styles and not self.content_probe_epochs:
            raise ValueError(f"styles needs content_probe_epochs of at least 1, but got styles={self.styles}")
        if len(set(self.style_names)) < len(self.style_names):
            raise ValueError(f"each attribute must be named once, but got styles={self.styles}")

    @property
    def style_names(self) -> tuple[str, ...]:
        """Names of the attributes in `styles`."""
        return tuple(self.styles.split("+")) if self.styles else ()


GEOMETRIES = ("none", "representation", "projection")


@checked
class EmbeddingEvaluation:
    """The evaluation of joint embeddings (GMJE)."""

    few_labels: Annotated[int, at_least(0)] = 0
    """Labelled training images of each class that linear probes on the representation see at the end of training; 5
    for the metric `probe_5`. 0 for no such probes."""
    few_label_draws: Annotated[int, at_least(1)] = 20
    """Draws of these images, over which the accuracy is averaged; the same for every trial on a data set."""
    probe_curve: bool = False
    """Train these probes and those of `probe_epochs` at every report, not at the last one alone."""
    geometry: Annotated[str, one_of(*GEOMETRIES)] = "none"
    """Vectors whose effective rank, cosine, volume, trace and norm are reported, at every report: the
    `representation`, the `projection`, which is what the loss compares, or `none`. Where there is no projector, both
    are the same."""
    compare_projection: bool = added(False)
    """Evaluate both sides of the projector in one trial: train the probes that are asked for on the projection, too,
    and with a `geometry` report the variance of views of both."""
    prediction: bool = added(False)
    """Predict projections of a view of test images from those of another view, by the joint Gaussian of those of
    training images, at the end of training."""


@checked
class Generation:
    """The evaluation of decoded images (SimVAE, Table 7), at the end of training."""

    reconstructions: bool = False
    """Decode the representations of the test images, and report the squared error of their pixels."""
    samples_per_class: Annotated[int, at_least(0)] = 0
    """Images that are sampled of each class: a Gaussian is fitted to the representations of its training images, and
    samples of it are decoded. 0 for none."""
    adhoc_epochs: Annotated[int, at_least(0)] = 0
    """Most epochs that a decoder is trained on the frozen representations of a method that has no decoder. 0 for no
    such decoder."""
    adhoc_lr: Annotated[float, above(0)] = 1e-4
    """Adam's learning rate of that decoder."""
    adhoc_patience: Annotated[int, at_least(1)] = 10
    """Epochs without a lower validation loss after which its training ends."""
    fid_weights: str = ""
    """File of the weights of Inception-v3, with which the FID of the samples is computed. Without it there is no
    `fid`."""
    sheets: bool = False
    """Keep pictures of reconstructions and samples beside the tables; of a trial on one class the most and the least
    anomalous test images."""

    def __post_init__(self) -> None:
        if self.fid_weights and not self.samples_per_class:
            raise ValueError("fid_weights needs samples_per_class of at least 1, but got samples_per_class=0")

    @property
    def decodes(self) -> bool:
        """Whether any image is decoded."""
        return self.reconstructions or self.samples_per_class > 0


@checked
class Data:
    """The data set, and which of its images are used."""

    dataset: Annotated[
        str,
        one_of(
            *sorted([*DATASETS, FOLDER, *SOURCES]), listing="--describe datasets lists all", own="my_data:MyDataset"
        ),
    ] = "digits"
    """Name of the data set; `folder`, `arrays` and `huggingface` for images of your own in the folder of `--data`, or
    `my_data:MyDataset` for your own class or function."""
    normal_class: Annotated[int | None, at_least(0)] = None
    """Index of the only class that is trained on; the other classes are outliers. None trains on all classes."""
    held_out: str = ""
    """Indices of classes, joined by +, that are neither trained on nor tested, for use as outliers: `0+3`."""
    validation: Annotated[float, between(0, 0.5)] = 0.0
    """Share of each class's labelled training images that is held out, in [0, 0.5]; the same images for every seed.
    Every metric is then also reported on these images, as `val_METRIC`, to choose by. 0 holds out none."""
    normal_images: Annotated[int, at_least(0)] = added(0)
    """How many images of the `normal_class` are trained on, of those that are not held out; 0 for all. The seed chooses
    them, 30 with the 10 among them."""
    contamination: Annotated[float, at_least(0), below(0.5)] = added(0.0)
    """Share of the training images that are anomalies: images of other classes than `normal_class`, beside the normal
    ones, in [0, 0.5). The seed chooses them among training images that are not held out."""

    def __post_init__(self) -> None:
        for key, value in (("normal_images", self.normal_images), ("contamination", self.contamination)):
            if value and self.normal_class is None:
                raise ValueError(f"{key} needs a normal_class, but got {key}={value} with normal_class=None")
        if self.held_out:
            names = self.held_out.split("+")
            indices = sorted({int(name) for name in names if name.isdecimal() and len(name) < 19})
            if names != [*map(str, indices)]:
                raise ValueError(
                    f"held_out must be ascending class indices joined by +, but got held_out={self.held_out}"
                )

    @property
    def held_out_classes(self) -> tuple[int, ...]:
        """Indices of the classes in `held_out`."""
        return tuple(int(name) for name in self.held_out.split("+")) if self.held_out else ()


@checked
class Folder:
    """The user's own images. For all data sets but `folder` these keys are filled in from the images."""

    image_size: Annotated[int, at_least(4)] = 32
    """Pixels along each side of an image as models see it. With `dataset=folder` files of any size and shape are
    resized to it; other images of your own have it."""
    image_channels: Annotated[int, at_least(1)] = 3
    """3 for colour, 1 for grey. Other images of your own than `dataset=folder` have 1 to 16."""
    image_digest: str = ""
    """Hash of all image files, filled in from the folder: trials on other images have other ids. For other images of
    your own it is of the labels and of a sample of the pixels."""
    image_width: Annotated[int, at_least(0)] = added(0)
    """Columns of images of your own that are not square; 0 where they are."""
    alarm_rates: str = added("0.01+0.05")
    """False-alarm rates, joined by +, at which a trial on one class reports the share of each class of test images that
    it flags."""

    def __post_init__(self) -> None:
        if len(set(self.detection_rates)) < len(self.detection_rates):
            raise ValueError(f"each false-alarm rate must be named once, but got alarm_rates={self.alarm_rates}")
        if not all(char in "0123456789abcdef" for char in self.image_digest):
            raise ValueError(f"image_digest must be hexadecimal, but got image_digest={self.image_digest}")

    @property
    def shape(self) -> tuple[int, int, int]:
        """`(C, H, W)` of an image as models see it."""
        return self.image_channels, self.image_size, self.image_width or self.image_size

    @property
    def detection_rates(self) -> tuple[float, ...]:
        """The rates in `alarm_rates`. Raises ValueError for text that is none."""
        rates = []
        for part in self.alarm_rates.split("+") if self.alarm_rates else ():
            try:
                rate = float(part)
            except ValueError:
                rate = math.nan
            if not 0 < rate < 1:
                raise ValueError(
                    f"alarm_rates must be shares in (0, 1), joined by +, but got alarm_rates={self.alarm_rates}"
                )
            rates.append(rate)
        return tuple(rates)


@checked
class Batches:
    """What the size of a batch counts."""

    batch_unit: Annotated[str, one_of("images", "views")] = "images"
    """`images`: `batch_size` counts images, and an epoch is a pass over all of them. `views`: it counts all views that
    a step encodes, so there are `batch_size` over J images, and an epoch encodes as many views as there are images.
    Trials with other numbers J of views then cost the same."""


@dataclass(frozen=True, kw_only=True)
class ImageTrial(TrialConfig):
    """Everything that one training run on images depends on."""

    optional = TrialConfig.optional | {
        "layers",
        "folder",
        "pixel_views",
        "batches",
        "pretrained",
        "content",
        "generation",
        "embeddings",
        "latent_density",
    }
    silent = frozenset({"folder"})

    data: Data
    folder: Folder
    encoder: Encoder
    layers: Layers
    pretrained: Pretrained
    views: Views
    pixel_views: PixelViews
    batches: Batches
    evaluation: Evaluation
    content: ContentEvaluation
    generation: Generation
    embeddings: EmbeddingEvaluation
    latent_density: LatentDensity

    @property
    def declaration(self) -> Declaration:
        """What is known of its data set without the images. The numbers of the user's own images, and their attributes,
        are known once this process has listed them; before there are 0 classes."""
        if self.data.dataset in DATASETS:
            return DATASETS[self.data.dataset].declaration
        shape, listing = self.folder.shape, listed(self.folder.image_digest)
        return listing.declaration(shape) if listing else Declaration(shape, 0, (), ())

    @property
    def networks(self) -> Networks:
        """Builds its networks."""
        return Networks(self.encoder, self.layers, self.pretrained)
