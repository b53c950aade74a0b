"""Tables as papers print them: mean and 95 % interval by row, column and metric, as Parquet, Markdown, LaTeX, CSV and
text."""

import math
import re
import textwrap
from collections.abc import Collection, Mapping
from dataclasses import asdict, replace
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import pandas as pd
from tabulate import tabulate

from sweeper.definition import Metric
from sweeper.definition.figures import Table
from sweeper.definition.metric import REPORTED, SPREADS, Spread
from sweeper.definition.sweep import SEEDS, Repeats
from sweeper.printing import json_text, printable
from sweeper.report.charts import Chart
from sweeper.report.figures import Shown
from sweeper.report.formatting import (
    DASH,
    MINUS,
    ValueText,
    format_metric,
    format_significant,
    format_value,
    json_values,
    plain_text,
    text_table,
)
from sweeper.report.marks import marks
from sweeper.report.selections import narrowed
from sweeper.results.replicates import MEASURED, beside, in_percent, repetition, summarise
from sweeper.results.sentences import ALIKE, BEST, LEGEND, NO_NOUNS, Over, averaged_over, beside_text, described
from sweeper.storage.files import Files
from sweeper.storage.layout import figure_path
from sweeper.storage.load import metric_columns
from sweeper.storage.rows import plain_value

