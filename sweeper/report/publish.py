"""Writes the heatmaps, tables, trajectories and sheets of a sweep into the store, and returns text for the terminal."""

import pandas as pd

from sweeper.report import paper_table as tables
from sweeper.report import summary
from sweeper.report.class_names import ValueText, text_with_class_names
from sweeper.report.heatmaps import heatmap
from sweeper.report.heatmaps.heatmap_cells import selection_metric
from sweeper.report.selections import labelled
from sweeper.report.sheets import densities, latent_maps, pictures
from sweeper.report.trajectories import trajectory
from sweeper.spec import Sweep
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
    validation images.

    `rows` are those of the plan, in its order. A metric or hyperparameter that they lack is null. `folder` is
    `NAME/PRESET` by default. A request that changes its preset has its own folder (`Plan.views`), and its own `label`
    in the figures (`Plan.request`).
    """
    rows = rows.reindex(columns=list(dict.fromkeys([*rows.columns, *_needed(sweep)])))
    folder, about = folder or f"{name}/{preset}", _about(name, label or preset, rows)
    value_text = text_with_class_names(files, name, rows)
    texts = _write_heatmaps(files, folder, sweep, preset, rows, about, value_text)
    for table in sweep.tables:
        cells = tables.write(files, folder, labelled(rows, table.selections), table, preset, value_text)
        texts.append(tables.text(cells, table, value_text=value_text))
    objective = sweep.headline(preset)
    chosen = summary.on_test_images(rows, objective)
    if len(chosen):
        if objective.percent:
            chosen = chosen.assign(**{name: 100 * chosen[name] for name in chosen.columns[2:]})
        texts.append(
            f"best trials by {objective.label}, and what they are worth on test images\n{summary.text(chosen)}"
        )
    if sweep.trajectories:
        history = _history(files, name)
        for view in sweep.trajectories:
            shown = labelled(rows, view.selections)
            trajectory.write(files, folder, history, shown, view, about=about, value_text=value_text)
    pictures.write(files, name, folder, rows)
    models = sweep.tables[0] if sweep.tables else None
    densities.write(
        files,
        name,
        folder,
        labelled(rows, models.selections) if models else rows,
        models.rows if models else ("method",),
        f"{name} ({label or preset})",
    )
    latent_maps.write(files, name, folder, rows, about)
    return "\n\n".join(texts)


def _write_heatmaps(
    files: Files, folder: str, sweep: Sweep, preset: str, rows: pd.DataFrame, about: str, value_text: ValueText
) -> list[str]:
    """Write the heatmaps, and the breakdown and the correlations of the first. Returns the texts of the latter two."""
    for view in sweep.heatmaps:
        shown = labelled(rows, view.selections)
        over = _over(sweep, shown, view.axes)
        heatmap.write(files, folder, shown, view, preset, over=over, about=about, value_text=value_text)
    if not sweep.heatmaps:
        return []
    first, texts = sweep.heatmaps[0], []
    rows = labelled(rows, first.selections)
    if sweep.breakdown:
        table = summary.breakdown(rows, first.metric.name, first.metric.ranking_direction, first.axes, sweep.breakdown)
        files.write(f"heatmaps/{folder}/breakdown.parquet", table.to_parquet(index=False))
        scaled = table.assign(mean=100 * table["mean"], std=100 * table["std"]) if first.metric.percent else table
        criterion = selection_metric(rows, first.metric.name)
        by = "" if criterion == first.metric.name else f" by {criterion}"
        title = f"{first.metric.label} by {sweep.breakdown} at the best cell{by}"
        texts.append(f"{title}\n{summary.text(scaled, value_text=value_text)}")
    if sweep.correlations:
        table = summary.correlations(rows, sweep.correlations, first.axes)
        files.write(f"heatmaps/{folder}/correlations.parquet", table.to_parquet(index=False))
        texts.append(f"correlation over the cells of {first.rows} x {first.columns}\n{summary.text(table)}")
    return texts


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
