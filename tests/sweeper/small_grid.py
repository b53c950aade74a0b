"""A grid of six trials on the digits, and its rows."""

from pathlib import Path

import pandas as pd

from sweeper.storage.load import load
from sweeper.storage.rows import PROVENANCE


def small_grid(store: Path, *arguments: str) -> list[str]:
    """Command line of a grid of two cohorts of three trials."""
    axes = ["--axis", "beta=0.5,1.0,1.5", "--axis", "normal_class=0", "--axis", "nu=1.0", "--axis", "seed=0,1"]
    return [
        "anomaly_grid",
        "--preset",
        "digits",
        "--store",
        str(store),
        *axes,
        "--set",
        "epochs=2",
        "--cohort",
        "3",
        *arguments,
    ]


def rows(store: Path, sweep: str) -> pd.DataFrame:
    """The rows of a sweep by the id of the trial, without columns that differ between equal runs."""
    return load(sweep, str(store)).set_index("trial_id").sort_index().drop(columns=[*PROVENANCE])
