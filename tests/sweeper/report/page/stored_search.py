"""A small search in a store: two studies, pruned and diverged trials, and the importances that its run wrote."""

import math
from datetime import timedelta
from pathlib import Path

import numpy as np
import pandas as pd
from optuna.distributions import CategoricalDistribution, FloatDistribution

from sweeper.definition import Metric, Search, Sweep
from sweeper.report.figures import figures_of
from sweeper.report.kinds import write_figures
from sweeper.storage.rows import Columns
from sweeper.storage.store import Store
from tests.sweeper.report.page.stored import BEGIN

NAME = "search"
SPACE = {"lr": FloatDistribution(1e-4, 1e-1, log=True), "encoder": CategoricalDistribution(("mlp", "conv"))}
OBJECTIVE = Metric("val_knn_z", "maximize", percent=True)
AXES = {"normal_class": (0, 1)}
SWEEP = Sweep("a search", {"paper": Search(SPACE, {"method": "vje"}, 30, OBJECTIVE, wave=10, axes=AXES)})
COLUMNS = Columns(
    {"method": str, "dataset": str, "lr": float, "encoder": str, "normal_class": int, "study": str, "number": int},
    ("val_knn_z", "knn_z"),
)


def fill(folder: Path) -> Store:
    """Write two studies of 30 trials each, and the importances of the first."""
    store, rng = Store(folder), np.random.default_rng(0)
    write_figures(store.files, NAME, figures_of(SWEEP, "paper"))
    store.prepare(NAME, COLUMNS)
    rows = []
    for study in (0, 1):
        for number in range(30):
            lr, encoder = 10 ** rng.uniform(-4, -1), str(rng.choice(["mlp", "conv"]))
            value = math.exp(-((math.log10(lr) + 2) ** 2)) * (0.9 if encoder == "conv" else 0.8) + 0.01 * rng.random()
            status = "pruned" if number % 5 == 4 else "diverged" if number == 7 else "finished"
            metrics = {} if status == "diverged" else {"val_knn_z": value, "knn_z": value - 0.01}
            hyper = {"method": "vje", "dataset": "digits", "lr": lr, "encoder": encoder, "normal_class": study}
            run = {"status": status, "cohort": "c", "cohort_size": 10, "epochs_run": 3, "seconds": 1.0}
            times = {"started": BEGIN, "ended": BEGIN + timedelta(seconds=number)}
            own = {"trial_id": f"s{study}n{number:02d}", "study": f"normal_class={study}", "number": number}
            rows.append({**own, **hyper, **metrics, **run, **times, "preset": "paper", "changes": ""})
    store.write(NAME, "c", rows, COLUMNS)
    shares = pd.DataFrame({"objective": "val_knn_z", "parameter": ["lr", "encoder"], "importance": [0.75, 0.25]})
    states = pd.DataFrame({"state": ["complete"] * 23 + ["pruned"] * 7})
    for name, table in {"importance": shares, "trials": states}.items():
        store.files.write(f"studies/{NAME}/paper/normal_class=0/{name}.parquet", table.to_parquet(index=False))
    for journal in ("journal.log", "journal.log.lock"):
        store.files.write(f"studies/{NAME}/paper/{journal}", b"a file beside the studies")
    return store
