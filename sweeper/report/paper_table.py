"""Rows -> a table as papers print it: mean and spread by row, column and metric -> Parquet, Markdown and plain text."""

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
"""A heading, then a cell for each row."""
MEASURED = ("mean", "std", "count", "missing", "published", "difference")


def tabulate(rows: pd.DataFrame, table: Table, preset: str) -> pd.DataFrame:
    """One row for each row of the table, value of its column key (if it has one) and metric, in this order.

    The keys, `metric`, mean, std (ddof 1), count, missing (trials without the metric), `published` and `difference`
    (mean - published). `percent` metrics are shares in [0, 1], published ones, too. Rows and columns are in the order
    of their first appearance in `rows`; then come those that only the paper has. A pair that no trial has is there
    with count 0 and missing 0, a key or metric that `rows` lacks is null.
    """
    keys = [*table.rows, *([table.columns] if table.columns else [])]
    published = _published(table, preset)
    rows = rows.reindex(columns=list(dict.fromkeys([*keys, *(metric.name for metric in table.metrics)])))
    places: dict[tuple[Any, ...], list[int]] = {}
    for place, key in enumerate(zip(*(map(_plain, rows[name]) for name in keys), strict=True)):
        places.setdefault(key, []).append(place)
    values = {metric.name: rows[metric.name].astype("float64").to_numpy() for metric in table.metrics}

    split = len(table.rows)
    firsts, seconds = (list(dict.fromkeys(part)) for part in _parts([*places, *published], split))
    cells = []
    for key in (first + second for first in firsts for second in seconds):
        for metric in table.metrics:
            measured = _measure(values[metric.name][places.get(key, [])])
            paper = published.get(key, {}).get(metric.name, math.nan) / (100 if metric.percent else 1)
            cells.append((*key, metric.name, *measured, paper, measured[0] - paper))
    found = pd.DataFrame(cells, columns=[*keys, "metric", *MEASURED], dtype=object)
    floats = dict.fromkeys(("mean", "std", "published", "difference"), "float64")
    found = found.astype({**floats, "count": "int64", "missing": "int64", "metric": "str"})
    return found.assign(**{name: _typed(found[name], rows[name]) for name in keys})


def write(files: Files, views: str, rows: pd.DataFrame, table: Table, preset: str) -> pd.DataFrame:
    """Write `tables/VIEWS/NAME.parquet` and `.md`; returns what `tabulate` does."""
    cells = tabulate(rows, table, preset)
    buffer = io.BytesIO()
    cells.to_parquet(buffer, index=False)
    files.write(f"tables/{views}/{table.name}.parquet", buffer.getvalue())
    files.write(f"tables/{views}/{table.name}.md", markdown(cells, table).encode())
    return cells


def markdown(cells: pd.DataFrame, table: Table) -> str:
    """A title, what is in a cell, and the table: a line for each row, a column for each column value and metric."""
    keys, groups = _columns(cells, table)
    columns = [_padded(map(_escaped, column)) for column in (*keys, *(one for group in groups for one in group))]
    heading, *lines = (f"| {' | '.join(line)} |" for line in zip(*columns, strict=True))
    rule = "| " + " | ".join("-" * len(column[0]) for column in columns) + " |"
    return "\n".join([f"# {_escaped(table.name)}", "", caption(cells), "", heading, rule, *lines, ""])


def text(cells: pd.DataFrame, table: Table, width: int = 100) -> str:
    """The same for a terminal. One wider than `width` is cut into blocks that each repeat the row keys, between the
    values of its column key where that is enough, else also between metrics."""
    keys, groups = _columns(cells, table)
    room = width - _width(keys)
    pieces = [piece for group in groups for piece in ([group] if _width(group) <= room else [[one] for one in group])]
    blocks: list[list[Column]] = []
    for piece in pieces or [[]]:
        if blocks and _width([*blocks[-1], *piece]) <= room:
            blocks[-1] += piece
        else:
            blocks.append(list(piece))
    said = "\n".join([table.name, *textwrap.wrap(caption(cells), width)])
    return "\n\n".join([said, *(_block([*keys, *block]) for block in blocks)])


def caption(cells: pd.DataFrame) -> str:
    """What is in a cell."""
    counts = cells["count"][cells["count"] > 0]
    if counts.empty:
        said = ["no value yet"]
    elif counts.max() == 1:
        said = ["one trial a cell"]
    else:
        span = f"{counts.min()} to {counts.max()}" if counts.min() < counts.max() else f"{counts.max()}"
        said = [f"mean ± standard deviation of {span} trials"]
    if ((cells["count"] > 0) & (cells["missing"] > 0)).any():
        said.append("'k of n' where only k of n trials have a value")
    if cells["published"].notna().any():
        said.append("in brackets the paper's figure and the difference from it")
    return "; ".join(said)


def labels(values: pd.Series) -> list[str]:
    """Each value as it is read. Whole numbers beside nulls are shown as such: the nulls alone made them floats."""
    known = values.dropna()
    if len(known) < len(values) and all(isinstance(value, float) and value.is_integer() for value in known):
        return [NOTHING if pd.isna(value) else str(int(value)).replace("-", MINUS) for value in values]
    return [label(_plain(value)) for value in values]


