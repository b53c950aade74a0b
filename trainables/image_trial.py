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
"""Densities that the method itself learns."""
REFERENCES = ("latents", "images")
"""Evaluated instead of samples, for comparison."""
GRID = 16
"""Number of samples drawn from one seed."""


@checked
class LatentDensity:
    """The evaluation of a density of representations, scaled to unit length, at the end of training (GMJE, 5.3)."""

    density: Annotated[str, one_of("none", *FITTED, *OWN, *REFERENCES)] = "none"
    """Density to evaluate: `gaussian` (a single Gaussian) or `gmm` (a mixture with full covariances), fitted to the
    representations of the training images; `own` or `own_weighted`, the method's own mixture with uniform or learned
    weights. For comparison, `latents` decodes the representations of the test images and `images` takes the test images
    themselves. `none` skips this evaluation."""
    density_components: Annotated[int, at_least(1)] = 50
    """Number of Gaussians in `gmm`."""
    density_steps: Annotated[int, at_least(1)] = 20
    """Maximum number of EM steps that fit `gmm`."""
    density_images: Annotated[int, at_least(1)] = 10_000
    """Maximum number of training images that a density is fitted to."""
    density_samples: Annotated[int, at_least(GRID)] = 1600
    """Number of samples that are decoded and evaluated, a multiple of 16. Each group of 16 has its own seed: 1000, 1001
    and so on."""
    density_confidence: Annotated[float, between(0.5, 1, above=True, below=True)] = 0.9
    """Class probability, in (0.5, 1), from which the classifier of real images counts as confident."""
    density_pictures: bool = False
    """Keep a sample grid of decoded samples and a t-SNE map of samples and test representations."""

    def __post_init__(self) -> None:
        if self.density_samples % GRID:
            raise ValueError(
                f"density_samples must be a multiple of {GRID}, but got density_samples={self.density_samples}"
            )

    @property
    def evaluated(self) -> bool:
        """Whether any density is evaluated."""
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
"""Value of `one_class_scores` that selects all scores."""


@checked
class Evaluation:
    """The evaluation of representations with class labels, and of anomaly scores. One-class trials evaluate anomaly
    scores only."""

    knn: Annotated[int, at_least(0)] = 0
    """Number k of nearest neighbours that classify a test image at every report. 0 disables k-NN evaluation."""
    knn_temperature: Annotated[float, above(0)] = 0.07
    """Temperature of the weighted vote, in which a neighbour's weight is `exp(cosine / knn_temperature)`. The
    unweighted majority vote is also reported."""
    probe_epochs: Annotated[int, at_least(0)] = 0
    """Epochs for which linear probes are trained on the representations at the end of training. 0 disables them."""
    probe_lr: Annotated[float, above(0)] = 0.1
    """Peak learning rate of the probes for batches of 256 images, scaled in proportion to the batch size."""
    probe_batch_size: Annotated[int, at_least(1)] = 256
    """Images per step of the probes."""
    probe_standardize: bool = False
    """Standardise each feature to mean 0 and standard deviation 1 over the training images before probing. Without
    this, probes on small or unequally scaled features do not converge within the papers' epochs."""
    probe_weight_decay: Annotated[float, at_least(0)] = added(0.0)
    """Weight decay of the probes."""
    outliers: str = ""
    """Outlier sets (joined by +) for out-of-distribution AUROC against the test images: `svhn+noise`."""
    one_class_scores: str = added("")
    """Anomaly scores (joined by +) that are fitted to vectors of the training images of a `normal_class` at the end of
    training: `knn1+kde`, or `all`. The vectors are the representations and, with a projector, the projections."""
    one_class_standardize: bool = added(False)
    """Standardise each dimension of the vectors of `one_class_scores` to mean 0 and standard deviation 1 over the
    training images; with `method=pixels`, each pixel."""

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
            raise ValueError("one_class_standardize needs one_class_scores, but got one_class_scores=''")

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
    """The evaluation of representations in the SimVAE paper (Tables 1, 5 and 6), at the end of training."""

    content_probe_epochs: Annotated[int, at_least(0)] = 0
    """Epochs for which a linear probe and an MLP probe are trained with Adam on the representation. 0 disables both."""
    content_probe_lr: Annotated[float, above(0)] = 3e-4
    """Learning rate of the linear and MLP probes."""
    content_probe_batch_size: Annotated[int, at_least(1)] = 128
    """Images per step of the linear and MLP probes."""
    content_probe_width: Annotated[int, at_least(0)] = 0
    """Hidden units of the MLP probe; 0 takes the number of dimensions of the representation."""
    content_knn: Annotated[int, at_least(0)] = 0
    """Report the accuracy of k-NN by Euclidean distance for each k from 1 to this number, and the best one. 0 disables
    it."""
    gmm_n_init: Annotated[int, at_least(0)] = 0
    """Number of initialisations of a Gaussian mixture with one component per class, whose clusters are compared with
    the classes. 0 disables it."""
    styles: str = ""
    """Style attributes of the data set (joined by +) that MLP probes with the settings above predict: `hue+ink`."""

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
    """Labelled training images per class for linear probes on the representation at the end of training; 5 reports
    `probe_5`. 0 disables these probes."""
    few_label_draws: Annotated[int, at_least(1)] = 20
    """Number of draws of the labelled images, over which the accuracy is averaged. All trials on a data set use the
    same draws."""
    probe_curve: bool = False
    """Train the probes of `few_labels` and `probe_epochs` at every report instead of only at the last."""
    geometry: Annotated[str, one_of(*GEOMETRIES)] = "none"
    """Vectors whose effective rank, cosine, volume, trace and norm are reported at every report: `representation`,
    `projection` (the vectors that the loss compares) or `none`. Without a projector both are the same."""
    compare_projection: bool = added(False)
    """Evaluate both sides of the projector in one trial: also train the probes on the projection and, with a
    `geometry`, report the view variance of both."""
    prediction: bool = added(False)
    """At the end of training, predict the projection of one view of a test image from another view, using the joint
    Gaussian of the training images' projections."""


