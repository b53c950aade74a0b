"""Trials that `--fresh` trained again: in which columns their earlier runs differ from the present row."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from sweeper.errors import DamagedFiles
from sweeper.report.formatting import json_values
from sweeper.storage.files import Files
from sweeper.storage.layout import ARCHIVES, trials_folder
from sweeper.storage.load import load_replaced
from sweeper.storage.rows import PROVENANCE, plain_value

CIRCUMSTANCES = (*PROVENANCE, "preset", "changes", "cohort", "cohort_size", "replaced")
"""Columns that say how a trial ran; all others say what was trained and what came out."""


@dataclass(frozen=True)
class Difference:
    """A column in which two runs of a trial differ."""

    column: str
    kind: Literal["circumstance", "result"]
    first: Any
    """Value in the first run; None where it is null."""
    second: Any


def run_differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[Difference]:
    """Return the columns in which two rows of one trial differ, circumstances first, in the order of the rows.

    A column that one row lacks is null there; nulls are equal. Raises ValueError for rows of two trials.
    """
    if first["trial_id"] != second["trial_id"]:
        raise ValueError(f"runs must be of one trial, but got {first['trial_id']!r} and {second['trial_id']!r}")
    differences = []
    for column in dict.fromkeys((*first, *second)):
        left, right = plain_value(first.get(column)), plain_value(second.get(column))
        if left != right:
            differences.append(Difference(column, "circumstance" if column in CIRCUMSTANCES else "result", left, right))
    return sorted(differences, key=lambda difference: difference.kind)


MAX_RUNS = 500
"""Most earlier runs that a page shows."""


@dataclass(frozen=True)
class Reruns:
    runs: list[dict[str, Any]]
    """Of each earlier run `trial_id`, `replaced` (when), and lists of `columns`, `then` and `now`; latest first."""
    notes: list[str]
    """Sentences about what is left out."""


def reruns(files: Files, name: str, rows: pd.DataFrame) -> Reruns:
    """Return the earlier runs of the trials in `rows`. Archives are read from the latest on, while needed."""
    found, notes = list[dict[str, Any]](), list[str]()
    times = [time for time in files.list(ARCHIVES) if files.list(f"{ARCHIVES}/{time}/{trials_folder(name)}")]
    present = {row["trial_id"]: row for row in rows.to_dict("records")} if times else {}
    for time in reversed(times):
        if len(found) > MAX_RUNS:
            break
        try:
            archived = load_replaced(files, name, time)
        except DamagedFiles as error:
            notes.append(f"Damaged and left out: earlier runs: {error}.")
            continue
        known = archived[archived["trial_id"].isin(present)]
        found += [_rerun(run, present[run["trial_id"]], time) for run in known.to_dict("records")]
    if len(found) > MAX_RUNS:
        place = files.display_uri_of(ARCHIVES)
        shown = f"it shows the {MAX_RUNS} latest of the earlier runs of trials"
        notes.append(f"To keep this page small, {shown}; all are in {place}.")
    return Reruns(found[:MAX_RUNS], notes)


def _rerun(run: Mapping[Any, Any], now: Mapping[Any, Any], time: str) -> dict[str, Any]:
    differences = run_differences(run, now)
    return {
        "trial_id": run["trial_id"],
        "replaced": time,
        "columns": [difference.column for difference in differences],
        "then": json_values(pd.Series([difference.first for difference in differences], dtype=object)),
        "now": json_values(pd.Series([difference.second for difference in differences], dtype=object)),
    }
