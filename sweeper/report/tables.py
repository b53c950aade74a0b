"""Tables as papers print them: mean and 95 % interval by row, column and metric. `table_documents` writes them."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from sweeper.definition import Grid, Metric
from sweeper.definition.figures import Heatmap, Ranking, Table
from sweeper.definition.metric import SPREADS
from sweeper.definition.sweep import SEEDS, Repeats
from sweeper.printing import json_text
from sweeper.report.charts import Chart
from sweeper.report.figures import Shown
from sweeper.report.formatting import format_value, json_values
from sweeper.report.marks import marks
from sweeper.report.selections import in_order, narrowed
from sweeper.report.table_documents import (
    NUMBERS,
    PARTS,
    PLAIN,
    Columns,
    Format,
    Style,
    caption,
    csv,
    html_table,
    latex,
    markdown,
    numbers_of,
    printed_columns,
    text,
)
from sweeper.results.replicates import MEASURED, repetition, summarise
from sweeper.results.sentences import Over, averaged_over
from sweeper.storage.files import Files
from sweeper.storage.layout import figure_path
from sweeper.storage.load import metric_columns
from sweeper.storage.rows import STUDY_COLUMNS, plain_value

MAX_CELLS = 200_000
"""Most cells of a table. All combinations of rows and columns are cells, so few trials can have billions."""
MAX_MARKED = 20_000
"""Most trials of a table with marks: their comparisons take longer than everything else of it."""
WRITERS: Mapping[Format, Callable[[pd.DataFrame, Table, Over, Style], str]] = {
    "markdown": markdown,
    "html": html_table,
    "latex": latex,
}
"""What writes a table in a format with text."""
FOLDER, TITLE = "tables", "Tables"
CHARTS: Mapping[str, Chart] = {}


def publish(files: Files, folder: str, shown: Shown, table: Table) -> str | None:
    """Write a table, and return it as text. None is written if none of its cells has a trial."""
    cells, over, table = _cells_of(shown, table)
    if not has_trials(cells):
        return None
    style = Style(shown.value_text, shown.spread)
    write(files, folder, cells, table, over, style)
    return text(cells, table, over=over, style=style)


def tables_of(shown: Shown) -> tuple[Table, ...]:
    """Return the tables of a request: those of its preset, then one for each of its heatmaps and rankings, and if there
    are none of these one of its studies."""
    preset = shown.preset
    own = {table.name: table for table in preset.of_kind(Table)}
    for heatmap in preset.of_kind(Heatmap):
        own.setdefault(heatmap.metric.name, of_heatmap(heatmap))
    for ranking in preset.of_kind(Ranking):
        own.setdefault(ranking.name, Table(ranking.name, ranking.rows, ranking.shown, selections=ranking.selections))
    if own:
        return tuple(own.values())
    rows, columns = telling_axes(_values_of_studies(shown))
    return (Table("best", rows, preset.objectives or (preset.headline,), columns),)


def of_heatmap(heatmap: Heatmap) -> Table:
    """Return the table of the cells of a heatmap."""
    name = heatmap.metric.name
    paper = {
        request: {cell: {name: value} for cell, value in cells.items()} for request, cells in heatmap.published.items()
    }
    bare = Table(name, (heatmap.rows,), (heatmap.metric,), heatmap.columns, selections=heatmap.selections)
    return replace(bare, published=paper)


FIRST_KEYS = ("method", "dataset")
"""Hyperparameters that name a row of a table first, where they differ."""


def telling_axes(
    values: Mapping[str, Sequence[object]], first_columns: Collection[str] = ()
) -> tuple[tuple[str, ...], str | None]:
    """Return the hyperparameters of the rows and of the columns of a table of some settings: as few as tell these
    apart. `values`: hyperparameter -> its value in each setting. Columns are those in `first_columns`, else data
    sets."""
    settings = max(map(len, values.values()), default=0)
    differing = [key for key, own in values.items() if len({*own} - {None}) > 1]
    first = [key for key in (*FIRST_KEYS, *first_columns) if key in differing]
    keys = list[str]()
    for key in dict.fromkeys((*first, *differing)):
        found = len({*zip(*(values[known] for known in keys), strict=True)}) if keys else 1
        if key in first or found < settings:
            keys.append(key)
    columns = next((key for key in (*first_columns, "dataset") if key in keys), None) if len(keys) > 1 else None
    return tuple(key for key in keys if key != columns) or ("method",), columns


def _values_of_studies(shown: Shown) -> dict[str, list[object]]:
    """Return hyperparameter -> its value in each study, of those that are the same in all trials of each."""
    rows, searched = shown.rows, {parameter.name for parameter in shown.preset.parameters}
    if "study" not in rows:
        return {}
    keys = [key for key in shown.hyperparameters if key in rows and key not in searched | {*STUDY_COLUMNS}]
    studies = [own for _, own in rows.groupby("study", sort=False)]
    alike = [key for key in keys if all(own[key].nunique(dropna=False) == 1 for own in studies)]
    return {key: [plain_value(own[key].iloc[0]) for own in studies] for key in alike}


def on_page(shown: Shown, table: Table) -> dict[str, Any] | None:
    """Return a table: keys of the rows, and for each row, column and metric the measured figures; None if none of its
    cells has a trial."""
    cells, over, table = _cells_of(shown, table)
    if not has_trials(cells):
        return None
    return {
        "name": table.name,
        "captions": {spread: caption(cells, table, over, spread) for spread in SPREADS},
        "rows": list(table.rows),
        "columns": table.columns,
        "metrics": [asdict(metric) for metric in table.metrics],
        "labels": dict(table.labels),
        "cells": {str(name): json_values(cells[name]) for name in cells},
    }


def document(
    shown: Shown, table: Table, form: Format, parts: Collection[str] | None = None, own_caption: str | None = None
) -> str | None:
    """Return a table as a document, with these `PARTS` of its cells, or of CSV these `NUMBERS`, and a caption of its
    own (see `Style`), which CSV lacks; None if none of its cells has a trial."""
    cells, over, table = _cells_of(shown, table)
    if not has_trials(cells):
        return None
    if form == "csv":
        return csv(cells, table, parts or NUMBERS)
    if form == "json":
        records = cells.to_dict("records")
        text = own_caption or caption(cells, table, over, shown.spread)
        return json_text({"table": table.name, "caption": text, "axes": table.axes, "cells": records}) + "\n"
    style = Style(shown.value_text, shown.spread, own_caption)
    return WRITERS[form](_with_parts(cells, parts or PARTS), table, over, style)


def captioned(shown: Shown, table: Table) -> tuple[str, Columns] | None:
    """Return the caption and the columns of a table, as documents have them; None if none of its cells has a trial."""
    cells, over, table = _cells_of(shown, table)
    if not has_trials(cells):
        return None
    style = Style(shown.value_text, shown.spread)
    return caption(cells, table, over, shown.spread, printed=True), printed_columns(cells, table, style)


def published_columns(table: Table, preset: str, grids: Sequence[Grid]) -> Columns:
    """Return the columns of the paper's figures alone, in the order of the grids of a preset."""
    percents = {metric.name: 100 if metric.percent else 1 for metric in table.metrics}
    rows = [
        dict(zip(table.axes, cell, strict=True)) | {name: value / percents[name] for name, value in figures.items()}
        for cell, figures in table.published.get(preset, {}).items()
    ]
    own = in_order(grids, pd.DataFrame(rows), table.axes)
    return printed_columns(average(own, replace(table, published={}), preset), table)


