"""All that the page of a sweep shows, as plain values for JSON, its curves, and what the list of sweeps says of it.

The page leaves a summary in `reports/NAME.summary.json`, from which the list of sweeps is made.
"""

import json
import math
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any

import numpy as np
import pandas as pd
from msgspec import Meta

from sweeper.definition.figures import Heatmap
from sweeper.definition.metric import VALIDATION
from sweeper.definition.sweep import SEEDS, Repeats
from sweeper.report.figures import PresetFigures, Shown, made
from sweeper.report.formatting import (
    format_significant,
    json_values,
    read_class_names,
    text_with_class_names,
)
from sweeper.report.heatmaps import colour_scale, pivot_of
from sweeper.report.kinds import KINDS, read_figures
from sweeper.report.page import aggregates, embedded, findings
from sweeper.report.page.findings import declared_metrics, encode
from sweeper.report.reruns import Reruns, reruns
from sweeper.report.selections import labelled
from sweeper.results.estimates import unit_halves
from sweeper.results.replicates import group_numbers, in_percent
from sweeper.storage.files import Files, read_record
from sweeper.storage.layout import (
    LOGS,
    SUFFIX,
    claims_folder,
    figures_folder,
    logs_folder,
    summary_path,
)
from sweeper.storage.load import Snapshot, load_trial_names, take_snapshot
from sweeper.storage.requests import StoredRequest, short_name, stored_requests
from sweeper.storage.rows import FIXED, STATUSES
from trainables.json_input import Count

MAX_SENTENCES, MAX_TEXT = 3, 500
"""Most sentences about best settings of a card, and most characters of a text."""
MAX_CARD_SIDE = 60
"""Most rows and most columns of a heatmap that is drawn on a card."""

Shade = Annotated[float, Meta(ge=0, le=1)]
"""The brightness of a cell, from the worst to the best of a heatmap's colours."""
Shades = Annotated[list[Shade | None], Meta(max_length=MAX_CARD_SIDE)]
Time = Annotated[float, Meta(ge=0, le=datetime(9999, 1, 1, tzinfo=UTC).timestamp())]


@dataclass(frozen=True)
class Thumbnail:
    """A heatmap without its numbers. Raises ValueError if it has no cells, or rows of different length."""

    caption: str
    shades: Annotated[list[Shades], Meta(max_length=MAX_CARD_SIDE)]
    """`[rows][columns]`; None for a cell without a value."""

    def __post_init__(self) -> None:
        lengths = {len(row) for row in self.shades}
        if len(lengths) != 1 or 0 in lengths:
            raise ValueError("the rows of a heatmap must have one length, which is not 0")


@dataclass(frozen=True)
class Summary:
    """What the list of sweeps says of one. Raises ValueError if more trials have ended than there are."""

    about: str
    counts: Annotated[Mapping[str, Count], Meta(max_length=len(STATUSES))]
    """Status -> number of trials of all requests."""
    request: str = ""
    """The request with the latest row; empty if there are no rows."""
    requests: Count = 0
    """Number of requests that have rows."""
    done: Count = 0
    """Number of trials of the request that have a row."""
    total: Count | None = None
    """Number of all trials of the request; None if that is not known, as of a search."""
    best: Annotated[list[str], Meta(max_length=MAX_SENTENCES + 1)] = field(default_factory=list)
    """Sentences about the best settings of the request."""
    last: Time | None = None
    """When the latest row came, in seconds since 1970."""
    heatmap: Thumbnail | None = None
    """The first one of the request."""

    def __post_init__(self) -> None:
        if self.total is not None and self.total < self.done:
            raise ValueError(f"{self.done} of {self.total} trials cannot have ended")


MAX_NOTES = 20
"""Most damaged files of a kind that a page names."""
MAX_REQUESTS = 24
"""Most requests of which a page has tables, trajectories and best settings."""


@dataclass(frozen=True)
class Contents:
    report: Mapping[str, Any]
    """Values for JSON."""
    curves: bytes
    """Little-endian float64 values, to which `report["curves"]` refers."""
    summary: Summary
    """What the list of all sweeps says of this one."""


