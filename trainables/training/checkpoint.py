"""The progress of a cohort, and its checkpoint as bytes: everything needed to resume training, bit for bit on the CPU.

A checkpoint contains no code: it is read with `weights_only`, so bytes from a shared store cannot run anything. It
begins with a digest, because torch reads a file with flipped bits without complaint.

No checkpoint is made after the last report, so none contains pictures; after a resume the last evaluation remakes them.

Shapes: K members that are still running.
"""

import dataclasses
import hashlib
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import torch
from torch import Tensor

from trainables.json_input import convert
from trainables.reports import CheckpointError, Member, Report
from trainables.sections import TrialConfig


@dataclass(frozen=True)
class BestEpoch:
    """The model of a running member after the epoch that was its best so far."""

    epoch: int
    value: float
    """Value of the ranking metric in this epoch."""
    tensors: Mapping[str, Tensor]
    """See `TrainedModel.tensors`."""


@dataclass(frozen=True)
class Progress:
    """Everything about a cohort's progress except its current weights."""

    epoch: int
    """Epochs completed."""
    seconds: float
    """Training seconds of the whole cohort so far."""
    shares: tuple[float, ...]
    """Each member's share of `seconds`."""
    ended: tuple[Member | None, ...]
    """The final report of each member that has diverged or was pruned; None for a member that is still running."""
    schedules: tuple[tuple[Mapping[str, int | float], ...], ...]
    """The moves of each population member: the `epoch`, the member it copied (`from`), and its hyperparameters from
    then on."""
    reports: tuple[Report, ...]
    """All reports so far."""
    step: int = 0
    """Steps completed of the current epoch."""
    sums: Mapping[str, Tensor] = field(default_factory=dict)
    """Name of a loss -> its sum over these steps, `[K]`; empty at step 0."""
    best: tuple[BestEpoch | None, ...] = ()
    """The best epoch of each member, None before its first epoch and after its end; empty if no best epochs are
    kept."""

    @classmethod
    def initial(cls, count: int) -> Self:
        """The progress of `count` members before training."""
        return cls(0, 0.0, (0.0,) * count, (None,) * count, ((),) * count, ())

    @property
    def running(self) -> tuple[int, ...]:
        """Indices of the members that have not ended."""
        return tuple(index for index, member in enumerate(self.ended) if member is None)

    def advanced(self, seconds: float, epoch: int, step: int = 0, sums: Mapping[str, Tensor] | None = None) -> Self:
        """The progress at this epoch and step, after `seconds` more, divided equally among the running members."""
        share, shares = seconds / max(1, len(self.running)), list(self.shares)
        for index in self.running:
            shares[index] += share
        seconds += self.seconds
        return replace(self, epoch=epoch, seconds=seconds, shares=tuple(shares), step=step, sums=sums or {})


def read_progress(plain: object, members: int, epochs: int) -> Progress:
    """Rebuild a Progress from the plain values of `_plain`. The cohort has `members` members and trains for `epochs`
    epochs. Raises CheckpointError if a value has the wrong type or contradicts another value."""
    try:
        progress: Progress = convert(Progress, plain)
    except Exception as error:  # msgspec treats a tensor as a list or dict, which then raises many kinds of errors
        reason = " ".join(str(error).split())[:200]
        raise CheckpointError(f"its progress has the wrong type: {reason}") from error
    for law, holds in _laws(progress, members, epochs).items():
        if not holds:
            raise CheckpointError(f"its progress must have {law}")
    return progress


