"""Trials as cells with replicates: what a mean is over, and what is said of it.

A *replicate* is what is drawn anew: a seed, or a value that a sweep calls random. Classes are fixed: a replicate has
the mean over them, and counts if it has all that its cell has, so that no cell wins because a hard class is still to be
trained. Where no replicate of a cell has all of them, the means of its classes count as one replicate. Trials of a cell
that differ in anything else do not repeat it, so their mean counts once.

Shapes: T trials, M replicates of all cells.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from sweeper.definition.metric import LARGEST
from sweeper.definition.sweep import Repeats
from sweeper.results.estimates import MIN_REPLICATES, Estimate, difference, intervals, mean, over_fixed

MEASURED = {
    **dict.fromkeys(("mean", "std", "low", "high", "iqm", "fixed_std"), "float64"),
    **dict.fromkeys(("replicates", "fixed", "count", "missing"), "int64"),
}
"""Columns of `summarise`, with their types."""
MIN_IQM = 5
"""Fewest runs with an interquartile mean."""


@dataclass(frozen=True)
class Repetition:
    """What trials repeat: of each the number of its replicate, and of its combination of fixed values."""

    replicate_T: np.ndarray
    fixed_T: np.ndarray

    def of(self, trials: np.ndarray) -> Repetition:
        """Return that of some trials, by a mask or by positions."""
        return Repetition(self.replicate_T[trials], self.fixed_T[trials])


def replicate_columns(rows: pd.DataFrame, repeats: Repeats) -> list[str]:
    """Return the columns whose values are the replicates of rows."""
    return [*repeats.replicates({name: rows[name].dropna().unique() for name in repeats.drawn if name in rows})]


def repetition(rows: pd.DataFrame, repeats: Repeats, axes: Iterable[str] = ()) -> Repetition:
    """Return what rows repeat within cells of some axes. Null is a value: a method without a seed has one replicate."""
    within = repeats.without([*axes])
    columns = replicate_columns(rows, within)
    return Repetition(
        group_numbers(rows, columns), group_numbers(rows, [name for name in within.fixed if name in rows])
    )


def group_numbers(rows: pd.DataFrame, columns: Sequence[str]) -> np.ndarray:
    """Return the number of each row's combination of values. Without columns all rows are one."""
    if not columns:
        return np.zeros(len(rows), dtype=np.int64)
    return rows.groupby(list(columns), dropna=False, observed=True).ngroup().to_numpy()


def value_codes(column: pd.Series) -> tuple[np.ndarray, pd.Series]:
    """Return the position of each value of a column among its distinct values, and these in ascending order. All nulls
    are one value, the last."""
    codes, distinct = pd.factorize(column, use_na_sentinel=False)
    values = pd.Series(distinct, name=column.name).sort_values()
    return np.argsort(values.index.to_numpy())[codes], values.reset_index(drop=True)


@dataclass(frozen=True)
class Replicates:
    """The replicates of cells, and what each cell has the mean over."""

    cell_M: np.ndarray
    replicate_M: np.ndarray
    """Number of each replicate in its cell; -1 for the means of classes that no replicate has all of."""
    value_M: np.ndarray
    size: int
    """Largest number of a replicate, and 2."""
    runs: pd.DataFrame
    """`cell`, `fixed`, `replicate` and `value` of each run: the mean of the trials that agree in these."""
    strata: pd.DataFrame
    """`cell`, `fixed` and `value`: the mean of each combination of fixed values over its runs."""


def replicates_of(values: Sequence[float] | np.ndarray, cells: np.ndarray, repeated: Repetition) -> Replicates:
    """Return the replicates of cells by the values of trials, which may be null; one beyond `LARGEST` is infinite."""
    numbers = np.asarray(values, dtype="float64")
    numbers = np.where(np.abs(numbers) > LARGEST, np.copysign(np.inf, numbers), numbers)
    trials = pd.DataFrame(
        {"cell": cells, "fixed": repeated.fixed_T, "replicate": repeated.replicate_T, "value": numbers}
    )
    runs = trials.dropna(subset="value").groupby(["cell", "fixed", "replicate"], as_index=False)["value"].mean()
    strata = runs.groupby(["cell", "fixed"], as_index=False)["value"].mean()
    found = runs.groupby(["cell", "replicate"], as_index=False)["value"].agg(["mean", "size"])
    whole = found[found["size"] == found["cell"].map(strata.groupby("cell").size())]
    without = strata[~strata["cell"].isin(whole["cell"])].groupby("cell", as_index=False)["value"].mean()
    every = pd.concat(
        [whole[["cell", "replicate"]].assign(value=whole["mean"]), without.assign(replicate=-1)], ignore_index=True
    ).sort_values(["cell", "replicate"])
    cell_M, replicate_M, value_M = (every[name].to_numpy() for name in ("cell", "replicate", "value"))
    size = int(repeated.replicate_T.max(initial=-1)) + 2
    return Replicates(cell_M, replicate_M, value_M, size, runs, strata)


