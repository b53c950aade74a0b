"""The reports that training sends about its members, the verdicts that it receives, and the errors that end it."""

import errno
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Status = Literal["running", "finished", "diverged", "pruned", "failed"]

SAVE_EVERY = 30.0
"""Default number of seconds of training between two checkpoints."""


class Stopped(Exception):
    """Training was asked to end and has saved a checkpoint. The message is one line: the reason, if known, and what was
    saved."""


class OutOfMemory(RuntimeError):
    """Training needs more memory than its limit, or than the device has."""


class UnusableGpu(RuntimeError):
    """A process was given a GPU that it cannot use. The message is one line: what is wrong, and the versions."""

    node = ""
    """Ray's id of the node of the process, if known."""


MEMORY_WORDS = (
    *("can't allocate memory", "cannot allocate memory", "bad_alloc", "out of memory", "alloc_failed"),
    *("unable to find an engine", "cudnn_status_internal_error"),
)
"""Lower-case phrases that mark a RuntimeError as an allocation failure. Some allocators and libraries raise no more
specific error; cuDNN fails in the words of the second line where its workspace has no room."""


def is_out_of_memory(error: Exception) -> bool:
    """Return whether an exception of any library means that memory is missing."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    words = isinstance(error, RuntimeError) and any(phrase in str(error).lower() for phrase in MEMORY_WORDS)
    return isinstance(error, MemoryError) or words or type(error).__name__ == "OutOfMemoryError"


GPU_FAULTS = (
    *("uncorrectable ecc", "uncorrectable nvlink", "hardware stack error", "hardware error", "fallen off the bus"),
    *("gpu is lost", "no cuda-capable device", "busy or unavailable", "cuda unknown error"),
    *("system not yet initialized", "driver initialization failed", "driver version is insufficient"),
)
"""Lower-case phrases of CUDA's errors that a node's GPU or driver causes, and no program."""


def raise_gpu_fault(error: BaseException) -> None:
    """Raise UnusableGpu if an exception of training is due to the GPU or its driver."""
    text = str(error).strip()
    if isinstance(error, RuntimeError) and any(phrase in text.lower() for phrase in GPU_FAULTS):
        raise UnusableGpu(text.splitlines()[0]) from error


class NoDevices(RuntimeError):
    """The devices of several workers did not become free in time. The message is one line."""


class CheckpointError(Exception):
    """A checkpoint cannot be read, or training cannot resume from it. The message is one line."""


class ModelError(Exception):
    """A trained model cannot be kept, or its file cannot be read. The message is one line."""


class LogError(Exception):
    """A trial's printed output cannot be stored or read. The message is one line."""


@dataclass(frozen=True)
class Member:
    """The progress of one member of a cohort."""

    status: Status
    """`diverged`: a loss or metric was not finite. `pruned`: the member was dropped at a rung. Both are results.
    `failed`: its cohort was given up; training itself never reports this."""
    epochs_run: int
    """Epochs completed; for a diverged member the epoch, counted from 1, in which it diverged."""
    metrics: Mapping[str, float | None]
    """Metrics by name; None if undefined or not finite. For a pruned member, its last metrics."""
    error: str | None = None
    """One line on where and why the member diverged or was pruned; None otherwise."""
    seconds: float = 0.0
    """The member's share of the cohort's training seconds. The members that train in an epoch share its seconds
    equally."""
    schedule: str | None = None
    """The moves of a population member, as JSON (see `population.schedule`); None if it never moved."""
    pictures: Mapping[str, bytes] = field(default_factory=dict)
    """File name -> content: pictures (.png), and data from which the report draws figures (.npz). Empty unless the
    member has finished and its config asks for pictures."""


class Record(NamedTuple):
    """Metrics of one member at one of its epochs."""

    member: int
    """Its index in the cohort."""
    epoch: int
    metrics: Mapping[str, float | None]


@dataclass(frozen=True)
class Report:
    """The members of a cohort at the end of an epoch, in the order of their configs."""

    epoch: int
    """If members train one after the other, the sum of their epochs."""
    members: tuple[Member, ...]
    seconds: float
    """Training seconds of the whole cohort so far, including those before a resume."""
    done: bool
    """Whether this is the last report."""
    records: tuple[Record, ...] | None = None
    """If members train one after the other, what they have reported since the last report. None if all train together;
    their metrics are then those of the epoch."""

    @property
    def new(self) -> Iterator[Record]:
        """The records that this report contains for the first time."""
        if self.records is not None:
            yield from self.records
            return
        for index, member in enumerate(self.members):
            if member.epochs_run == self.epoch:
                yield Record(index, self.epoch, member.metrics)


@dataclass(frozen=True)
class Heartbeat:
    """The progress of a cohort between two reports."""

    epoch: float
    """Epochs completed, including the fraction of the current one: 2.5 is half way through the third."""
    epochs: int
    """Epochs of the whole training."""
    loss: float | None
    """Training loss of the current epoch so far, averaged over the running members; None if it is not finite."""
    begun: float = 0.0
    """Epochs completed when the process began: the epochs of the checkpoint from which it continues."""


@dataclass(frozen=True)
class Move:
    """A population member copies the weights of another member and gets new hyperparameters."""

    source: int
    """Index of the member whose weights, buffers and momentum are copied, in their state before any move."""
    hyperparameters: Mapping[str, float]
    """Fusible key -> its new value, for every key that the population adapts."""


@dataclass(frozen=True)
class Verdict:
    """The running members that are pruned or move after a report."""

    pruned: Mapping[int, str] = field(default_factory=dict)
    """Index of a member -> why it is pruned, in one line. A pruned member leaves the stack."""
    moves: Mapping[int, Move] = field(default_factory=dict)
    """Index of a member -> its move."""


@dataclass(frozen=True)
class EpochRanking:
    """Ranks a member's epochs by a metric."""

    metric: str
    maximize: bool
    """Whether higher values are better."""

    def better(self, value: float, than: float) -> bool:
        return value > than if self.maximize else value < than

    def best(self, reports: Sequence[Report], index: int) -> int | None:
        """Return the best epoch of a member (the first one if tied); None if the metric never had a value."""
        best, found = math.nan, None
        for report in reports:
            value = report.members[index].metrics.get(self.metric)
            if value is not None and (found is None or self.better(value, best)):
                best, found = value, report.epoch
        return found


Judge = Callable[[Report], Verdict]
"""Decides after each report but the last which members are pruned or move. Equal reports must get equal verdicts."""
