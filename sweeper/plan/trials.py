"""Trials, enumerated from a grid: completed with defaults, checked before anything starts, and hashed by content."""

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
    """A hash of `config`: equal runs have equal ids, on any machine and in any sweep. The id of a search's trial
    also depends on its study and number, because its result may depend on the other trials of the study."""
    config: Mapping[str, Value]
    """Hyperparameter -> value, defaults included."""
    facts: Mapping[str, Value] = field(default_factory=dict)
    """Further columns of the trial's row: its preset and changes; in a search also its study, number and wave."""


def enumerate_trials(
    combinations: Iterable[Mapping[str, Value]],
    complete: Callable[[Mapping[str, Value]], Mapping[str, Value]],
    facts: Callable[[Mapping[str, Value]], Mapping[str, Value]] = lambda config: {},
) -> tuple[Trial, ...]:
    """Return the trials of all combinations. Raises SpecError for an illegal value or two equal trials.

    `complete` adds the defaults to a combination and raises ValueError if a value is illegal. `facts` maps a complete
    config to the further columns of its row.
    """
    trials: dict[str, Trial] = {}
    for combination in combinations:
        try:
            config = dict(complete(combination))
        except ValueError as error:
            raise SpecError(str(error)) from None
        trial = Trial(content_hash(config), config, facts(config))
        if trial.id in trials:
            raise SpecError(f"trials must differ, but {dict(combination)} occurs twice")
        trials[trial.id] = trial
    return tuple(trials.values())


def content_hash(content: object) -> str:
    """Return a hash of 16 hexadecimal digits of the content's JSON, in which floats have their shortest form."""
    return hashlib.sha256(_CANONICAL.encode(content).encode()).hexdigest()[:16]