def whole_means(runs_CN: np.ndarray) -> np.ndarray:
    """Return the means `[..., N]` of replicates over the C combinations of fixed values, from runs `[..., C, N]` that
    are NaN where they are missing; NaN for a replicate that lacks a combination which others have. Where none has all,
    the first is the mean over the means of the combinations."""
    if not runs_CN.shape[-1]:
        return np.empty((*runs_CN.shape[:-2], 0))
    present = ~np.isnan(runs_CN)
    counts, strata = present.sum(-2), present.any(-1)
    whole = (counts > 0) & (counts == strata.sum(-1, keepdims=True))
    with np.errstate(invalid="ignore", divide="ignore"):
        means = np.where(whole, np.where(present, runs_CN, 0.0).sum(-2) / counts, np.nan)
        fallback = np.where(strata, strata_means(runs_CN), 0.0).sum(-1) / strata.sum(-1)
    means[..., 0] = np.where(whole.any(-1), means[..., 0], fallback)
    return means


def strata_means(runs_CN: np.ndarray) -> np.ndarray:
    """Return the means `[..., C]` over the runs that each combination of fixed values has; NaN for one without."""
    present = ~np.isnan(runs_CN)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(present, runs_CN, 0.0).sum(-1) / present.sum(-1))


def interval_of_runs(runs_CN: np.ndarray, share: bool = False) -> tuple[float, float]:
    """Return the 95 % interval of the mean over whole replicates of one cell; NaN if it is not known."""
    values_N = whole_means(runs_CN)
    values_N = values_N[~np.isnan(values_N)]
    if len(values_N) < MIN_REPLICATES:
        return math.nan, math.nan
    within = share and within_unit(values_N)
    low, high = intervals(values_N.mean(), values_N.std(ddof=1), len(values_N), within)
    return float(low), float(high)


def runs_of(
    values: Sequence[float] | np.ndarray, fixed: np.ndarray, replicates: np.ndarray, shape: tuple[int, int]
) -> np.ndarray:
    """Return the runs `[C, N]` of one cell: the means of trials with these numbers of fixed values and replicates; NaN
    where no trial has a value."""
    numbers = np.asarray(values, dtype="float64")
    known = ~np.isnan(numbers)
    flat = np.ravel_multi_index((np.asarray(fixed)[known], np.asarray(replicates)[known]), shape)
    counts = np.bincount(flat, minlength=shape[0] * shape[1])
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((np.bincount(flat, numbers[known], len(counts)) / counts).reshape(shape))


def difference_of_runs(
    first_CN: np.ndarray,
    second_CN: np.ndarray,
    what: str = "fixed values",
    share: bool = False,
    block_C: np.ndarray | None = None,
) -> Estimate:
    """Return the mean of the first side less that of the second one, over the fixed values that both have.

    It is paired by the replicates that both have whole, of which there must be `MIN_REPLICATES`, else of different ones
    on each side. With fewer it is paired by the fixed values, of one replicate or the means of two, and generalises to
    further such values (`estimates.over_fixed`). `what`: what fixed values are, as a plural noun. `block_C`: numbers of
    blocks of fixed values, whose means are paired in their place, because values within a block are no sample of
    anything, such as settings on the same class.
    """
    shared_C = ~np.isnan(first_CN).all(1) & ~np.isnan(second_CN).all(1)
    block_C = np.arange(len(shared_C))[shared_C] if block_C is None else block_C[shared_C]
    first_CN, second_CN = first_CN[shared_C], second_CN[shared_C]
    if not shared_C.any():
        return Estimate(math.nan, 0, None)
    first_N, second_N = whole_means(first_CN), whole_means(second_CN)
    both_N = ~np.isnan(first_N - second_N)
    within = share and within_unit((*first_N[~np.isnan(first_N)], *second_N[~np.isnan(second_N)]))
    if both_N.sum() >= MIN_REPLICATES:
        return difference(mean(first_N[both_N]), mean(second_N[both_N]))
    alone = [own[~np.isnan(own)] for own in (first_N, second_N)]
    if not both_N.any() and min(map(len, alone)) >= MIN_REPLICATES:
        return difference(mean(alone[0], within), mean(alone[1], within), paired=False)
    difference_C = strata_means(first_CN) - strata_means(second_CN)
    if len(blocks := np.unique(block_C)) > 1:
        found = over_fixed(np.array([difference_C[block_C == own].mean() for own in blocks]), f"{len(blocks)} {what}")
        return replace(found, value=float(difference_C.mean()))
    return Estimate(float(difference_C.mean()), max(int(both_N.sum()), 1), None)


