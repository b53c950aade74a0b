"""The parts of a trial's configuration that every method has: data, encoder, training, evaluation."""

from __future__ import annotations

from dataclasses import dataclass

from trainables.data.datasets import DATASETS
from trainables.data.outliers import OUTLIERS
from trainables.networks.encoders import ENCODERS
from trainables.validation import between, choices, positive, truth, whole

PRECISIONS = ("float32", "bfloat16")


@dataclass(frozen=True)
class Data:
    dataset: str = "digits"
    """Name of the data set."""
    normal_class: int | None = None
    """The one class that is trained on, the others being outliers; None trains on all."""
    held_out: str = ""
    """Classes, joined by +, that are neither trained on nor tested, to be used as outliers."""
    validation: float = 0.0
    """Share of each class's labelled training images that is held out, in [0, 0.5]; the same images for every seed.
    Every metric is then reported of these images, too, as `val_METRIC`, to choose by. 0 holds out none."""

    def __post_init__(self) -> None:
        choices("dataset", self.dataset, sorted(DATASETS))
        if self.normal_class is not None:
            whole("normal_class", self.normal_class, 0)
        if self.held_out:
            names = self.held_out.split("+")
            if names != [
                str(one) for one in sorted({int(name) for name in names if name.isdecimal() and len(name) < 19})
            ]:
                raise ValueError(
                    f"held_out must be ascending class indices joined by +, but got held_out={self.held_out}"
                )
        between("validation", self.validation, 0, 0.5)

    @property
    def held_out_classes(self) -> tuple[int, ...]:
        """Indices."""
        return tuple(int(name) for name in self.held_out.split("+")) if self.held_out else ()


@dataclass(frozen=True)
class Encoder:
    encoder: str = "mlp"
    """Name of the encoder."""
    width: int = 128
    """Hidden units of the `mlp`, channels of the `convnet`; other encoders have their published widths."""
    features: int = 64
    """Size D of the representation of the `mlp` and the `convnet`; other encoders have their published sizes."""
    small_stem: bool = True
    """ResNets: the stem for 32x32 images, a first convolution 3x3 of stride 1 and no max-pool."""

    def __post_init__(self) -> None:
        choices("encoder", self.encoder, ENCODERS)
        whole("width", self.width, 1)
        whole("features", self.features, 1)
        truth("small_stem", self.small_stem)


@dataclass(frozen=True)
class Training:
    seed: int = 0
    """Initial weights, the order of images, their augmentation and all noise derive from it and the data's name."""
    epochs: int = 100
    """Passes over the training images; the last, incomplete batch of each is left out. 0 evaluates the untrained."""
    batch_size: int = 64
    """Images a step."""
    lr: float = 0.05
    """Peak learning rate of SGD, `lr > 0`; it falls to 0 on a half cosine over all steps after the warm-up."""
    momentum: float = 0.9
    """SGD's momentum, in [0, 1)."""
    weight_decay: float = 0.0
    """L2 penalty on every parameter, norms and biases included."""
    warmup_epochs: int = 0
    """Epochs over which the learning rate first rises linearly from 0."""
    precision: str = "float32"
    """Arithmetic of the networks: `float32`, or `bfloat16` by autocast. Likelihoods and weights are float32 always."""
    channels_last: bool = False
    """Keep images with their channels last, which CUDA's convolutions prefer in bfloat16."""
    workers: int = 1
    """Processes, a device each, that a batch is split over. BatchNorm sees the part of its own process."""
    report_every: int = 1
    """Epochs between reports, each with an evaluation; the last epoch always reports."""

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
        choices("precision", self.precision, PRECISIONS)
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
    """Of trials on all classes; those on one class are judged by their anomaly scores alone."""

    knn: int = 0
    """Neighbours that classify a test image, at every report; 0 for no such evaluation."""
    knn_temperature: float = 0.07
    """Neighbours vote with weight `exp(cosine / knn_temperature)`, beside the plain majority."""
    probe_epochs: int = 0
    """Epochs that linear probes of the representations train, at the end; 0 for none."""
    probe_lr: float = 0.1
    """Peak learning rate of the probes for batches of 256; it scales with the batch."""
    probe_batch_size: int = 256
    """Images a step of the probes."""
    probe_standardize: bool = False
    """Shift and scale each feature to mean 0 and standard deviation 1 over the training images before it is probed. On
    features as they are, a probe of small or unequal ones has not converged after the papers' epochs."""
    outliers: str = ""
    """Sets of outliers, joined by +, that the test images are told from by the method's anomaly scores."""

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
            raise ValueError(f"each set of outliers must be there once, but got outliers={self.outliers}")

    @property
    def outlier_sets(self) -> tuple[str, ...]:
        """Names."""
        return tuple(self.outliers.split("+")) if self.outliers else ()
