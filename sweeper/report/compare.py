"""Paired comparison of two sides: their trials, the pairs that agree, the differences of metrics, and their figure."""

import contextlib
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from sweeper.errors import SchemaError
from sweeper.names import LAW, is_name
from sweeper.plan.best_settings import STUDY_COLUMNS
from sweeper.printing import printable
from sweeper.report import charts
from sweeper.report.formatting import DASH, MINUS, format_significant, text_table
from sweeper.report.verdicts import LEVEL, MIN_REPLICATES, half_widths
from sweeper.spec import SpecError
from sweeper.spec.metric import BETTER, Metric
from sweeper.spec.space import unknown
from sweeper.storage.files import Files
from sweeper.storage.layout import TRIALS, sweeps_in
from sweeper.storage.requests import read_request, request_name
from sweeper.storage.rows import Columns, columns_of, conform, plain_value
from sweeper.storage.store import StoreReader
from trainables.metrics.meanings import family_of

DEFAULT_STORE = "results"
CHANGES = "changes"
SYNTAX = "NAME[:PRESET][,KEY=VALUE...][@STORE]"


@dataclass(frozen=True)
class Side:
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


def parse_sides(first: str, second: str) -> tuple[Side, Side]:
    """Parse `NAME[:PRESET][,KEY=VALUE...][@STORE]` twice. Parts that the second lacks are those of the first, except
    for conditions; the preset is taken over only together with the name, and the changes only together with the preset.
    Raises SpecError."""
    a = _parse(first, None)
    b = _parse(second, a)
    if a == b:
        raise SpecError(f"the two sides must differ, but both are {a.label}")
    return a, b


def _parse(text: str, default: Side | None) -> Side:
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
    side = Side(name, preset or None, values, store.strip() or DEFAULT_STORE)
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


def rows_of(first: Side, second: Side) -> tuple[SideRows, SideRows]:
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


def _stored(side: Side) -> pa.Table:
    reader = StoreReader(side.store)
    table = reader.rows(side.name) if is_name(side.name) else None
    if table is None:
        names = sweeps_in(reader.files.list(TRIALS))
        store = f"store {reader.files.display_uri}"
        raise SpecError(f"{store}: {unknown('sweep', side.name, names)}" if names else f"{store} has no rows")
    return table


def _rows_of(side: Side, table: pa.Table, columns: Columns) -> SideRows:
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


def _selected(rows: pd.DataFrame, key: str, text: str, side: Side) -> pd.DataFrame:
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


RUN = "seed"
"""The hyperparameter whose values are runs of one stratum."""
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
    strata: np.ndarray
    """Of each pair the number of its stratum: the pairs that agree in all but the seed."""


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
    of_pairs = [tuple(value for name, value in zip(shared, key, strict=True) if name != RUN) for key in keys]
    numbered = {stratum: number for number, stratum in enumerate(dict.fromkeys(of_pairs))}
    strata = np.array([numbered[stratum] for stratum in of_pairs])
    return Pairs(means[0], means[1], agreeing, differing, (trials[0], trials[1]), unpaired, strata)