def summarise(
    values: Sequence[float] | np.ndarray | pd.Series,
    cells: np.ndarray,
    repeated: Repetition,
    count: int,
    share: np.ndarray | bool = False,
) -> pd.DataFrame:
    """Return a row for each of `count` cells. `values`, `cells` and `repeated` are those of trials; a value may be
    null, and one beyond `LARGEST` is infinite. `share`: whether they are shares in [0, 1], of all or of each cell.

    - `replicates`: those with a value, over which `mean` and `std` are taken (ddof=1; null for one)
    - `low`, `high`: the 95 % interval of the mean over further replicates (`estimates.intervals`), which is null for
      fewer than `MIN_REPLICATES`, and for equal ones
    - `fixed`, `fixed_std`: the number of combinations of fixed values that each replicate has the mean over, such as
      classes, and the standard deviation of their means; null for one
    - `iqm`: the mean of the runs without the lowest and the highest quarter; null for fewer than `MIN_IQM`
    - `count`: trials with a value; `missing`: trials without one
    """
    known = replicates_of(np.asarray(values, dtype="float64"), cells, repeated)
    means = pd.DataFrame({"cell": known.cell_M, "value": known.value_M}).groupby("cell")["value"]
    found = means.agg(["mean", "std", "count", "min", "max"]).reindex(range(count))
    found = found.rename(columns={"count": "replicates"})
    within = np.asarray(share) & (found["min"] >= 0).to_numpy() & (found["max"] <= 1).to_numpy()
    center, std, n = (found[name].to_numpy("float64") for name in ("mean", "std", "replicates"))
    low, high = intervals(center, std, n, within)
    runs = known.runs.sort_values(["cell", "value"])
    rank, size = runs.groupby("cell").cumcount(), runs.groupby("cell")["value"].transform("size")
    middle = runs[(size >= MIN_IQM) & (rank >= size // 4) & (rank < size - size // 4)]
    strata = known.strata.groupby("cell")["value"]
    trials = pd.DataFrame({"cell": cells, "known": ~np.isnan(np.asarray(values, dtype="float64"))}).groupby("cell")
    counts = trials["known"].agg(["sum", "size"]).reindex(range(count), fill_value=0)
    found = found.assign(low=low, high=high, iqm=middle.groupby("cell")["value"].mean(), fixed_std=strata.std())
    found = found.assign(fixed=strata.size(), count=counts["sum"], missing=counts["size"] - counts["sum"])
    found[["replicates", "fixed"]] = found[["replicates", "fixed"]].fillna(0)
    return found[list(MEASURED)].astype(MEASURED)


def within_unit(values: Iterable[float]) -> bool:
    """Whether all values are in [0, 1]."""
    numbers = np.asarray([*values])
    return bool(((numbers >= 0) & (numbers <= 1)).all())


def in_percent(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the cells of a share in percent."""
    scaled = ("mean", "std", "low", "high", "iqm", "fixed_std", "published", "difference")
    return cells.assign(**{name: 100.0 * cells[name] for name in scaled if name in cells})


def beside(cell: Mapping[Any, Any], spread: str = "interval") -> tuple[float, ...]:
    """Return what stands beside the mean of a cell: the two ends of its interval, or one number, a standard deviation:
    of its replicates where that is asked for and there are several, else of the means of fixed values. Empty if there
    is neither."""
    if spread == "interval" and not np.isnan(cell["low"]):
        return float(cell["low"]), float(cell["high"])
    deviation = cell["std"] if spread == "deviation" and not np.isnan(cell["std"]) else cell["fixed_std"]
    return () if np.isnan(deviation) else (float(deviation),)
