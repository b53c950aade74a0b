"""Writes the heatmaps, tables, trajectories and sheets of a sweep into the store, and returns text for the terminal."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd

from sweeper.plan.best_settings import BestSetting, Settings, columns_of
from sweeper.report import anomalies, densities, heatmaps, sheets, tables, trajectories
from sweeper.report.best import chosen, sentences, short_text
from sweeper.report.figures import made
from sweeper.report.formatting import CLASS, ValueText, text_with_class_names
from sweeper.report.selections import labelled, narrowed
from sweeper.report.summaries import averaged_over, in_percent, spread_of
from sweeper.spec import Heatmap, Metric, Sweep, Table, Trajectory
from sweeper.spec.metric import Spread
from sweeper.storage.files import Files
from sweeper.storage.layout import SUFFIX, figure_path, history_folder, sheets_folder
from sweeper.storage.load import load_history

MAX_BEST = 20
"""Most data sets or studies whose best setting the text names."""


def write(
    files: Files,
    name: str,
    sweep: Sweep,
    preset: str,
    rows: pd.DataFrame,
    folder: str | None = None,
    label: str | None = None,
    *,
    hyperparameters: Collection[str] = (),
    so_far: bool = False,
    spread: Spread = "interval",
    alarm_rate: float | None = None,
) -> str:
    """Write all views of a sweep, and return the text to print.

    Files: `heatmaps/FOLDER/METRIC.parquet` and `.png`, `breakdown.parquet` and `correlations.parquet` beside them,
    `tables/FOLDER/TABLE.parquet` and `.md`, `trajectories/FOLDER/TRAJECTORY.parquet` and `.png`, and, of trials that
    have sheets, `sheets/FOLDER/*.png`: of methods, of densities by the rows of the first table, and of the test images
    of the best trial on one class, where the threshold of `alarm_rate` flags some. The text has the
    cells of the first heatmap where there are no tables, the breakdown of the best setting, the correlations, the
    tables, and a sentence about each best setting. Tables without a trial are left out. A
    figure or table that cannot be made of its data is a line that is logged.

    `rows` are those of the plan, in its order. A metric or hyperparameter that they lack is null. `folder` is
    `NAME/PRESET` by default. A request that changes its preset has its own folder (`Plan.request_folder`), and its
    own `label` in the figures (`Plan.request`). `hyperparameters` are the columns that are some, beside those that
    views show.
    `so_far`: whether trials are still to come. `spread`: what stands beside the means of heatmaps and tables.
    """
    keys = [name for name in dict.fromkeys((*hyperparameters, *_shown_keys(sweep))) if name in rows]
    rows = rows.reindex(columns=list(dict.fromkeys([*rows.columns, *_needed(sweep)])))
    folder, about = folder or f"{name}/{preset}", _about(name, label or preset, rows)
    value_text = text_with_class_names(files, name, rows)
    history = _history(files, name) if sweep.trajectories else pd.DataFrame()
    figures = _Figures(files, folder, sweep, preset, rows, keys, so_far, about, value_text, spread)
    models = sweep.tables[0] if sweep.tables else None
    writers: list[tuple[str, Callable[[], str | None]]] = [
        *((f"heatmap {view.metric.name}", partial(figures.heatmap, view)) for view in sweep.heatmaps),
        ("breakdown", figures.breakdown),
        ("correlations", figures.correlations),
        *((f"table {table.name}", partial(figures.table, table)) for table in sweep.tables),
        ("best settings", figures.best_settings),
        *((f"trajectory {view.name}", partial(figures.trajectory, history, view)) for view in sweep.trajectories),
        ("sheets of methods", partial(sheets.write_sheets, files, name, folder, rows)),
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
        ("maps of latents", partial(sheets.write_latent_maps, files, name, folder, rows, about)),
        ("sheets of anomalies", partial(figures.anomalies, name, alarm_rate)),
    ]
    texts = [made(files.log, f"store {files.display_uri}, {folder}: {figure}", write) for figure, write in writers]
    return "\n\n".join(text for text in texts if text)


@dataclass(frozen=True)
class _Figures:
    """The figures and tables of some rows. Each method writes one, and returns what the terminal shows of it."""

    files: Files
    folder: str
    sweep: Sweep
    preset: str
    rows: pd.DataFrame
    keys: Sequence[str]
    """Columns of hyperparameters."""
    so_far: bool
    """Whether trials are still to come."""
    about: str
    value_text: ValueText
    spread: Spread

    def heatmap(self, view: Heatmap) -> str | None:
        """The text has the cells of the first heatmap of a sweep without tables. None is written if none of its
        selections has a trial."""
        shown, sweep = labelled(self.rows, view.selections), self.sweep
        if view.selections and shown.empty:
            return None
        over = _over(sweep, shown, view.axes)
        best = _best(sweep, shown, view.metric, (*self.keys, *view.axes), view.axes)
        options: dict[str, Any] = {"over": over, "about": self.about, "value_text": self.value_text}
        options |= {"best": best, "so_far": self.so_far, "spread": self.spread, "replicates": sweep.replicates}
        cells = heatmaps.write(self.files, self.folder, shown, view, self.preset, **options)
        if view != sweep.heatmaps[0] or sweep.tables:
            return None
        return heatmaps.cells_text(cells, view, over, best, self.value_text, self.spread)

    def breakdown(self) -> str | None:
        """The replicates of the best setting of the first heatmap."""
        if not (self.sweep.heatmaps and self.sweep.breakdown):
            return None
        first = self.sweep.heatmaps[0]
        rows = labelled(self.rows, first.selections)
        best = _best(self.sweep, rows, first.metric, (*self.keys, *first.axes), first.axes)
        table = heatmaps.breakdown(rows, best, first.axes, self.sweep.breakdown, self.sweep.replicates)
        self.files.write(figure_path("heatmaps", self.folder, "breakdown.parquet"), table.to_parquet(index=False))
        scaled = in_percent(table) if first.metric.percent else table
        spread = "±" if self.spread == "interval" else "std"
        shown = [*first.axes, self.sweep.breakdown, "mean", spread, "replicates"]
        scaled = scaled.assign(**{spread: [spread_of(cell, self.spread) for cell in scaled.to_dict("records")]})[shown]
        how = f", {chosen(best[0])}" if best else ""
        title = f"{first.metric.label} by {self.sweep.breakdown} at the best setting{how}"
        return f"{title}\n{heatmaps.text(scaled.dropna(axis=1, how='all'), value_text=self.value_text)}"

    def correlations(self) -> str | None:
        """Correlations over the cells of the first heatmap."""
        if not (self.sweep.heatmaps and self.sweep.correlations):
            return None
        first = self.sweep.heatmaps[0]
        table = heatmaps.correlations(labelled(self.rows, first.selections), self.sweep.correlations, first.axes)
        self.files.write(figure_path("heatmaps", self.folder, "correlations.parquet"), table.to_parquet(index=False))
        known = table.dropna(subset="r")
        if known.empty:
            return None
        return f"correlation over the cells of {first.rows} x {first.columns}\n{heatmaps.text(known)}"

    def table(self, table: Table) -> str | None:
        """No table is written if none of its cells has a trial."""
        shown, replicates = labelled(self.rows, table.selections), self.sweep.replicates
        only = narrowed(self.sweep.grids(self.preset), shown, table.axes, table.selections)
        cells = tables.average(shown, table, self.preset, only, replicates)
        if not tables.has_trials(cells):
            return None
        over = averaged_over(shown, table.axes, replicates)
        tables.write(self.files, self.folder, cells, table, over, self.value_text, self.spread)
        return tables.text(cells, table, value_text=self.value_text, over=over, spread=self.spread)

    def best_settings(self) -> str | None:
        """A sentence about each best setting."""
        names = with_names(self.value_text)
        found = self._best_settings()
        return "\n".join(sentences(found, MAX_BEST, so_far=self.so_far, value_text=names, spread=self.spread))

    def anomalies(self, name: str, alarm_rate: float | None) -> None:
        """Write the sheet of the best trial of each best setting, if it has one."""
        with_sheets = self.files.list(sheets_folder(name))
        rows = self.rows[self.rows["trial_id"].isin(with_sheets)].set_index("trial_id", drop=False)
        for trial in (next(iter(best.values)) for best in (self._best_settings() if len(rows) else ())):
            if trial not in rows.index:
                continue
            row = rows.loc[trial]
            shown = {key: self.value_text(key, row[key]) for key in ("method", CLASS) if key in row}
            title = ", ".join((name, *(f"{key}={text}" for key, text in shown.items())))
            anomalies.write(self.files, name, self.folder, row["dataset"], row["trial_id"], title, alarm_rate)

    def _best_settings(self) -> list[BestSetting]:
        """The best settings by the metric that the preset decides by; none of a front."""
        if not self.sweep.ranks(self.preset):
            return []
        headline, named = self.sweep.headline(self.preset), self.sweep.naming(self.preset)
        return _best(self.sweep, self.rows, headline, (*self.keys, *named), named)

    def trajectory(self, history: pd.DataFrame, view: Trajectory) -> None:
        shown = labelled(self.rows, view.selections)
        if view.selections and shown.empty:
            return
        options: dict[str, Any] = {"about": self.about, "value_text": self.value_text}
        trajectories.write(self.files, self.folder, history, shown, view, replicates=self.sweep.replicates, **options)


def _best(
    sweep: Sweep, rows: pd.DataFrame, metric: Metric, keys: Sequence[str], named: Sequence[str]
) -> list[BestSetting]:
    """Return the best settings by a metric. A row that several selections have counts once."""
    settings = Settings(keys, sweep.replicates)
    single = rows.drop_duplicates("trial_id") if "trial_id" in rows else rows
    wanted = (*settings.columns, *columns_of(metric.name, list(single)))
    settings.add(single[[name for name in dict.fromkeys(wanted) if name in single]].to_dict("records"))
    return settings.best(metric, named)


def _shown_keys(sweep: Sweep) -> list[str]:
    """Return the hyperparameters that views show, and those that repeat an experiment."""
    return [key for axes in sweep.axes_by_metric.values() for key in axes] + list(sweep.replicates)


def with_names(value_text: ValueText) -> ValueText:
    """Return how a sentence writes values: short numbers, and the names of classes."""
    return lambda name, value: value_text(name, value) if name == CLASS else short_text(name, value)


def _needed(sweep: Sweep) -> list[str]:
    shown = [column for metric, axes in sweep.axes_by_metric.items() for column in (metric, *axes)]
    paired = [metric for pair in sweep.correlations for metric in pair]
    return [*shown, *paired, *([sweep.breakdown] if sweep.breakdown else [])]


def _history(files: Files, name: str) -> pd.DataFrame:
    """Return the history of the sweep, which is empty if no cohort has reported yet."""
    if any(file.endswith(SUFFIX) for file in files.list(history_folder(name))):
        return load_history(name, files)
    return pd.DataFrame({"trial_id": [], "epoch": [], "metric": [], "value": []})


def _about(name: str, label: str, rows: pd.DataFrame) -> str:
    datasets = list(dict.fromkeys(rows["dataset"].dropna())) if "dataset" in rows else []
    suffix = f", data set{'s' if len(datasets) > 1 else ''} {', '.join(datasets)}" if datasets else ""
    return f"{name} ({label}){suffix}"


def _over(sweep: Sweep, rows: pd.DataFrame, axes: tuple[str, str]) -> str:
    """Return what a cell's mean is over: `sweep.over`, or "replicates" if more than one hyperparameter repeats it."""
    found = averaged_over(rows, axes, sweep.replicates)
    return sweep.over if sweep.over != "trials" and found != "replicates" else found