def _rows_by_key(columns: Sequence[Sequence[Any]], count: int) -> dict[tuple[Any, ...], list[int]]:
    """Return the values of some columns -> numbers of the rows that have them."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for row in range(count):
        groups.setdefault(tuple(column[row] for column in columns), []).append(row)
    return groups


def _mean(rows: np.ndarray) -> np.ndarray:
    """Mean over rows; NaN for a metric that one of them lacks."""
    return np.asarray(rows.mean(axis=0))


RESAMPLES = 2000
"""Resamples behind the interval of the probability of improvement."""


def differences(pairs: Pairs) -> pd.DataFrame:
    """Compare each metric that at least one pair has on both sides. Returns one row per metric.

    - `n`: pairs with finite values on both sides, over which all that follows is taken
    - `first`, `second`: mean of each side; `difference`: mean of second - first
    - `error`: standard error of `difference` over the pairs; `low`, `high`: its 95 % interval by Student's t
    - `direction`: of the metric, empty without one; `better`, `worse`: pairs in which the second side is
    - `p`: two-sided Wilcoxon signed-rank test. Null for fewer than two pairs; 1 if no pair differs
    - `improved`, `improved_low`, `improved_high`: `improvement` of the second side over the first; null without a
      direction. `runs`: the fewest of a stratum
    """
    rows = []
    for metric in pairs.first.columns:
        first, second = pairs.first[metric].to_numpy(), pairs.second[metric].to_numpy()
        known = np.isfinite(first) & np.isfinite(second)
        if known.any():
            rows.append({"metric": metric, **_compared(metric, first[known], second[known], pairs.strata[known])})
    return pd.DataFrame(rows)


def improvement(worse: Sequence[np.ndarray], better: Sequence[np.ndarray], seed: int = 0) -> tuple[float, float, float]:
    """Return the probability that a run with values `better` exceeds one with values `worse`, ties counting half, as
    the mean over strata, of which each side has its runs, with its 95 % interval (Agarwal et al. 2021, arXiv
    2108.13264).

    The interval is of bootstrap percentiles, where the runs of each side are drawn within each stratum. It is NaN where
    a side has fewer than `MIN_REPLICATES` runs of a stratum, and where all resamples agree, because all runs were won:
    they say nothing of its width.
    """
    generator, count = np.random.default_rng(seed), len(worse)
    means, resampled = 0.0, np.zeros(RESAMPLES)
    for first, second in zip(worse, better, strict=True):
        won = (second[:, None] > first) + 0.5 * (second[:, None] == first)
        draws = [generator.multinomial(n, np.full(n, 1 / n), RESAMPLES) for n in (len(first), len(second))]
        resampled += ((draws[1] @ won) * draws[0]).sum(1) / won.size / count
        means += float(won.mean()) / count
    low, high = map(float, np.quantile(resampled, ((1 - LEVEL) / 2, (1 + LEVEL) / 2)))
    known = min(map(len, (*worse, *better))) >= MIN_REPLICATES and high > low
    return means, low if known else math.nan, high if known else math.nan


def _compared(metric: str, first: np.ndarray, second: np.ndarray, strata: np.ndarray) -> dict[str, Any]:
    family, difference, n = family_of(metric), second - first, len(first)
    mean, direction = float(difference.mean()), family.direction if family else None
    std = float(difference.std(ddof=1)) if n > 1 else math.nan
    half = float(half_widths(np.array(std), np.array(n)))
    cost, improved, low, high = None, math.nan, math.nan, math.nan
    if direction:
        ranked = Metric(metric, direction)
        cost = ranked.cost(difference)
        worse, better = (
            [-ranked.cost(side[strata == number]) for number in np.unique(strata)] for side in (first, second)
        )
        improved, low, high = improvement(worse, better)
    return {
        "n": n,
        "first": float(first.mean()),
        "second": float(second.mean()),
        "difference": mean,
        "error": std / math.sqrt(n),
        "low": mean - half,
        "high": mean + half,
        "direction": direction or "",
        "better": None if cost is None else int((cost < 0).sum()),
        "worse": None if cost is None else int((cost > 0).sum()),
        "p": _signed_rank(difference),
        "improved": improved,
        "improved_low": low,
        "improved_high": high,
        "runs": int(np.unique(strata, return_counts=True)[1].min()),
    }


def _signed_rank(difference: np.ndarray) -> float:
    from scipy.stats import wilcoxon  # here: importing it takes half as long as all that a request imports

    if len(difference) < 2:
        return math.nan
    return float(wilcoxon(difference).pvalue) if difference.any() else 1.0


def text(table: pd.DataFrame) -> str:
    """Return the differences as plain text for the terminal."""
    columns = {
        "metric": list(table["metric"]),
        "best is": [BETTER.get(direction, DASH) for direction in table["direction"]],
        "A": [format_significant(value) for value in table["first"]],
        "B": [format_significant(value) for value in table["second"]],
        "B - A": [signed(value, high - value) for value, high in zip(table["difference"], table["high"], strict=True)],
        "P(B better)": [probable(*row) for row in table[["improved", "improved_low", "improved_high"]].to_numpy()],
        "n": [str(n) for n in table["n"]],
        "better": [_count(number) for number in table["better"]],
        "worse": [_count(number) for number in table["worse"]],
        "p": [probability(p) for p in table["p"]],
    }
    return text_table(columns, right=["A", "B", "n", "better", "worse", "p"])


def probable(improved: float, low: float, high: float) -> str:
    """Return text such as `0.83 [0.61, 0.97]`, without the interval if it is unknown."""
    if math.isnan(improved):
        return DASH
    return f"{improved:.2f}" + ("" if math.isnan(low) else f" [{low:.2f}, {high:.2f}]")


def signed(mean: float, half: float) -> str:
    """Return text such as `+0.012 ± 0.004`, without half the interval if it is unknown."""
    sign = MINUS if mean < 0 else "+"
    spread = "" if math.isnan(half) else f" ± {format_significant(half)}"
    return f"{sign}{format_significant(abs(mean))}{spread}"


def probability(p: float) -> str:
    return DASH if math.isnan(p) else "<0.001" if p < 0.001 else f"{p:.3f}"


def _count(number: float | None) -> str:
    return DASH if number is None or math.isnan(number) else str(int(number))


POINTS, MEAN = (-0.02, 0.42), -0.26
"""Vertical range of the points of a strip, which are spread to be told apart, and height of their mean below them."""
LONGEST_LABEL = 100
"""Most characters of a side's name, which stands below the title."""
MOST_METRICS = 24
"""Most metrics that the figure shows; the table has all."""


