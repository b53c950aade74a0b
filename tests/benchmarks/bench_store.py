"""How long 100,000 trials take to write in cohorts of 56, to compact, and to read back to a pivot; how many bytes each
takes; the processor time of `sweeper list`, `sweeper best` and the page, beside a mean by pandas; and how often a
reader who reads all the while gets an error, a trial twice, or too few.

python -m tests.benchmarks.bench_store [--trials N] [--writes N] [--folder DIR]
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from multiprocessing.queues import Queue
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Semaphore
from pathlib import Path

import numpy as np
import pandas as pd

from sweeper.definition import Grid, Heatmap, Metric, Sweep
from sweeper.report.figures import figures_of
from sweeper.report.heatmaps import pivot
from sweeper.report.kinds import write_figures
from sweeper.storage.load import load
from sweeper.storage.requests import RequestRows, write_request
from sweeper.storage.rows import Columns
from sweeper.storage.store import Store

COHORT = 56
READ_COHORT = 4
"""Trials of each cohort that is written while others read."""
HYPER = {
    "method": str,
    "dataset": str,
    "normal_class": int,
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
PANDAS = "import pandas; rows = pandas.read_parquet({trials!r}); print(rows.groupby(['beta', 'nu']).auroc_joint.mean())"
PAGE = "from sweeper.report.page import publish; from sweeper.storage.files import Files; {write}"
BETAS, NUS = (0.0, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0), (0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, float("inf"))


def cohorts(trials: int, size: int = COHORT) -> list[list[dict[str, object]]]:
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
                "normal_class": index // 56 % 10,
                "beta": BETAS[index % 7],
                "nu": NUS[index // 7 % 8],
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
    return [rows[first : first + size] for first in range(0, trials, size)]


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
    resumed = Store(folder)
    resumed.prepare("bench", COLUMNS)
    print(f"prepare  (a resumed run reads what is there)   {time.perf_counter() - begun:6.2f} s")
    many_files = min(timed_pivot(folder) for _ in range(2))
    print(f"pivot    from {len(groups):,} files   {many_files:6.2f} s")
    begun = time.perf_counter()
    resumed.compact("bench")
    print(f"compact  {time.perf_counter() - begun:6.2f} s")
    one_file = min(timed_pivot(folder) for _ in range(3))
    print(f"pivot    from 1 file   {one_file:6.2f} s   {many_files / one_file:.1f} times faster (target: under 2 s)")
    begun = time.perf_counter()
    resumed.write("bench", "c0", [{**groups[0][0], "auroc_joint": 0.5}], COLUMNS)
    print(f"rewrite  one trial of the compacted file   {time.perf_counter() - begun:6.2f} s")


def processor_seconds(*command: str) -> float:
    """Processor time of a process of Python, the least of three."""
    seconds = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    return min(seconds)


def measure_views(folder: Path) -> None:
    """Print what it takes to look at the store that `measure` has made, from the start of Python."""
    files, ids = Store(folder).files, list(load("bench", folder)["trial_id"])
    axes = {"beta": BETAS, "nu": NUS, "normal_class": tuple(range(10)), "seed": tuple(range(-(-len(ids) // 560)))}
    heatmap = Heatmap(Metric("auroc_joint", "maximize"), "beta", "nu")
    sweep = Sweep("", {"paper": Grid({"method": "vje", "dataset": "cifar10"}, axes)}, figures=(heatmap,))
    write_figures(files, "bench", figures_of(sweep, "paper"))
    write_request(files, "bench", RequestRows("paper", "paper", ids))
    plainly = processor_seconds("-c", PANDAS.format(trials=str(folder / "trials/sweep=bench")))
    print(f"pandas   reads the rows and takes means   {plainly:6.2f} s of a core")
    page = PAGE.format(write=f"publish.write(Files({str(folder)!r}), 'bench')")
    commands = {
        "list": ("-m", "sweeper", "list", str(folder)),
        "best": ("-m", "sweeper", "best", "bench", "--store", str(folder)),
        "page": ("-c", page),
    }
    for name, command in commands.items():
        seconds = processor_seconds(*command)
        print(f"{name:<8} {seconds:6.2f} s of a core   {seconds / plainly:.1f} times as long as pandas")


def plain(folder: Path) -> pd.DataFrame:
    return pd.read_parquet(folder / "trials/sweep=bench")


def loaded(folder: Path) -> pd.DataFrame:
    return load("bench", folder)


READERS: Mapping[str, Callable[[Path], pd.DataFrame]] = {"pandas": plain, "load": loaded}


def read_on(
    name: str,
    folder: Path,
    started: Semaphore,
    written: Synchronized[int],
    ended: Synchronized[int],
    results: Queue[object],
) -> None:
    """Read the store at least once and until the writer has ended, and put the count of each outcome into `results`."""
    counts: Counter[str] = Counter()
    started.release()
    begun = time.perf_counter()
    while not (counts["reads"] and ended.value):
        written_before = written.value
        try:
            trials = READERS[name](folder)["trial_id"]
        except Exception as error:
            counts[f"failed ({type(error).__name__})"] += 1
        else:
            counts["held a trial twice"] += not trials.is_unique
            counts["missed a trial"] += trials.nunique() < written_before
        counts["reads"] += 1
    results.put((name, counts, time.perf_counter() - begun))


def measure_readers(writes: int, folder: Path) -> None:
    """Print how reads end while cohorts are written as fast as possible. A read misses a trial if it lacks a row
    that was written before the read began."""
    store, groups = Store(folder), cohorts(writes * READ_COHORT, READ_COHORT)
    store.prepare("bench", COLUMNS)
    store.write("bench", "c0", groups[0], COLUMNS)
    context = multiprocessing.get_context("spawn")
    written, ended, results = context.Value("q", READ_COHORT), context.Value("q", 0), context.Queue()
    started = context.Semaphore(0)
    readers = [
        context.Process(target=read_on, args=(name, folder, started, written, ended, results)) for name in READERS
    ]
    for reader in readers:
        reader.start()
    for _ in readers:
        started.acquire()  # a process needs seconds to start, in which a few cohorts would be written already
    begun = time.perf_counter()
    for index, rows in enumerate(groups):
        store.write("bench", f"c{index}", rows, COLUMNS)
        written.value = (index + 1) * READ_COHORT
    seconds = time.perf_counter() - begun
    ended.value = 1
    print(f"while    {writes:,} cohorts are written   {seconds:6.2f} s   {writes / seconds:.0f} files/s")
    for _ in readers:
        name, counts, took = results.get()
        reads = counts.pop("reads")
        shares = ", ".join(f"{100 * count / reads:.2f} % {outcome}" for outcome, count in sorted(counts.items()))
        print(f"  {name:<6} {reads:,} reads of {took / reads:.2f} s: {shares}")
    for reader in readers:
        reader.join()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=100_000)
    parser.add_argument("--folder", type=Path, help="a folder of the disk to measure; by default a temporary one")
    parser.add_argument("--writes", type=int, default=5_000, help="cohorts that are written while others read")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        if options.trials:
            measure(options.trials, Path(name) / "store")
            measure_views(Path(name) / "store")
        if options.writes:
            measure_readers(options.writes, Path(name) / "read")