@checked
class Generation:
    """The evaluation of decoded images (SimVAE, Table 7), at the end of training."""

    reconstructions: bool = False
    """Decode the representations of the test images and report the squared error per pixel."""
    samples_per_class: Annotated[int, at_least(0)] = 0
    """Images to generate per class: a Gaussian is fitted to the representations of the class's training images, and its
    samples are decoded. 0 disables it."""
    adhoc_epochs: Annotated[int, at_least(0)] = 0
    """Maximum number of epochs for which a decoder is trained on the frozen representations of a method without a
    decoder. 0 trains no such decoder."""
    adhoc_lr: Annotated[float, above(0)] = 1e-4
    """Learning rate (Adam) of the ad-hoc decoder."""
    adhoc_patience: Annotated[int, at_least(1)] = 10
    """Epochs without a lower validation loss after which training of the ad-hoc decoder ends."""
    fid_weights: str = ""
    """File with the Inception-v3 weights that compute the FID of the samples. Without it `fid` is not reported."""
    sheets: bool = False
    """Keep pictures of reconstructions and samples beside the tables; for a one-class trial, the most and least
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
    """The data set, and the images of it that are used."""

    dataset: Annotated[
        str,
        one_of(
            *sorted([*DATASETS, FOLDER, *SOURCES]), listing="--describe datasets lists all", own="my_data:MyDataset"
        ),
    ] = "digits"
    """Name of the data set; `folder`, `arrays` and `huggingface` for images of your own in the folder of `--data`, or
    `my_data:MyDataset` for your own class or function."""
    normal_class: Annotated[int | None, at_least(0)] = None
    """Index of the single class to train on; all other classes are outliers. None trains on all classes."""
    held_out: str = ""
    """Indices of classes (joined by +) that are excluded from training and test images, for use as outliers: `0+3`."""
    validation: Annotated[float, between(0, 0.5)] = 0.0
    """Share of each class's labelled training images to hold out, in [0, 0.5]; the same images for every seed. Every
    metric is then also reported on these images as `val_METRIC`, for model selection. 0 holds out none."""
    normal_images: Annotated[int, at_least(0)] = added(0)
    """Number of training images of the `normal_class`, out of those that are not held out; 0 for all. The seed chooses
    them; a larger subset contains every smaller one."""
    contamination: Annotated[float, at_least(0), below(0.5)] = added(0.0)
    """Share of the training images that are anomalies (images of classes other than `normal_class`), in [0, 0.5). They
    are added to the normal images; the seed chooses them among training images that are not held out."""

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
    """The user's own images. Except for `dataset=folder`, these keys are filled in from the images."""

    image_size: Annotated[int, at_least(4)] = 32
    """Height and width of an image, in pixels, as models see it. With `dataset=folder`, files of any size and shape are
    resized to it; other images of your own must already have this size."""
    image_channels: Annotated[int, at_least(1)] = 3
    """3 for colour, 1 for grey. Images of your own other than `dataset=folder` may have 1 to 16 channels."""
    image_digest: str = ""
    """Hash of all image files, filled in from the folder, so that trials on other images get other ids. For other
    images of your own it covers the labels and a sample of the pixels."""
    image_width: Annotated[int, at_least(0)] = added(0)
    """Width in pixels of your own images if they are not square; 0 for square images."""
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
    """The unit of `batch_size`."""

    batch_unit: Annotated[str, one_of("images", "views")] = "images"
    """Whether `batch_size` counts `images`, with epochs that pass over all images, or the `views` that a step encodes.
    With `views` and J views per image, a batch has `batch_size` / J images and an epoch encodes as many views as there
    are images, so that trials with different J cost the same."""


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
        """What is known of the data set without its images. For the user's own images, counts and attributes are known
        once this process has listed them; before that the declaration has 0 classes."""
        if self.data.dataset in DATASETS:
            return DATASETS[self.data.dataset].declaration
        shape, listing = self.folder.shape, listed(self.folder.image_digest)
        return listing.declaration(shape) if listing else Declaration(shape, 0, (), ())

    @property
    def networks(self) -> Networks:
        """Builder of the trial's networks."""
        return Networks(self.encoder, self.layers, self.pretrained)