def picture(pairs: Pairs, table: pd.DataFrame, labels: tuple[str, str]) -> bytes:
    """Return a figure of `differences(pairs)` as a PNG: a strip for each metric with a point for each pair, their mean
    and its interval. `labels` are the names of the sides A and B.

    Each strip has its own scale, which is symmetric about zero.
    """
    shown = table.head(MOST_METRICS)
    note = "a point is a pair; diamond, bar and ±: mean and its 95 % interval; p: Wilcoxon signed-rank"
    more = f"; {len(table) - len(shown)} more metrics in the table" if len(shown) < len(table) else ""
    sides = [f"{letter}: {_shortened(label)}" for letter, label in zip("AB", labels, strict=True)]
    title = {"text": f"Paired differences, B {MINUS} A", "subtitle": [*sides, f"{note}{more}"]}
    strips = [
        charts.fill(charts.DIFFERENCES, {**charts.COLOURS["light"], **strip(row, pairs)})
        for row in shown.to_dict("records")
    ]
    return charts.png(charts.BELOW, extent=100 * len(strips), title=title, panels=strips, padding=charts.PADDING)


def strip(row: Mapping[Any, Any], pairs: Pairs) -> dict[str, Any]:
    """Return the values of `charts.DIFFERENCES` for one metric."""
    difference = (pairs.second[row["metric"]] - pairs.first[row["metric"]]).to_numpy()
    difference = difference[np.isfinite(difference)]
    cost = Metric(row["metric"], row["direction"]).cost(difference) if row["direction"] else np.zeros(len(difference))
    outcome = np.select([cost < 0, cost > 0], ["B better", "B worse"], "neither")
    heights = np.random.default_rng(0).uniform(*POINTS, len(difference))
    points = pd.DataFrame({"x": difference, "y": heights, "outcome": outcome})
    ends = [float(end) for end in (row["low"], row["high"]) if math.isfinite(end)]
    limit = 1.08 * max(map(abs, (*difference, *ends))) or 1.0
    p = f", p = {probability(row['p'])}".replace("= <", "< ") if row["n"] > 1 else ""
    better = f"{BETTER[row['direction']]} is better" if row["direction"] else ""
    return {
        "points": charts.records(points),
        "mean": [{"x": row["difference"], "low": ends[0], "high": ends[1]} if ends else {"x": row["difference"]}],
        "limits": [-limit, limit],
        "left0": row["metric"],
        "left1": better,
        "right0": signed(row["difference"], row["high"] - row["difference"]),
        "right1": f"n = {row['n']}{p}",
        "height": MEAN,
    }


def _shortened(label: str) -> str:
    middle = LONGEST_LABEL // 2
    return label if len(label) <= LONGEST_LABEL else f"{label[:middle]}\N{HORIZONTAL ELLIPSIS}{label[-middle:]}"
