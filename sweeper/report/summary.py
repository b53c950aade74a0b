"""Tables that accompany a heatmap: its cells, a breakdown of its best setting, and correlations of metrics."""

from collections.abc import Collection, Sequence

import numpy as np
import pandas as pd

from sweeper.plan.best_settings import BestSetting
from sweeper.report.class_names import ValueText, plain_text
from sweeper.report.formatting import format_metric, text_table
from sweeper.report.heatmaps.captions import cell_texts, decimals_of, heading
from sweeper.report.heatmaps.heatmap_cells import pivot
from sweeper.spec.metric import VALIDATION
from sweeper.spec.views import Heatmap

MIN_CELLS = 5
"""Fewest cells with a correlation: over two it is always 1 or -1."""
MAX_CELLS, WIDTH = 150, 100
"""Most cells of a heatmap as text, and the characters of a line."""


def breakdown(rows: pd.DataFrame, best: Sequence[BestSetting], axes: tuple[str, str], by: str) -> pd.DataFrame:
    """Average the metric for each value of `by` (a class, a data set, a seed) within the best setting.

    Returns one row per value of `by`, with the two axis values, `by`, `mean`, `std`, `count` and `missing`; of several
    best settings one below the other. The table is empty if there is none.
    """
    tables = [pd.DataFrame(columns=[*axes, by, "mean", "std", "count", "missing"])]
    for setting in best:
        own = rows[rows["trial_id"].isin(setting.values)].drop_duplicates("trial_id")
        groups = own.astype({setting.metric.name: "float64"}).groupby(by, dropna=False, observed=True)
        table = groups[setting.metric.name].agg(["mean", "std", "count", "size"]).reset_index()
        table["missing"] = table.pop("size") - table["count"]
        for position, axis in enumerate(axes):
            table.insert(position, axis, [own[axis].iloc[0]] * len(table))
        tables.append(table)
    return pd.concat(tables[1:], ignore_index=True) if best else tables[0]


def cells_text(
    cells: pd.DataFrame, heatmap: Heatmap, over: str, framed: Collection[int], value_text: ValueText = plain_text
) -> str:
    """Return the cells of a heatmap as plain text: mean ± standard deviation, those of the best settings with a star.

    A table that is wider than a terminal is split into blocks of columns; one of more than `MAX_CELLS` is left out.
    """
    metric = heatmap.metric
    shown = cells.assign(**{name: (100 if metric.percent else 1) * cells[name] for name in ("mean", "std")})
    if len(cells) > MAX_CELLS:
        return ""
    digits = decimals_of(shown["mean"].to_numpy("float64"))
    texts = [
        " ".join(cell_texts({"mean": mean, "std": std}, digits)) + ("*" if index in framed else "")
        for index, (mean, std) in enumerate(zip(shown["mean"], shown["std"], strict=True))
    ]
    rows, columns = (list(dict.fromkeys(value_text(axis, value) for value in cells[axis])) for axis in heatmap.axes)
    heads = [f"{heatmap.columns}={value}" for value in columns]
    widths = [max(map(len, [head, *texts[index :: len(columns)]])) + 2 for index, head in enumerate(heads)]
    first = max(map(len, [heatmap.rows, *rows])) + 2
    blocks: list[list[int]] = [[]]
    for index, width in enumerate(widths):
        if blocks[-1] and first + sum(widths[other] for other in blocks[-1]) + width > WIDTH:
            blocks.append([])
        blocks[-1].append(index)
    tables = [
        text_table({heatmap.rows: rows, **{heads[index]: texts[index :: len(columns)] for index in block}})
        for block in blocks
    ]
    return "\n\n".join([f"{heading(cells, metric.label, over)}; * is the best setting", *tables])


def correlations(rows: pd.DataFrame, pairs: Sequence[tuple[str, str]], axes: tuple[str, str]) -> pd.DataFrame:
    """Return Pearson's r between the cell means of each pair of metrics, with the columns `x`, `y`, `r` and `cells`.

    `cells` is the number of cells with finite means of both. `r` is null if there are fewer than `MIN_CELLS` of them,
    or if a metric is constant over them.
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
    if len(x) < MIN_CELLS or any(np.ptp(values) <= 1e-12 * np.abs(values).max() for values in (x, y)):
        return None
    return float(np.clip(np.corrcoef(x, y)[0, 1], -1.0, 1.0))
