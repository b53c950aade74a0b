"""Writes the figures and sample grids of a sweep into the store, and returns text for the terminal."""

import functools
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial

import pandas as pd

from sweeper.definition import Heatmap, Sweep, Table
from sweeper.definition.metric import SPREADS, Spread
from sweeper.report import anomalies, densities, heatmaps, sample_grids
from sweeper.report.figures import Shown, figures_of, made
from sweeper.report.formatting import CLASS, format_metric, text_with_class_names
from sweeper.report.kinds import KINDS
from sweeper.report.selections import labelled
from sweeper.results.best import BestSetting
from sweeper.results.replicates import beside, in_percent
from sweeper.results.sentences import beside_text, chosen
from sweeper.storage.files import Files
from sweeper.storage.layout import SUFFIX, figure_path, history_folder, sample_grids_folder
from sweeper.storage.load import load_history
from sweeper.storage.requests import changes_named


@dataclass(frozen=True)
class Subject:
    """The request that figures are of. One that changes its preset has its own folder (`Plan.request_folder`), and its
    own label in the figures (`Plan.request`)."""

    name: str
    """That of the sweep in the store."""
    sweep: Sweep
    preset: str
    own_folder: str = ""
    own_label: str = ""

    @property
    def folder(self) -> str:
        return self.own_folder or f"{self.name}/{self.preset}"

    @property
    def changes(self) -> str:
        """What the request changes in its preset, such as `epochs=5`; empty if nothing."""
        return changes_named(self.label, self.preset)

    @property
    def label(self) -> str:
        return self.own_label or self.preset


def write(
    files: Files,
    subject: Subject,
    rows: pd.DataFrame,
    *,
    hyperparameters: Collection[str] = (),
    so_far: bool = False,
    spread: Spread = "interval",
    alarm_rate: float | None = None,
) -> str:
    """Write all figures of a request, and return the text to print.

    Files: `heatmaps/FOLDER/METRIC.parquet` and `.png`, `breakdown.parquet` and `correlations.parquet` there, the files
    of other kinds in `KIND/FOLDER/`, and, of trials that have sample grids, `sheets/FOLDER/*.png`: of methods, of
    densities by the rows of the first table, and of the test images of the best trial on one class, where the
    threshold of `alarm_rate` flags some. The text has the cells of the first heatmap where there are no tables, the
    tables, the breakdown of the best setting and the correlations. Tables without a trial are left out. A figure or
    table that cannot be made of its data is a line that is logged.

    `rows` are those of the plan, in its order. A metric or hyperparameter that they lack is null. `hyperparameters` are
    the columns that are some, beside those that figures show.
    `so_far`: whether trials are still to come. `spread`: what stands beside the means of heatmaps and tables.
    """
    name, sweep, folder, label = subject.name, subject.sweep, subject.folder, subject.label
    rows = rows.reindex(columns=list(dict.fromkeys([*rows.columns, *_needed(sweep)])))
    shown = Shown(
        figures_of(sweep, subject.preset).beside(rows, subject.changes),
        rows,
        functools.cache(partial(history_of, files, name)),
        hyperparameters,
        text_with_class_names(files, name, rows),
        about(name, label, rows),
        so_far,
        spread,
        is_in_order=True,
    )
    tables = shown.preset.of_kind(Table)
    writers: list[tuple[str, Callable[[], str | None]]] = [
        *(
            (figure.title, partial(KINDS[type(figure)].publish, files, folder, shown, figure))
            for figure in shown.preset.figures
        ),
        ("breakdown", partial(_breakdown, files, folder, shown, sweep)),
        ("correlations", partial(_correlations, files, folder, shown, sweep)),
        ("sample grids of methods", partial(sample_grids.write_sample_grids, files, name, folder, rows)),
        (
            "sample grids of densities",
            lambda: densities.write(
                files,
                name,
                folder,
                labelled(rows, tables[0].selections) if tables else rows,
                tables[0].rows if tables else ("method",),
                f"{name} ({label})",
            ),
        ),
        ("maps of latents", partial(sample_grids.write_latent_maps, files, name, folder, rows, shown.about)),
        ("sample grids of anomalies", partial(_anomalies, files, name, folder, shown, sweep, alarm_rate)),
    ]
    texts = [made(files.log, f"store {files.display_uri}, {folder}: {figure}", write) for figure, write in writers]
    return "\n\n".join(text for text in texts if text)


