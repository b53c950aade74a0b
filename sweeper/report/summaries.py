"""What cells of heatmaps and tables, and points of trajectories, say of their trials.

A replicate is a combination of values of those hyperparameters that only repeat an experiment: seeds, or classes, each
with the mean of its seeds (`replicate_keys`). Trials of a cell that differ in anything else do not repeat it, so a
replicate counts once, with the mean of its trials.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from sweeper.plan.best_settings import NOUNS
from sweeper.report.verdicts import MIN_REPLICATES, half_widths
from sweeper.spec.metric import LARGEST, SPREADS, Spread
from sweeper.spec.sweep import replicate_keys

MEASURED = {
    **dict.fromkeys(("mean", "std", "low", "high", "iqm"), "float64"),
    **dict.fromkeys(("replicates", "count", "missing"), "int64"),
}
"""Columns of `summarise`, with their types."""
MIN_IQM = 5
"""Fewest replicates with an interquartile mean."""


def value_codes(column: pd.Series) -> tuple[np.ndarray, pd.Series]:
    """Return the position of each value of a column among its distinct values, and these in ascending order. All nulls
    are one value, the last."""
    codes, distinct = pd.factorize(column, use_na_sentinel=False)
    values = pd.Series(distinct, name=column.name).sort_values()
    return np.argsort(values.index.to_numpy())[codes], values.reset_index(drop=True)


def replicate_columns(rows: pd.DataFrame, replicates: Iterable[str]) -> list[str]:
    """Return the columns whose values are the replicates of rows, of those that repeat an experiment."""
    return [*replicate_keys({name: rows[name].dropna().unique() for name in replicates if name in rows})]


def replicate_numbers(rows: pd.DataFrame, replicates: Iterable[str]) -> np.ndarray:
    """Return the number of each row's replicate. Without a column of `replicates` all rows are one."""
    columns = replicate_columns(rows, replicates)
    if not columns:
        return np.zeros(len(rows), dtype=np.int64)
    return rows.groupby(columns, dropna=False, observed=True).ngroup().to_numpy()


def summarise(values: pd.Series, cells: np.ndarray, replicates: np.ndarray, count: int) -> pd.DataFrame:
    """Return a row for each of `count` cells. `values`, `cells` and `replicates` are those of trials; a value may be
    null, and one beyond `LARGEST` is infinite.

    - `replicates`: those with a value, over which all that follows is taken
    - `mean`, `std` (ddof=1; null for one replicate), and `low` and `high`, the 95 % interval of the mean by Student's
      t, which is null for fewer than `MIN_REPLICATES`, and for equal ones
    - `iqm`: the mean without the lowest and the highest quarter; null for fewer than `MIN_IQM` replicates
    - `count`: trials with a value; `missing`: trials without one
    """
    numbers = np.asarray(values, dtype="float64")
    numbers = np.where(np.abs(numbers) > LARGEST, np.copysign(np.inf, numbers), numbers)
    trials = pd.DataFrame({"cell": cells, "replicate": replicates, "value": numbers})
    known = trials.dropna(subset="value")
    samples = known.groupby(["cell", "replicate"])["value"].mean().reset_index().sort_values(["cell", "value"])
    groups = samples.groupby("cell")["value"]
    found = groups.agg(["mean", "std", "count"]).rename(columns={"count": "replicates"}).reindex(range(count))
    rank, size = groups.cumcount(), groups.transform("size")
    middle = samples[(size >= MIN_IQM) & (rank >= size // 4) & (rank < size - size // 4)]
    half = half_widths(found["std"].to_numpy(), found["replicates"].to_numpy())
    every, counts = (table.groupby("cell").size().reindex(range(count), fill_value=0) for table in (trials, known))
    found = found.assign(low=found["mean"] - half, high=found["mean"] + half, count=counts)
    found["replicates"] = found["replicates"].fillna(0)
    found = found.assign(iqm=middle.groupby("cell")["value"].mean(), missing=every - counts)
    return found[list(MEASURED)].astype(MEASURED)


def in_percent(cells: pd.DataFrame) -> pd.DataFrame:
    """Return the cells of a share in percent."""
    scaled = ("mean", "std", "low", "high", "iqm", "published", "difference")
    return cells.assign(**{name: 100.0 * cells[name] for name in scaled if name in cells})


def spread_of(cell: Mapping[Any, Any], spread: Spread = "interval") -> float:
    """Return what follows the ± of a cell: half its interval, or its standard deviation. NaN if it has none."""
    return float(cell["high"] - cell["mean"] if spread == "interval" else cell["std"])


def described(cells: pd.DataFrame, over: str, spread: Spread = "interval") -> str:
    """Return e.g. `mean ± 95 % interval over 3 to 5 seeds`, `mean over 2 seeds` where no cell has an interval, or an
    empty text for one replicate. `over`: what replicates are, as a plural noun."""
    n = cells["replicates"][cells["replicates"] > 0]
    if n.empty or n.max() == 1:
        return ""
    span = f"{n.min()} to {n.max()}" if n.min() < n.max() else f"{n.max()}"
    each = ", each the mean of several trials" if (cells["count"] > cells["replicates"]).any() else ""
    beside = f" ± {SPREADS[spread]}" if spread == "deviation" or n.max() >= MIN_REPLICATES else ""
    return f"mean{beside} over {span} {over}{each}"


def averaged_over(rows: pd.DataFrame, axes: Sequence[str], replicates: Sequence[str], noun: str = "trials") -> str:
    """Return what the replicates of a cell of these axes are: `seeds` or `classes` if only these differ within one. Of
    another hyperparameter it is the sweep's `noun`, unless that is the default."""
    columns = replicate_columns(rows, [key for key in replicates if key not in axes])
    varying = [key for key in columns if rows[key].nunique(dropna=False) > 1]
    if rows.empty or not varying or not {*axes} & {*rows}:
        return "replicates"
    within = (
        rows.groupby([axis for axis in axes if axis in rows], dropna=False, observed=True)[varying]
        .nunique(dropna=False)
        .max()
    )
    differing = [key for key in varying if within[key] > 1]
    if len(differing) != 1:
        return "replicates"
    return NOUNS.get(differing[0], f"values of {differing[0]}" if noun == "trials" else noun)
