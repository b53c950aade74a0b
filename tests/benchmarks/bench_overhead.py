"""What the service costs beside the training: `python -m tests.benchmarks.bench_overhead [ROUNDS]`.

The whole anomaly grid on the digits, 560 trials, from the command line's own entry to rows, figures and tables, with a
training loop that reports random numbers at once; beside it Ray Tune alone, one function trial a model, reused actors,
its loggers off, and nothing kept. Each has a process and a Ray of its own; imports of torch and Ray count for all.

A plain function that reports as many numbers stands beside both; and 10,000 trials of a function of 10 ms, whose cost
is what they take beyond those 10 ms on two cores.
"""

import contextlib
import io
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pandas as pd

from sweeper.commands import run, sweep_run
from sweeper.execution.session import connected
from tests.benchmarks.bench_search import timed
from trainables.worker.messages import CohortTask
from trainables.worker.ray_train import Messages
from trainables.worker.worker import Dispatch

METRICS = (*(f"auroc_{score}" for score in ("joint", "dir", "rad", "variance", "entropy")), "posterior_entropy", "loss")


CASES = ("auto", "56", "8", "1", "function", "tune", "short")
"""Members of a cohort (auto: chosen by measurement, as by default), a plain function, Tune alone, and short trials."""
NAMES = {
    "function": "this service, a plain function",
    "tune": "Ray Tune alone, a trial a model",
    "short": "this service, trials of 10 ms",
}
TRIALS, SHORT_TRIALS = 560, 10_000
SHORT_SECONDS = 0.01
"""Seconds that a short trial takes."""
CORES = 2
"""Cores on which short trials run."""


def main(rounds: int) -> None:
    print(f"{'':34}{'trials':>8}{'all s':>8}{'Ray s':>8}{'ms a trial':>12}{'without Ray':>13}")
    for _ in range(rounds):
        costs = {}
        for case in CASES:
            command = [sys.executable, "-m", "tests.benchmarks.bench_overhead", "--case", case]
            completed = subprocess.run(command, capture_output=True, text=True, check=True)
            seconds, ray_start = json.loads(completed.stdout.splitlines()[-1])
            trials, training = (
                (SHORT_TRIALS, SHORT_TRIALS * SHORT_SECONDS / CORES) if case == "short" else (TRIALS, 0.0)
            )
            costs[case] = tuple(1000 * (each - training) / trials for each in (seconds, seconds - ray_start))
            name = NAMES.get(case, f"this service, cohorts of {case}")
            print(
                f"{name:34}{trials:8}{seconds:8.1f}{ray_start:8.1f}{costs[case][0]:12.1f}{costs[case][1]:13.1f}",
                flush=True,
            )
        for own in ("auto", "function"):
            ratios = [theirs / ours for theirs, ours in zip(costs["tune"], costs[own], strict=True)]
            print(
                f"Tune's cost of a trial over ours ({own}): {ratios[0]:.2f} with Ray's start, {ratios[1]:.2f} without"
            )


def service(size: str) -> tuple[float, float]:
    """Seconds in all and of Ray's start: the command line, its training replaced on the workers, cohorts of `size`."""
    started: list[float] = []

    from sweeper.execution import ray_backend

    sweep_run.connected, ray_backend.run_cohort = partial(timed, started=started), trivial_cohort
    with tempfile.TemporaryDirectory() as store, contextlib.redirect_stdout(io.StringIO()):
        begun = time.perf_counter()
        status = run.main(["anomaly_grid", "--preset", "digits", "--store", store, "--cohort", size])
        took = time.perf_counter() - begun
        rows = pd.read_parquet(f"{store}/trials/sweep=anomaly_grid")
    assert status == 0 and len(rows) == TRIALS and rows["auroc_joint"].notna().all()
    return took, started[0]


def functions(name: str, trials: int) -> tuple[float, float]:
    """As `service`, of so many trials of a function of this name in `tests.benchmarks.functions`."""
    started: list[float] = []
    sweep_run.connected = partial(timed, started=started)
    reference = f"tests.benchmarks.functions:{name}"
    with tempfile.TemporaryDirectory() as store, contextlib.redirect_stdout(io.StringIO()):
        begun = time.perf_counter()
        status = run.main([reference, "--axis", f"index=0..{trials - 1}", "--store", store])
        took = time.perf_counter() - begun
        rows = pd.read_parquet(f"{store}/trials/sweep=functions.{name}")
    assert status == 0 and len(rows) == trials and (rows["status"] == "finished").all()
    return took, started[0]


def trivial_cohort(task: CohortTask, dispatch: Dispatch, messages: Messages) -> None:
    """`trainables.worker.ray_train.run_cohort` with a loop that reports at once."""
    from trainables.worker import ray_train, worker

    worker.train = report_at_once
    ray_train.run_cohort(task, dispatch, messages)


def report_at_once(configs: Sequence[Any], *_: object, **__: object) -> Iterator[Any]:
    import random

    from trainables.reports import Member, Report

    members = tuple(Member("finished", 1, {name: random.random() for name in METRICS}) for _ in configs)
    yield Report(1, members, 0.0, True)


def tune_alone() -> tuple[float, float]:
    """Seconds in all and of Ray's start."""
    begun = time.perf_counter()
    with connected(None) as scratch:
        started = time.perf_counter() - begun
        from ray import tune

        def train(config: dict[str, Any]) -> None:
            import random

            tune.report({name: random.random() for name in METRICS})

        tune.Tuner(
            tune.with_resources(train, {"CPU": 1}),
            param_space={"index": tune.grid_search(list(range(TRIALS)))},
            tune_config=tune.TuneConfig(reuse_actors=True),
            run_config=tune.RunConfig(storage_path=scratch, name="tune", verbose=0),
        ).fit()
    return time.perf_counter() - begun, started


if __name__ == "__main__":
    if sys.argv[1:2] == ["--case"]:
        cases: dict[str, Callable[[], tuple[float, float]]] = {
            "tune": tune_alone,
            "function": partial(functions, "report_at_once", TRIALS),
            "short": partial(functions, "last_ten_milliseconds", SHORT_TRIALS),
        }
        print(json.dumps(cases.get(sys.argv[2], partial(service, sys.argv[2]))()))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
