"""Trials -> cohorts: equal but for fusible hyperparameters, cut to a size from the whole plan."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sweeper.plan.trials import Trial, content_hash


@dataclass(frozen=True)
class Cut:
    """How a plan is cut into cohorts."""

    size: int
    """Members of a cohort, at most."""
    width: int
    """Members stacked and stepped as one; 1 steps a cohort's members in turn."""


@dataclass(frozen=True)
class Cohort:
    """Trials that train together in one process."""

    id: str
    """A hash of its trials' ids; its file in the store has this name."""
    trials: tuple[Trial, ...]
    width: int


Group = Sequence[Sequence[Trial]]
"""Trials that may share a cohort, those of one data stream in a list of their own."""


def group(
    trials: Sequence[Trial], shape: Callable[[Trial], Hashable], stream: Callable[[Trial], Hashable]
) -> list[Group]:
    """Trials of equal `shape` in groups, within them those of equal data `stream` side by side."""
    groups: dict[Hashable, dict[Hashable, list[Trial]]] = {}
    for trial in trials:
        groups.setdefault(shape(trial), {}).setdefault(stream(trial), []).append(trial)
    return [list(streams.values()) for streams in groups.values()]


def cut(groups: Sequence[Group], cuts: Sequence[Cut]) -> tuple[Cohort, ...]:
    """Each group by its own cut. A stream is split only where it is larger than a cohort, and then evenly."""
    cohorts: list[Cohort] = []
    for streams, by in zip(groups, cuts, strict=True):
        cohorts += [_cohort(members, by.width) for members in parts(streams, by.size)]
    return tuple(cohorts)


def parts(streams: Group, size: int) -> list[list[Trial]]:
    """The members of each cohort of a group that is cut to this size."""
    return _together([part for stream in streams for part in _evenly(stream, size)], size)


def _evenly(trials: Sequence[Trial], size: int) -> list[Sequence[Trial]]:
    """In as few parts of at most `size` as can be, as equal as can be."""
    count = math.ceil(len(trials) / size)
    edges = [round(i * len(trials) / count) for i in range(count + 1)]
    return [trials[start:stop] for start, stop in itertools.pairwise(edges)]


def _together(parts: Sequence[Sequence[Trial]], size: int) -> list[list[Trial]]:
    """Neighbouring parts joined as long as they fit into `size`."""
    joined: list[list[Trial]] = []
    for part in parts:
        if joined and len(joined[-1]) + len(part) <= size:
            joined[-1] += part
        else:
            joined.append(list(part))
    return joined


def _cohort(trials: Sequence[Trial], width: int) -> Cohort:
    return Cohort(content_hash([trial.id for trial in trials]), tuple(trials), min(width, len(trials)))


def halves(cohort: Cohort) -> tuple[Cohort, Cohort]:
    """A cohort as two, half as wide. A whole one has the same halves always, so take it before what is done has been
    taken from it. ValueError where there is but one member."""
    middle = math.ceil(len(cohort.trials) / 2)
    if middle == len(cohort.trials):
        raise ValueError(f"a cohort must have two trials to be halved, but {cohort.id} has {middle}")
    width = math.ceil(cohort.width / 2)
    first, second = (_cohort(part, width) for part in (cohort.trials[:middle], cohort.trials[middle:]))
    return first, second


def halved(cohorts: Sequence[Cohort], ids: Collection[str]) -> tuple[Cohort, ...]:
    """The cohorts, those with one of these ids as their halves, and so on: as they were after earlier runs."""
    return tuple(part for part, _ in _descent(cohorts, ids, ()))


def lineage(cohorts: Sequence[Cohort], ids: Collection[str]) -> dict[str, tuple[Cohort, ...]]:
    """Of the parts among `halved` what they were part of, nearest first, by their ids."""
    return {part.id: before for part, before in _descent(cohorts, ids, ()) if before}


def _descent(
    cohorts: Sequence[Cohort], ids: Collection[str], before: tuple[Cohort, ...]
) -> Iterator[tuple[Cohort, tuple[Cohort, ...]]]:
    for cohort in cohorts:
        if cohort.id in ids and len(cohort.trials) > 1:
            yield from _descent(halves(cohort), ids, (cohort, *before))
        else:
            yield cohort, before


def remaining(cohorts: Sequence[Cohort], statuses: Mapping[str, str]) -> list[Cohort]:
    """The cohorts, each without the trials that have a result; those that failed are tried again."""
    left = []
    for cohort in cohorts:
        trials = tuple(trial for trial in cohort.trials if statuses.get(trial.id, "failed") == "failed")
        if trials:
            left.append(replace(cohort, trials=trials, width=min(cohort.width, len(trials))))
    return left


def workers(members: Group) -> int:
    """How many processes train each of them."""
    return int(members[0][0].config.get("workers") or 1)


def by_workers(cohorts: Sequence[Cohort]) -> dict[int, list[Cohort]]:
    """The cohorts by how many workers train each; fewest first."""
    found: dict[int, list[Cohort]] = {}
    for cohort in cohorts:
        found.setdefault(workers([cohort.trials]), []).append(cohort)
    return dict(sorted(found.items()))
