"""What a sweep's rows say: heatmaps, tables and trajectories into the store, and as text for the terminal."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pandas as pd

from sweeper.report import heatmap, summary, trajectory
from sweeper.report import paper_table as tables
from sweeper.spec import Sweep
from sweeper.storage.io.files import Files
from sweeper.storage.store import SUFFIX, load, load_history


def rows_of(files: Files, name: str, trials: Sequence[str]) -> pd.DataFrame:
    """The rows of these trials, in their order, as far as there are any; the sweep may have others, of other presets
    and axes."""
    order = {trial: place for place, trial in enumerate(trials)}
    rows = load(name, files)
    rows = rows[rows["trial_id"].isin(order)]
    return rows.iloc[rows["trial_id"].map(order).argsort()].reset_index(drop=True)


def write(
    files: Files,
    name: str,
    sweep: Sweep,
    preset: str,
    rows: pd.DataFrame,
    views: str | None = None,
    label: str | None = None,
) -> str:
    """Write `heatmaps/VIEWS/METRIC.parquet` and `.png`, `breakdown.parquet` and `correlations.parquet` there,
    `tables/VIEWS/TABLE.parquet` and `.md`, and `trajectories/VIEWS/TRAJECTORY.parquet` and `.png`.

    `views` is `NAME/PRESET` by default; a request that changes its preset has a folder of its own (`Plan.views`) and a
    `label` of its own, which pictures show (`Plan.label`).

    `rows` are those of the plan, in its order; a metric or hyperparameter that none of them has is null. Returns what
    to print: the best cell by class, the correlations, the tables, and what a search chose on validation images.
    """
    rows = rows.reindex(columns=list(dict.fromkeys([*rows.columns, *_needed(sweep)])))
    views, about = views or f"{name}/{preset}", _about(name, label or preset, rows)
    texts = _write_heatmaps(files, views, sweep, preset, rows, about)
    for table in sweep.tables:
        cells = tables.write(files, views, rows, table, preset)
        texts.append(tables.text(cells, table))
    objective = sweep.headline(preset)
    chosen = summary.on_test_images(rows, objective)
    if len(chosen):
        texts.append(f"best trials by {objective.name}, and what they are worth on test images\n{summary.text(chosen)}")
    if sweep.trajectories:
        history = _history(files, name)
        for shown in sweep.trajectories:
            trajectory.write(files, views, history, rows, shown, about=about)
    return "\n\n".join(texts)


def _write_heatmaps(files: Files, views: str, sweep: Sweep, preset: str, rows: pd.DataFrame, about: str) -> list[str]:
    """The heatmaps and what stands beside the first; returns the texts of the latter."""
    for shown in sweep.heatmaps:
        axes, metric = (shown.rows, shown.columns), shown.metric
        published = shown.published.get(preset)
        over = _over(sweep, rows, axes)
        heatmap.write(
            files,
            views,
            rows,
            metric.name,
            metric.better,
            axes,
            over=over,
            published=published,
            percent=metric.percent,
            about=about,
        )
    if not sweep.heatmaps:
        return []
    first, texts = sweep.heatmaps[0], []
    axes = (first.rows, first.columns)
    if sweep.breakdown:
        table = summary.breakdown(rows, first.metric.name, first.metric.better, axes, sweep.breakdown)
        _store(files, views, "breakdown", table)
        shown = table.assign(mean=100 * table["mean"], std=100 * table["std"]) if first.metric.percent else table
        unit = " (%)" if first.metric.percent else ""
        chosen = summary.chosen_by(rows, first.metric.name)
        choice = "" if chosen == first.metric.name else f" by {chosen}"
        texts.append(f"{first.metric.name}{unit} by {sweep.breakdown} at the best cell{choice}\n{summary.text(shown)}")
    if sweep.correlations:
        table = summary.correlations(rows, sweep.correlations, axes)
        _store(files, views, "correlations", table)
        texts.append(f"correlation over the cells of {axes[0]} x {axes[1]}\n{summary.text(table)}")
    return texts


def _needed(sweep: Sweep) -> list[str]:
    """Every column that a view reads."""
    shown = [column for metric, axes in sweep.shown.items() for column in (metric, *axes)]
    paired = [metric for pair in sweep.correlations for metric in pair]
    return [*shown, *paired, *([sweep.breakdown] if sweep.breakdown else [])]


def _history(files: Files, name: str) -> pd.DataFrame:
    """All reports of the sweep; none where no cohort has written any."""
    if any(file.endswith(SUFFIX) for file in files.list(f"history/sweep={name}")):
        return load_history(name, files)
    return pd.DataFrame({"trial_id": [], "epoch": [], "metric": [], "value": []})


def _about(name: str, label: str, rows: pd.DataFrame) -> str:
    """Sweep, preset and data sets, as pictures say of what they are."""
    datasets = list(dict.fromkeys(rows["dataset"].dropna())) if "dataset" in rows else []
    on = f", data set{'s' if len(datasets) > 1 else ''} {', '.join(datasets)}" if datasets else ""
    return f"{name} ({label}){on}"


def _over(sweep: Sweep, rows: pd.DataFrame, axes: tuple[str, str]) -> str:
    """What a cell's mean is over: the sweep's own noun, unless more varies within a cell (seeds, say) than that."""
    if sweep.breakdown and rows.groupby(list(axes), dropna=False).size().max() > rows[sweep.breakdown].nunique():
        return "trials"
    return sweep.over


def _store(files: Files, views: str, table_name: str, table: pd.DataFrame) -> None:
    buffer = io.BytesIO()
    table.to_parquet(buffer, index=False)
    files.write(f"heatmaps/{views}/{table_name}.parquet", buffer.getvalue())