def _breakdown(files: Files, folder: str, shown: Shown, sweep: Sweep) -> str | None:
    """The replicates of the best setting of the first heatmap."""
    first = next(iter(shown.preset.of_kind(Heatmap)), None)
    if first is None or sweep.breakdown is None:
        return None
    rows = shown.rows_of(first)
    best = shown.best(rows, first.metric, first.axes)
    table = heatmaps.breakdown(rows, best, first.axes, sweep.breakdown, sweep.repeats)
    files.write(figure_path(heatmaps.FOLDER, folder, "breakdown.parquet"), table.to_parquet(index=False))
    scaled = in_percent(table) if first.metric.percent else table
    digits = heatmaps.decimals_of(scaled["mean"].to_numpy("float64"))
    texts = [
        beside_text(beside(cell, shown.spread), lambda value: format_metric(value, digits)).strip()
        for cell in scaled.to_dict("records")
    ]
    spread = SPREADS[shown.spread]
    scaled = scaled.assign(**{spread: texts})[[*first.axes, sweep.breakdown, "mean", spread, "replicates"]]
    scaled = scaled.drop(columns=[] if any(texts) else spread)
    how = f", {chosen(best[0])}" if best else ""
    title = f"{first.metric.label} by {sweep.breakdown} at the best setting{how}"
    return f"{title}\n{heatmaps.text(scaled.dropna(axis=1, how='all'), value_text=shown.value_text)}"


def _correlations(files: Files, folder: str, shown: Shown, sweep: Sweep) -> str | None:
    """Correlations over the cells of the first heatmap."""
    first = next(iter(shown.preset.of_kind(Heatmap)), None)
    if first is None or not sweep.correlations:
        return None
    table = heatmaps.correlations(shown.rows_of(first), sweep.correlations, first.axes, shown.preset.repeats)
    files.write(figure_path(heatmaps.FOLDER, folder, "correlations.parquet"), table.to_parquet(index=False))
    known = table.dropna(subset="r")
    if known.empty:
        return None
    return f"correlation over the cells of {first.rows} x {first.columns}\n{heatmaps.text(known)}"


def _best_settings(shown: Shown) -> list[BestSetting]:
    """The best settings by the metric that the preset decides by; none of a front."""
    preset = shown.preset
    return shown.best(shown.rows, preset.headline, preset.naming) if preset.ranks else []


def _anomalies(files: Files, name: str, folder: str, shown: Shown, sweep: Sweep, alarm_rate: float | None) -> None:
    """Write the sample grid of the best trial of each best setting, if it has one."""
    with_grids = shown.rows["trial_id"].isin(files.list(sample_grids_folder(name)))
    rows = shown.rows[with_grids].set_index("trial_id", drop=False)
    for trial in (next(iter(best.values)) for best in (_best_settings(shown) if len(rows) else ())):
        if trial not in rows.index:
            continue
        row = rows.loc[trial]
        texts = {key: shown.value_text(key, row[key]) for key in ("method", CLASS) if key in row}
        title = ", ".join((name, *(f"{key}={text}" for key, text in texts.items())))
        anomalies.write(files, name, folder, row["dataset"], row["trial_id"], title, alarm_rate)


def _needed(sweep: Sweep) -> list[str]:
    shown = [column for metric, axes in sweep.axes_by_metric.items() for column in (metric, *axes)]
    paired = [metric for pair in sweep.correlations for metric in pair]
    return [*shown, *paired, *([sweep.breakdown] if sweep.breakdown else [])]


def history_of(files: Files, name: str) -> pd.DataFrame:
    """Return the history of the sweep, which is empty if no cohort has reported yet."""
    if any(file.endswith(SUFFIX) for file in files.list(history_folder(name))):
        return load_history(name, files)
    return pd.DataFrame({"trial_id": [], "epoch": [], "metric": [], "value": []})


def about(name: str, label: str, rows: pd.DataFrame) -> str:
    """Return the line below the title of each figure: `NAME (REQUEST), data set digits`."""
    datasets = list(dict.fromkeys(rows["dataset"].dropna())) if "dataset" in rows else []
    suffix = f", data set{'s' if len(datasets) > 1 else ''} {', '.join(datasets)}" if datasets else ""
    return f"{name} ({label}){suffix}"
