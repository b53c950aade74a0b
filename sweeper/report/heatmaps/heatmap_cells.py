"""The cells of a heatmap: the mean of a metric for each pair of values of two hyperparameters, and the best cell."""

from typing import Any

import numpy as np
import pandas as pd

from sweeper.spec.metric import VALIDATION, Direction


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
    """Return the metric by which the best cell is chosen: `val_METRIC` if the rows have values of it, else `metric`."""
    name = f"{VALIDATION}{metric}"
    return name if name in rows and rows[name].notna().any() else metric


def best(cells: pd.DataFrame, direction: Direction, by: str = "mean") -> dict[str, Any] | None:
    """Return the first cell with the best finite value of the column `by`, with its row number as `position`.

    Returns None if no value is finite.
    """
    means = cells[by].to_numpy("float64")
    if not np.isfinite(means).any():
        return None
    position = int(np.nanargmax(np.where(np.isfinite(means), means if direction == "maximize" else -means, np.nan)))
    return {str(name): cells[name].iloc[position] for name in cells.columns} | {"position": position}


def _sorted(column: pd.Series) -> pd.Index:
    return pd.Index(column.drop_duplicates().sort_values(), name=column.name)
