"""The interfaces between methods, training and callers: what each provides and may assume.

Shapes: K members of a cohort, B images of a batch, D dimensions of a representation.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple, cast

import torch
from torch import Tensor, nn

Status = Literal["running", "finished", "diverged", "pruned", "failed"]


class Stopped(Exception):
    """Training was asked to end and has saved a checkpoint. The message is one line: why it was asked, if known, and
    what was saved."""


class OutOfMemory(RuntimeError):
    """Training needs more memory than its limit, or than the device has."""


class CheckpointError(Exception):
    """A checkpoint cannot be read, or training cannot resume from it. The message is one line."""


class Losses(NamedTuple):
    """A training loss: the `total` that is minimised, and its named parts for the history. All are scalars."""

    total: Tensor
    parts: dict[str, Tensor]


class Method(nn.Module):
    """A way to learn a representation.

    A method is built from its `Config` and an encoder. It does not know whether it trains alone or as one of many
    members with stacked weights (`trainables.learners.stack`). Three rules make that possible:

    1. A hyperparameter in `fusible` is a 0-dimensional buffer of the same name, and is read from there.
    2. A method draws no random numbers: noise is an argument, of the shape that `noise_shape` returns.
    3. Moving averages, queues and the like are buffers, which `losses` and `after_step` update in place.

    A method that does not override `losses` does not train.
    """

    Config: ClassVar[type]
    """Frozen dataclass of this method's hyperparameters, which checks their ranges."""

    fusible: ClassVar[frozenset[str]] = frozenset()
    """Hyperparameters of `Config` in which members of one stack may differ: they change neither the shape of a tensor
    nor the control flow."""

    view_count: ClassVar[int] = 2
    """Number of augmented views of an image that `losses` takes."""

    per_image: ClassVar[bool] = False
    """Whether a batch can be split over several devices. The loss must be the mean of losses of single images, and no
    image may affect another one or a buffer, except through BatchNorm."""

    loss_parts: ClassVar[tuple[str, ...]] = ()
    """All names that `Losses.parts` can hold."""

    representations: ClassVar[tuple[str, ...]] = ("z",)
    """Names of the vectors of `embed` that classifiers are trained on."""

    variance: ClassVar[str | None] = None
    """Name of the vector of `embed` that is the variance of a posterior; None if there is none."""

    scores: ClassVar[tuple[str, ...]] = ()
    """Names of the anomaly scores that `score` returns; empty if the method has none."""

    score_means: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Name of a metric -> the anomaly score whose mean over the test images it is."""

    def __init__(self, config: Any, encoder: nn.Module) -> None:
        super().__init__()
        self.config = config
        self.encoder = encoder
        for name in sorted(self.fusible):  # the same order in every process: peers average buffers by position
            self.register_buffer(name, torch.tensor(float(getattr(config, name))))

    @property
    def features(self) -> int:
        """Size D of the representation."""
        return cast(int, self.encoder.features)

    def forward(self, images_BCHW: Tensor) -> Tensor:
        """The representation `[B, D]`, in float32 whatever the precision of the encoder."""
        return self.encoder(images_BCHW).float()

    def embed(self, images_BCHW: Tensor) -> dict[str, Tensor]:
        """Vectors `[B, D]` of the images by name, including those of `representations` and `variance`."""
        return {"z": self(images_BCHW)}

    def noise_shape(self, batch: int) -> tuple[int, ...]:
        """Shape of the standard normal noise that `losses` takes for `batch` images; `(0,)` for none. The last but one
        dimension is that of the batch."""
        return (0,)

    def losses(self, *views_BCHW: Tensor, noise: Tensor) -> Losses:
        """The training loss of one batch, averaged over its images."""
        raise NotImplementedError

    def after_step(self) -> None:
        """Called after each optimiser step to update averaged weights, queues and the like. Does nothing by default."""

    def score_noise_shape(self, batch: int) -> tuple[int, ...]:
        """Shape of the standard normal noise that `score` takes for `batch` images; `(0,)` for none."""
        return (0,)

    def score(self, images_BCHW: Tensor, noise: Tensor) -> dict[str, Tensor]:
        """Anomaly scores `[B]` by name; higher means more anomalous."""
        raise NotImplementedError


@dataclass(frozen=True)
class Member:
    """The progress of one member of a cohort."""

    status: Status
    """`diverged`: a loss or metric was not finite. `pruned`: it was dropped at a rung. Both are results. `failed`: its
    cohort was given up; training never reports that."""
    epochs_run: int
    """Epochs completed; for a diverged member the epoch, counted from 1, in which it diverged."""
    metrics: Mapping[str, float | None]
    """Metrics by name; None where undefined or not finite. For a pruned member its last ones."""
    error: str | None = None
    """One line that says where and why it diverged or was pruned; None otherwise."""
    seconds: float = 0.0
    """Its share of the cohort's training seconds. The members that train in an epoch share its seconds equally."""
    schedule: str | None = None
    """The moves of a member of a population, as JSON (see `population.schedule`); None if it never moved."""


@dataclass(frozen=True)
class Report:
    """The members of a cohort at the end of an epoch, in the order of their configs."""

    epoch: int
    members: tuple[Member, ...]
    seconds: float
    """Training seconds of the whole cohort so far, including those before a resume."""
    done: bool
    """Whether this is the last report."""


@dataclass(frozen=True)
class Heartbeat:
    """The progress of a cohort between two reports."""

    epoch: float
    """Epochs completed, including the fraction of the current one: 2.5 is half way through the third."""
    epochs: int
    """Epochs of the whole training."""
    loss: float | None
    """Training loss of the current epoch so far, averaged over the running members; None if it is not finite."""


@dataclass(frozen=True)
class Move:
    """A member of a population copies the weights of another one and gets new hyperparameters."""

    source: int
    """Index of the member whose weights, buffers and momentum are copied, as they were before any move."""
    hyperparameters: Mapping[str, float]
    """Fusible key -> its new value, for every key that the population adapts."""


@dataclass(frozen=True)
class Verdict:
    """Which running members are pruned, and which move, after a report."""

    pruned: Mapping[int, str] = field(default_factory=dict)
    """Index of a member -> why it is pruned, in one line. A pruned member leaves the stack."""
    moves: Mapping[int, Move] = field(default_factory=dict)
    """Index of a member -> its move."""


Judge = Callable[[Report], Verdict]
"""Decides after each report but the last which members are pruned or move. Equal reports must get equal verdicts."""
