"""Comparison of two sides: their trials, the pairs that agree, and the differences of metrics.

The same replicates as everywhere: seeds. What the trials of a pair agree in besides is fixed, a stratum, over which a
replicate has the mean, so that many settings of few seeds are no more than few replicates.
"""

import contextlib
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from sweeper.definition import SpecError
from sweeper.definition.metric import Metric
from sweeper.definition.space import unknown
from sweeper.definition.sweep import SEEDS, Repeats
from sweeper.errors import SchemaError
from sweeper.names import LAW, is_name
from sweeper.printing import printable
from sweeper.results.estimates import improvement, known_interval, p_value
from sweeper.results.replicates import difference_of_runs, runs_of
from sweeper.results.sentences import noun_of
from sweeper.storage.files import Files
from sweeper.storage.layout import TRIALS, sweeps_in
from sweeper.storage.requests import read_request, request_name
from sweeper.storage.rows import STUDY_COLUMNS, Columns, columns_of, conform, plain_value
from sweeper.storage.store import StoreReader
from trainables.metrics.meanings import family_of

DEFAULT_STORE = "results"
CHANGES = "changes"
SYNTAX = "NAME[:PRESET][,KEY=VALUE...][@STORE]"


@dataclass(frozen=True)
class ComparedSide:
    """One side of a comparison: the finished trials of a sweep that were selected."""

    name: str
    preset: str | None = None
    conditions: Mapping[str, str] = field(default_factory=dict)
    """Column -> value, as typed. `changes` and the preset are the request whose rows are compared."""
    store: str = DEFAULT_STORE

    @property
    def label(self) -> str:
        conditions = "".join(f",{key}={value}" for key, value in self.conditions.items())
        return printable(f"{self.name}{':' if self.preset else ''}{self.preset or ''}{conditions} in {self.store}")


@dataclass(frozen=True)
class SideRows:
    """The rows of a side."""

    rows: pd.DataFrame
    """Only finished trials: the metrics of pruned ones are from an earlier epoch, and diverged ones have none."""
    left_out: Mapping[str, int]
    """Status -> number of trials that are left out."""
    hyperparameters: tuple[str, ...]
    metrics: tuple[str, ...]


def parse_sides(first: str, second: str) -> tuple[ComparedSide, ComparedSide]:
    """Parse `NAME[:PRESET][,KEY=VALUE...][@STORE]` twice. Parts that the second lacks are those of the first, except
    for conditions; the preset is taken over only together with the name, and the changes only together with the preset.
    Raises SpecError."""
    a = _parse(first, None)
    b = _parse(second, a)
    if a == b:
        raise SpecError(f"the two sides must differ, but both are {a.label}")
    return a, b


def _parse(text: str, default: ComparedSide | None) -> ComparedSide:
    head, at, store = text.partition("@")
    place, *conditions = head.split(",")
    name, _, preset = (part.strip() for part in place.partition(":"))
    if not name and default is None:
        raise SpecError(f"the first side must be {SYNTAX}, but got '{text}'")
    if name and not is_name(name):
        condition = f"; for its rows with {name} write ,{name}" if "=" in name else ""
        raise SpecError(f"the name of a sweep {LAW}, but got {name!r}{condition}")
    if at and not store.strip():
        raise SpecError(f"a store must follow the @, but got '{text}'")
    values: dict[str, str] = {}
    for condition in _joined(conditions):
        key, equals, value = (part.strip() for part in condition.partition("="))
        if not key or not equals:
            raise SpecError(f"a side must be {SYNTAX}, but got '{text}'")
        if key in values:
            raise SpecError(f"a side takes each key once, but got {key}={values[key]} and {key}={value}")
        values[key] = value
    side = ComparedSide(name, preset or None, values, store.strip() or DEFAULT_STORE)
    if default is None:
        return side
    side = replace(side, store=side.store if at else default.store)
    if name:
        return side
    if not preset and CHANGES in default.conditions:
        side = replace(side, conditions={CHANGES: default.conditions[CHANGES], **values})
    return replace(side, name=default.name, preset=preset or default.preset)


def _joined(conditions: Sequence[str]) -> list[str]:
    """Join what belongs together again, because the values of an axis in `changes` have commas between them."""
    joined: list[str] = []
    for condition in conditions:
        if joined and joined[-1].partition("=")[0].strip() == CHANGES and not re.match(r"\s*\w+\s*=", condition):
            joined[-1] += f",{condition}"
        else:
            joined.append(condition)
    return joined


