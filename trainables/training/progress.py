"""The progress of a cohort, and its validation when it is read from the plain values of a checkpoint.

Shapes: K members that are still running.
"""

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self, cast

from torch import Tensor

from trainables.reports import CheckpointError, Member, Report


@dataclass(frozen=True)
class Progress:
    """Everything about a cohort's progress except its weights."""

    epoch: int
    """Epochs completed."""
    seconds: float
    """Training seconds of the whole cohort so far."""
    shares: tuple[float, ...]
    """Each member's share of `seconds`."""
    ended: tuple[Member | None, ...]
    """The final report of each member that has diverged or was pruned; None for one that is still running."""
    schedules: tuple[tuple[Mapping[str, float], ...], ...]
    """The moves of each member of a population: the `epoch`, the member it copied (`from`), and its hyperparameters
    from then on."""
    reports: tuple[Report, ...]
    """All reports so far."""
    step: int = 0
    """Steps completed of the current epoch."""
    sums: Mapping[str, Tensor] = field(default_factory=dict)
    """Name of a loss -> its sum over these steps, `[K]`; empty at step 0."""

    @classmethod
    def initial(cls, count: int) -> Self:
        """The progress of `count` members before training."""
        return cls(0, 0.0, (0.0,) * count, (None,) * count, ((),) * count, ())

    @property
    def running(self) -> tuple[int, ...]:
        """Indices of the members that have not ended."""
        return tuple(index for index, member in enumerate(self.ended) if member is None)

    def advanced(self, seconds: float, epoch: int, step: int = 0, sums: Mapping[str, Tensor] | None = None) -> Self:
        """The progress at this epoch and step, after `seconds` more, which the running members share equally."""
        share, shares = seconds / max(1, len(self.running)), list(self.shares)
        for index in self.running:
            shares[index] += share
        seconds += self.seconds
        return replace(self, epoch=epoch, seconds=seconds, shares=tuple(shares), step=step, sums=sums or {})


def read_progress(plain: object, members: int, epochs: int) -> Progress:
    """Rebuild a Progress from the plain values that `dataclasses.asdict` made of it. The cohort has `members` members
    and trains for `epochs` epochs. Raises CheckpointError where a value is not of the type of its field or contradicts
    another value."""
    progress: Progress = _read(plain, Progress, "standing")
    for law, holds in _laws(progress, members, epochs).items():
        if not holds:
            raise CheckpointError(f"its standing must have {law}")
    return progress


def _laws(progress: Progress, members: int, epochs: int) -> dict[str, bool]:
    """Each law that a progress must obey, in words, and whether this one obeys it."""
    reports, sums, running = progress.reports, progress.sums.values(), len(progress.running)
    per_member = [progress.shares, progress.ended, progress.schedules, *(report.members for report in reports)]
    reported = [report.epoch for report in reports]
    all_over = not running or (epochs > 0 and progress.epoch == epochs)
    return {
        f"{members} members": all(len(values) == members for values in per_member),
        f"0 <= epoch <= {epochs}": 0 <= progress.epoch <= epochs,
        "step >= 0": progress.step >= 0,
        "sums where step > 0, and only there": bool(sums) == (progress.step > 0),
        "a sum of losses for each member that runs": all(
            loss_K.is_floating_point() and loss_K.shape == (running,) for loss_K in sums
        ),
        "finite seconds >= 0": all(0 <= seconds < math.inf for seconds in (progress.seconds, *progress.shares)),
        "reports in the order of their epochs": reported == sorted(set(reported))
        and all(0 <= epoch <= progress.epoch for epoch in reported),
        "a last report where all have ended, and only there": all_over == bool(reports and reports[-1].done)
        and not any(report.done for report in reports[:-1]),
        "no running member among those that ended": all(
            member is None or member.status != "running" for member in progress.ended
        ),
    }


def _read(value: Any, kind: Any, name: str) -> Any:
    """Convert `value` to the type `kind`: a dict of its fields to a frozen dataclass, and its parts recursively. `name`
    is the path of the value, such as `standing.epoch`. Raises CheckpointError, which names the path, for the first
    value of another type."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in arguments:
            return None
        return _read(value, next(part for part in arguments if part is not type(None)), name)
    if not _is_of(value, kind):
        expected = getattr(kind, "__name__", kind)
        raise CheckpointError(f"its {name} must be {expected}, but is of type {type(value).__name__}")
    if dataclasses.is_dataclass(kind):
        kinds = typing.get_type_hints(kind)
        fields = {key: _read(value[key], kinds[key], f"{name}.{key}") for key in kinds}
        return cast(Any, kind)(**fields)
    if origin is tuple:
        return tuple(_read(part, arguments[0], name) for part in value)
    if origin is Mapping:
        return {key: _read(part, arguments[1], f"{name}.{key}") for key, part in value.items()}
    return value


def _is_of(value: Any, kind: Any) -> bool:
    """Whether the value is of the type `kind`, which is no union; its parts are not checked."""
    origin = typing.get_origin(kind)
    if dataclasses.is_dataclass(kind):
        return isinstance(value, dict) and set(value) == set(typing.get_type_hints(kind))
    if origin is Mapping:
        return isinstance(value, dict) and all(type(key) is str for key in value)
    if origin is Literal:
        return type(value) is str and value in typing.get_args(kind)
    if origin is tuple or kind is Tensor:
        return isinstance(value, origin or kind)
    return type(value) is kind or (kind is float and type(value) is int)
