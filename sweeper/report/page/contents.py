"""All that the page of a sweep shows, as plain values for JSON, and its curves."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from sweeper.report.page import curves, findings, pictures
from sweeper.report.page.columns import declared_metrics, encode
from sweeper.report.page.preset_views import PresetViews, read_views
from sweeper.report.page.reruns import reruns
from sweeper.spec.metric import VALIDATION
from sweeper.storage.io.files import Files
from sweeper.storage.layout import trial_names_path
from sweeper.storage.snapshot import Snapshot, take_snapshot

MAX_REQUESTS = 24
"""Most requests (a preset and its changes) that have tables and trajectories of their own."""


@dataclass(frozen=True)
class Contents:
    report: Mapping[str, Any]
    """Values for JSON."""
    curves: bytes
    """Little-endian float64 values, to which `report["curves"]` refers."""


def collect(files: Files, name: str) -> Contents:
    """Read a sweep from the store: its rows and history, and what it says to show of them."""
    snapshot = take_snapshot(files, name)
    shown, problems = read_views(files, name)
    rows, history = snapshot.rows, snapshot.history
    recorded = list(rows["trial_id"])
    unfinished = sorted(set(history["trial_id"]).difference(recorded))
    names = _trial_names(files, name) if unfinished else {}
    packed = curves.pack(history, [*recorded, *unfinished], _first_metrics(shown))
    sheets = pictures.collect(files, name, recorded)
    report = {
        "name": name,
        "about": next((preset.about for preset in shown.values()), ""),
        "count": len(rows),
        "columns": encode(rows, snapshot.columns, shown.values()),
        "requests": _requests(snapshot, shown),
        "views": {name: findings.views(preset) for name, preset in shown.items()},
        "importances": findings.importances(files, name),
        "reruns": reruns(files, name),
        "pictures": [asdict(picture) for picture in sheets.pictures],
        "unfinished": [{"trial_id": trial, "config": names.get(trial, {})} for trial in unfinished],
        "curves": list(packed.series),
        "notes": [*problems, *_notes(files, name, snapshot, packed.note, sheets.left_out)],
    }
    return Contents(report, packed.values.astype("<f8").tobytes())


def _trial_names(files: Files, name: str) -> Mapping[str, Mapping[str, Any]]:
    """Return trial_id -> the hyperparameters that identify it, as the last run wrote them; empty if it wrote none."""
    try:
        names = json.loads(files.read(trial_names_path(name)) or b"{}", parse_constant=str)
        return {str(trial): dict(config) for trial, config in names.items()}
    except (ValueError, AttributeError):  # damaged; the next run writes it anew
        return {}


def _requests(snapshot: Snapshot, shown: Mapping[str, PresetViews]) -> list[dict[str, Any]]:
    """Return each preset, with each of its changes, that has rows. A preset with several has one for all of them."""
    pairs = _pairs(snapshot.rows)
    rows, found = snapshot.rows, []
    for preset in pairs["preset"].drop_duplicates():
        changes = list(pairs["changes"][pairs["preset"] == preset])
        selections = [None, *changes] if len(changes) > 1 else changes
        for change in selections[:MAX_REQUESTS]:
            chosen = rows["preset"].fillna("") == preset
            chosen = chosen if change is None else chosen & (rows["changes"].fillna("") == change)
            label = ", ".join(filter(None, (preset or "no preset", change if change is not None else "all changes")))
            comparable = rows[
                chosen & (rows["status"] != "pruned")
            ]  # metrics of pruned trials are from an earlier epoch
            views = _findings_of(shown.get(preset), comparable, snapshot.history)
            found.append({"label": label, "preset": preset, "changes": change, **views})
    return found


def _pairs(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the distinct pairs of `preset` and `changes` of the rows, with the number of trials, most first."""
    pairs = rows[["preset", "changes"]].fillna("")
    return pairs.value_counts(sort=True).rename("trials").reset_index()


def _findings_of(shown: PresetViews | None, rows: pd.DataFrame, history: pd.DataFrame) -> dict[str, Any]:
    """Return the tables and trajectories of one request."""
    if shown is None:
        return {"tables": [], "trajectories": []}
    return {"tables": findings.tables(shown, rows), "trajectories": findings.trajectories(shown, rows, history)}


def _first_metrics(shown: Mapping[str, PresetViews]) -> Sequence[str]:
    """Return the metrics whose curves matter most."""
    names = [*(preset.headline.name for preset in shown.values()), "loss", *declared_metrics(shown.values())]
    return list(dict.fromkeys(name for metric in names for name in (metric, f"{VALIDATION}{metric}")))


def _notes(files: Files, name: str, snapshot: Snapshot, curves_note: str, sheets_left_out: int) -> list[str]:
    """Return sentences about what the page lacks."""
    notes = [f"Damaged and left out: {path}: {reason}." for path, reason in snapshot.damaged.items()]
    if sheets_left_out:
        place = files.display_uri_of(f"sheets/{name}")
        notes.append(f"To keep this page small, it lacks {sheets_left_out} of the sheets in {place}.")
    return [*notes, *([curves_note] if curves_note else [])]
