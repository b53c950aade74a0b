"""All that the page of a sweep shows, as plain values for JSON, and its curves."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import pandas as pd

from sweeper.report.class_names import read_class_names
from sweeper.report.guard import made
from sweeper.report.page import curves, findings, pictures
from sweeper.report.page.columns import declared_metrics, encode
from sweeper.report.page.preset_views import PresetViews, read_views
from sweeper.report.page.reruns import Reruns, reruns
from sweeper.spec.grid import Value
from sweeper.spec.metric import VALIDATION
from sweeper.storage.io.files import Files
from sweeper.storage.io.json_records import read_record
from sweeper.storage.layout import trial_names_path
from sweeper.storage.requests import read_request
from sweeper.storage.snapshot import Snapshot, take_snapshot

MAX_REQUESTS = 24
"""Most requests (a preset and its changes) of a page, except that every preset has at least one."""


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
    requests, requests_note = _requests(files, name, snapshot, shown)
    importances, importances_notes = findings.importances(files, name)
    failures = list[str]()
    earlier = made(failures.append, "earlier runs", partial(reruns, files, name, rows)) or Reruns([], failures)
    report = {
        "name": name,
        "about": next((preset.about for preset in shown.values()), ""),
        "count": len(rows),
        "columns": encode(rows, snapshot.columns, shown.values()),
        "requests": requests,
        "classes": read_class_names(files, name, rows),
        "views": {name: findings.views(preset) for name, preset in shown.items()},
        "importances": importances,
        "reruns": earlier.runs,
        "pictures": [asdict(picture) for picture in sheets.pictures],
        "unfinished": [{"trial_id": trial, "config": names.get(trial, {})} for trial in unfinished],
        "curves": list(packed.series),
        "notes": [
            *problems,
            *_notes(files, name, snapshot, packed.note, sheets.left_out),
            *requests_note,
            *importances_notes,
            *earlier.notes,
        ],
    }
    return Contents(report, packed.values.astype("<f8").tobytes())


def _trial_names(files: Files, name: str) -> Mapping[str, Mapping[str, Any]]:
    """Return trial_id -> the hyperparameters that identify it, as the last run wrote them; empty if it wrote none."""
    names: Mapping[str, Mapping[str, Value]] = (
        read_record(files, trial_names_path(name), Mapping[str, Mapping[str, Value]]) or {}
    )
    return {
        trial: {key: str(value) if value in (math.inf, -math.inf) else value for key, value in config.items()}
        for trial, config in names.items()
    }


def _requests(
    files: Files, name: str, snapshot: Snapshot, shown: Mapping[str, PresetViews]
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return each preset, with each of its changes, that has rows, and a sentence about those that are left out.

    A preset with several changes has a request for all of them, so no trial is left out. The changes with the fewest
    trials have none of their own.
    """
    rows, found, failures = snapshot.rows, [], list[str]()
    pairs = list(_pairs(rows)[["preset", "changes"]].itertuples(index=False, name=None))
    changes: dict[str, list[str]] = {}
    for preset, change in pairs:
        changes.setdefault(preset, []).append(change)
    several = [(preset, change) for preset, change in pairs if len(changes[preset]) > 1]
    left_out = set(several[max(0, MAX_REQUESTS - len(changes)) :])
    for preset, own in changes.items():
        kept = [change for change in own if (preset, change) not in left_out]
        for change in [None, *kept] if len(own) > 1 else own:
            chosen = rows["preset"].fillna("") == preset
            chosen = chosen if change is None else chosen & (rows["changes"].fillna("") == change)
            label = ", ".join(filter(None, (preset or "no preset", change if change is not None else "all changes")))
            comparable = rows[
                chosen & (rows["status"] != "pruned")
            ]  # metrics of pruned trials are from an earlier epoch
            views = _findings_of(shown.get(preset), comparable, snapshot.history, failures.append)
            known = {"label": label, "preset": preset, "changes": change}
            planned = partial(_planned, files, name, label)
            total = made(failures.append, f"request {label}", planned) if change is not None else None
            ranked = partial(_best, shown.get(preset), comparable, snapshot, total)
            best = made(failures.append, "best settings", ranked) if total or len(own) == 1 else None
            found.append({**known, "total": total, "best": best or {}, **views})
    failed = [f"{failure}." for failure in dict.fromkeys(failures)]
    if not left_out:
        return found, failed
    lacks = f"{len(left_out)} of {len(several)} changes of presets, those with the fewest trials, cannot be chosen"
    place = f"their trials are among 'all changes', and their tables in {files.display_uri_of(f'tables/{name}')}"
    return found, [*failed, f"To keep this page small, {lacks}; {place}."]


def _pairs(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the distinct pairs of `preset` and `changes` of the rows, with the number of trials, most first."""
    pairs = rows[["preset", "changes"]].fillna("")
    return pairs.value_counts(sort=True).rename("trials").reset_index()


def _findings_of(
    shown: PresetViews | None, rows: pd.DataFrame, history: pd.DataFrame, say: Callable[[str], object]
) -> dict[str, Any]:
    """Return the tables and trajectories of one request. `say` gets a sentence about each that cannot be made."""
    if shown is None:
        return {"tables": [], "trajectories": []}
    tables = [made(say, f"table {view.name}", partial(findings.table, shown, view, rows)) for view in shown.tables]
    trajectories = [
        made(say, f"trajectory {view.name}", partial(findings.trajectory, shown, view, rows, history))
        for view in shown.trajectories
    ]
    return {
        "tables": [table for table in tables if table],
        "trajectories": [trajectory for trajectory in trajectories if trajectory],
    }


def _planned(files: Files, name: str, request: str) -> int | None:
    """Return the number of trials of a request; None for a search, and where the store does not say it."""
    listed = read_request(files, name, request)
    return len(listed.ids) if listed and listed.column == "trial_id" else None


def _best(shown: PresetViews | None, rows: pd.DataFrame, snapshot: Snapshot, total: int | None) -> dict[str, Any]:
    """Return what is said of the best settings of one request, as in the terminal."""
    if shown is None:
        return {}
    so_far = total is not None and len(rows) < total
    return findings.best(shown, rows, list(snapshot.columns.hyperparameters), so_far=so_far)


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