def collect(files: Files, name: str, *, every: bool = False) -> Contents:
    """Read a sweep from the store: its rows and history, and what it says to show of them. `every`: with all of its
    trials, also where they are more than a page has."""
    snapshot = take_snapshot(files, name)
    shown, problems = read_figures(files, name)
    rows, history = snapshot.rows, snapshot.history
    known, damaged = stored_requests(files, name, rows)
    is_large = len(rows) > aggregates.MAX_TRIALS and not every
    positions = aggregates.kept(known, shown) if is_large else range(len(rows))
    own = rows.iloc[positions]
    recorded = list(own["trial_id"])
    unfinished = sorted(set(history["trial_id"].unique()).difference(rows["trial_id"]))
    names = _trial_names(files, name) if unfinished else {}
    packed = embedded.pack_curves(history, [*recorded, *unfinished], _first_metrics(shown))
    grids = embedded.collect_pictures(files, name, recorded)
    unusual_first = own["trial_id"].iloc[(own["status"] == "finished").argsort(kind="stable")]
    logs, logs_left_out = embedded.collect_logs(files, name, list(unusual_first))
    requests, requests_note = _requests(files, name, snapshot, shown, known, positions)
    importances, importances_notes = findings.importances(files, name)
    judged, claims_notes = _claims(files, name)
    failures = list[str]()
    earlier = made(failures.append, "earlier runs", partial(reruns, files, name, own)) or Reruns([], failures)
    report = {
        "name": name,
        "about": next((preset.about for preset in shown.values()), ""),
        "count": len(own),
        "left_out": _left_out_trials(files, len(rows), len(own)),
        "halves": _halves(rows, shown.values()),
        "repeats": asdict(SEEDS),
        "columns": encode(own, snapshot.columns, shown.values()),
        "requests": requests,
        "opens_with": _largest(known),
        "classes": read_class_names(files, name, rows),
        "kinds": [{"id": kind.FOLDER, "title": kind.TITLE} for kind in KINDS.values()],
        "presets": {name: findings.preset(preset) for name, preset in shown.items()},
        "importances": importances,
        "claims": judged,
        "reruns": earlier.runs,
        "pictures": [asdict(picture) for picture in grids.pictures],
        "logs": [asdict(log) for log in logs],
        "unfinished": [{"trial_id": trial, "config": names.get(trial, {})} for trial in unfinished],
        "curves": list(packed.series),
        "notes": [
            *_few(problems),
            *_notes(files, name, snapshot, packed.note, {"sheets": grids.left_out, LOGS: logs_left_out}),
            *_few(_damaged(damaged)),
            *requests_note,
            *importances_notes,
            *_few(claims_notes),
            *earlier.notes,
        ],
    }
    summary = summarise(report, shown, rows["status"], next(iter(known), None))
    return Contents(report, packed.values.astype("<f8").tobytes(), summary)


