"""Heatmaps: the mean of a metric for each pair of values of two hyperparameters, as Parquet, picture and text."""

import itertools
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from sweeper.definition.figures import Heatmap, Table
from sweeper.definition.metric import VALIDATION, Metric, Spread
from sweeper.definition.sweep import SEEDS, Repeats
from sweeper.report import charts
from sweeper.report.figures import Shown
from sweeper.report.formatting import (
    DASH,
    ValueText,
    distinct_texts,
    format_metric,
    format_significant,
    plain_text,
    text_table,
)
from sweeper.report.marks import marks
from sweeper.results.best import BestSetting
from sweeper.results.estimates import correlation_of_metrics, known_interval
from sweeper.results.replicates import (
    MEASURED,
    beside,
    in_percent,
    repetition,
    replicates_of,
    runs_of,
    summarise,
    value_codes,
)
from sweeper.results.sentences import (
    ALIKE,
    BEST,
    LEGEND,
    NO_NOUNS,
    Over,
    averaged_over,
    beside_text,
    chosen,
    described,
    sentences,
)
from sweeper.storage.files import Files
from sweeper.storage.layout import figure_path
from sweeper.storage.rows import plain_value

FOLDER, TITLE = "heatmaps", "Heatmaps"
CHARTS: Mapping[str, charts.Chart] = {"heatmap": charts.HEATMAP}


def publish(files: Files, folder: str, shown: Shown, heatmap: Heatmap) -> str | None:
    """Write a heatmap, unless none of its selections has a trial. The text has the cells of the first heatmap of a
    preset without tables."""
    rows, preset = shown.rows_of(heatmap), shown.preset
    if heatmap.selections and rows.empty:
        return None
    over = averaged_over(rows, heatmap.axes, preset.repeats, preset.over)
    best = shown.best(rows, heatmap.metric, heatmap.axes)
    cells = write(files, folder, shown, heatmap, rows, over=over, best=best)
    if heatmap != preset.of_kind(Heatmap)[0] or preset.of_kind(Table):
        return None
    text = cells_text(cells, heatmap, over, best, shown.value_text, shown.spread)
    return "\n".join(filter(None, [shown.mean_of_studies(rows) if text else "", text]))


def draw(shown: Shown, heatmap: Heatmap) -> charts.Drawing:
    """Return the picture of a heatmap."""
    rows, preset = shown.rows_of(heatmap), shown.preset
    over = averaged_over(rows, heatmap.axes, preset.repeats, preset.over)
    best = shown.best(rows, heatmap.metric, heatmap.axes)
    return drawing(shown, heatmap, rows, cells_of(shown, heatmap, rows, best), over, best)


def on_page(shown: Shown, heatmap: Heatmap) -> None:
    """A page draws heatmaps of its rows itself, as its reader chooses metric and axes."""


def pivot(
    rows: pd.DataFrame, metric: str, axes: tuple[str, str], repeats: Repeats = SEEDS, share: bool = False
) -> pd.DataFrame:
    """Average a metric over all trials with equal values of two axes. Returns a data frame with one row per cell.

    Its columns are the two axes and those of `replicates.summarise`. All combinations of values are included; a cell
    without trials has count 0 and missing 0. Null is a value of an axis, too. Raises ValueError if `rows` lacks a
    column.
    """
    for name in (*axes, metric):
        if name not in rows.columns:
            raise ValueError(f"no column {name!r} in the rows; there are: {', '.join(map(str, rows.columns))}")
    (down, row_values), (across, column_values) = (value_codes(rows[axis]) for axis in axes)
    height, width = len(row_values), len(column_values)
    repeated = repetition(rows, repeats, axes)
    cells = summarise(rows[metric].astype("float64"), down * width + across, repeated, height * width, share)
    keys = row_values.iloc[np.repeat(np.arange(height), width)], column_values.iloc[np.tile(np.arange(width), height)]
    return pd.concat([*(values.reset_index(drop=True) for values in keys), cells], axis=1)


