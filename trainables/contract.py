"""All that a method promises and all that a caller may assume.

Shapes: K members of a cohort, B images of a batch, D dimensions of a representation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

Status = Literal["running", "finished", "diverged", "pruned"]

WHY = ".why"
"""After the path of a cohort's checkpoint: where a process that ends itself writes why, in one line: the token of its
run, by which a later driver tells that the words are old, a space, and the reason."""
STOPPED, HUNG = "stopped", "hung"
"""What the reason begins with, before a colon: the process was asked to end; the cohort did not go on."""


class Stopped(Exception):
    """Training was asked to end, and has saved what there is. What it says is one line: why, if whoever asked has said
    so, and what was saved."""


class OutOfMemory(RuntimeError):
    """Training needs more memory than it may use, or than there is."""


class CheckpointError(Exception):
    """A checkpoint cannot be read, or training cannot go on from what it holds. The message is one line."""


class Losses(NamedTuple):
    """One training loss: the `total` to descend, a scalar, and its named parts, scalars, for the history."""

    total: Tensor
    parts: dict[str, Tensor]


class Method(nn.Module):
    """One way to learn a representation.

    A method is built from its `Config` and an encoder, and never learns how it is launched: alone, or as one of many
    members whose weights are stacked (`trainables.learners.stack`). Hence three rules. A hyperparameter in `fusible` is
    held as a 0-dimensional buffer of the same name and read from there. Nothing draws random numbers: noise is an
    argument, of the shape that `noise_shape` declares. Moving averages, queues and the like are buffers, which `losses`
    and `after_step` update in place. A method without `losses` of its own does not train.
    """

    Config: ClassVar[type]
    """A frozen dataclass of this method's hyperparameters, ranges checked."""

    fusible: ClassVar[frozenset[str]] = frozenset()
    """Hyperparameters of `Config` that change no tensor's shape and no control flow: members of one stack may differ in
    them."""

    view_count: ClassVar[int] = 2
    """How many augmented views of an image `losses` takes."""

    per_image: ClassVar[bool] = False
    """The loss of a batch is the mean of losses of its images, none of which sees another or leaves a trace in a buffer
    (BatchNorm apart), so that a batch can be split over several devices."""

    loss_parts: ClassVar[tuple[str, ...]] = ()
    """Every name that `Losses.parts` can hold."""

    representations: ClassVar[tuple[str, ...]] = ("z",)
    """Which of the vectors of `embed` classifiers are put on."""

    variance: ClassVar[str | None] = None
    """Which of the vectors of `embed` is the variance of a posterior, if any."""

    scores: ClassVar[tuple[str, ...]] = ()
    """The names of the anomaly scores that `score` returns; none where the method has no such scores."""

    score_means: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Metric name -> the score whose mean over the test images it is."""

    def __init__(self, config: Any, encoder: nn.Module) -> None:
        super().__init__()
        self.config = config
        self.encoder = encoder
        for name in sorted(self.fusible):  # in one order in every process: peers average buffers by place
            self.register_buffer(name, torch.tensor(float(getattr(config, name))))

    @property
    def features(self) -> int:
        """D, the size of the representation."""
        return int(self.encoder.features)  # type: ignore[arg-type]

    def forward(self, images_BCHW: Tensor) -> Tensor:
        """The representation, `[B, D]`, in float32 whatever the precision of the encoder."""
        return self.encoder(images_BCHW).float()

    def embed(self, images_BCHW: Tensor) -> dict[str, Tensor]:
        """Vectors `[B, D]` of each image by name, those of `representations` and `variance` among them."""
        return {"z": self(images_BCHW)}

    def noise_shape(self, batch: int) -> tuple[int, ...]:
        """Shape of the standard normal noise that one call of `losses` on `batch` images takes; `(0,)` for none. Its
        last but one dimension is the batch's."""
        return (0,)

    def losses(self, *views_BCHW: Tensor, noise: Tensor) -> Losses:
        """The training loss of one batch, averaged over its images."""
        raise NotImplementedError

    def after_step(self) -> None:
        """Called after each step of the optimiser: averaged weights, queues, particle banks. Empty by default."""

    def score_noise_shape(self, batch: int) -> tuple[int, ...]:
        """Shape of the standard normal noise that one call of `score` takes; `(0,)` for none."""
        return (0,)

    def score(self, images_BCHW: Tensor, noise: Tensor) -> dict[str, Tensor]:
        """Anomaly scores `[B]` by name, higher for more anomalous."""
        raise NotImplementedError


@dataclass(frozen=True)
class Member:
    """What one member of a cohort has reached."""

    status: Status
    """`diverged` is a result: a loss or score was not finite. `pruned` is one, too: it was dropped at a rung."""
    epochs_run: int
    """Epochs completed; for a diverged member the epoch, counted from 1, in which it diverged."""
    metrics: Mapping[str, float | None]
    """By name; None where undefined or not finite. Of a pruned member its last."""
    error: str | None = None
    """One line: where and why it diverged or was pruned."""
    seconds: float = 0.0
    """Its share of the cohort's training seconds: those of an epoch are shared by who trained in it."""
    schedule: str | None = None
    """Of a member of a population: its hyperparameters over the epochs, as JSON (`population.schedule`)."""


@dataclass(frozen=True)
class Report:
    """The members of a cohort at the end of an epoch, in the order of their configs."""

    epoch: int
    members: tuple[Member, ...]
    seconds: float
    """Training seconds of the whole cohort so far, those before a resume included."""
    done: bool
    """True for the last report."""


@dataclass(frozen=True)
class Heartbeat:
    """How far a cohort is between two reports."""

    epoch: float
    """Epochs completed, the part of the current one included: 2.5 is half way through the third."""
    epochs: int
    """Epochs of the whole training."""
    loss: float | None
    """Training loss so far in the current epoch, averaged over the members that run; None where it is not finite."""


@dataclass(frozen=True)
class Move:
    """A member takes over the weights of another one, with hyperparameters of its own."""

    source: int
    """Index of the member whose weights, buffers and momentum it copies, as they were before any move."""
    hyperparameters: Mapping[str, float]
    """Fusible key -> its value from now on, for every key that the population adapts."""


@dataclass(frozen=True)
class Verdict:
    """What becomes of running members after a report."""

    pruned: Mapping[int, str] = field(default_factory=dict)
    """Index -> why, in one line. A pruned member leaves the stack."""
    moves: Mapping[int, Move] = field(default_factory=dict)
    """Index -> what it becomes."""


Judge = Callable[[Report], Verdict]
"""Is shown each report but the last and says what becomes of the members. The same report gets the same verdict."""
