"""Tables as papers print them: mean and standard deviation by row, column and metric, as Parquet, Markdown and text."""

import io
import math
import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from sweeper.report.heatmap import MINUS, NOTHING, label, number
from sweeper.spec import Metric
from sweeper.spec.views import Table
from sweeper.storage.io.files import Files

Column = list[str]
"""The texts of one column: its heading, then a cell for each row."""
MEASURED = ("mean", "std", "count", "missing", "published", "difference")
"""Columns of `tabulate` that hold numbers."""


def tabulate(rows: pd.DataFrame, table: Table, preset: str) -> pd.DataFrame:
    """Average the metrics of a table. Returns one row per table row, value of `table.columns` (if set) and metric.

    The columns are those of `table.rows` and `table.columns`, `metric`, `mean`, `std` (ddof=1), `count`, `missing`
    (trials without a value of the metric), `published` and `difference` (mean - published). Values of `percent` metrics
    are shares in [0, 1], including the published ones.

    Rows and columns are in the order of their first appearance in `rows`, followed by those that only the paper has.
    All combinations are included; one without trials has count 0 and missing 0. A hyperparameter or metric that is no
    column of `rows` is null.
    """
    keys = [*table.rows, *([table.columns] if table.columns else [])]
    published = _published(table, preset)
    rows = rows.reindex(columns=list(dict.fromkeys([*keys, *(metric.name for metric in table.metrics)])))
    row_numbers: dict[tuple[Any, ...], list[int]] = {}
    for row_number, key in enumerate(zip(*(map(_plain, rows[name]) for name in keys), strict=True)):
        row_numbers.setdefault(key, []).append(row_number)
    values = {metric.name: rows[metric.name].astype("float64").to_numpy() for metric in table.metrics}

    split = len(table.rows)
    row_keys, column_keys = (list(dict.fromkeys(part)) for part in _parts([*row_numbers, *published], split))
    records = []
    for key in (row_key + column_key for row_key in row_keys for column_key in column_keys):
        for metric in table.metrics:
            measured = _measure(values[metric.name][row_numbers.get(key, [])])
            paper = published.get(key, {}).get(metric.name, math.nan) / (100 if metric.percent else 1)
            records.append((*key, metric.name, *measured, paper, measured[0] - paper))
    cells = pd.DataFrame(records, columns=[*keys, "metric", *MEASURED], dtype=object)
    floats = dict.fromkeys(("mean", "std", "published", "difference"), "float64")
    cells = cells.astype({**floats, "count": "int64", "missing": "int64", "metric": "str"})
    return cells.assign(**{name: _typed(cells[name], rows[name]) for name in keys})


def write(files: Files, views: str, rows: pd.DataFrame, table: Table, preset: str) -> pd.DataFrame:
    """Write `tables/VIEWS/NAME.parquet` and `.md`. Returns the result of `tabulate`."""
    cells = tabulate(rows, table, preset)
    buffer = io.BytesIO()
    cells.to_parquet(buffer, index=False)
    files.write(f"tables/{views}/{table.name}.parquet", buffer.getvalue())
    files.write(f"tables/{views}/{table.name}.md", markdown(cells, table).encode())
    return cells


def markdown(cells: pd.DataFrame, table: Table) -> str:
    """Return a Markdown document: a title, the caption and the table."""
    keys, groups = _columns(cells, table)
    columns = [_padded(map(_escaped, column)) for column in (*keys, *(column for group in groups for column in group))]
    heading, *lines = (f"| {' | '.join(line)} |" for line in zip(*columns, strict=True))
    rule = "| " + " | ".join("-" * len(column[0]) for column in columns) + " |"
    return "\n".join([f"# {_escaped(table.name)}", "", caption(cells), "", heading, rule, *lines, ""])


def text(cells: pd.DataFrame, table: Table, width: int = 100) -> str:
    """Return the table as plain text for a terminal of `width` characters.

    A wider table is split into blocks, each of which repeats the row keys. It is split between the values of
    `table.columns`, and between the metrics of one value only if these are too wide together.
    """
    keys, groups = _columns(cells, table)
    room = width - _width(keys)
    pieces = [
        piece for group in groups for piece in ([group] if _width(group) <= room else [[column] for column in group])
    ]
    blocks: list[list[Column]] = []
    for piece in pieces or [[]]:
        if blocks and _width([*blocks[-1], *piece]) <= room:
            blocks[-1] += piece
        else:
            blocks.append(list(piece))
    title = "\n".join([table.name, *textwrap.wrap(caption(cells), width)])
    return "\n\n".join([title, *(_block([*keys, *block]) for block in blocks)])


def caption(cells: pd.DataFrame) -> str:
    """Return a line that says what the cells of the table show."""
    counts = cells["count"][cells["count"] > 0]
    if counts.empty:
        parts = ["no value yet"]
    elif counts.max() == 1:
        parts = ["one trial a cell"]
    else:
        span = f"{counts.min()} to {counts.max()}" if counts.min() < counts.max() else f"{counts.max()}"
        parts = [f"mean ± standard deviation of {span} trials"]
    if ((cells["count"] > 0) & (cells["missing"] > 0)).any():
        parts.append("'k of n' where only k of n trials have a value")
    if cells["published"].notna().any():
        parts.append("in brackets the paper's figure and the difference from it")
    return "; ".join(parts)


def labels(values: pd.Series) -> list[str]:
    """Return each value as text. Whole numbers next to nulls are shown as integers; only the nulls made them floats."""
    known = values.dropna()
    if len(known) < len(values) and all(isinstance(value, float) and value.is_integer() for value in known):
        return [NOTHING if pd.isna(value) else str(int(value)).replace("-", MINUS) for value in values]
    return [label(_plain(value)) for value in values]


