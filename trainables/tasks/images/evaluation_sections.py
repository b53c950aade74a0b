"""The sections of a trial on images that ask for evaluators."""

from typing import Annotated

from trainables.data.outliers import OUTLIERS
from trainables.validation import above, at_least, checked, choices, one_of


@checked
class Evaluation:
    """The evaluation of trials on all classes. Trials on one class are evaluated by their anomaly scores only."""

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

    def __post_init__(self) -> None:
        for name in self.outlier_sets:
            choices("outliers", name, sorted(OUTLIERS))
        if len(set(self.outlier_sets)) < len(self.outlier_sets):
            raise ValueError(f"each set of outliers must be named once, but got outliers={self.outliers}")

    @property
    def outlier_sets(self) -> tuple[str, ...]:
        """Names of the sets in `outliers`."""
        return tuple(self.outliers.split("+")) if self.outliers else ()


@checked
class ContentEvaluation:
    """The evaluation of representations as the SimVAE paper has it (section 8), at the end of training."""

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


@checked
class Generation:
    """The evaluation of decoded images (SimVAE, section 8), at the end of training."""

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
    """Keep pictures of reconstructions and samples beside the tables."""

    def __post_init__(self) -> None:
        if self.sheets and not self.decodes:
            raise ValueError("sheets needs reconstructions, or samples_per_class of at least 1, but there are neither")
        if self.fid_weights and not self.samples_per_class:
            raise ValueError("fid_weights needs samples_per_class of at least 1, but got samples_per_class=0")

    @property
    def decodes(self) -> bool:
        """Whether any image is decoded."""
        return self.reconstructions or self.samples_per_class > 0
