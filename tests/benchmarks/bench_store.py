"""How long 100,000 trials take to write in cohorts of 56, to compact, and to read back to a pivot.

python -m tests.benchmarks.bench_store [--trials N] [--folder DIR]
"""

import argparse
import hashlib
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

from sweeper.heatmap import pivot
from sweeper.schema import Columns
from sweeper.store import Store, load

COHORT = 56
HYPER = {
    "method": str,
    "dataset": str,
    "class": int,
    "beta": float,
    "nu": float,
    "seed": int,
    "epochs": int,
    "batch_size": int,
    "lr": float,
    "weight_decay": float,
    "momentum": float,
    "encoder": str,
    "terms": str,
    "augment": bool,
}
METRICS = ("auroc_joint", "auroc_dir", "auroc_rad", "auroc_variance", "auroc_entropy", "knn", "linear", "loss")
COLUMNS = Columns(HYPER, METRICS)
BETAS, NUS = (0.0, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0), (0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, float("inf"))


def cohorts(trials: int) -> list[list[dict[str, object]]]:
    """Rows as a sweep would make them."""
    rng, start = np.random.default_rng(0), datetime(2026, 1, 1, tzinfo=UTC)
    rows = []
    for index, values in enumerate(rng.normal(0.8, 0.1, (trials, len(METRICS))).tolist()):
        began = start + timedelta(seconds=index)
        rows.append(
            {
                "trial_id": hashlib.sha256(str(index).encode()).hexdigest()[:16],
                "status": "finished",
                "cohort": f"c{index // COHORT}",
                "cohort_size": COHORT,
                "epochs_run": 800,
                "seconds": 12.5,
                "device": "cuda",
                "host": f"node{index % 7}",
                "code_version": "0123abc",
                "started": began,
                "ended": began + timedelta(seconds=60),
                "method": "vje",
                "dataset": "cifar10",
                "class": index % 10,
                "beta": BETAS[index % 7],
                "nu": NUS[index % 8],
                "seed": index // 560,
                "epochs": 800,
                "batch_size": 64,
                "lr": 5e-6,
                "weight_decay": 5e-6,
                "momentum": 0.9,
                "encoder": "resnet18",
                "terms": "dir+rad+kl",
                "augment": True,
                **dict(zip(METRICS, values, strict=True)),
            }
        )
    return [rows[first : first + COHORT] for first in range(0, trials, COHORT)]


def timed_pivot(folder: Path) -> float:
    begun = time.perf_counter()
    pivot(load("bench", folder), "auroc_joint", ("beta", "nu"))
    return time.perf_counter() - begun


def measure(trials: int, folder: Path) -> None:
    store, groups = Store(folder), cohorts(trials)
    store.prepare("bench", COLUMNS)
    begun = time.perf_counter()
    for index, rows in enumerate(groups):
        store.write("bench", f"c{index}", rows, COLUMNS)
    seconds = time.perf_counter() - begun
    print(f"write    {trials:,} rows in {len(groups):,} files   {seconds:6.2f} s   {len(groups) / seconds:.0f} files/s")
    begun = time.perf_counter()
    again = Store(folder)
    again.prepare("bench", COLUMNS)
    print(f"prepare  (a resumed run reads what is there)   {time.perf_counter() - begun:6.2f} s")
    many = min(timed_pivot(folder) for _ in range(2))
    print(f"pivot    from {len(groups):,} files   {many:6.2f} s")
    begun = time.perf_counter()
    again.compact("bench")
    print(f"compact  {time.perf_counter() - begun:6.2f} s")
    few = min(timed_pivot(folder) for _ in range(3))
    print(f"pivot    from 1 file   {few:6.2f} s   {many / few:.1f} times faster (target: under 2 s)")
    begun = time.perf_counter()
    again.write("bench", "c0", [{**groups[0][0], "auroc_joint": 0.5}], COLUMNS)
    print(f"rewrite  one trial of the compacted file   {time.perf_counter() - begun:6.2f} s")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=100_000)
    parser.add_argument("--folder", type=Path, help="a folder of the disk to measure; by default a temporary one")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        measure(options.trials, Path(name))
