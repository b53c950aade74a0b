"""What the figures of a preset show, as JSON from which a browser reads exactly the numbers of the Parquet files."""

import io
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import pandas as pd

from sweeper.definition import Heatmap, Metric
from sweeper.definition.metric import VALIDATION
from sweeper.report.figures import PresetFigures, Shown, made, settings_of
from sweeper.report.formatting import json_values
from sweeper.results.best import BestSetting, NoneFeasible, Settings
from sweeper.results.sentences import MAX_BEST, detection_sentences, noun_of, sentences
from sweeper.storage.files import Files
from sweeper.storage.layout import figure_path, figures_folder
from sweeper.storage.rows import Columns
from trainables.metrics.meanings import family_of

MAX_STUDIES = 50
"""Most studies whose importances a page shows."""
JOURNAL = "journal.log"
"""The file that Optuna's dashboard reads. While it is written, a lock whose name begins with it lies beside it."""


def preset(shown: PresetFigures) -> dict[str, Any]:
    """Return the heatmaps of a preset, and its objectives and searched hyperparameters if it is a search."""
    heatmaps = [
        {
            "metric": heatmap.metric.name,
            "rows": heatmap.rows,
            "columns": heatmap.columns,
            "published": [
                [*_json(cell), figure / (100 if heatmap.metric.percent else 1)]
                for cell, figure in heatmap.published.get(shown.preset, {}).items()
            ],
            "selections": [
                {
                    "labels": dict(selection.labels),
                    "where": dict(zip(selection.where, _json(tuple(selection.where.values())), strict=True)),
                }
                for selection in heatmap.selections
            ],
        }
        for heatmap in shown.of_kind(Heatmap)
    ]
    found: dict[str, Any] = {"heatmaps": heatmaps, "over": shown.over, "headline": shown.headline.name}
    found |= {"axes": shown.axes, "repeats": asdict(shown.repeats)}
    found["nouns"] = {name: noun_of(name, shown.over) for name in shown.repeats.names}
    if shown.objectives:
        found["objectives"] = [asdict(metric) for metric in shown.objectives]
        found["constraints"] = [constraint.text for constraint in shown.constraints]
        found["parameters"] = [asdict(parameter) for parameter in shown.parameters]
    return found


def infeasible(shown: PresetFigures, rows: pd.DataFrame) -> list[int]:
    """Return the trials of searches that do not meet the constraints, as positions in all rows of the sweep."""
    if not shown.constraints:
        return []
    settings = Settings((), shown.repeats, shown.constraints)
    settings.add_columns({name: rows[name].tolist() for name in settings.columns if name in rows})
    return [*map(int, rows.index[rows["trial_id"].isin(settings.infeasible)])]


def best(shown: Shown, columns: Columns) -> dict[str, Any]:
    """Return metric -> the sentences about its best settings, their trials, and those of settings that are not told
    apart from these, as positions in all rows of the sweep; for every metric of the rows that has a direction, and by
    `labelled_name` for the trials of each heatmap with labels. A front of several objectives has no best setting."""
    preset, rows = shown.preset, shown.rows
    if not preset.ranks:
        return {}
    metrics, keys = _ranking_metrics(preset, columns), (*columns.hyperparameters, *preset.repeats.names)
    settings = settings_of(preset, rows, keys, metrics, preset.naming)
    places = dict(zip(rows["trial_id"], rows.index, strict=True))

    def said(found: Sequence[BestSetting], none_feasible: Sequence[NoneFeasible] = ()) -> dict[str, Any]:
        trials = [int(places[trial]) for setting in found for trial in setting.values]
        alike = [places[trial] for setting in found for other in setting.alike for trial in other.trials]
        text = sentences(found, MAX_BEST, so_far=shown.so_far, none_feasible=none_feasible)
        text += [line for setting in found for line in detection_sentences(setting, shown.value_text)]
        return {"text": text, "trials": trials, "alike": sorted(map(int, alike))}

    return {
        metric.name: said(settings.best(metric, preset.naming), settings.none_feasible(metric)) for metric in metrics
    } | {
        labelled_name(heatmap): said(shown.best(shown.rows_of(heatmap), heatmap.metric, heatmap.axes))
        for heatmap in preset.of_kind(Heatmap)
        if heatmap.selections
    }


def labelled_name(heatmap: Heatmap) -> str:
    """Return by what name `best` has the best settings of the trials that a heatmap with labels shows."""
    return "\n".join((heatmap.metric.name, *heatmap.axes))


def ranges(positions: Iterable[int]) -> list[list[int]]:
    """Return whole numbers in ascending order as pairs of a first one and how many follow each other from it."""
    found: list[list[int]] = []
    for position in map(int, positions):
        if found and position == sum(found[-1]):
            found[-1][1] += 1
        else:
            found.append([position, 1])
    return found


