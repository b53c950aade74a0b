"""Trials, and cohorts of them.

A trial is completed with defaults, checked before anything starts, and hashed by content. A cohort has trials that are
equal but for fusible hyperparameters; it is cut from the whole plan to a size.
"""

import hashlib
import itertools
import json
import math
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sweeper.definition import SpecError, Value
from trainables.json_input import PositiveCount
from trainables.sections import TrialConfig

PLACES = frozenset({"weights"})
"""Keys that say where a file lies, and no more: another key has a hash of its content."""
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True)
class Trial:
    """One training run."""

    id: str
    """Its `trial_id`: equal runs have equal ids, on any machine and in any sweep. The id of a search's trial also
    depends on its study and number, because its result may depend on the other trials of the study."""
    config: Mapping[str, Value]
    """Hyperparameter -> value, all defaults included, as in its row."""
    facts: Mapping[str, Value] = field(default_factory=dict)
    """Further columns of the trial's row: its preset and changes; in a search also its study, number and wave."""


def enumerate_trials(
    combinations: Iterable[Mapping[str, Value]],
    resolve: Callable[[Mapping[str, Value]], TrialConfig],
    facts: Callable[[Mapping[str, Value]], Mapping[str, Value]] = lambda config: {},
) -> tuple[Trial, ...]:
    """Return the trials of all combinations. Raises SpecError for an illegal value or two equal trials.

    `resolve` adds the defaults to a combination and raises ValueError if a value is illegal. `facts` maps a complete
    config to the further columns of its row.
    """
    trials: dict[str, Trial] = {}
    for combination in combinations:
        try:
            resolved = resolve(combination)
        except ValueError as error:
            raise SpecError(str(error)) from None
        config = resolved.complete()
        trial = Trial(trial_id(resolved), config, facts(config))
        if trial.id in trials:
            raise SpecError(f"trials must differ, but {dict(combination)} occurs twice")
        trials[trial.id] = trial
    return tuple(trials.values())


def trial_id(config: TrialConfig) -> str:
    """Return the id of a grid's trial: a hash of its `identity`."""
    return content_hash(identity(config))


def identity(config: TrialConfig) -> dict[str, Value]:
    """Return what identifies a trial: its flat config without the place of a file, whose content is in the config,
    too."""
    return {key: value for key, value in config.flat().items() if key not in PLACES}


def content_hash(content: object) -> str:
    """Return a hash of 16 hexadecimal digits of the content's JSON, in which floats have their shortest form."""
    return hashlib.sha256(_CANONICAL.encode(content).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Cut:
    """How a group of trials is cut into cohorts."""

    size: PositiveCount
    """Largest number of members of a cohort."""
    width: PositiveCount
    """Number of members that are stacked and stepped as one; 1 steps a cohort's members in turn."""
    compiled: bool = False
    """Whether steps are compiled. Then the members of a cohort of fewer than `width` are stepped in turn, as those left
    over from whole stacks are: stacks of another width would be other steps to compile."""


@dataclass(frozen=True)
class Cohort:
    """Trials that train together in one process."""

    id: str
    """A hash of the trials' ids, and the name of the cohort's file in the store."""
    trials: tuple[Trial, ...]
    width: int
    """Number of members that are stacked and stepped as one."""
    compiled: bool = False
    """Whether steps are compiled."""


Group = Sequence[Sequence[Trial]]
"""Trials that may share a cohort, with one inner sequence for each data stream."""


def group(
    trials: Sequence[Trial], shape: Callable[[Trial], Hashable], stream: Callable[[Trial], Hashable]
) -> list[Group]:
    """Return groups of trials with equal `shape`; trials with equal data `stream` are adjacent in a group."""
    groups: dict[Hashable, dict[Hashable, list[Trial]]] = {}
    for trial in trials:
        groups.setdefault(shape(trial), {}).setdefault(stream(trial), []).append(trial)
    return [list(streams.values()) for streams in groups.values()]


def cut(groups: Sequence[Group], cuts: Sequence[Cut]) -> tuple[Cohort, ...]:
    """Return the cohorts of all groups. A data stream is split only if it is larger than a cohort, and then evenly."""
    cohorts: list[Cohort] = []
    for streams, group_cut in zip(groups, cuts, strict=True):
        cohorts += [_cohort(members, group_cut.width, group_cut.compiled) for members in parts(streams, group_cut.size)]
    return tuple(cohorts)


def parts(streams: Group, size: int) -> list[list[Trial]]:
    """Return the members of each cohort of a group that is cut to a size."""
    cohorts: list[list[Trial]] = []
    for trials in streams:
        count = math.ceil(len(trials) / size)
        edges = [round(i * len(trials) / count) for i in range(count + 1)]
        for start, stop in itertools.pairwise(edges):
            if cohorts and len(cohorts[-1]) + stop - start <= size:
                cohorts[-1] += trials[start:stop]
            else:
                cohorts.append(list(trials[start:stop]))
    return cohorts


def _cohort(trials: Sequence[Trial], width: int, compiled: bool) -> Cohort:
    width = width if compiled else min(width, len(trials))
    return Cohort(content_hash([trial.id for trial in trials]), tuple(trials), width, compiled)


def halves(cohort: Cohort) -> tuple[Cohort, Cohort]:
    """Split a cohort into two, each half as wide; with compiled steps, into two whose members step one at a time, as
    each new width would be other steps to compile.

    Call it with the whole cohort, not with what `remaining` leaves of it: the same cohort always has the same halves.
    Raises ValueError if the cohort has one member only.
    """
    middle = math.ceil(len(cohort.trials) / 2)
    if middle == len(cohort.trials):
        raise ValueError(f"a cohort must have two trials to be halved, but {cohort.id} has {middle}")
    width = 1 if cohort.compiled else math.ceil(cohort.width / 2)
    first, second = (_cohort(part, width, cohort.compiled) for part in (cohort.trials[:middle], cohort.trials[middle:]))
    return first, second


def halved(cohorts: Sequence[Cohort], ids: Collection[str]) -> tuple[Cohort, ...]:
    """Return the cohorts as earlier runs left them: each cohort whose id is in `ids` is replaced by its halves, and so
    are its halves."""
    left: list[Cohort] = []
    for cohort in cohorts:
        is_halved = cohort.id in ids and len(cohort.trials) > 1
        left += halved(halves(cohort), ids) if is_halved else [cohort]
    return tuple(left)


def remaining(cohorts: Sequence[Cohort], statuses: Mapping[str, str]) -> list[Cohort]:
    """Return the cohorts without the trials that have a result. Trials that failed stay, and are trained again."""
    left = []
    for cohort in cohorts:
        trials = tuple(trial for trial in cohort.trials if statuses.get(trial.id, "failed") == "failed")
        if trials:
            width = cohort.width if cohort.compiled else min(cohort.width, len(trials))  # steps of no other shape
            left.append(replace(cohort, trials=trials, width=width))
    return left


def worker_count(group: Group) -> int:
    """Return the number of processes that train each member of a group."""
    return int(group[0][0].config.get("workers") or 1)


def by_workers(cohorts: Sequence[Cohort]) -> dict[int, list[Cohort]]:
    """Return the number of workers -> the cohorts that so many workers train; fewest first."""
    cohorts_by_workers: dict[int, list[Cohort]] = {}
    for cohort in cohorts:
        cohorts_by_workers.setdefault(worker_count([cohort.trials]), []).append(cohort)
    return dict(sorted(cohorts_by_workers.items()))