def _published(table: Table, preset: str) -> dict[tuple[Any, ...], dict[str, float]]:
    return {tuple(map(_plain, key)): dict(figures) for key, figures in table.published.get(preset, {}).items()}


def _parts(keys: Sequence[tuple[Any, ...]], split: int) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    return [key[:split] for key in keys], [key[split:] for key in keys]


def _measure(values: np.ndarray) -> tuple[float, float, int, int]:
    """Mean, std, count, missing."""
    known = values[~np.isnan(values)]
    with np.errstate(invalid="ignore"):  # the deviation of what is not finite is null
        mean = float(known.mean()) if known.size else math.nan
        std = float(known.std(ddof=1)) if known.size > 1 else math.nan
    return mean, std, known.size, values.size - known.size


def _plain(value: Any) -> Any:
    """A value that equals and hashes as what a file of a sweep says for it: no NumPy, None for each null."""
    return None if pd.isna(value) else value.item() if isinstance(value, np.generic) else value


def _typed(values: pd.Series, like: pd.Series) -> pd.Series:
    """Key values in the type that they have in the rows; text where what a paper has is of another kind."""
    kinds = {isinstance(value, str) for value in values.dropna()}
    if len(kinds) > 1:
        return pd.Series(labels(values), dtype="str").where(values.notna(), None)
    try:
        typed = values.astype(like.dtype)
        return typed if len(like) and list(map(_plain, typed)) == list(values) else values.infer_objects()
    except (TypeError, ValueError):
        return values.infer_objects()


def _columns(cells: pd.DataFrame, table: Table) -> tuple[list[Column], list[list[Column]]]:
    """The row keys, and for each value of the column key (or once) a column for each metric, or one for all of them."""
    count = len(table.metrics)
    values = _distinct(cells[table.columns]) if table.columns else pd.Series([None])
    step = max(count * len(values), 1)
    names = [f"{metric.name} (%)" if metric.percent else metric.name for metric in table.metrics]
    keys = [[name, *labels(cells[name])[::step]] for name in table.rows]
    if table.listed:
        keys = [[key[0], *(value for value in key[1:] for _ in names)] for key in keys]
        keys.append(["metric", *names * (len(cells) // step)])
    groups = []
    for place, (value, shown) in enumerate(zip(values, labels(values), strict=True)):
        before = None if table.columns is None else shown if isinstance(value, str) else f"{table.columns}={shown}"
        columns = []
        for offset, metric in enumerate(table.metrics):
            here = cells.iloc[place * count + offset :: step].to_dict("records")
            columns.append([_cell(cell, metric) for cell in here])
        if table.listed:
            groups.append([[before or "value", *(cell for line in zip(*columns, strict=True) for cell in line)]])
        else:
            headings = [name if before is None else f"{before}: {name}" for name in names]
            groups.append([[heading, *column] for heading, column in zip(headings, columns, strict=True)])
    return keys, groups


def _cell(cell: dict[Any, Any], metric: Metric) -> str:
    """`86.20 ± 0.31, 2 of 3 (paper 86.18, +0.02)`, as much of it as there is."""
    scale = 100.0 if metric.percent else 1.0
    mean, std, paper, off = (cell[name] * scale for name in ("mean", "std", "published", "difference"))

    def shown(value: float) -> str:
        return number(round(value, 2) + 0.0, 2) if metric.percent else _figures(value)

    said = NOTHING if math.isnan(mean) else shown(mean)
    if not math.isnan(std):
        said += f" ± {shown(std)}"
    if cell["count"] and cell["missing"]:
        said += f", {cell['count']} of {cell['count'] + cell['missing']}"
    if math.isnan(paper):
        return said
    sign = MINUS if off < 0 else "+"
    return f"{said} (paper {shown(paper)}" + ("" if math.isnan(off) else f", {sign}{shown(abs(off))}") + ")"


def _figures(value: float) -> str:
    """Three significant figures, whole numbers below a million in full."""
    if not math.isfinite(value) or value == 0:
        return number(value, 2)
    exponent = math.floor(math.log10(abs(value)))
    if -5 < exponent < 6:
        return number(value, max(2 - exponent, 0))
    return f"{value:.2e}".replace("-", MINUS)


def _distinct(values: pd.Series) -> pd.Series:
    return values[~values.duplicated()]


def _escaped(cell: str) -> str:
    return re.sub(r"([\\|*`<])", r"\\\1", " ".join(cell.split()))


def _padded(column: Iterable[str]) -> Column:
    cells = list(column)
    return [cell.ljust(max(3, *map(len, cells))) for cell in cells]


def _width(columns: Sequence[Column]) -> int:
    return sum(max(map(len, column)) + 2 for column in columns)


def _block(columns: Sequence[Column]) -> str:
    heading, *lines = ("  ".join(line).rstrip() for line in zip(*map(_padded, columns), strict=True))
    return "\n".join([heading, NOTHING * max(map(len, (heading, *lines))), *lines])