def _ranking_metrics(shown: PresetFigures, columns: Columns) -> Sequence[Metric]:
    """Return the metrics that rank settings: those of the figures, and of the others each whose family has a direction.
    A setting is chosen on validation images by itself, so their metrics are not among the others."""
    declared = {metric.name: metric for metric in shown.metrics}
    known = {name.removeprefix(VALIDATION) for name in declared}
    others = (Metric(name, family.direction) for name in columns.metrics if (family := family_of(name)))
    more = [metric for metric in others if metric.direction and metric.name.removeprefix(VALIDATION) not in known]
    return [*declared.values(), *(metric for metric in more if not metric.name.startswith(VALIDATION))]


def importances(files: Files, name: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the importances that the last run of each search wrote, with the number of complete trials behind them,
    and sentences about what is left out."""
    studies, notes = _studies(files, name), list[str]()
    shown = [
        made(
            lambda reason: notes.append(f"{reason}."), f"study {study} of {folder}", partial(_importances, files, path)
        )
        for folder, study in studies[:MAX_STUDIES]
        for path in [figure_path("studies", name, f"{folder}/{study}")]
    ]
    found = [
        {"request": folder, "study": study, **importances}
        for (folder, study), importances in zip(studies, shown, strict=False)
        if importances
    ]
    if not studies[MAX_STUDIES:]:
        return found, notes
    place = files.display_uri_of(figures_folder("studies", name))
    lacks = f"it lacks the importances of {len(studies) - MAX_STUDIES} of {len(studies)} studies, which are in {place}"
    return found, [*notes, f"To keep this page small, {lacks}."]


def _importances(files: Files, path: str) -> dict[str, Any] | None:
    """Return the importances of a study with its number of complete trials; None if it has none."""
    shares, trials = (_frame(files, f"{path}/{table}.parquet") for table in ("importance", "trials"))
    if shares is None or trials is None or not len(shares):
        return None
    named = shares.rename(columns={"importance": "share"})
    records = {column: json_values(named[column]) for column in ("objective", "parameter", "share")}
    return {"complete": int((trials["state"] == "complete").sum()), **records}


def _json(values: Sequence[Any]) -> list[Any]:
    return json_values(pd.Series(list(values), dtype=object))


def _studies(files: Files, name: str) -> list[tuple[str, str]]:
    """Return the folder of each request of a search with the name of each of its studies; journals lie beside them."""
    folders = files.list(figures_folder("studies", name))
    entries = [(folder, entry) for folder in folders for entry in files.list(figure_path("studies", name, folder))]
    return [(folder, entry) for folder, entry in entries if not entry.startswith(JOURNAL)]


def _frame(files: Files, path: str) -> pd.DataFrame | None:
    """Return a table, or None if there is none, or if it is damaged: the next run of the search writes it anew."""
    data = files.read(path)
    try:
        return None if data is None else pd.read_parquet(io.BytesIO(data))
    except (OSError, ValueError):  # pyarrow's errors are of these types
        return None


def encode(rows: pd.DataFrame, columns: Columns, shown: Collection[PresetFigures]) -> list[dict[str, Any]]:
    """Return every column: `name`, `kind`, and `values`, or `constant` where all trials have the same value.

    The `kind` is `hyperparameter`, `metric` or `run` (how the trial ran). Metrics have a `direction`, `percent` and
    `bounds`, as the figures of the presets or else the metrics' own definitions say.
    """
    declared = declared_metrics(shown)
    encoded = []
    for name in map(str, rows.columns):
        values = json_values(rows[name], columns.hyperparameters.get(name))
        column: dict[str, Any] = {"name": name, "kind": "run"}
        if name in columns.metrics:
            metric = known_metric(declared, name)
            column |= {"kind": "metric", "direction": metric.direction, "percent": metric.percent}
            column["bounds"] = [bound / (100 if metric.percent else 1) for bound in metric.bounds or ()] or None
        elif name in columns.hyperparameters:
            column["kind"] = "hyperparameter"
        is_constant = len(values) > 0 and all(value == values[0] for value in values)
        encoded.append(column | ({"constant": values[0]} if is_constant else {"values": values}))
    return encoded


def declared_metrics(shown: Collection[PresetFigures]) -> Mapping[str, Metric]:
    """Return the objectives of searches and the metrics of figures, by name. The first that has a name decides."""
    objectives = [metric for preset in shown for metric in preset.objectives]
    of_figures = [metric for preset in shown for figure in preset.figures for metric in figure.shown]
    metrics: dict[str, Metric] = {}
    for metric in (*objectives, *of_figures):
        metrics.setdefault(metric.name, metric)
    return metrics


def _other_images(declared: Mapping[str, Metric], name: str) -> Metric | None:
    """Return the same metric on the other images: on test images for `val_NAME`, and the reverse."""
    return declared.get(name.removeprefix(VALIDATION) if name.startswith(VALIDATION) else f"{VALIDATION}{name}")


def known_metric(declared: Mapping[str, Metric], name: str) -> Metric:
    """Return a metric as the figures declare it or the same on other images; else in its family's unit."""
    if known := declared.get(name) or _other_images(declared, name):
        return known
    family = family_of(name)
    if family is None:
        return Metric(name)
    percent = family.share and any(metric.percent for metric in declared.values() if family_of(metric.name) is family)
    return Metric(name, family.direction, percent)
