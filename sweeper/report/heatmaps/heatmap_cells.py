"""The cells of a heatmap: the mean of a metric for each pair of values of two hyperparameters."""

from collections.abc import Sequence

import pandas as pd

from sweeper.plan.best_settings import BestSetting
from sweeper.spec.metric import VALIDATION
from sweeper.storage.rows import plain_value


def pivot(rows: pd.DataFrame, metric: str, axes: tuple[str, str]) -> pd.DataFrame:
    """Average a metric over all trials with equal values of two axes. Returns a data frame with one row per cell.

    Its columns are the two axes, `mean`, `std` (ddof=1), `count`, and `missing` (trials without a value of the metric).
    All combinations of values are included; a cell without trials has count 0 and missing 0. Null is a value of an
    axis, too. Raises ValueError if `rows` lacks a column.
    """
    for name in (*axes, metric):
        if name not in rows.columns:
            raise ValueError(f"no column {name!r} in the rows; there are: {', '.join(map(str, rows.columns))}")
    values = rows[[*axes, metric]].astype({metric: "float64"})
    groups = values.groupby(list(axes), dropna=False, observed=True)[metric]
    cells = groups.agg(["mean", "std", "count", "size"])
    grid = pd.MultiIndex.from_product([_sorted(rows[axis]) for axis in axes], names=list(axes))
    cells = cells.reindex(grid)
    count = cells["count"].fillna(0).astype("int64")
    cells["missing"] = cells["size"].fillna(0).astype("int64") - count
    return cells.assign(count=count)[["mean", "std", "count", "missing"]].reset_index()


def selection_metric(rows: pd.DataFrame, metric: str) -> str:
    """Return the metric by which settings are chosen: `val_METRIC` if the rows have values of it, else `metric`."""
    name = f"{VALIDATION}{metric}"
    return name if name in rows and rows[name].notna().any() else metric


def positions(cells: pd.DataFrame, rows: pd.DataFrame, axes: tuple[str, str], best: Sequence[BestSetting]) -> list[int]:
    """Return the positions of the cells that have trials of the best settings. A trial that is in several rows, with
    several labels, counts for the first."""
    trials = {trial for setting in best for trial in setting.values}
    if "trial_id" not in rows or not trials:
        return []
    chosen = rows[rows["trial_id"].isin(trials)].drop_duplicates("trial_id")
    keys = {tuple(map(plain_value, key)) for key in zip(*(chosen[axis] for axis in axes), strict=True)}
    places = zip(*(cells[axis] for axis in axes), strict=True)
    return [index for index, key in enumerate(places) if tuple(map(plain_value, key)) in keys]


def _sorted(column: pd.Series) -> pd.Index:
    return pd.Index(column.drop_duplicates().sort_values(), name=column.name)