def _claims(files: Files, name: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the claims of a sweep as they were judged last, and a sentence about each table that cannot be read."""
    if not files.list_files(claims_folder(name), SUFFIX):
        return [], []
    from sweeper.claims import hook  # here: a sweep without verdicts does not need it

    return hook.section(files, name)


def _left_out_trials(files: Files, count: int, kept: int) -> dict[str, Any] | None:
    """Return what is said of the trials that a page lacks, and the command that shows them; None if it has all."""
    if kept == count:
        return None
    which = "the best of each setting, and the latest that failed or diverged"
    text = f"The figures are of all {count:,} trials. This page has {kept:,} of them: {which}."
    return {"text": text, "command": shlex.join(["sweeper", "view", files.display_uri])}


def _halves(rows: pd.DataFrame, shown: Iterable[PresetFigures]) -> list[float | None]:
    """Return half the widths of the 95 % intervals of n replicates whose standard deviation is 1, by n: up to as many
    as the rows have. That of fewer than `MIN_REPLICATES` is not known."""
    drawn = dict.fromkeys(name for preset in shown for name in preset.repeats.drawn if name in rows)
    most = len(np.unique(group_numbers(rows, list(drawn))))
    if {"study", "number"} <= {*rows}:  # of which a proposal may have replicates of any hyperparameter
        most = max([most, *rows.groupby(["study", "number"]).size()])
    halves: list[float | None] = json_values(pd.Series(unit_halves(most)))
    return halves


def _trial_names(files: Files, name: str) -> Mapping[str, Mapping[str, Any]]:
    """Return trial_id -> the hyperparameters that identify it, as the last run wrote them; empty if it wrote none."""
    return {
        trial: {
            key: str(value) if value in (math.inf, -math.inf) else value
            for key, value in named.items()
            if key not in FIXED
        }
        for trial, named in load_trial_names(files, name).items()
    }


def _requests(
    files: Files,
    name: str,
    snapshot: Snapshot,
    shown: Mapping[str, PresetFigures],
    known: Sequence[StoredRequest],
    kept: Sequence[int],
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the `known` requests, and sentences about what is left out. `kept` are the positions of the rows that the
    page has, from which it numbers them."""
    numbers = {position: number for number, position in enumerate(kept)}
    failures, found = list[str](), list[dict[str, Any]]()
    short = [short_name(request.label) for request in known]
    titles = [title if short.count(title) == 1 else each.label for title, each in zip(short, known, strict=True)]
    for index, request in enumerate(known):
        plain = {"label": request.label, "preset": request.preset, "total": request.total}
        plain["title"] = titles[index]
        record: dict[str, Any] = {
            **plain,
            "count": len(request.rows),
            "trials": _numbered(request.rows.index, numbers),
            "course": aggregates.course(request.rows),
            "best": {},
            "infeasible": [],
            "cells": [],
            "published": True,
            "figures": {},
        }
        comparable, figures = request.comparable, shown.get(request.preset)
        if figures:
            record["published"] = figures.are_beside(comparable, request.changes)
        if index < MAX_REQUESTS and figures:
            value_text = text_with_class_names(files, name, comparable)
            beside = figures.beside(comparable, request.changes)
            request_shown = Shown(
                *(beside, comparable, lambda: snapshot.history, list(snapshot.columns.hyperparameters), value_text),
                so_far=request.so_far,
            )
            record["figures"] = _figures_of(request_shown, failures.append)
            infeasible = partial(findings.infeasible, figures, comparable)
            record["infeasible"] = _numbered(made(failures.append, "infeasible trials", infeasible) or [], numbers)
            best_of = partial(findings.best, request_shown, snapshot.columns)
            best = made(failures.append, "best settings", best_of) or {}
            if len(kept) < len(snapshot.rows):
                cells = partial(_cells, figures, comparable, snapshot, best)
                record["cells"] = made(failures.append, "heatmaps", cells) or []
            record["best"] = {
                metric: {
                    "text": said["text"],
                    "trials": [numbers[trial] for trial in said["trials"] if trial in numbers],
                    "alike": _numbered(said["alike"], numbers),
                }
                for metric, said in best.items()
            }
        found.append(record)
    notes = [f"{failure}." for failure in dict.fromkeys(failures)]
    if known[MAX_REQUESTS:]:
        lacks = f"it lacks the tables and best settings of {len(known) - MAX_REQUESTS} of {len(known)} requests"
        place = files.display_uri_of(figures_folder("tables", name))
        notes.append(f"To keep this page small, {lacks}, those with the oldest results; the tables are in {place}.")
    return found, notes


def _largest(known: Sequence[StoredRequest]) -> int:
    """Return the position of the request with most rows, of those of which the page has figures; 0 without any. One
    that the store lists comes before rows of an earlier definition, and of equal ones the latest."""
    sizes = [(request.listed, len(request.rows)) for request in known[:MAX_REQUESTS]]
    return sizes.index(max(sizes)) if sizes else 0


def _numbered(positions: Iterable[int], numbers: Mapping[int, int]) -> list[list[int]]:
    """Return the numbers of the trials at these positions, of those that the page has, as ranges."""
    return findings.ranges(numbers[position] for position in positions if position in numbers)


def _cells(
    figures: PresetFigures, comparable: pd.DataFrame, snapshot: Snapshot, best: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return the cells of the heatmaps of one request, by every metric that was measured, those of figures first."""
    metrics = (*(metric.name for metric in figures.metrics), *snapshot.columns.metrics)
    measured = [name for name in dict.fromkeys(metrics) if name in comparable and comparable[name].notna().any()]
    return aggregates.heatmap_cells(figures, comparable, measured, best)


def _figures_of(shown: Shown, say: Callable[[str], object]) -> dict[str, list[Any]]:
    """Return kind -> the figures of one request that a page draws. `say` gets a sentence about each that cannot be
    made."""
    found: dict[str, list[Any]] = {}
    for figure in shown.preset.figures:
        kind = KINDS[type(figure)]
        if drawn := made(say, figure.title, partial(kind.on_page, shown, figure)):
            found.setdefault(kind.FOLDER, []).append(drawn)
    return found


def _first_metrics(shown: Mapping[str, PresetFigures]) -> Sequence[str]:
    """Return the metrics whose curves matter most."""
    names = [*(preset.headline.name for preset in shown.values()), "loss", *declared_metrics(shown.values())]
    return list(dict.fromkeys(name for metric in names for name in (metric, f"{VALIDATION}{metric}")))


def _damaged(reasons: Mapping[str, str]) -> list[str]:
    return [f"Damaged and left out: {path}: {reason}." for path, reason in reasons.items()]


def _few(notes: Sequence[str]) -> list[str]:
    """Return sentences about files, of many the first ones and how many more there are."""
    more = len(notes) - MAX_NOTES
    return [*notes[:MAX_NOTES], *([f"The same is true of {more:,} more files."] if more > 0 else [])]


def _notes(files: Files, name: str, snapshot: Snapshot, curves_note: str, left_out: Mapping[str, int]) -> list[str]:
    """Return sentences about what the page lacks. `left_out`: how many files of which kinds."""
    notes = _few(_damaged(snapshot.damaged))
    for kind, count in left_out.items():
        if count:
            place = files.display_uri_of(logs_folder(name) if kind == LOGS else figures_folder(kind, name))
            notes.append(f"To keep this page small, it lacks {count} of the {kind} in {place}.")
    return [*notes, *([curves_note] if curves_note else [])]


def summarise(
    report: Mapping[str, Any], shown: Mapping[str, PresetFigures], every: pd.Series, request: StoredRequest | None
) -> Summary:
    """Return the summary of a sweep from the `report` of its page, the figures of its presets, the statuses of `every`
    trial, and the request with the latest one."""
    statuses = every.value_counts()
    summary = Summary(str(report["about"])[:MAX_TEXT], {name: int(statuses.get(name, 0)) for name in STATUSES})
    if request is None:
        return summary
    latest = report["requests"][0]
    figures, ended = shown.get(latest["preset"]), request.rows["ended"].max()
    return replace(
        summary,
        request=str(latest["label"])[:MAX_TEXT],
        requests=len(report["requests"]),
        done=len(request.rows),
        total=latest["total"],
        best=_best_sentences(figures, latest["best"]),
        last=None if pd.isna(ended) else ended.timestamp(),
        heatmap=made(_left_out, "heatmap", partial(_thumbnail, figures, request.comparable)),
    )


def read_summary(files: Files, name: str) -> Summary | None:
    """Return what the page of a sweep wrote; None if it wrote nothing or the file is damaged, which a line says."""
    return read_record(files, summary_path(name), Summary)


def write_summary(files: Files, name: str, summary: Summary) -> None:
    """Write what the list of sweeps says of this one. Raises StoreError if that is not possible."""
    files.write(summary_path(name), json.dumps(asdict(summary), separators=(",", ":"), allow_nan=False).encode())


def _best_sentences(figures: PresetFigures | None, best: Mapping[str, Any]) -> list[str]:
    """Return the first sentences about the metric by which the preset decides, as in the head of the page."""
    plain = figures.headline.name.removeprefix(VALIDATION) if figures else ""
    said: list[str] = (best.get(plain) or best.get(f"{VALIDATION}{plain}") or {"text": []})["text"]
    more = [f"and {len(said) - MAX_SENTENCES} more lines on the page"] if len(said) > MAX_SENTENCES else []
    return [*(sentence[:MAX_TEXT] for sentence in said[:MAX_SENTENCES]), *more]


def _left_out(reason: str) -> None:
    """A heatmap that fails for its data is not drawn; the page says why."""


def _thumbnail(figures: PresetFigures | None, rows: pd.DataFrame) -> Thumbnail | None:
    """Return the first heatmap of the preset that has values and is small enough."""
    if figures is None:
        return None
    heatmaps = figures.of_kind(Heatmap)
    shown = (_shades(heatmap, labelled(rows, heatmap.selections), figures.repeats) for heatmap in heatmaps)
    return next(filter(None, shown), None)


def _shades(heatmap: Heatmap, rows: pd.DataFrame, repeats: Repeats) -> Thumbnail | None:
    if not {*heatmap.axes, heatmap.metric.name} <= {*rows.columns} or rows.empty:
        return None
    metric, cells = heatmap.metric, pivot_of(heatmap.metric, rows, heatmap.axes, repeats)
    if metric.percent:
        cells = in_percent(cells)
    across, finite = cells[heatmap.columns].nunique(dropna=False), cells["mean"][np.isfinite(cells["mean"])]
    if finite.empty or max(across, len(cells) // across) > MAX_CARD_SIDE:
        return None
    scale = colour_scale(cells, metric.bounds)
    places = ((finite - scale.low) / (scale.high - scale.low)).clip(0, 1)
    shades = (1 - places if metric.better == "lower" else places).round(3).to_dict()
    table = [[shades.get(start + column) for column in range(across)] for start in range(0, len(cells), across)]
    low, high = (format_significant(float(value)) for value in (finite.min(), finite.max()))
    text = f"{metric.label} from {low} to {high}, {heatmap.rows} by {heatmap.columns}"
    return Thumbnail(f"{text}; bright is {metric.better}"[:MAX_TEXT], table)