def _with_parts(cells: pd.DataFrame, parts: Collection[str]) -> pd.DataFrame:
    """Return the cells without what is not among the parts of them that are shown; the mean always is."""
    columns = {"spread": ("low", "high", "std", "fixed_std"), "iqm": ("iqm",), "paper": ("published", "difference")}
    hidden = [name for part, names in columns.items() if part not in parts for name in names]
    return cells.assign(**dict.fromkeys(hidden, math.nan), **({} if "count" in parts else {"missing": 0}))


def frame(shown: Shown, table: Table) -> pd.DataFrame | None:
    """Return the numbers of a table, as `csv` writes them; None if none of its cells has a trial."""
    cells, _, table = _cells_of(shown, table)
    return numbers_of(cells, table) if has_trials(cells) else None


def _cells_of(shown: Shown, table: Table) -> tuple[pd.DataFrame, Over, Table]:
    """Return the cells of a table of a request, what they are the mean over, and the table with a note on searches."""
    if table.others:
        named = {metric.name for metric in table.metrics}
        reported = metric_columns(shown.rows, shown.hyperparameters)
        others = (Metric(name) for name in reported if name not in named)
        table = replace(table, metrics=(*table.metrics, *others))
    preset, (rows, clause) = shown.preset, shown.of_best_settings(shown.rows_of(table), table)
    only = narrowed(preset.grids, rows, table.axes, table.selections)
    cells = average(rows, table, preset.preset, only, preset.repeats)
    over = averaged_over(rows, table.axes, preset.repeats)
    noted = replace(table, note="; ".join(filter(None, [clause, table.note])))
    return cells.join(_marks(shown, table, cells, rows)), over, noted


