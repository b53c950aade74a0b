"""Tables that stand beside a heatmap: the best cell by class, and what goes with what over the grid."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from sweeper.report.heatmap import NOTHING, label, number
from sweeper.report.heatmap_cells import Direction, best, pivot
from sweeper.spec.metric import VALIDATION, Metric


def chosen_by(rows: pd.DataFrame, metric: str) -> str:
    """The metric that the best is chosen by: that of the validation images where these rows have it, else itself."""
    name = f"{VALIDATION}{metric}"
    return name if name in rows and rows[name].notna().any() else metric


def breakdown(rows: pd.DataFrame, metric: str, direction: Direction, axes: tuple[str, str], by: str) -> pd.DataFrame:
    """The metric by `by` (a class, a dataset, a seed) at the cell of `axes` that is best by the mean of `chosen_by`.

    One row for each value of `by`: the two axis values, `by`, mean, std, count, missing. Empty if no cell has any.
    """
    champion = best(pivot(rows, chosen_by(rows, metric), axes), direction)
    if champion is None:
        return pd.DataFrame(columns=[*axes, by, "mean", "std", "count", "missing"])
    here = rows
    for axis in axes:
        value = champion[axis]
        here = here[here[axis].isna() if pd.isna(value) else here[axis] == value]
    groups = here.astype({metric: "float64"}).groupby(by, dropna=False, observed=True)[metric]
    table = groups.agg(["mean", "std", "count", "size"]).reset_index()
    table["missing"] = table.pop("size") - table["count"]
    for position, axis in enumerate(axes):
        table.insert(position, axis, [champion[axis]] * len(table))
    return table


def on_test_images(rows: pd.DataFrame, objective: Metric) -> pd.DataFrame:
    """What the best trial by validation images is worth on test images, which it was not chosen by.

    One row for each study of `rows`: study, number, the objective, and the same metric of the test images. Empty where
    the objective is of no validation images, or no trial has both.
    """
    name = objective.name.removeprefix(VALIDATION)
    columns = ["study", "number", objective.name, name]
    if name == objective.name or not set(columns) <= set(rows.columns):
        return pd.DataFrame(columns=columns)
    both = rows.dropna(subset=[objective.name, name])
    best_first = both.sort_values(objective.name, ascending=objective.better == "minimize", kind="stable")
    return best_first.drop_duplicates("study")[columns].sort_values("study").reset_index(drop=True)


def correlations(rows: pd.DataFrame, pairs: Sequence[tuple[str, str]], axes: tuple[str, str]) -> pd.DataFrame:
    """Pearson's r over the grid between the cell means of two metrics: x, y, r, cells (those that have both).

    r is null where it is undefined: fewer than two cells, or a metric that is the same in all.
    """
    found = []
    for x, y in pairs:
        left, right = (pivot(rows, metric, axes)["mean"].to_numpy("float64") for metric in (x, y))
        both = np.isfinite(left) & np.isfinite(right)
        found.append({"x": x, "y": y, "r": _pearson(left[both], right[both]), "cells": int(both.sum())})
    return pd.DataFrame(found, columns=["x", "y", "r", "cells"]).astype({"r": "float64", "cells": "int64"})


def text(table: pd.DataFrame, digits: int = 3) -> str:
    """The table as aligned plain text: a heading, a rule, a line for each row; a dash for null."""
    measured = {"mean", "std", "r", "published", *(name for name in table.columns if str(name).startswith(VALIDATION))}
    measured |= {str(name).removeprefix(VALIDATION) for name in measured}
    columns = []
    for name in table.columns:
        values = table[name]
        shown = [number(value, digits) if name in measured and not pd.isna(value) else label(value) for value in values]
        width = max(map(len, [str(name), *shown]))
        right = pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values)
        columns.append([cell.rjust(width) if right else cell.ljust(width) for cell in (str(name), *shown)])
    heading, *lines = ("  ".join(cells).rstrip() for cells in zip(*columns, strict=True))
    return "\n".join([heading, NOTHING * len(heading), *lines])


def _pearson(x: np.ndarray, y: np.ndarray) -> float | None:
    if len(x) < 2 or any(np.ptp(values) <= 1e-12 * np.abs(values).max() for values in (x, y)):
        return None
    return float(np.clip(np.corrcoef(x, y)[0, 1], -1.0, 1.0))