Columns = dict[str, list[str]]
"""Heading of a column -> the text of each of its cells."""
MAX_CELLS = 200_000
"""Most cells of a table. All combinations of rows and columns are cells, so few trials can have billions."""
MOST_PRINTED = 60
"""Most rows of a table that are printed in a terminal."""
MAX_MARKED = 20_000
"""Most trials of a table with marks: their comparisons take longer than everything else of it."""
Format = Literal["markdown", "latex", "csv", "json"]
"""Of a table that is taken elsewhere."""
LATEX = str.maketrans(
    {
        **{sign: f"\\{sign}" for sign in "&%$#_{}"},
        **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
        **{"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "±": r"$\pm$", "∞": r"$\infty$"},
        **{MINUS: "$-$", DASH: "--", ALIKE: r"$^\circ$"},
    }
)
"""What LaTeX does not take as it is -> how it is written."""
FORMULA_STARTS = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""How a text begins that a spreadsheet reads as a formula; the last four are the full-width forms of the first."""
FOLDER, TITLE = "tables", "Tables"
CHARTS: Mapping[str, Chart] = {}


def publish(files: Files, folder: str, shown: Shown, table: Table) -> str | None:
    """Write a table, and return it as text. None is written if none of its cells has a trial."""
    cells, over, table = _cells_of(shown, table)
    if not has_trials(cells):
        return None
    write(files, folder, cells, table, over, shown.value_text, shown.spread)
    return text(cells, table, value_text=shown.value_text, over=over, spread=shown.spread)


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
        "cells": {str(name): json_values(cells[name]) for name in cells},
    }


def document(shown: Shown, table: Table, form: Format) -> str | None:
    """Return a table as a document; None if none of its cells has a trial."""
    cells, over, table = _cells_of(shown, table)
    if not has_trials(cells):
        return None
    if form == "csv":
        return csv(cells, table)
    if form == "json":
        records = cells.to_dict("records")
        about = {"table": table.name, "caption": caption(cells, table, over, shown.spread), "axes": table.axes}
        return json_text({**about, "cells": records}) + "\n"
    return (latex if form == "latex" else markdown)(cells, table, over, shown.value_text, shown.spread)


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
    value_text: ValueText = plain_text,
    spread: Spread = "interval",
) -> None:
    """Write what `average` returned as `tables/FOLDER/NAME.parquet` and `.md`. `value_text` is how the Markdown writes
    values of hyperparameters, `over` what a cell is the mean over, `spread` what stands beside it."""
    files.write(figure_path(FOLDER, folder, f"{table.file}.parquet"), cells.to_parquet(index=False))
    document = markdown(cells, table, over, value_text, spread)
    files.write(figure_path(FOLDER, folder, f"{table.file}.md"), document.encode())


def has_trials(cells: pd.DataFrame) -> bool:
    """Whether any cell of a table has a trial, with or without a value."""
    return bool((cells["count"] + cells["missing"]).any())


def markdown(
    cells: pd.DataFrame,
    table: Table,
    over: Over = NO_NOUNS,
    value_text: ValueText = plain_text,
    spread: Spread = "interval",
) -> str:
    """Return a Markdown document: a title, the caption and the table."""
    keys, groups = _columns(cells, table, value_text, spread)
    columns = {_escaped(name): [*map(_escaped, texts)] for part in (keys, *groups) for name, texts in part.items()}
    body = tabulate(columns, headers="keys", tablefmt="github", disable_numparse=True)
    return "\n".join([f"# {_escaped(table.name)}", "", caption(cells, table, over, spread), "", body, ""])


def latex(cells: pd.DataFrame, table: Table, over: Over, value_text: ValueText, spread: Spread) -> str:
    """Return the table for a document with the package `booktabs`. The best cells are bold."""
    keys, groups = _columns(cells, table, value_text, spread)
    columns = [(_latex(name), [*map(_latex, texts)]) for name, texts in keys.items()]
    columns += [(_latex(name), [*map(_latex_cell, texts)]) for group in groups for name, texts in group.items()]
    heads, texts = [name for name, _ in columns], [texts for _, texts in columns]
    title = f"{table.name}: {caption(cells, table, over, spread, best='bold:')}"
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_latex(title)}}}",
        rf"\begin{{tabular}}{{{'l' * len(columns)}}}",
        r"\toprule",
        rf"{' & '.join(heads)} \\",
        r"\midrule",
        *(rf"{' & '.join(row)} \\" for row in zip(*texts, strict=True)),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join([*lines, ""])


def csv(cells: pd.DataFrame, table: Table) -> str:
    """Return a line for each cell and metric with mean, the ends of the 95 % interval and number of replicates in
    columns of their own. Shares are in [0, 1], as in the Parquet file."""
    marks = cells["mark"].replace({BEST: "best", ALIKE: "not told apart"})
    found = cells.assign(n=cells["replicates"], mark=marks)
    measured = ["mean", "low", "high", "n", "std", "fixed", "fixed_std", "iqm", "count", "missing"]
    measured += ["published", "difference", "mark"]
    found = found[[*table.axes, "metric", *measured]]
    return found.map(_csv_cell).rename(columns=_csv_cell).to_csv(index=False)


def text(
    cells: pd.DataFrame,
    table: Table,
    width: int = 100,
    value_text: ValueText = plain_text,
    over: Over = NO_NOUNS,
    spread: Spread = "interval",
) -> str:
    """Return the first `MOST_PRINTED` rows of a table as plain text for a terminal of `width` characters; one line if
    no trial has a value.

    A wider table is split into blocks, each of which repeats the row keys. It is split between the values of
    `table.columns`, and between the metrics of one value only if these are too wide together.
    """
    if not cells["count"].any() and cells["published"].isna().all():
        return f"{table.name}: no trial has a value yet"
    keys, groups = _columns(cells, table, value_text, spread)
    left = max(map(len, keys.values())) - MOST_PRINTED
    if left > 0:
        keys, *groups = ({name: texts[:MOST_PRINTED] for name, texts in part.items()} for part in (keys, *groups))

    def fits(columns: Columns) -> bool:
        return max(map(len, text_table({**keys, **columns}).splitlines())) <= width

    pieces: list[Columns] = []
    for group in groups:
        pieces += [group] if fits(group) else [{name: texts} for name, texts in group.items()]
    blocks: list[Columns] = []
    for piece in pieces or [{}]:
        if blocks and fits({**blocks[-1], **piece}):
            blocks[-1] |= piece
        else:
            blocks.append(dict(piece))
    title = "\n".join([table.name, *textwrap.wrap(caption(cells, table, over, spread), width)])
    more = [f"{left} more rows are in the table's files"] if left > 0 else []
    return "\n\n".join([title, *(text_table({**keys, **block}) for block in blocks), *more])


def caption(
    cells: pd.DataFrame,
    table: Table,
    over: Over = NO_NOUNS,
    spread: Spread = "interval",
    best: str = BEST,
) -> str:
    """Return a line that says what the cells of the table show, with the note of the table. `over`: what a cell is the
    mean over. `best`: how the best cells are marked."""
    if not cells["count"].any():
        parts = ["no value yet"]
    else:
        parts = [
            described(cells, over, spread) or f"one {'trial' if cells['count'].max() == 1 else 'replicate'} a cell"
        ]
    if cells["iqm"].notna().any():
        parts.append("IQM: interquartile mean")
    if ((cells["count"] > 0) & (cells["missing"] > 0)).any():
        parts.append("'k of n' where only k of n trials have a value")
    if cells["published"].notna().any():
        parts.append("in brackets the paper's figure and the difference from it")
    if "mark" in cells and (cells["mark"] == BEST).any():
        data = sorted({REPORTED if table.others else Metric(name).measured_on for name in cells["criterion"] if name})
        parts.append(f"{best} the best of its column, chosen on {' or '.join(data)}")
        parts += [LEGEND] * bool((cells["mark"] == ALIKE).any())
    if flattered := [metric.name for metric in table.metrics if metric.is_chosen_on_test and not table.others]:
        parts.append(f"{', '.join(flattered)}: the best of several values, chosen on test images")
    return "; ".join([*parts, table.note] if table.note else parts)


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


def _columns(cells: pd.DataFrame, table: Table, value_text: ValueText, spread: Spread) -> tuple[Columns, list[Columns]]:
    """Return the columns of the row keys, and a group of columns for each value of `table.columns` (or one group).

    A group has a column for each metric, or a single column for all metrics if the table is `listed`.
    """
    metrics = table.metrics
    values = cells[table.columns].drop_duplicates() if table.columns else pd.Series([None])
    step = max(len(metrics) * len(values), 1)  # cells of one row of the table
    repeats = len(metrics) if table.listed else 1
    keys = {
        name: [*np.repeat([value_text(name, value) for value in cells[name][::step]], repeats)] for name in table.rows
    }
    if table.listed:
        keys["metric"] = [metric.label for metric in metrics] * (len(cells) // step)
    groups = []
    for index, prefix in enumerate(_prefixes(values, table.columns, value_text)):
        texts = [
            _cell_texts(cells.iloc[index * len(metrics) + offset :: step], metric, spread)
            for offset, metric in enumerate(metrics)
        ]
        if table.listed:
            groups.append({prefix or "value": [cell for row in zip(*texts, strict=True) for cell in row]})
        else:
            headings = [f"{prefix}: {metric.label}" if prefix else metric.label for metric in metrics]
            groups.append(dict(zip(headings, texts, strict=True)))
    return keys, groups


def _prefixes(values: pd.Series, name: str | None, value_text: ValueText) -> list[str]:
    """Return what stands before the metrics of each value in a heading: the text, `NAME=VALUE`, or nothing."""
    if name is None:
        return [""]
    return [value if isinstance(value, str) else f"{name}={value_text(name, value)}" for value in values]


def _cell_texts(cells: pd.DataFrame, metric: Metric, spread: Spread) -> list[str]:
    shown = in_percent(cells) if metric.percent else cells
    return [_cell_text(cell, metric, spread) for cell in shown.to_dict("records")]


def _cell_text(cell: dict[Any, Any], metric: Metric, spread: Spread) -> str:
    """Return e.g. `86.20 [85.90, 86.51]°, IQM 86.10, 4 of 5 (paper 86.18, +0.02)`, without what is unknown."""
    mean, paper, difference = (cell[name] for name in ("mean", "published", "difference"))

    def rounded(value: float) -> str:
        return format_metric(round(value, 2) + 0.0, 2) if metric.percent else format_significant(value)

    measured = DASH if math.isnan(mean) else rounded(mean)
    measured += beside_text(beside(cell, spread), rounded)
    measured += cell.get("mark", "")
    if not math.isnan(cell["iqm"]):
        measured += f", IQM {rounded(cell['iqm'])}"
    if cell["count"] and cell["missing"]:
        measured += f", {cell['count']} of {cell['count'] + cell['missing']}"
    if math.isnan(paper):
        return measured
    sign = MINUS if difference < 0 else "+"
    change = "" if math.isnan(difference) else f", {sign}{rounded(abs(difference))}"
    return f"{measured} (paper {rounded(paper)}{change})"


def _escaped(cell: str) -> str:
    return re.sub(r"([\\|*`<])", r"\\\1", printable(" ".join(cell.split())))


def _csv_cell(value: object) -> object:
    """Return text that no spreadsheet computes: an apostrophe precedes what would begin a formula and is no number.
    Other values are returned as they are."""
    if not isinstance(value, str):
        return value
    text = printable(value)
    try:
        float(text)
    except ValueError:
        return f"'{text}" if text.lstrip().startswith(FORMULA_STARTS) else text
    return text


def _latex_cell(cell: str) -> str:
    measured, mark, rest = cell.partition(BEST)
    return rf"\textbf{{{_latex(measured)}}}{_latex(rest)}" if mark else _latex(cell)


def _latex(cell: str) -> str:
    return printable(" ".join(cell.split())).translate(LATEX)
