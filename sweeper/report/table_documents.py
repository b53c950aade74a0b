"""Tables as text: Markdown, HTML, LaTeX, CSV, and plain text for a terminal; and the sentence below a table's name."""

import html
import math
import re
import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import pandas as pd
from tabulate import tabulate

from sweeper.definition import Metric
from sweeper.definition.figures import Table
from sweeper.definition.metric import REPORTED, Spread
from sweeper.printing import printable
from sweeper.report.formatting import (
    DASH,
    MINUS,
    ValueText,
    aligned_decimals,
    format_metric,
    format_significant,
    plain_text,
    text_table,
)
from sweeper.results.replicates import beside, in_percent
from sweeper.results.sentences import ALIKE, BEST, LEGEND, NO_NOUNS, Over, beside_text, described


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
    kind: str = ""
    """Class of the mean in HTML, of those of the pages' style."""

    def __str__(self) -> str:
        return f"{self.mean}{self.after}{self.mark}{self.rest}"


Columns = dict[str, list[CellText]]
"""Heading of a column -> each of its cells."""


def as_cells(texts: Mapping[str, Sequence[str]]) -> Columns:
    """Return columns of text as columns of cells."""
    return {name: [*map(CellText, own)] for name, own in texts.items()}


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
MOST_PRINTED = 60
"""Most rows of a table that are printed in a terminal."""
Format = Literal["markdown", "html", "latex", "csv", "json"]
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


def markdown(cells: pd.DataFrame, table: Table, over: Over = NO_NOUNS, style: Style = PLAIN) -> str:
    """Return a Markdown document: a title, the caption and the table."""
    about = caption(cells, table, over, style.spread, printed=True)
    heads = [f"# {escaped(table.name)}", "", about]
    if style.caption is not None:
        heads = [_comment(about), *["", escaped(style.caption)] * bool(style.caption)]
    return "\n".join([*heads, "", columns_markdown(printed_columns(cells, table, style)), ""])


def html_table(cells: pd.DataFrame, table: Table, over: Over = NO_NOUNS, style: Style = PLAIN) -> str:
    """Return an HTML element: the table, with its name and caption."""
    about = caption(cells, table, over, style.spread, printed=True)
    title = f"{table.name}: {about}" if style.caption is None else style.caption
    lines = [_comment(about)] if style.caption is not None else []
    return "\n".join([*lines, columns_html(printed_columns(cells, table, style), title), ""])


def columns_markdown(columns: Columns) -> str:
    """Return columns as a Markdown table."""
    texts = {escaped(name): [*map(_markdown_cell, own)] for name, own in columns.items()}
    return tabulate(texts, headers="keys", tablefmt="github", disable_numparse=True)


def columns_html(columns: Columns, title: str = "") -> str:
    """Return columns as an HTML table. What follows the mean of a cell is small."""
    head = "".join(f'<th scope="col">{html_text(name)}</th>' for name in columns)
    rows = ("".join(f"<td>{_html_cell(cell)}</td>" for cell in row) for row in zip(*columns.values(), strict=True))
    lines = [
        *([f"<caption>{html_text(title)}</caption>"] if title else []),
        f"<thead><tr>{head}</tr></thead>",
        *("<tbody>", *(f"<tr>{row}</tr>" for row in rows), "</tbody>"),
    ]
    return "\n".join(["<table>", *lines, "</table>"])


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
    return numbers_of(cells, table, numbers).map(_csv_cell).rename(columns=_csv_cell).to_csv(index=False)


def numbers_of(cells: pd.DataFrame, table: Table, numbers: Collection[str] = NUMBERS) -> pd.DataFrame:
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


def printed_columns(cells: pd.DataFrame, table: Table, style: Style = PLAIN) -> Columns:
    """Return the columns of a table for a document: those of its keys, then those of its values."""
    keys, groups = _printed_columns(cells, table, style)
    return {name: texts for part in (keys, *groups) for name, texts in part.items()}


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


def escaped(text: str) -> str:
    """Return text for Markdown in one line."""
    return escape(" ".join(text.split()))


def escape(text: str) -> str:
    """Return text for Markdown, with its spaces as they are."""
    return re.sub(r"([\\|*`<])", r"\\\1", printable(text))


def html_text(text: str) -> str:
    """Return text for HTML in one line."""
    return html.escape(printable(" ".join(text.split())))


def _comment(text: str) -> str:
    return f"<!-- {text.replace('--', DASH)} -->"


def _html_cell(cell: CellText) -> str:
    mean = f"<b>{html_text(cell.mean)}</b>" if cell.bold else html_text(cell.mean)
    mean = f'<span class="{cell.kind}">{mean}</span>' if cell.kind else mean
    small = (f" <small>{text}</small>" for part in (cell.after, cell.rest) if (text := html_text(part).lstrip(", ")))
    return "".join([mean, html_text(cell.mark), *small])


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
    mean = f"**{escaped(cell.mean)}**" if cell.bold else escaped(cell.mean)
    return mean + "".join(escape(part) for part in (cell.after, cell.mark, cell.rest))


def _latex_row(cells: Sequence[str]) -> str:
    """Return a row. A bracket at its start would be an argument of the command before it."""
    row = " & ".join(cells)
    return ("{}" if row.startswith("[") else "") + row + r" \\"


def _latex(text: str) -> str:
    return printable(re.sub(r"\s+", " ", text)).translate(LATEX)
