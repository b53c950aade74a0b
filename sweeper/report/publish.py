"""Writes the heatmaps, tables, trajectories and sheets of a sweep into the store, and returns text for the terminal."""

from collections.abc import Callable
from functools import partial

import pandas as pd

from sweeper.report import paper_table as tables
from sweeper.report import summary
from sweeper.report.class_names import ValueText, text_with_class_names
from sweeper.report.guard import made
from sweeper.report.heatmaps import heatmap
from sweeper.report.heatmaps.heatmap_cells import selection_metric
from sweeper.report.selections import labelled
from sweeper.report.sheets import densities, latent_maps, pictures
from sweeper.report.trajectories import trajectory
from sweeper.spec import Heatmap, Metric, Sweep, Table, Trajectory
from sweeper.storage.io.files import Files
from sweeper.storage.layout import SUFFIX
from sweeper.storage.load import load_history


def write(
    files: Files,
    name: str,
    sweep: Sweep,
    preset: str,
    rows: pd.DataFrame,
    folder: str | None = None,
    label: str | None = None,
) -> str:
    """Write all views of a sweep, and return the text to print.

    Files: `heatmaps/FOLDER/METRIC.parquet` and `.png`, `breakdown.parquet` and `correlations.parquet` beside them,
    `tables/FOLDER/TABLE.parquet` and `.md`, `trajectories/FOLDER/TRAJECTORY.parquet` and `.png`, and, of trials that
    have sheets, `sheets/FOLDER/*.png`: of methods, and of densities by the rows of the first table. The text has the
    breakdown of the best cell, the correlations, the tables, and the test metrics of the trials that a search chose on
    validation images. A figure or table that cannot be made of its data is a line that is logged.

    `rows` are those of the plan, in its order. A metric or hyperparameter that they lack is null. `folder` is
    `NAME/PRESET` by default. A request that changes its preset has its own folder (`Plan.views`), and its own `label`
    in the figures (`Plan.request`).
    """
    rows = rows.reindex(columns=list(dict.fromkeys([*rows.columns, *_needed(sweep)])))
    folder, about = folder or f"{name}/{preset}", _about(name, label or preset, rows)
    value_text = text_with_class_names(files, name, rows)
    figures: list[tuple[str, Callable[[], str | None]]] = [
        (
            f"heatmap {view.metric.name}",
            partial(_write_heatmap, files, folder, sweep, view, preset, rows, about, value_text),
        )
        for view in sweep.heatmaps
    ]
    if sweep.heatmaps:
        first = labelled(rows, sweep.heatmaps[0].selections)
        figures += [
            ("breakdown", partial(_write_breakdown, files, folder, sweep, first, value_text)),
            ("correlations", partial(_write_correlations, files, folder, sweep, first)),
        ]
    figures += [
        (f"table {table.name}", partial(_write_table, files, folder, table, preset, rows, value_text))
        for table in sweep.tables
    ]
    figures.append(("best trials", partial(_chosen_on_validation, rows, sweep.headline(preset))))
    history = _history(files, name) if sweep.trajectories else pd.DataFrame()
    figures += [
        (f"trajectory {view.name}", partial(_write_trajectory, files, folder, history, view, rows, about, value_text))
        for view in sweep.trajectories
    ]
    models = sweep.tables[0] if sweep.tables else None
    figures += [
        ("sheets of methods", partial(pictures.write, files, name, folder, rows)),
        (
            "sheets of densities",
            lambda: densities.write(
                files,
                name,
                folder,
                labelled(rows, models.selections) if models else rows,
                models.rows if models else ("method",),
                f"{name} ({label or preset})",
            ),
        ),
        ("maps of latents", partial(latent_maps.write, files, name, folder, rows, about)),
    ]
    texts = [made(files.log, f"store {files.display_uri}, {folder}: {figure}", write) for figure, write in figures]
    return "\n\n".join(text for text in texts if text)