def rows_of(first: ComparedSide, second: ComparedSide) -> tuple[SideRows, SideRows]:
    """Return the rows of two sides. Raises SpecError or StoreError if one has none.

    Both have the columns of both, so that rows of an earlier version have the defaults of keys that only rows of the
    other side have.
    """
    tables = [_stored(side) for side in (first, second)]
    own = [columns_of(table.schema) for table in tables]
    with contextlib.suppress(SchemaError):  # sweeps whose columns have other types have other keys
        tables = [conform(table, own[0].union(own[1])) for table in tables]
    a, b = (_rows_of(*each) for each in zip((first, second), tables, own, strict=True))
    return a, b


def _stored(side: ComparedSide) -> pa.Table:
    reader = StoreReader(side.store)
    table = reader.rows(side.name) if is_name(side.name) else None
    if table is None:
        names = sweeps_in(reader.files.list(TRIALS))
        store = f"store {reader.files.display_uri}"
        raise SpecError(f"{store}: {unknown('sweep', side.name, names)}" if names else f"{store} has no rows")
    return table


def _rows_of(side: ComparedSide, table: pa.Table, columns: Columns) -> SideRows:
    files, rows = Files(side.store), table.to_pandas()
    presets = sorted(rows["preset"].dropna().unique())
    if side.preset is None and len(presets) > 1:
        raise SpecError(
            f"{side.name} has rows of several presets; write {side.name}:PRESET with one of: {', '.join(presets)}"
        )
    preset = side.preset or "".join(presets)
    changes = side.conditions.get(CHANGES, "")
    conditions = {**({"preset": side.preset} if side.preset else {}), CHANGES: "", **side.conditions}
    if listed := read_request(files, side.name, request_name(preset, changes)):
        rows = listed.select(rows)
        conditions = {key: value for key, value in side.conditions.items() if key != CHANGES}
    for key, value in conditions.items():
        rows = _selected(rows, key, value, side)
    counts = rows["status"].value_counts().to_dict()
    finished = rows[rows["status"] == "finished"].reset_index(drop=True)
    if not len(finished):
        raise SpecError(f"{side.label}: none of its {len(rows)} trials has finished")
    return SideRows(
        finished,
        {status: count for status, count in counts.items() if status != "finished"},
        tuple(key for key in columns.hyperparameters if key not in STUDY_COLUMNS),
        (*columns.metrics, "seconds"),
    )


def _selected(rows: pd.DataFrame, key: str, text: str, side: ComparedSide) -> pd.DataFrame:
    if key not in rows.columns:
        raise SpecError(unknown(f"column in the rows of {side.name}", key, [str(name) for name in rows.columns]))
    if key == CHANGES and rows[key].isna().all():  # of a version that did not record them
        return rows
    values = [plain_value(value) for value in rows[key]]
    mask = [_matches(value, text) for value in values]
    if not any(mask):
        choices = ", ".join(sorted({repr(value) if isinstance(value, str) else _text(value) for value in values}))
        if not text:
            raise SpecError(f"{side.label}: no trial without {key}; add {key}=... with one of: {choices}")
        raise SpecError(f"{side.label}: no trial with {key}={text}; there are: {choices}")
    return rows[mask]


def _matches(value: object, text: str) -> bool:
    if isinstance(value, float | int) and not isinstance(value, bool):
        try:
            return float(text) == value
        except ValueError:
            return False
    return _text(value) == text


def _text(value: object) -> str:
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


STRATUM, REPLICATE = "stratum of a pair", "replicate of a trial"
"""Columns that no metric is called."""
SHOWN_KEYS = 8
"""Most hyperparameters that an error names."""


