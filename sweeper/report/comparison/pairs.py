"""Pairs of trials of two sides of a comparison that agree in all hyperparameters in which the sides can agree."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from sweeper.spec import SpecError
from sweeper.storage.rows import plain_value

STUDY_COLUMNS = ("study", "study_id", "number", "wave", "schedule")
"""Columns of a search's rows that are recorded beside the hyperparameters. Trials are not paired by them."""
SHOWN_KEYS = 8
"""Most hyperparameters that an error names."""


@dataclass(frozen=True)
class Pairs:
    """Paired trials of two sides. Where several trials of a side agree with the other's, their mean takes part."""

    first: pd.DataFrame
    """Metrics of the first side, one row per pair."""
    second: pd.DataFrame
    """Metrics of the second side, in the same order."""
    agreeing: tuple[str, ...]
    """Hyperparameters that have several values, in which the trials of each pair agree."""
    differing: Mapping[str, tuple[tuple[Any, ...], tuple[Any, ...]]]
    """Hyperparameters in which the sides differ by construction -> their values on each side."""
    trials: tuple[int, int]
    """Trials of each side that are in pairs."""
    unpaired: tuple[int, int]
    """Trials of each side that agree with none of the other side."""


def pair(
    first: pd.DataFrame,
    second: pd.DataFrame,
    hyperparameters: Sequence[str],
    metrics: Sequence[str],
    chosen: Collection[str] = (),
) -> Pairs:
    """Pair the rows of two sides.

    The sides differ by construction in the hyperparameters by which they were `chosen`, and in those that have no value
    in common. A hyperparameter that one side lacks is null there, and null is a value. Raises SpecError if no trials
    agree in all others.
    """
    sides = [side.reindex(columns=[*hyperparameters, *metrics]) for side in (first, second)]
    columns = [{key: [plain_value(value) for value in side[key]] for key in hyperparameters} for side in sides]
    values = {key: tuple(tuple(dict.fromkeys(column[key])) for column in columns) for key in hyperparameters}
    differing = {
        key: (left, right)
        for key, (left, right) in values.items()
        if set(left).isdisjoint(right) or (key in chosen and set(left) != set(right))
    }
    shared = [key for key in hyperparameters if key not in differing]
    groups = [
        _rows_by_key([column[key] for key in shared], len(side)) for column, side in zip(columns, sides, strict=True)
    ]
    keys = [key for key in groups[0] if key in groups[1]]
    agreeing = tuple(key for key in shared if len({*values[key][0], *values[key][1]}) > 1)
    if not keys:
        varying = f"{', '.join(agreeing[:SHOWN_KEYS])}{', ...' if len(agreeing) > SHOWN_KEYS else ''}"
        raise SpecError(f"two sides need trials that agree in all that they share, but none agrees in: {varying}")
    numbers = [side[[*metrics]].astype("float64").to_numpy() for side in sides]
    means = [
        pd.DataFrame([_mean(array[group[key]]) for key in keys], columns=[*metrics])
        for array, group in zip(numbers, groups, strict=True)
    ]
    trials = [sum(len(group[key]) for key in keys) for group in groups]
    unpaired = (len(first) - trials[0], len(second) - trials[1])
    return Pairs(means[0], means[1], agreeing, differing, (trials[0], trials[1]), unpaired)


def _rows_by_key(columns: Sequence[Sequence[Any]], count: int) -> dict[tuple[Any, ...], list[int]]:
    """Return the values of some columns -> numbers of the rows that have them."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for row in range(count):
        groups.setdefault(tuple(column[row] for column in columns), []).append(row)
    return groups


def _mean(rows: np.ndarray) -> np.ndarray:
    """Mean over rows; NaN for a metric that one of them lacks."""
    return np.asarray(rows.mean(axis=0))