def pivot_of(metric: Metric, rows: pd.DataFrame, axes: tuple[str, str], repeats: Repeats) -> pd.DataFrame:
    """Return the cells of a metric, of a share with its interval in [0, 1]."""
    return pivot(rows, metric.name, axes, repeats, metric.bounds is not None)


def selection_metric(rows: pd.DataFrame, metric: str) -> str:
    """Return the metric by which settings are chosen: `val_METRIC` if the rows have values of it, else `metric`."""
    name = f"{VALIDATION}{metric}"
    return name if name in rows and rows[name].notna().any() else metric


STANDARD_ERRORS = 20.0
"""Minimum range of the colours, in standard errors of a cell's mean.

The means of 50 cells that differ by noise alone span 4.5 standard errors on average, which is a quarter of the colours.
"""


@dataclass(frozen=True)
class ColourScale:
    """The range of the colours, and the noise that it is based on."""

    low: float
    """Value of the first colour, in units of the metric."""
    high: float
    """Value of the last colour, in units of the metric."""
    std: float
    """Median over all cells of the standard deviation within a cell; NaN if no cell has two values."""
    error: float
    """Median over all cells of the standard error of the cell's mean; NaN if no cell has two values."""
    widened: bool
    """Whether the range was widened to `STANDARD_ERRORS`, because the cells differ by less."""


def colour_scale(cells: pd.DataFrame, bounds: tuple[float, float] | None = None) -> ColourScale:
    """Return the scale of cells (`mean`, `std`, `replicates`), widened within `bounds`, the metric's possible range."""
    means, several = cells["mean"][np.isfinite(cells["mean"])], cells[np.isfinite(cells["std"])]
    low, high = (float(means.min()), float(means.max())) if len(means) else (0.0, 1.0)
    std, error = float(several["std"].median()), float((several["std"] / np.sqrt(several["replicates"])).median())
    smallest_range = STANDARD_ERRORS * error if len(several) else 0.0
    if high - low < smallest_range:
        middle = (low + high) / 2
        limits = _within(middle - smallest_range / 2, middle + smallest_range / 2, bounds)
        return ColourScale(*limits, std, error, widened=True)
    margin = (high - low) * 0.02 or abs(high) * 0.01 or 1.0
    return ColourScale(low - margin, high + margin, std, error, widened=False)


def _within(low: float, high: float, bounds: tuple[float, float] | None) -> tuple[float, float]:
    """Shift the range into the bounds, and cut it if it is wider than they are."""
    if bounds is None:
        return low, high
    if high > bounds[1]:
        low, high = low - (high - bounds[1]), bounds[1]
    if low < bounds[0]:
        low, high = bounds[0], min(bounds[1], high + bounds[0] - low)
    return low, high


LARGE = 1e6
"""Values from here on have three significant figures."""


def decimals_of(values: np.ndarray) -> int:
    """Return the number of decimals that shows three or four significant figures of the largest finite value."""
    finite = values[np.isfinite(values)]
    largest = float(np.abs(finite).max()) if finite.size else 1.0
    return 3 if largest == 0 else int(np.clip(3 - math.floor(math.log10(largest)) - (largest < 1), 0, 6))


def cell_texts(cell: Mapping[Any, Any], digits: int, spread: Spread = "interval") -> list[str]:
    """Return the mean of a cell, its interval (`[0.961, 0.990]`) or a deviation (`± 0.017`), its interquartile mean
    (`IQM 0.985`) and the paper's figure (`paper 0.903`). A null mean is a dash; the others are left out if they are
    unknown."""
    mean = cell["mean"]
    texts = [DASH if pd.isna(mean) else _number(mean, digits)]
    texts += filter(None, [beside_text(beside(cell, spread), lambda value: _number(value, digits)).strip()])
    named = {"IQM": cell["iqm"], "paper": cell.get("published", math.nan)}
    return [*texts, *(f"{name} {_number(value, digits)}" for name, value in named.items() if not pd.isna(value))]


