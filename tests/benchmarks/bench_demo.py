"""What a newcomer sees: the digits grid from a cold start, its wall time, and the memory of all its processes together;
then some of its trials under Ray Tune, each by itself.

`python -m tests.benchmarks.bench_demo [--tune N] [OPTION ...]` runs `sweeper run anomaly_grid --preset digits` into a
folder of its own; further options are passed on. Ray Tune then trains N of the 560 trials (default: 60), evenly spread
over the grid, with a core for each of its actors, which it reuses. Both train with the same loop and evaluate alike.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from sweeper.execution.session import connected
from sweeper.storage.load import load

SAMPLE_SECONDS = 2.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tune", type=int, default=60, metavar="N", help="trials under Ray Tune")
    options, further = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as store:
        command = [sys.executable, "-m", "sweeper.run", "anomaly_grid", "--preset", "digits", "--store", store]
        begun = time.perf_counter()
        driver = subprocess.Popen([*command, *further])
        resident = shared_once = processes = 0
        while driver.poll() is None:
            memory = _memory(psutil.Process(driver.pid))
            resident, shared_once, processes = (
                max(pair) for pair in zip(memory, (resident, shared_once, processes), strict=True)
            )
            time.sleep(SAMPLE_SECONDS)
        seconds = time.perf_counter() - begun
        rows = load("anomaly_grid", store)
    means = rows.groupby(["beta", "nu"])["auroc_joint"].mean()
    ms = seconds / len(rows) * 1000
    print(f"\n{len(rows)} models in {seconds:.1f} s wall ({ms:.0f} ms a model), exit status {driver.returncode}")
    print(f"peak memory of {processes} processes: {resident / 2**30:.2f} GiB, shared pages counted in each process,")
    print(f"  {shared_once / 2**30:.2f} GiB with each page counted once")
    print(f"class-averaged auroc_joint: best {means.max():.3f}, worst {means.min():.3f}")
    print(f"training seconds over all cohorts: {rows['seconds'].sum():.1f}")
    if options.tune:
        own = 1000 * _tune_seconds(options.tune) / options.tune
        print(f"Ray Tune, a trial at a time on each core: {own:.0f} ms a model, {own / ms:.1f} times as long")


def _tune_seconds(count: int) -> float:
    """Seconds in which Ray Tune trains so many trials of the grid, without the start of Ray."""
    from ray import tune

    from search_spaces.anomaly_grid import SWEEP
    from trainables.config import resolve

    (grid,) = SWEEP.grids("digits")
    configs = [resolve(each).flat() for each in grid.combinations()]
    chosen = configs[:: max(1, len(configs) // count)][:count]
    data = str(Path("data").absolute())

    def train_alone(config: dict[str, Any]) -> None:
        import torch

        from trainables.training.train import train

        torch.set_num_threads(1)
        *_, last = train([resolve(chosen[config["index"]])], Path(data))
        tune.report(dict(last.members[0].metrics))

    with connected(None) as scratch:
        begun = time.perf_counter()
        tune.Tuner(
            tune.with_resources(train_alone, {"CPU": 1}),
            param_space={"index": tune.grid_search(list(range(len(chosen))))},
            tune_config=tune.TuneConfig(reuse_actors=True),
            run_config=tune.RunConfig(storage_path=scratch, name="tune", verbose=0),
        ).fit()
        return time.perf_counter() - begun


def _memory(driver: psutil.Process) -> tuple[int, int, int]:
    """Resident and proportional (PSS) bytes of the process and all its descendants, and their number."""
    resident = proportional = count = 0
    try:
        processes = [driver, *driver.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0, 0, 0
    for process in processes:
        try:
            memory = process.memory_full_info()
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        resident, proportional, count = resident + memory.rss, proportional + memory.pss, count + 1
    return resident, proportional, count


if __name__ == "__main__":
    main()