@dataclass(frozen=True)
class PairedTrials:
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
    sides: tuple[pd.DataFrame, pd.DataFrame]
    """The trials of each side that are in pairs: their metrics, the number of their `STRATUM`, whose trials agree in
    all but what is drawn, and of their `REPLICATE`."""
    blocks: tuple[int, ...] = ()
    """Of each stratum the number of its combination of fixed values, such as its class; the same of all if nothing but
    replicates tells whether the sides differ, as where they have different seeds."""
    of_blocks: tuple[str, ...] = ()
    """Hyperparameters whose values are fixed, by which blocks differ."""

    def runs(self, metric: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the runs of both sides, `[strata, replicates]`; NaN where a run is missing."""
        strata, replicates = (1 + max(int(side[name].max()) for side in self.sides) for name in (STRATUM, REPLICATE))
        first, second = (
            runs_of(side[metric].to_numpy("float64"), side[STRATUM], side[REPLICATE], (strata, replicates))
            for side in self.sides
        )
        return first, second


def pair(
    first: pd.DataFrame,
    second: pd.DataFrame,
    hyperparameters: Sequence[str],
    metrics: Sequence[str],
    chosen: Collection[str] = (),
    repeats: Repeats = SEEDS,
) -> PairedTrials:
    """Pair the rows of two sides. `repeats` says which hyperparameters are drawn anew.

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
    strata, drawn = (
        [key for key in names if (key in repeats.drawn) is own]
        for names, own in ((shared, False), (hyperparameters, True))
    )
    known_strata, known_replicates = dict[Any, int](), dict[Any, int]()
    matched = []
    for side, group, column in zip(sides, groups, columns, strict=True):
        rows = sorted(row for key in keys for row in group[key])
        numbered = {
            STRATUM: _numbers([column[key] for key in strata], rows, known_strata),
            REPLICATE: _numbers([column[key] for key in drawn], rows, known_replicates),
        }
        matched.append(side.iloc[rows][[*metrics]].assign(**numbered).reset_index(drop=True))
    of_blocks = tuple(key for key in strata if key in repeats.fixed and key in agreeing)
    of_blocks = () if set(drawn) & set(differing) else of_blocks
    known_blocks, indices = dict[Any, int](), [strata.index(key) for key in of_blocks]
    labels = (tuple(key[index] for index in indices) for key in known_strata)
    blocks = tuple(known_blocks.setdefault(label, len(known_blocks)) for label in labels)
    own = (means[0], means[1], agreeing, differing, (trials[0], trials[1]), unpaired, (matched[0], matched[1]))
    return PairedTrials(*own, blocks, of_blocks)


def _numbers(columns: Sequence[Sequence[Any]], rows: Sequence[int], known: dict[Any, int]) -> list[int]:
    """Return the number of the values of some columns in each of these rows. New ones are added to `known`."""
    return [known.setdefault(tuple(column[row] for column in columns), len(known)) for row in rows]


def _rows_by_key(columns: Sequence[Sequence[Any]], count: int) -> dict[tuple[Any, ...], list[int]]:
    """Return the values of some columns -> numbers of the rows that have them."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for row in range(count):
        groups.setdefault(tuple(column[row] for column in columns), []).append(row)
    return groups


def _mean(rows: np.ndarray) -> np.ndarray:
    """Mean over rows; NaN for a metric that one of them lacks."""
    return np.asarray(rows.mean(axis=0))


def differences(pairs: PairedTrials) -> pd.DataFrame:
    """Compare each metric that at least one pair has on both sides. Returns one row per metric.

    - `n`: replicates that both sides have; without three of them the fixed values over which they are compared
    - `over`: what the interval generalises to, where that is not further replicates, such as `10 classes`
    - `first`, `second`: mean of each side over its pairs; `difference`: mean of second - first
    - `low`, `high`: its 95 % interval, and `p`, the smallest level at which that excludes 0
      (`replicates.difference_of_runs`); null where there is none
    - `pairs`: those with finite values on both sides
    - `direction`: of the metric, empty without one; `better`, `worse`: pairs in which the second side is
    - `improved`, `improved_low`, `improved_high`: `estimates.improvement` of the second side over the first; null
      without a direction
    """
    rows = []
    for metric in pairs.first.columns:
        first, second = pairs.first[metric].to_numpy(), pairs.second[metric].to_numpy()
        known = np.isfinite(first) & np.isfinite(second)
        if known.any():
            rows.append({"metric": metric, **_compared(pairs, metric, first[known], second[known])})
    return pd.DataFrame(rows)


def _compared(pairs: PairedTrials, metric: str, first: np.ndarray, second: np.ndarray) -> dict[str, Any]:
    family, difference = family_of(metric), second - first
    direction = family.direction if family else None
    first_CN, second_CN = (np.where(np.isfinite(runs), runs, math.nan) for runs in pairs.runs(metric))
    what = noun_of(pairs.of_blocks[0]) if len(pairs.of_blocks) == 1 else "fixed values"
    share = Metric(metric, direction).bounds is not None
    estimate = difference_of_runs(second_CN, first_CN, what, share, np.array(pairs.blocks))
    of_first = difference_of_runs(first_CN, 0.0 * second_CN, what, share, np.array(pairs.blocks)).value
    low, high = known_interval(estimate)
    cost, improved = None, (math.nan, math.nan, math.nan)
    if direction:
        ranked = Metric(metric, direction)
        cost = ranked.cost(difference)
        improved = improvement(-ranked.cost(first_CN), -ranked.cost(second_CN))
    return {
        "n": estimate.n,
        "over": estimate.over if math.isfinite(low) else "",
        "first": of_first,
        "second": of_first + estimate.value,
        "difference": estimate.value,
        "low": low,
        "high": high,
        "pairs": len(difference),
        "direction": direction or "",
        "better": None if cost is None else int((cost < 0).sum()),
        "worse": None if cost is None else int((cost > 0).sum()),
        "p": math.nan if math.isnan(low) else p_value(estimate),
        **dict(zip(("improved", "improved_low", "improved_high"), improved, strict=True)),
    }
