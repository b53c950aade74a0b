"""History and rows of small sweeps, for the tests of trajectories and curves."""

import numpy as np
import pandas as pd

from sweeper.spec import Metric
from sweeper.spec.views import Trajectory

KNN, NLL = Metric("knn", "maximize", percent=True), Metric("nll", "minimize")
BOTH = Trajectory("training", (KNN, NLL), by=("method",))


def reports(lines: list, epochs: list[int], seeds: int = 3) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the history and the rows of trials that all report both metrics."""
    draws = np.random.default_rng(0)
    trials = [(f"t{i}-{seed}", line, seed) for i, line in enumerate(lines) for seed in range(seeds)]
    records = [
        (trial, epoch, metric, scale * draws.uniform(0.5, 0.9))
        for trial, _, _ in trials[::-1]
        for metric, scale in (("nll", 9.0), ("knn", 1.0), ("loss", 1.0))
        for epoch in epochs[::-1]
    ]
    history = pd.DataFrame(records, columns=["trial_id", "epoch", "metric", "value"])
    return history.astype({"epoch": "int64"}), pd.DataFrame(trials, columns=["trial_id", "method", "seed"])