def _marks(shown: Shown, table: Table, cells: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """Return `mark` and `criterion` of each cell: whether it has the best setting of its column by its metric, or one
    that is not told apart from it, and the metric by which the best one was chosen. A metric without a direction has no
    best one, nor has a column with one cell, or one whose settings nothing can tell apart: they show no error."""
    found = pd.DataFrame("", index=cells.index, columns=["mark", "criterion"], dtype="str")
    if len(rows) > MAX_MARKED:
        return found
    columns = rows.groupby(table.columns, dropna=False, sort=False) if table.columns else [(None, rows)]
    for column, trials in columns:
        is_own = cells["count"] > 0
        if table.columns:
            values = cells[table.columns]
            is_own &= values.isna() if pd.isna(column) else values == plain_value(column)
        for metric in table.metrics:
            own = cells[is_own & (cells["metric"] == metric.name)]
            if metric.direction and len(own) > 1:
                found_best = shown.best(trials, metric, table.axes)
                best = [each for each in found_best if each.compared_over in ("replicates", "fixed")]
                found.loc[own.index, "mark"] = marks(own, trials, table.axes, best)
                found.loc[own.index, "criterion"] = best[0].criterion if best else ""
    return found


def average(
    rows: pd.DataFrame,
    table: Table,
    preset: str,
    only: Mapping[str, Collection[Any]] = MappingProxyType({}),
    repeats: Repeats = SEEDS,
) -> pd.DataFrame:
    """Average the metrics of a table. Returns one row per table row, value of `table.columns` (if set) and metric.

    The columns are those of `table.rows` and `table.columns`, `metric`, those of `replicates.summarise`, `published`
    and `difference` (mean - published). Values of `percent` metrics are shares in [0, 1], including the published ones.

    Rows and columns are in the order of their first appearance in `rows`, followed by those that only the paper has. Of
    an axis in `only` the paper's are left out whose value is not there: the request did not ask for them (`narrowed`).
    All combinations are included; one without trials has count 0 and missing 0. A hyperparameter or metric that is no
    column of `rows` is null. Raises ValueError if there would be more than `MAX_CELLS` cells.
    """
    keys, paper_cells = table.axes, table.published.get(preset, {})
    published = {
        key: figures
        for key, figures in ((tuple(map(plain_value, key)), figures) for key, figures in paper_cells.items())
        if all(name not in only or value in only[name] for name, value in zip(keys, key, strict=True))
    }
    repeated = repetition(rows, repeats, keys)
    rows = rows.reindex(columns=list(dict.fromkeys([*keys, *(metric.name for metric in table.metrics)])))
    row_numbers: dict[tuple[Any, ...], list[int]] = {}
    for row_number, key in enumerate(zip(*(map(plain_value, rows[name]) for name in keys), strict=True)):
        row_numbers.setdefault(key, []).append(row_number)

    split, all_keys = len(table.rows), [*row_numbers, *published]
    row_keys, column_keys = (
        dict.fromkeys(key[:split] for key in all_keys),
        dict.fromkeys(key[split:] for key in all_keys),
    )
    if len(row_keys) * len(column_keys) * len(table.metrics) > MAX_CELLS:
        counts = f"{len(row_keys)} rows, {len(column_keys)} columns and {len(table.metrics)} metrics"
        raise ValueError(f"it must have at most {MAX_CELLS} cells, but has {counts}")
    cell_keys = [row_key + column_key for row_key in row_keys for column_key in column_keys]
    places = np.zeros(len(rows), dtype=np.int64)
    for place, key in enumerate(cell_keys):
        places[row_numbers.get(key, [])] = place
    parts = []
    for metric in table.metrics:
        share = metric.bounds is not None
        part = summarise(rows[metric.name].astype("float64"), places, repeated, len(cell_keys), share)
        figures = [published.get(key, {}).get(metric.name, math.nan) for key in cell_keys]
        paper = np.array(figures, dtype=float) / (100 if metric.percent else 1)
        parts.append(part.assign(metric=metric.name, published=paper, difference=part["mean"] - paper))
    cells = pd.concat(parts).sort_index(kind="stable")  # the metrics of a cell one after the other
    of_keys = pd.DataFrame(cell_keys, columns=list(keys), dtype=object).loc[cells.index].reset_index(drop=True)
    cells = cells.reset_index(drop=True).astype({"metric": "str"})
    cells = pd.concat([of_keys, cells[["metric", *MEASURED, "published", "difference"]]], axis=1)
    return cells.assign(**{name: _typed(cells[name], rows[name]) for name in keys})


def write(
    files: Files,
    folder: str,
    cells: pd.DataFrame,
    table: Table,
    over: Over,
    style: Style = PLAIN,
) -> None:
    """Write what `average` returned as `tables/FOLDER/NAME.parquet` and `.md`. `over`: what a cell is the mean over."""
    files.write(figure_path(FOLDER, folder, f"{table.file}.parquet"), cells.to_parquet(index=False))
    document = markdown(cells, table, over, style)
    files.write(figure_path(FOLDER, folder, f"{table.file}.md"), document.encode())


def has_trials(cells: pd.DataFrame) -> bool:
    """Whether any cell of a table has a trial, with or without a value."""
    return bool((cells["count"] + cells["missing"]).any())


def _typed(values: pd.Series, like: pd.Series) -> pd.Series:
    """Convert key values to the type of the column `like` if they fit; to text if only some of them are text."""
    is_text = {isinstance(value, str) for value in values.dropna()}
    if len(is_text) > 1:
        return pd.Series([*map(format_value, values)], dtype="str").where(values.notna(), None)
    try:
        typed = values.astype(like.dtype)
        return typed if len(like) and list(map(plain_value, typed)) == list(values) else values.infer_objects()
    except (TypeError, ValueError):
        return values.infer_objects()
