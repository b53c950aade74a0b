"""A grid -> trials: enumerated, completed, hashed by content, checked before anything starts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from sweeper.spec import SpecError, Value

_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True)
class Trial:
    """One training run."""

    id: str
    """A hash of `config`: equal runs have equal ids, on any machine and in any sweep. A trial of a search has one of
    its own, for what becomes of it may depend on the other trials of its study."""
    config: Mapping[str, Value]
    """Every hyperparameter with its value, defaults included."""
    facts: Mapping[str, Value] = field(default_factory=dict)
    """What else its row says: its preset and its changes; of a search its study, its number there and its wave."""


def enumerate_trials(
    combinations: Iterable[Mapping[str, Value]],
    complete: Callable[[Mapping[str, Value]], Mapping[str, Value]],
    facts: Callable[[Mapping[str, Value]], Mapping[str, Value]] = lambda config: {},
) -> tuple[Trial, ...]:
    """The trials of all combinations; `complete` adds the defaults and raises ValueError where a value is illegal.
    `facts` says what else the row of a complete config has.

    SpecError for an illegal value, or where two combinations are one trial.
    """
    trials: dict[str, Trial] = {}
    for combination in combinations:
        try:
            config = dict(complete(combination))
        except ValueError as error:
            raise SpecError(str(error)) from error
        trial = Trial(content_hash(config), config, facts(config))
        if trial.id in trials:
            raise SpecError(f"trials must differ, but {dict(combination)} is there twice")
        trials[trial.id] = trial
    return tuple(trials.values())


def content_hash(content: object) -> str:
    """16 hexadecimal digits that depend on the content alone; floats count by their shortest text."""
    return hashlib.sha256(_CANONICAL.encode(content).encode()).hexdigest()[:16]
