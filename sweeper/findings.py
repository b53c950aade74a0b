"""What a sweep's rows say: heatmaps and tables into the store, and as text for the terminal."""

from __future__ import annotations

import io
from collections.abc import Collection

import pandas as pd

from sweeper import heatmap, summary
from sweeper.files import Files
from sweeper.spec import Sweep
from sweeper.store import load


def rows_of(files: Files, name: str, trials: Collection[str]) -> pd.DataFrame:
    """The rows of these trials; the sweep may have others, of other presets and axes."""
    rows = load(name, files)
    return rows[rows["trial_id"].isin(trials)]


def write(files: Files, name: str, sweep: Sweep, preset: str, rows: pd.DataFrame) -> str:
    """Write `heatmaps/NAME/METRIC.parquet` and `.png`, `breakdown.parquet` and `correlations.parquet` there.

    `rows` are those of the plan. Returns what to print: the best cell by class, and the correlations.
    """
    for shown in sweep.heatmaps:
        axes, metric = (shown.rows, shown.columns), shown.metric
        published = shown.published.get(preset)
        over = _over(sweep, rows, axes)
        heatmap.write(files, name, rows, metric.name, metric.direction, axes, over=over, published=published)
    first = sweep.heatmaps[0]
    axes = (first.rows, first.columns)
    texts = []
    if sweep.breakdown:
        table = summary.breakdown(rows, first.metric.name, first.metric.direction, axes, sweep.breakdown)
        _store(files, name, "breakdown", table)
        texts.append(f"{first.metric.name} by {sweep.breakdown} at the best cell\n{summary.text(table)}")
    if sweep.correlations:
        table = summary.correlations(rows, sweep.correlations, axes)
        _store(files, name, "correlations", table)
        texts.append(f"correlation over the cells of {axes[0]} x {axes[1]}\n{summary.text(table)}")
    return "\n\n".join(texts)


def _over(sweep: Sweep, rows: pd.DataFrame, axes: tuple[str, str]) -> str:
    """What a cell's mean is over: the sweep's own noun, unless more varies within a cell (seeds, say) than that."""
    if sweep.breakdown and rows.groupby(list(axes), dropna=False).size().max() > rows[sweep.breakdown].nunique():
        return "trials"
    return sweep.over


def _store(files: Files, name: str, table_name: str, table: pd.DataFrame) -> None:
    buffer = io.BytesIO()
    table.to_parquet(buffer, index=False)
    files.write(f"heatmaps/{name}/{table_name}.parquet", buffer.getvalue())
