"""Tables as papers print them: mean and 95 % interval by row, column and metric, as Parquet, Markdown, LaTeX, CSV and
text."""

import math
import re
import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import pandas as pd
from tabulate import tabulate

from sweeper.definition import Metric
from sweeper.definition.figures import Heatmap, Ranking, Table
from sweeper.definition.metric import REPORTED, SPREADS, Spread
from sweeper.definition.sweep import SEEDS, Repeats
from sweeper.printing import json_text, printable
from sweeper.report.charts import Chart
from sweeper.report.figures import Shown
from sweeper.report.formatting import (
    DASH,
    MINUS,
    ValueText,
    aligned_decimals,
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
from sweeper.storage.rows import STUDY_COLUMNS, plain_value


@dataclass(frozen=True)
class CellText:
    """A cell as it is written."""

    mean: str
    """The mean, or a key."""
    mark: str = ""
    after: str = ""
    """What stands between the mean and the mark: its interval or deviation."""
    rest: str = ""
    """What follows the mark."""
    bold: bool = False
    """Whether the mean is the best one of its column among those that are not told apart from the best."""

    def __str__(self) -> str:
        return f"{self.mean}{self.after}{self.mark}{self.rest}"


Columns = dict[str, list[CellText]]
"""Heading of a column -> each of its cells."""
PARTS = ("mean", "spread", "iqm", "count", "paper")
"""What a cell shows: its mean, the interval or deviation, the interquartile mean, how many trials have a value where
some lack one, and the paper's figure."""
NUMBERS = (
    *("mean", "low", "high", "n", "std", "fixed", "fixed_std", "iqm", "count", "missing", "published", "difference"),
    "mark",
)
"""The columns of a table as numbers, behind its hyperparameters and the metric."""


@dataclass(frozen=True)
class Style:
    """How a table is written."""

    value_text: ValueText = plain_text
    """How values of hyperparameters are written."""
    spread: Spread = "interval"
    """What stands beside means."""
    caption: str | None = None
    """A caption in place of the table's name and of what its cells show, which becomes a comment; an empty one leaves
    the table bare."""


PLAIN = Style()
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
        **{MINUS: "$-$", DASH: "--", ALIKE: r"$^\circ$", BEST: r"$^{*}$"},
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
    style = Style(shown.value_text, shown.spread)
    write(files, folder, cells, table, over, style)
    return text(cells, table, over=over, style=style)


def tables_of(shown: Shown) -> tuple[Table, ...]:
    """Return the tables of a request: those of its preset, then one for each of its heatmaps and rankings, and if there
    are none of these one of its studies."""
    preset = shown.preset
    own = {table.name: table for table in preset.of_kind(Table)}
    for heatmap in preset.of_kind(Heatmap):
        name = heatmap.metric.name
        paper = {
            request: {cell: {name: value} for cell, value in cells.items()}
            for request, cells in heatmap.published.items()
        }
        bare = Table(name, (heatmap.rows,), (heatmap.metric,), heatmap.columns, selections=heatmap.selections)
        own.setdefault(name, replace(bare, published=paper))
    for ranking in preset.of_kind(Ranking):
        own.setdefault(ranking.name, Table(ranking.name, ranking.rows, ranking.shown, selections=ranking.selections))
    if own:
        return tuple(own.values())
    rows, columns = telling_axes(_values_of_studies(shown))
    return (Table("best", rows, preset.objectives or (preset.headline,), columns),)


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
    return (latex if form == "latex" else markdown)(_with_parts(cells, parts or PARTS), table, over, style)


def _with_parts(cells: pd.DataFrame, parts: Collection[str]) -> pd.DataFrame:
    """Return the cells without what is not among the parts of them that are shown; the mean always is."""
    columns = {"spread": ("low", "high", "std", "fixed_std"), "iqm": ("iqm",), "paper": ("published", "difference")}
    hidden = [name for part, names in columns.items() if part not in parts for name in names]
    return cells.assign(**dict.fromkeys(hidden, math.nan), **({} if "count" in parts else {"missing": 0}))


def frame(shown: Shown, table: Table) -> pd.DataFrame | None:
    """Return the numbers of a table, as `csv` writes them; None if none of its cells has a trial."""
    cells, _, table = _cells_of(shown, table)
    return _numbers(cells, table) if has_trials(cells) else None


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


def markdown(cells: pd.DataFrame, table: Table, over: Over = NO_NOUNS, style: Style = PLAIN) -> str:
    """Return a Markdown document: a title, the caption and the table."""
    keys, groups = _printed_columns(cells, table, style)
    columns = {
        _escaped(name): [*map(_markdown_cell, texts)] for part in (keys, *groups) for name, texts in part.items()
    }
    body = tabulate(columns, headers="keys", tablefmt="github", disable_numparse=True)
    about = caption(cells, table, over, style.spread, printed=True)
    heads = [f"# {_escaped(table.name)}", "", about]
    if style.caption is not None:
        heads = [f"<!-- {about.replace('--', DASH)} -->", *["", _escaped(style.caption)] * bool(style.caption)]
    return "\n".join([*heads, "", body, ""])


def latex(cells: pd.DataFrame, table: Table, over: Over = NO_NOUNS, style: Style = PLAIN) -> str:
    """Return the table for a document with the package `booktabs`.

    The decimal points of a column are below each other, because what follows a mean is a column of its own. Without a
    caption it is a `tabular` alone, for a table of the document's own.
    """
    keys, groups = _printed_columns(cells, table, style)
    heads, texts, layout = (
        [*map(_latex, keys)],
        [[_latex(str(cell)) for cell in own] for own in keys.values()],
        "l" * len(keys),
    )
    for name, own in ((name, own) for group in groups for name, own in group.items()):
        follows = [re.sub("^ ", "~", _latex(f"{cell.after}{cell.mark}{cell.rest}")) for cell in own]
        means = [rf"\textbf{{{_latex(cell.mean)}}}" if cell.bold else _latex(cell.mean) for cell in own]
        if any(follows):
            layout += "r@{}l"
            heads.append(rf"\multicolumn{{2}}{{c}}{{{_latex(name)}}}")
            texts.append([f"{mean} & {after}".rstrip() for mean, after in zip(means, follows, strict=True)])
        else:
            layout += "r"
            heads.append(_latex(name))
            texts.append(means)
    about = caption(cells, table, over, style.spread, printed=True)
    title = f"{table.name}: {about}" if style.caption is None else style.caption
    lines = [
        rf"\begin{{tabular}}{{{layout}}}",
        r"\toprule",
        _latex_row(heads),
        r"\midrule",
        *map(_latex_row, zip(*texts, strict=True)),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    if title:
        lines = [r"\begin{table}", r"\centering", rf"\caption{{{_latex(title)}}}", *lines, r"\end{table}"]
    comment = [f"% {_latex(table.name)}: {_latex(about)}"] if style.caption is not None else []
    return "\n".join([*comment, *lines, ""])


def csv(cells: pd.DataFrame, table: Table, numbers: Collection[str] = NUMBERS) -> str:
    """Return a line for each cell and metric with mean, the ends of the 95 % interval and number of replicates in
    columns of their own. Shares are in [0, 1], as in the Parquet file."""
    return _numbers(cells, table, numbers).map(_csv_cell).rename(columns=_csv_cell).to_csv(index=False)


def _numbers(cells: pd.DataFrame, table: Table, numbers: Collection[str] = NUMBERS) -> pd.DataFrame:
    """Return a row for each cell and metric: first the hyperparameters of the table, then its numbers."""
    marks = cells["mark"].replace({BEST: "best", ALIKE: "not told apart"})
    found = cells.assign(n=cells["replicates"], mark=marks)
    return found[[*table.axes, "metric", *numbers]]


def text(
    cells: pd.DataFrame,
    table: Table,
    width: int = 100,
    over: Over = NO_NOUNS,
    style: Style = PLAIN,
) -> str:
    """Return the first `MOST_PRINTED` rows of a table as plain text for a terminal of `width` characters; one line if
    no trial has a value.

    A wider table is split into blocks, each of which repeats the row keys. It is split between the values of
    `table.columns`, and between the metrics of one value only if these are too wide together.
    """
    if not cells["count"].any() and cells["published"].isna().all():
        return f"{table.name}: no trial has a value yet"
    written = _columns(cells, table, style)
    keys, *groups = (
        {name: [*map(str, own[:MOST_PRINTED])] for name, own in part.items()} for part in (written[0], *written[1])
    )
    left = max(map(len, written[0].values())) - MOST_PRINTED

    def fits(columns: Mapping[str, list[str]]) -> bool:
        return max(map(len, text_table({**keys, **columns}).splitlines())) <= width

    pieces: list[dict[str, list[str]]] = []
    for group in groups:
        pieces += [group] if fits(group) else [{name: texts} for name, texts in group.items()]
    blocks: list[dict[str, list[str]]] = []
    for piece in pieces or [{}]:
        if blocks and fits({**blocks[-1], **piece}):
            blocks[-1] |= piece
        else:
            blocks.append(dict(piece))
    title = "\n".join([table.name, *textwrap.wrap(caption(cells, table, over, style.spread), width)])
    more = [f"{left} more rows are in the table's files"] if left > 0 else []
    return "\n\n".join([title, *(text_table({**keys, **block}) for block in blocks), *more])


def caption(
    cells: pd.DataFrame,
    table: Table,
    over: Over = NO_NOUNS,
    spread: Spread = "interval",
    printed: bool = False,
) -> str:
    """Return a line that says what the cells of the table show, with the note of the table. `over`: what a cell is the
    mean over. `printed`: whether the best number that is shown is bold (`_is_chosen_elsewhere`)."""
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
        is_elsewhere = _is_chosen_elsewhere(cells)
        chosen_on = f"chosen on {' or '.join(data)}"
        if printed and is_elsewhere.any():
            parts.append(f"bold: the best mean of its column among those not told apart; {BEST} {chosen_on}")
        else:
            parts.append(f"{'bold:' if printed else BEST} the best of its column, {chosen_on}")
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


def _columns(cells: pd.DataFrame, table: Table, style: Style) -> tuple[Columns, list[Columns]]:
    """Return the columns of the row keys, and a group of columns for each value of `table.columns` (or one group).

    A group has a column for each metric, or a single column for all metrics if the table is `listed`.
    """
    metrics = table.metrics
    values = cells[table.columns].drop_duplicates() if table.columns else pd.Series([None])
    step = max(len(metrics) * len(values), 1)  # cells of one row of the table
    repeats = len(metrics) if table.listed else 1

    def key_text(name: str, value: object) -> str:
        return table.labels.get(text := style.value_text(name, value), text)

    labels = [_metric_label(metric, table) for metric in metrics]
    keys = {
        table.labels.get(name, name): [
            CellText(key_text(name, value)) for value in cells[name][::step] for _ in range(repeats)
        ]
        for name in table.rows
    }
    if table.listed:
        keys[table.labels.get("metric", "metric")] = [CellText(label) for label in labels] * (len(cells) // step)
    groups = []
    for index, prefix in enumerate(_prefixes(values, table, key_text)):
        texts = [
            _cell_texts(cells.iloc[index * len(metrics) + offset :: step], metric, style)
            for offset, metric in enumerate(metrics)
        ]
        if table.listed:
            groups.append({prefix or "value": [cell for row in zip(*texts, strict=True) for cell in row]})
        else:
            headings = [f"{prefix}: {label}" if prefix else label for label in labels]
            groups.append(dict(zip(headings, texts, strict=True)))
    return keys, groups


def _printed_columns(cells: pd.DataFrame, table: Table, style: Style) -> tuple[Columns, list[Columns]]:
    """As `_columns`, for a document, which has the best number in bold: the mark of the best setting is left out where
    that says the same."""
    keys, groups = _columns(cells, table, style)
    if "mark" not in cells or _is_chosen_elsewhere(cells).any():
        return keys, groups
    return keys, [
        {name: [replace(cell, mark=cell.mark.replace(BEST, "")) for cell in own] for name, own in group.items()}
        for group in groups
    ]


def _metric_label(metric: Metric, table: Table) -> str:
    """Return the heading of a metric, with the unit if it is percent."""
    label = table.labels.get(metric.label, table.labels.get(metric.name))
    return label or metric.label


def _prefixes(values: pd.Series, table: Table, key_text: ValueText) -> list[str]:
    """Return what stands before the metrics of each value in a heading: the text or label, `NAME=VALUE`, or nothing."""
    name = table.columns
    if name is None:
        return [""]
    texts = [key_text(name, value) for value in values]
    return [
        text if isinstance(value, str) or text in table.labels.values() else f"{table.labels.get(name, name)}={text}"
        for value, text in zip(values, texts, strict=True)
    ]


def _is_chosen_elsewhere(cells: pd.DataFrame) -> pd.Series:
    """Return of each cell whether its column's best setting was chosen by another metric than that which the cell
    shows, such as the same on validation images: then the best number that is shown may be that of another setting."""
    return (cells["criterion"] != "") & (cells["criterion"] != cells["metric"])


def _cell_texts(cells: pd.DataFrame, metric: Metric, style: Style) -> list[CellText]:
    """Return the texts of one column. All its numbers have the same decimals, so that they can be compared at a
    glance, unless they are too different in size."""
    shown = in_percent(cells) if metric.percent else cells
    digits = 2 if metric.percent else aligned_decimals(shown["mean"].to_numpy("float64"))
    texts = [_cell_text(cell, digits, style) for cell in shown.to_dict("records")]
    own_marks = cells["mark"] if "mark" in cells else [""] * len(cells)
    compared = [
        (metric.cost(mean), text)
        for text, mean, mark in zip(texts, cells["mean"], own_marks, strict=True)
        if mark and not math.isnan(mean)
    ]
    best = min(compared, key=lambda each: each[0])[1].mean if compared else None
    return [replace(text, bold=bool(text.mark) and text.mean == best) for text in texts]


def _cell_text(cell: dict[Any, Any], digits: int | None, style: Style) -> CellText:
    """Return e.g. `86.20 [85.90, 86.51]°, IQM 86.10, 4 of 5 (paper 86.18, +0.02)`, without what is unknown, and with
    so many decimals, or three significant figures."""
    mean, paper, difference = (cell[name] for name in ("mean", "published", "difference"))

    def rounded(value: float) -> str:
        return format_significant(value) if digits is None else format_metric(round(value, digits) + 0.0, digits)

    rest = ""
    if not math.isnan(cell["iqm"]):
        rest += f", IQM {rounded(cell['iqm'])}"
    if cell["count"] and cell["missing"]:
        rest += f", {cell['count']} of {cell['count'] + cell['missing']}"
    if not math.isnan(paper):
        sign = MINUS if difference < 0 else "+"
        change = "" if math.isnan(difference) else f", {sign}{rounded(abs(difference))}"
        rest += f" (paper {rounded(paper)}{change})"
    after = beside_text(beside(cell, style.spread), rounded)
    return CellText(DASH if math.isnan(mean) else rounded(mean), cell.get("mark", ""), after, rest)


def _escaped(cell: str) -> str:
    return _escape(" ".join(cell.split()))


def _escape(text: str) -> str:
    return re.sub(r"([\\|*`<])", r"\\\1", printable(text))


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


def _markdown_cell(cell: CellText) -> str:
    mean = f"**{_escaped(cell.mean)}**" if cell.bold else _escaped(cell.mean)
    return mean + "".join(_escape(part) for part in (cell.after, cell.mark, cell.rest))


def _latex_row(cells: Sequence[str]) -> str:
    """Return a row. A bracket at its start would be an argument of the command before it."""
    row = " & ".join(cells)
    return ("{}" if row.startswith("[") else "") + row + r" \\"


def _latex(text: str) -> str:
    return printable(re.sub(r"\s+", " ", text)).translate(LATEX)
