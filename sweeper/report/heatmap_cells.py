"""Rows -> one cell for each pair of values of two axes: the mean over all else, and the best of them."""

from typing import Any, Literal

import numpy as np
import pandas as pd

Direction = Literal["maximize", "minimize"]


def pivot(rows: pd.DataFrame, metric: str, axes: tuple[str, str]) -> pd.DataFrame:
    """One row a cell: the two axis values, mean, std (ddof 1), count, and missing (trials without the metric).

    Every pair of values that occur is there; a cell without any trial has count 0 and missing 0. An axis may be null.
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


def best(cells: pd.DataFrame, direction: Direction) -> dict[str, Any] | None:
    """The cell of the best finite mean (the first of equals), and its `position`; None where no cell has one."""
    means = cells["mean"].to_numpy("float64")
    if not np.isfinite(means).any():
        return None
    position = int(np.nanargmax(np.where(np.isfinite(means), means if direction == "maximize" else -means, np.nan)))
    return {str(name): cells[name].iloc[position] for name in cells.columns} | {"position": position}


def _sorted(column: pd.Series) -> pd.Index:
    return pd.Index(column.drop_duplicates().sort_values(), name=column.name)
