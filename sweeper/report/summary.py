"""Tables that accompany a heatmap: a breakdown of its best cell, and correlations of metrics over its cells."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from sweeper.report.class_names import ValueText, plain_text
from sweeper.report.formatting import format_metric, text_table
from sweeper.report.heatmaps.heatmap_cells import best, pivot, selection_metric
from sweeper.spec.metric import VALIDATION, Direction, Metric


def breakdown(rows: pd.DataFrame, metric: str, direction: Direction, axes: tuple[str, str], by: str) -> pd.DataFrame:
    """Average the metric for each value of `by` (a class, a data set, a seed) within the best cell of two axes.

    The best cell is the one with the best mean of `selection_metric(rows, metric)`. Returns one row per value of `by`,
    with the two axis values, `by`, `mean`, `std`, `count` and `missing`. The table is empty if no cell has a value.
    """
    best_cell = best(pivot(rows, selection_metric(rows, metric), axes), direction)
    if best_cell is None:
        return pd.DataFrame(columns=[*axes, by, "mean", "std", "count", "missing"])
    cell_rows = rows
    for axis in axes:
        value = best_cell[axis]
        cell_rows = cell_rows[cell_rows[axis].isna() if pd.isna(value) else cell_rows[axis] == value]
    groups = cell_rows.astype({metric: "float64"}).groupby(by, dropna=False, observed=True)[metric]
    table = groups.agg(["mean", "std", "count", "size"]).reset_index()
    table["missing"] = table.pop("size") - table["count"]
    for position, axis in enumerate(axes):
        table.insert(position, axis, [best_cell[axis]] * len(table))
    return table


def on_test_images(rows: pd.DataFrame, objective: Metric) -> pd.DataFrame:
    """Return the metric on test images of the trials that are best on validation images.

    One row per study: `study`, `number`, the objective, and the same metric on test images. The table is empty if the
    objective is not a metric on validation images, or if no trial has both values.
    """
    name = objective.name.removeprefix(VALIDATION)
    columns = ["study", "number", objective.name, name]
    if name == objective.name or not set(columns) <= set(rows.columns):
        return pd.DataFrame(columns=columns)
    both = rows.dropna(subset=[objective.name, name])
    best_first = both.sort_values(objective.name, ascending=objective.ranking_direction == "minimize", kind="stable")
    return best_first.drop_duplicates("study")[columns].sort_values("study").reset_index(drop=True)


def correlations(rows: pd.DataFrame, pairs: Sequence[tuple[str, str]], axes: tuple[str, str]) -> pd.DataFrame:
    """Return Pearson's r between the cell means of each pair of metrics, with the columns `x`, `y`, `r` and `cells`.

    `cells` is the number of cells with finite means of both. `r` is null if there are fewer than two such cells, or if
    a metric is constant over them.
    """
    records = []
    for x, y in pairs:
        x_means, y_means = (pivot(rows, metric, axes)["mean"].to_numpy("float64") for metric in (x, y))
        both = np.isfinite(x_means) & np.isfinite(y_means)
        records.append({"x": x, "y": y, "r": _pearson(x_means[both], y_means[both]), "cells": int(both.sum())})
    return pd.DataFrame(records, columns=["x", "y", "r", "cells"]).astype({"r": "float64", "cells": "int64"})


def text(table: pd.DataFrame, digits: int = 3, value_text: ValueText = plain_text) -> str:
    """Return the table as plain text, with so many decimals in the measured columns. Null is a dash."""
    measured = {"mean", "std", "r", "published", *(name for name in table.columns if str(name).startswith(VALIDATION))}
    measured |= {str(name).removeprefix(VALIDATION) for name in measured}
    columns, right = {}, []
    for name, values in table.items():
        numeric = pd.api.types.is_numeric_dtype(values) and not pd.api.types.is_bool_dtype(values)
        rounded = numeric and name in measured
        columns[str(name)] = [
            format_metric(value, digits) if rounded and not pd.isna(value) else value_text(str(name), value)
            for value in values
        ]
        if numeric:
            right.append(str(name))
    return text_table(columns, right)


def _pearson(x: np.ndarray, y: np.ndarray) -> float | None:
    if len(x) < 2 or any(np.ptp(values) <= 1e-12 * np.abs(values).max() for values in (x, y)):
        return None
    return float(np.clip(np.corrcoef(x, y)[0, 1], -1.0, 1.0))