def heading(cells: pd.DataFrame, metric: str, over: Over, spread: Spread = "interval") -> str:
    """Return e.g. `auroc_joint: mean [95 % interval] over 5 seeds, each the mean of 10 classes`."""
    text = described(cells, over, spread)
    return f"{metric}: {text}" if text else metric


def noise_text(scale: ColourScale, cells: pd.DataFrame) -> str:
    """Return the noise within a cell, and whether the colours were widened because of it."""
    if math.isnan(scale.std):
        return "" if cells["mean"].isna().all() else "one replicate a cell, so what differences are noise is not known"
    noise = f"in a cell: standard deviation {scale.std:.2g}, standard error of its mean {scale.error:.2g} (medians)"
    widened = f"\nthe colours span {STANDARD_ERRORS:g} standard errors, because the means differ by less"
    return noise + widened * scale.widened


def _number(value: float, digits: int) -> str:
    return format_significant(value) if LARGE <= abs(value) < math.inf else format_metric(value, digits)


CELL = (82.0, 60.0)
"""Smallest width and height of a cell in a picture."""
CAPTION = 100
"""Most characters of a line about the best setting."""
MAX_BEST = 4
"""Most data sets whose best setting a caption names."""


def write(
    files: Files,
    folder: str,
    shown: Shown,
    heatmap: Heatmap,
    rows: pd.DataFrame,
    *,
    over: Over = NO_NOUNS,
    best: Sequence[BestSetting] = (),
) -> pd.DataFrame:
    """Write `heatmaps/FOLDER/METRIC.parquet` and `.png`. Returns the cells. `rows` are those of the heatmap. `over`
    names what the mean is over. `best` are the best settings, whose cells are framed."""
    cells, path = cells_of(shown, heatmap, rows, best), figure_path(FOLDER, folder, heatmap.file)
    files.write(f"{path}.parquet", cells.to_parquet(index=False))
    files.write(f"{path}.png", drawing(shown, heatmap, rows, cells, over, best).png)
    return cells


def cells_of(shown: Shown, heatmap: Heatmap, rows: pd.DataFrame, best: Sequence[BestSetting]) -> pd.DataFrame:
    """Return the cells of a heatmap.

    If the paper has figures for the preset, the cells have a column `published`, which is a share in [0, 1] if the
    metric is `percent`. If the rows have the metric on validation images, too, the cells have a column `validation`,
    its mean. Their column `mark` is `*` in a cell with a best setting, and `°` in one with a setting that is not told
    apart from it.
    """
    repeats = shown.preset.repeats
    cells = pivot_of(heatmap.metric, rows, heatmap.axes, repeats)
    if published := heatmap.published.get(shown.preset.preset):
        keys = zip(*(map(plain_value, cells[axis]) for axis in heatmap.axes), strict=True)
        cells["published"] = pd.array([published.get(key) for key in keys], dtype="float64")
        if heatmap.metric.percent:
            cells["published"] /= 100.0
    if (criterion := selection_metric(rows, heatmap.metric.name)) != heatmap.metric.name:
        cells["validation"] = pivot(rows, criterion, heatmap.axes, repeats)["mean"]
    cells["mark"] = marks(cells, rows, heatmap.axes, best)
    return cells


def drawing(
    shown: Shown,
    heatmap: Heatmap,
    rows: pd.DataFrame,
    cells: pd.DataFrame,
    over: Over,
    best: Sequence[BestSetting],
) -> charts.Drawing:
    """Return the picture of the cells of a heatmap. See `write`."""
    lines = sentences(best, MAX_BEST, so_far=shown.so_far, spread=shown.spread)
    options: dict[str, Any] = {"value_text": shown.value_text, "spread": shown.spread}
    about = "; ".join(filter(None, [shown.about, shown.mean_of_studies(rows)]))
    values = values_of(cells, heatmap, over=over, best=lines, about=about, **options)
    return charts.Drawing(charts.HEATMAP, values, values["step"] * len(values["column_order"]))


