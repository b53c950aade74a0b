"""Classifiers of the digits, fused and not: `python -m tests.benchmarks.bench_supervised [ROUNDS]`.

The 96 trials of `supervised --preset digits` without augmentation, in one stack for each core; the same network, epochs
and batches in a plain function of PyTorch that this service trains in turn; and that function under Ray Tune, with
reused actors. Each has a process and a Ray of its own, and both cores.
"""

import contextlib
import io
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import pandas as pd

from sweeper.commands import run
from sweeper.execution.session import connected

RATES, DECAYS, SMOOTHINGS, SEEDS = (0.02, 0.05, 0.1, 0.2), (0.0, 1e-3, 3e-3, 1e-2), (0.0, 0.1), (0, 1, 2)
KEYS = {"lr": RATES, "weight_decay": DECAYS, "smoothing": SMOOTHINGS, "seed": SEEDS}
EPOCHS = (20, 100)
CASES = ("fused", "function", "tune")


def main(rounds: int) -> None:
    print(f"{'96 classifiers of the digits':36}{'epochs':>8}{'all s':>8}{'accuracy of the best':>22}")
    for epochs in EPOCHS * rounds:
        seconds = {}
        for case in CASES:
            command = [sys.executable, "-m", "tests.benchmarks.bench_supervised", "--case", case, str(epochs)]
            completed = subprocess.run(command, capture_output=True, text=True, check=True)
            seconds[case], accuracy = json.loads(completed.stdout.splitlines()[-1])
            print(f"{case:36}{epochs:8}{seconds[case]:8.1f}{accuracy:22.3f}", flush=True)
        print(f"a plain function takes {seconds['function'] / seconds['fused']:.1f} times as long as fused, ", end="")
        print(f"Tune {seconds['tune'] / seconds['fused']:.1f} times")


def fused(epochs: int) -> tuple[float, float]:
    own = {"rotation": 0, "shift": 0, "epochs": epochs}
    plain = [word for key, value in own.items() for word in ("--set", f"{key}={value}")]
    return _service("supervised", "--preset", "digits", *plain)


def function(epochs: int) -> tuple[float, float]:
    axes = [word for key, values in KEYS.items() for word in ("--axis", f"{key}={','.join(map(str, values))}")]
    ranked = ("--set", f"epochs={epochs}", "--metric", "accuracy", "--mode", "max")
    return _service("tests.benchmarks.functions:classify", *axes, *ranked)


def _service(name: str, *arguments: str) -> tuple[float, float]:
    """Seconds, and the best accuracy."""
    with tempfile.TemporaryDirectory() as store, contextlib.redirect_stdout(io.StringIO()):
        begun = time.perf_counter()
        status = run.main([name, *arguments, "--store", store])
        took = time.perf_counter() - begun
        rows = pd.read_parquet(f"{store}/trials")
    assert status == 0 and len(rows) == 96 and (rows["status"] != "failed").all()
    return took, rows["accuracy"].max()


def tune(epochs: int) -> tuple[float, float]:
    begun = time.perf_counter()
    with connected(None) as scratch:
        from ray import tune

        def train(config: dict[str, Any]) -> None:
            from tests.benchmarks.functions import classify

            for metrics in classify(**config, epochs=epochs):
                tune.report(metrics)

        results = tune.Tuner(
            tune.with_resources(train, {"CPU": 1}),
            param_space={key: tune.grid_search(list(values)) for key, values in KEYS.items()},
            tune_config=tune.TuneConfig(reuse_actors=True),
            run_config=tune.RunConfig(storage_path=scratch, name="tune", verbose=0),
        ).fit()
        assert len(results) == len([*itertools.product(*KEYS.values())])
        best = results.get_dataframe()["accuracy"].max()
    return time.perf_counter() - begun, best


if __name__ == "__main__":
    if sys.argv[1:2] == ["--case"]:
        cases: dict[str, Callable[[int], tuple[float, float]]] = {"fused": fused, "function": function, "tune": tune}
        print(json.dumps(cases[sys.argv[2]](int(sys.argv[3]))))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
