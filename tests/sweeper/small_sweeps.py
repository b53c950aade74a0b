"""Small sweeps on the digits: a grid of six trials of the command line, and one of four that is a value."""

from pathlib import Path

import pandas as pd

from sweeper.definition import Grid, Metric, Sweep, Table, Value
from sweeper.storage.load import load
from sweeper.storage.rows import PROVENANCE


def small_grid(store: Path, *arguments: str) -> list[str]:
    """Command line of a grid of two cohorts of three trials."""
    return [
        *("anomaly_grid", "--preset", "digits", "--store", str(store), "--set", "epochs=2", "--cohort", "3"),
        *("--axis", "beta=0.5,1.0,1.5", "--axis", "normal_class=0", "--axis", "nu=1.0", "--axis", "seed=0,1"),
        *arguments,
    ]


def rows(store: Path, sweep: str) -> pd.DataFrame:
    """The rows of a sweep by the id of the trial, without columns that differ between equal runs."""
    return load(sweep, str(store)).set_index("trial_id").sort_index().drop(columns=[*PROVENANCE])


FIXED: dict[str, Value] = {
    "method": "vje", "dataset": "digits", "normal_class": 0, "validation": 0.2, "epochs": 1, "batch_size": 30,
    "encoder": "mlp", "width": 16, "features": 8, "bottleneck": 8, "lr": 0.02,
}  # fmt: skip
TINY = Sweep(
    about="four trials",
    presets={"digits": Grid(FIXED, {"beta": (0.5, 1.5), "seed": (0, 1)})},
    figures=(Table("auroc", ("beta",), (Metric("auroc_joint", "maximize"),)),),
)