def values_of(
    cells: pd.DataFrame,
    heatmap: Heatmap,
    *,
    over: Over = NO_NOUNS,
    about: str = "",
    value_text: ValueText = plain_text,
    best: Sequence[str] = (),
    spread: Spread = "interval",
) -> dict[str, Any]:
    """Return the values of the chart of a heatmap (`charts.HEATMAP`). Bright is better, a cell without a value is grey.

    `best` are sentences about the best settings; cells may have a column `mark`. The range of the colours takes
    the noise within the cells into account (see `colour_scale`), which a caption states.
    """
    metric, axes = heatmap.metric, heatmap.axes
    if metric.percent:
        cells = in_percent(cells)
    digits, scale = decimals_of(cells["mean"].to_numpy("float64")), colour_scale(cells, metric.bounds)
    rows, columns = (distinct_texts(cells[axis], axis, value_text) for axis in axes)
    data: list[dict[str, Any]] = []
    for index, cell in enumerate(cells.to_dict("records")):
        text, *below = cell_texts(cell, digits, spread)
        row, column = divmod(index, len(columns))
        shade = cell["mean"] if np.isfinite(cell["mean"]) else None
        mark = cell.get("mark", "")
        own = {"index": index, "x": columns[column], "y": rows[row], "shade": shade, "best": mark == BEST}
        data.append({**own, "text": text + mark * (mark == ALIKE), "below": below, "words": "", "tip": ""})
    widest = max(charts.text_width(line, 13) for cell in data for line in (cell["text"], *cell["below"]))
    step = max(CELL[0], 0.9 * widest + 12, charts.text_width(axes[1], 12) / len(columns))
    tall = max(CELL[1], charts.text_width(axes[0], 12) / len(rows))
    notes = [about, *(best or ["no value yet"]), *noise_text(scale, cells).split("\n")]
    alike = "mark" in cells and bool((cells["mark"] == ALIKE).any())
    notes.append("; ".join(["IQM: interquartile mean"] * bool(cells["iqm"].notna().any()) + [LEGEND] * alike))
    lines = [textwrap.wrap(note, CAPTION, break_long_words=False) if note in best else [note] for note in notes if note]
    return {
        "description": f"Heatmap of {metric.label}: {axes[0]} by {axes[1]}",
        "title": {"text": heading(cells, metric.label, over, spread), "subtitle": [*itertools.chain(*lines)]},
        "notes": [note for note in notes if note],
        "cells": data,
        "chosen": -1,
        "rows": axes[0],
        "columns": axes[1],
        "row_order": rows,
        "column_order": columns,
        "step": step,
        "tall": tall,
        "angle": charts.SLANT if max(charts.text_width(text, 11) for text in columns) > step else 0,
        "range": [scale.low, scale.high],
        "reverse": metric.better == "lower",
        "legend": [metric.label, f"{metric.better} is better"],
        "legend_side": "right",
        "legend_length": max(100.0, tall * len(rows) - 40),
        "padding": charts.PADDING,
    }


MAX_CELLS, WIDTH = 150, 100
"""Most cells of a heatmap as text, and the characters of a line."""


def breakdown(
    rows: pd.DataFrame,
    best: Sequence[BestSetting],
    axes: tuple[str, str],
    by: str,
    repeats: Repeats = SEEDS,
) -> pd.DataFrame:
    """Average the metric for each value of `by` (a class, a data set, a seed) within the best setting.

    Returns one row per value of `by`, with the two axis values, `by`, and the columns of `replicates.summarise`; of
    several best settings one below the other. The table is empty if there is none.
    """
    tables = [pd.DataFrame(columns=[*axes, by, *MEASURED])]
    for setting in best:
        own = rows[rows["trial_id"].isin(setting.values)].drop_duplicates("trial_id")
        codes, values = value_codes(own[by])
        values_of_metric, share = own[setting.metric.name].astype("float64"), setting.metric.bounds is not None
        cells = summarise(values_of_metric, codes, repetition(own, repeats, [by]), len(values), share)
        table = pd.concat([values, cells], axis=1)
        for position, axis in enumerate(axes):
            table.insert(position, axis, [own[axis].iloc[0]] * len(table))
        tables.append(table)
    return pd.concat(tables[1:], ignore_index=True) if best else tables[0]


