"""The interface of methods: what all methods share (construction, noise, learning), and what methods of images and of
pairs add.

Shapes: B examples of a batch, M components, D dimensions of a representation, P of a projection, C channels, H rows,
W columns, L classes, X inputs of a pair.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, cast

import torch
from torch import Tensor, nn

Batch = Mapping[str, Any]
"""One batch: name of an entry -> a tensor `[B, ...]` or a tuple of such tensors. The task defines the entries."""

Shapes = Mapping[str, tuple[int, ...]]
"""Name of an entry of a batch -> the shape of one example, without B. For image methods that need labels, `logits` is
`(L,)`, the shape of `classify` for one image, where L is the number of classes of the data set."""

Capability = Literal["embed", "score", "heat", "decode", "density", "classify", "predict"]
"""What an evaluator or a user needs from a method: representations, anomaly scores, heat maps of where an image is
anomalous, images decoded from representations, a density of the vectors that the loss compares, class logits, or a
conditional density."""


class Losses(NamedTuple):
    """A training loss: the `total` that is minimised, and its named parts for the history. All are scalars."""

    total: Tensor
    parts: dict[str, Tensor]


@dataclass(frozen=True)
class Noise:
    """Random numbers that a method takes as an argument."""

    shape: tuple[int, ...]
    """Their shape, including the dimension of the batch."""
    batch_dim: int | None = None
    """Index of the dimension of the batch; None if there is none."""
    kind: Literal["normal", "uniform"] = "normal"
    """Standard normal, or uniform in [0, 1)."""


Noises = Mapping[str, Noise]
"""Name -> the random numbers that a method takes under that name."""


class Method(nn.Module):
    """A way to learn from the data of one task.

    A method is built from its `Config`, the network builder of its task, and the shapes of a batch. It does not know
    whether it trains alone or as one of many members with stacked weights (`trainables.learners.stack`). Three rules
    make this possible:

    1. Each hyperparameter in `fusible` is read from a 0-dimensional buffer of the same name. Neither initial weights
       nor other buffers depend on it, because all members of a stream start from one model.
    2. A method draws no random numbers: noise is an argument, declared by `noise`, `after_step_noise` and
       `score_noise`.
    3. Moving averages, queues and similar state are buffers, which `losses` and `after_step` update in place.

    A method that overrides neither `losses` nor `fit` does not train.
    """

    Config: ClassVar[type]
    """Frozen dataclass of this method's hyperparameters, which checks their ranges."""

    task: ClassVar[str] = "images"
    """Name of the task in TASKS that the method learns from."""

    capabilities: ClassVar[frozenset[Capability]] = frozenset()
    """What the method offers to evaluators."""

    fusible: ClassVar[frozenset[str]] = frozenset()
    """Hyperparameters of `Config` that may differ between members of one stack: they change neither tensor shapes nor
    control flow."""

    per_example: ClassVar[bool] = False
    """Whether a batch can be split over several devices. The loss must be the mean of losses of single examples, and no
    example may affect another example or a buffer, except through BatchNorm."""

    loss_parts: ClassVar[tuple[str, ...]] = ()
    """All names that `Losses.parts` can hold."""

    measures: ClassVar[frozenset[str]] = frozenset()
    """Names among `loss_parts` that are not part of the loss. They are reported under their own names, all others as
    `loss_NAME`."""

    epoch: int = 0
    """Epochs trained before the current one. Only a method with `phases` may depend on it; for all others it stays
    0."""

    def __init__(self, config: Any, networks: Any, shapes: Shapes) -> None:
        """`networks` is a `NetworkBuilder` for images, and `PairStatistics` for pairs."""
        super().__init__()
        self.config = config
        for name in sorted(self.fusible):  # the same order in every process: peers average buffers by position
            self.register_buffer(name, torch.tensor(float(getattr(config, name))))

    @classmethod
    def parts_of(cls, options: Any) -> tuple[str, ...]:
        """Names among `loss_parts` that a trial with these `options`, of the type `Config`, can report."""
        return cls.loss_parts

    @classmethod
    def trains(cls) -> bool:
        """Whether the method changes in training."""
        return cls.losses is not Method.losses or cls.fitted()

    @classmethod
    def fitted(cls) -> bool:
        """Whether the method is fitted to all training data at once, without gradients."""
        return cls.fit is not Method.fit

    @classmethod
    def metric_of_part(cls, part: str) -> str:
        """Name of the metric that reports a loss part."""
        return part if part in cls.measures else f"loss_{part}"

    @classmethod
    def phases(cls, options: Any) -> tuple[int, ...]:
        """Epochs (ascending, counted from 0) at which a new training phase begins. At each of them the method observes
        all training examples (`observe`), the optimiser's moments are reset, and the learning-rate schedule restarts.
        By default training has a single phase."""
        return ()

    def observe(self, batch: Batch) -> None:
        """Called at the start of a phase with all training examples, one batch at a time. It may update buffers in
        place. It runs outside vmap, for one member at a time, without gradients and in evaluation mode. Does nothing by
        default."""

    def noise(self, batch: int) -> Noises:
        """The noise that `losses` or `fit` takes for `batch` examples."""
        return {}

    def losses(self, batch: Batch, noise: Mapping[str, Tensor]) -> Losses:
        """The training loss of one batch, averaged over its examples."""
        raise NotImplementedError

    def fit(self, data: Batch, noise: Mapping[str, Tensor]) -> Losses:
        """Fit the method to all training data for one more epoch, in place. Returns the losses before this epoch. It
        runs outside vmap, for one member at a time."""
        raise NotImplementedError

    def after_step_noise(self) -> Noises:
        """The noise that `after_step` takes."""
        return {}

    def after_step(self, noise: Mapping[str, Tensor]) -> None:
        """Called after each optimiser step to update averaged weights, queues and similar buffers. Does nothing by
        default."""