def _published(table: Table, preset: str) -> dict[tuple[Any, ...], dict[str, float]]:
    """Return the paper's figures for the preset, with plain values in the keys."""
    return {tuple(map(_plain, key)): dict(figures) for key, figures in table.published.get(preset, {}).items()}


def _parts(keys: Sequence[tuple[Any, ...]], split: int) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Split each key into that of a row and that of a column."""
    return [key[:split] for key in keys], [key[split:] for key in keys]


def _measure(values: np.ndarray) -> tuple[float, float, int, int]:
    """Return mean, std, count and missing."""
    known = values[~np.isnan(values)]
    with np.errstate(invalid="ignore"):  # infinite values have a std of NaN
        mean = float(known.mean()) if known.size else math.nan
        std = float(known.std(ddof=1)) if known.size > 1 else math.nan
    return mean, std, known.size, values.size - known.size


def _plain(value: Any) -> Any:
    """Convert NumPy scalars to Python's and every null to None, so that values equal and hash like those of a sweep."""
    return None if pd.isna(value) else value.item() if isinstance(value, np.generic) else value


def _typed(values: pd.Series, like: pd.Series) -> pd.Series:
    """Convert key values to the type of the column `like` if they fit; to text if only some of them are text."""
    is_text = {isinstance(value, str) for value in values.dropna()}
    if len(is_text) > 1:
        return pd.Series(labels(values), dtype="str").where(values.notna(), None)
    try:
        typed = values.astype(like.dtype)
        return typed if len(like) and list(map(_plain, typed)) == list(values) else values.infer_objects()
    except (TypeError, ValueError):
        return values.infer_objects()


def _columns(cells: pd.DataFrame, table: Table) -> tuple[list[Column], list[list[Column]]]:
    """Return the columns of the row keys, and a group of columns for each value of `table.columns` (or one group).

    A group has a column for each metric, or a single column for all metrics if the table is `listed`.
    """
    count = len(table.metrics)
    values = _distinct(cells[table.columns]) if table.columns else pd.Series([None])
    step = max(count * len(values), 1)
    names = [f"{metric.name} (%)" if metric.percent else metric.name for metric in table.metrics]
    keys = [[name, *labels(cells[name])[::step]] for name in table.rows]
    if table.listed:
        keys = [[key[0], *(value for value in key[1:] for _ in names)] for key in keys]
        keys.append(["metric", *names * (len(cells) // step)])
    groups = []
    for group, (value, shown) in enumerate(zip(values, labels(values), strict=True)):
        prefix = None if table.columns is None else shown if isinstance(value, str) else f"{table.columns}={shown}"
        columns = []
        for offset, metric in enumerate(table.metrics):
            column_cells = cells.iloc[group * count + offset :: step].to_dict("records")
            columns.append([_cell_text(cell, metric) for cell in column_cells])
        if table.listed:
            groups.append([[prefix or "value", *(cell for line in zip(*columns, strict=True) for cell in line)]])
        else:
            headings = [name if prefix is None else f"{prefix}: {name}" for name in names]
            groups.append([[heading, *column] for heading, column in zip(headings, columns, strict=True)])
    return keys, groups


def _cell_text(cell: dict[Any, Any], metric: Metric) -> str:
    """Return e.g. `86.20 ± 0.31, 2 of 3 (paper 86.18, +0.02)`, without the parts that are unknown."""
    scale = 100.0 if metric.percent else 1.0
    mean, std, paper, difference = (cell[name] * scale for name in ("mean", "std", "published", "difference"))

    def shown(value: float) -> str:
        return number(round(value, 2) + 0.0, 2) if metric.percent else _figures(value)

    measured = NOTHING if math.isnan(mean) else shown(mean)
    if not math.isnan(std):
        measured += f" ± {shown(std)}"
    if cell["count"] and cell["missing"]:
        measured += f", {cell['count']} of {cell['count'] + cell['missing']}"
    if math.isnan(paper):
        return measured
    sign = MINUS if difference < 0 else "+"
    change = "" if math.isnan(difference) else f", {sign}{shown(abs(difference))}"
    return f"{measured} (paper {shown(paper)}{change})"


def _figures(value: float) -> str:
    """Return three significant figures. Integer digits below a million are all shown."""
    if not math.isfinite(value) or value == 0:
        return number(value, 2)
    exponent = math.floor(math.log10(abs(value)))
    if -5 < exponent < 6:
        return number(value, max(2 - exponent, 0))
    return f"{value:.2e}".replace("-", MINUS)


def _distinct(values: pd.Series) -> pd.Series:
    return values[~values.duplicated()]


def _escaped(cell: str) -> str:
    """Escape Markdown, and remove line breaks."""
    return re.sub(r"([\\|*`<])", r"\\\1", " ".join(cell.split()))


def _padded(column: Iterable[str]) -> Column:
    cells = list(column)
    return [cell.ljust(max(3, *map(len, cells))) for cell in cells]


def _width(columns: Sequence[Column]) -> int:
    """Return the width in characters, with two spaces after each column."""
    return sum(max(map(len, column)) + 2 for column in columns)


def _block(columns: Sequence[Column]) -> str:
    """Return the columns as aligned text: the heading, a rule, and a line for each row."""
    heading, *lines = ("  ".join(line).rstrip() for line in zip(*map(_padded, columns), strict=True))
    return "\n".join([heading, NOTHING * max(map(len, (heading, *lines))), *lines])