def _laws(progress: Progress, members: int, epochs: int) -> dict[str, bool]:
    """Each law of a progress, in words -> whether this progress obeys it."""
    reports, sums, running = progress.reports, progress.sums.values(), len(progress.running)
    per_member = [progress.shares, progress.ended, progress.schedules, *(report.members for report in reports)]
    reported = [report.epoch for report in reports]
    all_over = not running or (epochs > 0 and progress.epoch == epochs)
    return {
        f"{members} members": all(len(values) == members for values in per_member),
        "a best epoch for each member, or for none": len(progress.best) in (0, members),
        f"0 <= epoch <= {epochs}": 0 <= progress.epoch <= epochs,
        "step >= 0": progress.step >= 0,
        "sums if and only if step > 0": bool(sums) == (progress.step > 0),
        "a sum of losses for each running member": all(
            loss_K.is_floating_point() and loss_K.shape == (running,) for loss_K in sums
        ),
        "finite seconds >= 0": all(0 <= seconds < math.inf for seconds in (progress.seconds, *progress.shares)),
        "reports in the order of their epochs": reported == sorted(set(reported))
        and all(0 <= epoch <= progress.epoch for epoch in reported),
        "a last report if and only if all members have ended": all_over == bool(reports and reports[-1].done)
        and not any(report.done for report in reports[:-1]),
        "no running member among the ended ones": all(
            member is None or member.status != "running" for member in progress.ended
        ),
    }


def _plain(value: Any) -> Any:
    """The input of `read_progress`: the fields of a dataclass as a dict, recursively. Unlike `dataclasses.asdict` it
    does not copy tensors, such as those of the best models."""
    if dataclasses.is_dataclass(value):
        return {part.name: _plain(getattr(value, part.name)) for part in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return tuple(_plain(part) for part in value)
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    return value


# The checkpoint of a cohort.

FORMAT = 5
"""Version of the content; a checkpoint of another version is not used."""
DIGEST_SIZE = 32
"""Bytes of the BLAKE2b digest."""


def pack(
    configs: Sequence[TrialConfig], width: int | None, progress: Progress, state: Any, compiled: bool = False
) -> bytes:
    """Return a checkpoint of the cohort with these configs. `state` is the state of its stacks; `compiled` says whether
    their steps are compiled."""
    buffer = io.BytesIO()
    content = {"format": FORMAT, "identity": _identity(configs, width, compiled), "state": state}
    torch.save(content | {"standing": _plain(progress)}, buffer)
    return with_digest(buffer.getvalue())


def with_digest(content: bytes) -> bytes:
    """Return the content with its digest in front."""
    return hashlib.blake2b(content, digest_size=DIGEST_SIZE).digest() + content


def unpack(
    data: bytes,
    configs: Sequence[TrialConfig],
    width: int | None,
    notify: Callable[[str], None] = lambda line: None,
    compiled: bool = False,
) -> tuple[Progress, Any] | None:
    """Return the progress and the state, or None if the checkpoint is damaged, of another format, or of other configs.
    `notify` is called with one line that gives the reason, except for other configs, whose checkpoint is valid but not
    usable here."""
    try:
        return _content(data, configs, _identity(configs, width, compiled))
    except CheckpointError as error:
        notify(f"its checkpoint cannot be used: {error}")
        return None


def _content(data: bytes, configs: Sequence[TrialConfig], identity: Sequence[Any]) -> tuple[Progress, Any] | None:
    """Like `unpack`, but raises CheckpointError if the checkpoint is damaged or of another format."""
    if data != with_digest(data[DIGEST_SIZE:]):
        raise CheckpointError("it is incomplete")
    try:  # a checkpoint with a valid digest can still contain anything, for which torch raises many kinds of errors
        content = torch.load(io.BytesIO(data[DIGEST_SIZE:]), map_location="cpu", weights_only=True)
        if not isinstance(content, dict):
            raise CheckpointError(f"it must contain a dict, but contains {type(content).__name__}")
        if content["format"] != FORMAT:
            raise CheckpointError(f"it must have format {FORMAT}, but has {content['format']!r:.40}")
        if content["identity"] != identity:
            return None
        standing, state = content["standing"], content["state"]
    except CheckpointError:
        raise
    except Exception as error:
        raise CheckpointError(f"its content has the wrong type ({type(error).__name__})") from error
    return read_progress(standing, len(configs), configs[0].training.epochs), state


def _identity(configs: Sequence[TrialConfig], width: int | None, compiled: bool) -> list[Any]:
    """The values in which a checkpoint must match the training that resumes from it."""
    return [width, *(["compiled"] if compiled else []), *(config.flat() for config in configs)]