def cells_text(
    cells: pd.DataFrame,
    heatmap: Heatmap,
    over: Over,
    best: Sequence[BestSetting],
    value_text: ValueText = plain_text,
    spread: Spread = "interval",
) -> str:
    """Return the cells of a heatmap, with their marks, as plain text: means with their intervals or deviations.

    A table that is wider than a terminal is split into blocks of columns; one of more than `MAX_CELLS` is left out.
    """
    metric = heatmap.metric
    shown = in_percent(cells) if metric.percent else cells
    if len(cells) > MAX_CELLS:
        return ""
    digits = decimals_of(shown["mean"].to_numpy("float64"))
    texts = [
        " ".join(cell_texts({**cell, "iqm": math.nan, "published": math.nan}, digits, spread)) + cell["mark"]
        for cell in shown.to_dict("records")
    ]
    rows, columns = (distinct_texts(cells[axis], axis, value_text) for axis in heatmap.axes)
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
    how = "; ".join(dict.fromkeys(map(chosen, best)))
    legend = f"{BEST} is the best setting{how and f', {how}'}" + f"; {LEGEND}" * bool((cells["mark"] == ALIKE).any())
    return "\n\n".join([f"{heading(cells, metric.label, over, spread)}; {legend}", *tables])


def correlations(
    rows: pd.DataFrame, pairs: Sequence[tuple[str, str]], axes: tuple[str, str], repeats: Repeats = SEEDS
) -> pd.DataFrame:
    """Return the correlation over the cells of each pair of metrics, with the columns `x`, `y`, `r`, `low`, `high`,
    `replicates` and `cells`.

    `cells` is the number of cells with a value of both, and `replicates` of the replicates that have all of these. From
    two replicates on `r` is corrected for the noise within cells; its 95 % interval, `low` and `high`, needs three
    (`estimates.correlation_of_metrics`). `r` is null if there are fewer than `estimates.MIN_CELLS` cells, or if a
    metric is constant over them.
    """
    (down, row_values), (across, column_values) = (value_codes(rows[axis]) for axis in axes)
    numbers, count = down * len(column_values) + across, len(row_values) * len(column_values)
    repeated, values = repetition(rows, repeats, axes), dict[str, np.ndarray]()
    for metric in dict.fromkeys(metric for pair in pairs for metric in pair):
        found = replicates_of(rows[metric].to_numpy("float64"), numbers, repeated)
        values[metric] = runs_of(found.value_M, found.replicate_M + 1, found.cell_M, (found.size, count))
    records = []
    for x, y in pairs:
        x_NC, y_NC = values[x], values[y]
        known_C = (np.isfinite(x_NC) & np.isfinite(y_NC)).any(0)
        whole_N = (np.isfinite(x_NC) & np.isfinite(y_NC))[:, known_C].all(1)
        estimate = correlation_of_metrics(x_NC[whole_N][:, known_C], y_NC[whole_N][:, known_C])
        low, high = known_interval(estimate)
        own = {"r": estimate.value, "low": low, "high": high, "replicates": estimate.n, "cells": int(known_C.sum())}
        records.append({"x": x, "y": y, **own})
    types = {**dict.fromkeys(("r", "low", "high"), "float64"), **dict.fromkeys(("replicates", "cells"), "int64")}
    return pd.DataFrame(records, columns=["x", "y", *types]).astype(types)


def text(table: pd.DataFrame, digits: int = 3, value_text: ValueText = plain_text) -> str:
    """Return the table as plain text, with so many decimals in the measured columns. Null is a dash."""
    measured = {
        "mean",
        "std",
        "low",
        "high",
        "iqm",
        "r",
        "published",
        *(name for name in table.columns if str(name).startswith(VALIDATION)),
    }
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