def _write_heatmap(
    files: Files,
    folder: str,
    sweep: Sweep,
    view: Heatmap,
    preset: str,
    rows: pd.DataFrame,
    about: str,
    value_text: ValueText,
) -> None:
    shown = labelled(rows, view.selections)
    over = _over(sweep, shown, view.axes)
    heatmap.write(files, folder, shown, view, preset, over=over, about=about, value_text=value_text)


def _write_breakdown(files: Files, folder: str, sweep: Sweep, rows: pd.DataFrame, value_text: ValueText) -> str | None:
    """Write the breakdown of the first heatmap, if there is one. Returns its text."""
    if not sweep.breakdown:
        return None
    first = sweep.heatmaps[0]
    table = summary.breakdown(rows, first.metric.name, first.metric.ranking_direction, first.axes, sweep.breakdown)
    files.write(f"heatmaps/{folder}/breakdown.parquet", table.to_parquet(index=False))
    scaled = table.assign(mean=100 * table["mean"], std=100 * table["std"]) if first.metric.percent else table
    criterion = selection_metric(rows, first.metric.name)
    by = "" if criterion == first.metric.name else f" by {criterion}"
    title = f"{first.metric.label} by {sweep.breakdown} at the best cell{by}"
    return f"{title}\n{summary.text(scaled, value_text=value_text)}"


def _write_correlations(files: Files, folder: str, sweep: Sweep, rows: pd.DataFrame) -> str | None:
    """Write the correlations over the cells of the first heatmap, if there are any. Returns their text."""
    if not sweep.correlations:
        return None
    first = sweep.heatmaps[0]
    table = summary.correlations(rows, sweep.correlations, first.axes)
    files.write(f"heatmaps/{folder}/correlations.parquet", table.to_parquet(index=False))
    return f"correlation over the cells of {first.rows} x {first.columns}\n{summary.text(table)}"


def _write_table(
    files: Files, folder: str, table: Table, preset: str, rows: pd.DataFrame, value_text: ValueText
) -> str:
    cells = tables.write(files, folder, labelled(rows, table.selections), table, preset, value_text)
    return tables.text(cells, table, value_text=value_text)


def _chosen_on_validation(rows: pd.DataFrame, objective: Metric) -> str | None:
    chosen = summary.on_test_images(rows, objective)
    if not len(chosen):
        return None
    if objective.percent:
        chosen = chosen.assign(**{name: 100 * chosen[name] for name in chosen.columns[2:]})
    return f"best trials by {objective.label}, and what they are worth on test images\n{summary.text(chosen)}"


def _write_trajectory(
    files: Files,
    folder: str,
    history: pd.DataFrame,
    view: Trajectory,
    rows: pd.DataFrame,
    about: str,
    value_text: ValueText,
) -> None:
    shown = labelled(rows, view.selections)
    trajectory.write(files, folder, history, shown, view, about=about, value_text=value_text)


def _needed(sweep: Sweep) -> list[str]:
    shown = [column for metric, axes in sweep.axes_by_metric.items() for column in (metric, *axes)]
    paired = [metric for pair in sweep.correlations for metric in pair]
    return [*shown, *paired, *([sweep.breakdown] if sweep.breakdown else [])]


def _history(files: Files, name: str) -> pd.DataFrame:
    """Return the history of the sweep, which is empty if no cohort has reported yet."""
    if any(file.endswith(SUFFIX) for file in files.list(f"history/sweep={name}")):
        return load_history(name, files)
    return pd.DataFrame({"trial_id": [], "epoch": [], "metric": [], "value": []})


def _about(name: str, label: str, rows: pd.DataFrame) -> str:
    datasets = list(dict.fromkeys(rows["dataset"].dropna())) if "dataset" in rows else []
    suffix = f", data set{'s' if len(datasets) > 1 else ''} {', '.join(datasets)}" if datasets else ""
    return f"{name} ({label}){suffix}"


def _over(sweep: Sweep, rows: pd.DataFrame, axes: tuple[str, str]) -> str:
    """Return what a cell's mean is over: `sweep.over`, or "trials" if more than the breakdown varies in a cell."""
    if sweep.breakdown and rows.groupby(list(axes), dropna=False).size().max() > rows[sweep.breakdown].nunique():
        return "trials"
    return sweep.over