# Methods that learn a representation of images.


class NetworkBuilder(Protocol):
    """Builds the networks that a trial asks for."""

    def build(self, image_shape: tuple[int, ...], outputs: int = 1) -> nn.Module:
        """A new encoder of images `(C, H, W)`. Its attribute `features` is the size of its output: `outputs` times the
        representation size D of the trial."""
        ...

    def build_decoder(self, features: int, image_shape: tuple[int, ...]) -> Any:
        """A new decoder from latents of size `features` to images `(C, H, W)` (see `networks.decoders`)."""
        ...


ENTRIES = frozenset({"views", "view_pixels", "plain", "plain_pixels", "labels"})
"""Entries that a batch of images can have."""


class ImageMethod(Method):
    """A method that learns a representation of images with an encoder.

    The entries of a batch are tuples of images `[B, C, H, W]`:

    - `views`: augmented views, as many as `view_count` says, prepared for the encoder
    - `view_pixels`: the same views in [0, 1]
    - `plain`: the image without augmentation, prepared for the encoder
    - `plain_pixels`: the same image in [0, 1]

    One entry is a tensor instead of a tuple:

    - `labels`: the class of each image, int64 `[B]`, in 0..L-1. A method that reads it needs a trial on all classes of
      a data set in which every training image has a label
    """

    capabilities = frozenset({"embed"})

    reads: ClassVar[frozenset[str]] = frozenset({"views"})
    """Entries of a batch that `losses` reads."""

    outputs: ClassVar[int] = 1
    """Outputs of the encoder for each of the D features: 2 for a mean and a log-variance."""

    representations: ClassVar[tuple[str, ...]] = ("z",)
    """Names of the vectors from `embed` on which classifiers are trained."""

    variance: ClassVar[str | None] = None
    """Name of the vector from `embed` that is the variance of a posterior; None without a posterior."""

    scores: ClassVar[tuple[str, ...]] = ()
    """Names of the anomaly scores that `score` returns; empty if the method has none."""

    scores_pixels: ClassVar[bool] = False
    """Whether `score` takes the images in [0, 1], the target of decoders, as a third argument."""

    embeds_pixels: ClassVar[bool] = False
    """Whether the representation is the image itself, its prepared pixels in their order."""

    score_means: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Name of a metric -> the anomaly score that the metric averages over the test images."""

    def __init__(self, config: Any, networks: NetworkBuilder, shapes: Shapes) -> None:
        super().__init__(config, networks, shapes)
        self.image_shape = shapes["views"]
        self.classes = shapes.get("logits", (0,))[0]
        """Number of classes L; 0 unless the method `needs_labels`."""
        self.encoder = networks.build(self.image_shape, self.outputs)
        self.projector: nn.Module = nn.Identity()
        """Maps the representation to the vectors that the loss compares. Methods with a projector replace it."""

    @classmethod
    def view_count(cls, config: Any) -> int:
        """Number of augmented views of an image that `losses` takes."""
        return 2

    @classmethod
    def encoded_count(cls, config: Any) -> int:
        """Number of images that a step encodes for each image of a batch."""
        return cls.view_count(config) + ("plain" in cls.reads)

    @classmethod
    def needs_labels(cls) -> bool:
        """Whether training or evaluation needs the classes of images; `shapes` then contains their number."""
        return "labels" in cls.reads or "classify" in cls.capabilities

    @classmethod
    def check_images(cls, config: Any, image_shape: tuple[int, ...]) -> None:
        """Raise ValueError if the method cannot learn from images of shape `(C, H, W)`. Accepts all shapes by
        default."""
        return

    @classmethod
    def has_decoder(cls, config: Any) -> bool:
        """Whether the method builds a decoder."""
        return "decode" in cls.capabilities

    @property
    def features(self) -> int:
        """Size D of the representation."""
        return cast(int, self.encoder.features) // self.outputs

    def forward(self, images_BCHW: Tensor) -> Tensor:
        """The representation `[B, D]`, in float32 whatever the precision of the encoder."""
        return self.encoder(images_BCHW).float()

    def embed(self, images_BCHW: Tensor) -> dict[str, Tensor]:
        """Vectors `[B, D]` of the images by name, including those of `representations` and `variance`."""
        return {"z": self(images_BCHW)}

    def project(self, images_BCHW: Tensor) -> Tensor:
        """The vectors `[B, P]` that the loss compares, in float32: the representation after `projector`."""
        return self.projector(self(images_BCHW)).float()

    @classmethod
    def projects(cls, config: Any) -> bool:
        """Whether the loss compares projections instead of the representations themselves. The width of the projector
        is always the hyperparameter `projector_width`; 0 means no projector."""
        return bool(getattr(config, "projector_width", 0))

    def score_noise(self, batch: int) -> Noises:
        """The noise that `score` takes for `batch` images."""
        return {}

    def score(self, images_BCHW: Tensor, noise: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Anomaly scores `[B]` by name; higher means more anomalous. See `scores_pixels`."""
        raise NotImplementedError

    def heat(self, images_BCHW: Tensor) -> Tensor:
        """How anomalous each pixel is, `[B, H, W]`, at least 0: a squared error or distance."""
        raise NotImplementedError

    def decode(self, z_BD: Tensor) -> Tensor:
        """Images `[B, C, H, W]` in [0, 1] decoded from representations."""
        raise NotImplementedError

    def classify(self, images_BCHW: Tensor) -> Tensor:
        """Logits `[B, L]` of the classes of the data set, in float32 whatever the precision of the networks."""
        raise NotImplementedError

    def density(self) -> Mapping[str, Tensor]:
        """The method's own mixture of M Gaussians over the vectors that the loss compares (`project`), scaled to unit
        length: `logits` `[M]` of the weights, `means` `[M, P]` and `covariances` `[M, P, P]`. Without a projector it is
        a mixture over the representations."""
        raise NotImplementedError


# Methods that learn the density of a number y given x.


class ConditionalDensity(NamedTuple):
    """The density of a number y given x, returned by `predict`: a mixture of Gaussians. The number M of components
    depends on the method, but not on x."""

    log_weights_BM: Tensor
    """Finite logarithms of the weights, which sum to 1 over M."""
    means_BM: Tensor
    sigmas_BM: Tensor
    """Standard deviations, above 0."""


class PairStatistics(Protocol):
    """What a method of the task `pairs` may know of the training pairs before it learns from them."""

    @property
    def count(self) -> int:
        """Number of training pairs."""
        ...

    @property
    def steps(self) -> int:
        """Number of steps of the whole training."""
        ...

    def target_quantiles(self, levels: Tensor) -> Tensor:
        """Quantiles of the targets y at these levels in [0, 1]."""
        ...


class PairsMethod(Method):
    """A method that learns from pairs (x, y). The entries of a batch are `x`, `[B, X]`, and `y`, `[B]`."""

    task = "pairs"
    capabilities = frozenset({"predict"})

    def predict(self, x_BX: Tensor) -> ConditionalDensity:
        """The density of y given each x, in float32 whatever the precision of the networks."""
        raise NotImplementedError
