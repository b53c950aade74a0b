"""The sections of a trial's configuration that all methods share: data, encoder, training, evaluation."""

from dataclasses import dataclass

from trainables.data.datasets.catalog import DATASETS
from trainables.data.outliers import OUTLIERS
from trainables.networks.encoders import ENCODERS
from trainables.validation import between, choices, positive, truth, whole


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
class Training:
    """The optimisation, and how it runs."""

    seed: int = 0
    """Random seed. Initial weights, order of images, augmentation and noise derive from it and the data."""
    epochs: int = 100
    """Passes over the training images, without the last, incomplete batch. 0 evaluates the untrained model."""
    batch_size: int = 64
    """Images per step."""
    lr: float = 0.05
    """Peak learning rate of SGD, `lr > 0`. After the warm-up it falls to 0 on half a cosine over all steps."""
    momentum: float = 0.9
    """Momentum of SGD, in [0, 1)."""
    weight_decay: float = 0.0
    """L2 penalty on all parameters, including norms and biases."""
    warmup_epochs: int = 0
    """Epochs over which the learning rate first rises linearly from 0."""
    precision: str = "float32"
    """Precision of the networks: `float32`, or `bfloat16` by autocast. Likelihoods and weights are always float32."""
    channels_last: bool = False
    """Store images with channels last, which is faster for CUDA's convolutions in bfloat16."""
    workers: int = 1
    """Processes that share each batch, with a device each. BatchNorm sees the part of its own process only."""
    report_every: int = 1
    """Epochs between reports, each with an evaluation. The last epoch always reports."""

    def __post_init__(self) -> None:
        whole("seed", self.seed, 0)
        whole("epochs", self.epochs, 0)
        whole("batch_size", self.batch_size, 2)
        positive("lr", self.lr)
        positive("momentum", self.momentum, zero=True)
        if self.momentum >= 1:
            raise ValueError(f"`momentum < 1` must hold, but got momentum={self.momentum}")
        positive("weight_decay", self.weight_decay, zero=True)
        whole("warmup_epochs", self.warmup_epochs, 0)
        if self.warmup_epochs and self.warmup_epochs >= self.epochs:
            raise ValueError(
                f"`warmup_epochs < epochs` must hold, but got warmup_epochs={self.warmup_epochs}, epochs={self.epochs}"
            )
        choices("precision", self.precision, ("float32", "bfloat16"))
        truth("channels_last", self.channels_last)
        whole("workers", self.workers, 1)
        if self.batch_size % self.workers or self.batch_size < 2 * self.workers:
            raise ValueError(
                f"batch_size must be a multiple of workers, at least 2 for each, but got batch_size={self.batch_size}, "
                f"workers={self.workers}"
            )
        whole("report_every", self.report_every, 1)


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
