"""Trials that `--fresh` trained again: in which columns their earlier runs differ from the present row."""

from typing import Any

import pandas as pd

from sweeper.report.page.columns import json_values
from sweeper.report.run_differences import run_differences
from sweeper.storage.io.files import Files
from sweeper.storage.layout import ARCHIVES
from sweeper.storage.load import load_runs

MAX_RUNS = 500
"""Most earlier runs that a page shows."""


def reruns(files: Files, name: str) -> list[dict[str, Any]]:
    """Return the earlier runs of trials: `trial_id`, `replaced` (when), and lists of `columns`, `then` and `now`."""
    if not any(files.list(f"{ARCHIVES}/{time}/trials/sweep={name}") for time in files.list(ARCHIVES)):
        return []
    found = []
    for trial, runs in load_runs(name, files).groupby("trial_id", sort=False):
        present = runs[runs["replaced"] == ""]
        earlier = runs[runs["replaced"] != ""]
        if present.empty or earlier.empty:
            continue
        now = present.iloc[-1].to_dict()
        for run in earlier.to_dict("records"):
            differences = [difference for difference in run_differences(run, now) if difference.column != "replaced"]
            found.append(
                {
                    "trial_id": trial,
                    "replaced": run["replaced"],
                    "columns": [difference.column for difference in differences],
                    "then": json_values(pd.Series([difference.first for difference in differences], dtype=object)),
                    "now": json_values(pd.Series([difference.second for difference in differences], dtype=object)),
                }
            )
    return found[:MAX_RUNS]
