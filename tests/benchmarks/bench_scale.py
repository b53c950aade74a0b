"""How far a sweep goes: planned, expanded and dispatched with training that reports at once.

python -m tests.benchmarks.bench_scale [--trials 100000] [--size 32] [--alone 400] [--folder DIR]
python -m tests.benchmarks.bench_scale --gpus 1000 [--trials 100000] [--loss-hours 1] [--reports 1] [--figure FILE.svg]

The anomaly grid on the digits over ever more seeds, through the real plan, dispatch, recorder and store. At each
tenth: milliseconds a trial, those that the driver's process spends on a core, its memory, and files in the store.
Beside it the same without folding, and Ray Tune alone, a function trial a model, as the cost of a trial without this
service. Each in a process of its own. At the end the same command once more, which has nothing left to train.

With `--gpus`, the paper's grid on a cluster on paper (`fleet`): its packing, its driver, and how well the devices are
used, beside the least time that they could take.
"""

import argparse
import itertools
import json
import math
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from trainables.reports import Member, Report
from trainables.worker.messages import CohortReport, CohortTask, Origin
from trainables.worker.worker import Dispatch

METRICS = (*(f"auroc_{score}" for score in ("joint", "dir", "rad", "variance", "entropy")), "posterior_entropy", "loss")
GRID = 560
"""Trials a seed."""


def main(options: argparse.Namespace) -> None:
    results = {case: measured(case, options) for case in ("service", "loose", "tune")}
    ours, loose, tune = (results[case] for case in ("service", "loose", "tune"))
    print(f"Tune's cost of a trial over ours: {tune / ours:.1f}; ours without folding over ours: {loose / ours:.2f}")


def measured(case: str, options: argparse.Namespace) -> float:
    """Run the case and print its output. Returns the milliseconds per trial of the dispatch."""
    command = [sys.executable, "-m", "tests.benchmarks.bench_scale", "--case", case]
    for name in ("trials", "size", "alone", "folder"):
        command += [f"--{name}", str(getattr(options, name))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        last = ""
        for line in process.stdout:
            if last:
                print(last, flush=True)
            last = line.rstrip()
    assert process.returncode == 0, f"{case} ended with {process.returncode}: {last}"
    return float(json.loads(last)["ms"])


def report_at_once(task: CohortTask, dispatch: Dispatch, messages: Any) -> None:
    """`trainables.worker.ray_train.run_cohort` without the training."""
    members = tuple(Member("finished", 1, {name: random.random() for name in METRICS}) for _ in task.spec.own)
    origin = Origin("cpu", socket.gethostname(), os.getpid(), datetime.now(UTC))
    messages.put(CohortReport(Report(1, members, 0.0, done=True), origin))


def service(options: argparse.Namespace, store: str) -> float:
    """Plan, expand and dispatch; milliseconds a trial of the latter."""
    from sweeper.commands.arguments import parse
    from sweeper.execution.session import connected
    from sweeper.execution.signals import StopSignal
    from sweeper.packing.cluster import SlotResources, Slots
    from sweeper.planning import cohorts
    from sweeper.planning.cohorts import Cohort, Cut
    from sweeper.planning.prepare import prepare
    from sweeper.planning.sources import CohortQueue
    from sweeper.record.listener import CohortListener, Row
    from sweeper.record.progress import SweepProgress
    from sweeper.record.rows import RowFormat, listeners
    from sweeper.storage.files import Files
    from sweeper.storage.layout import checkpoint_path
    from sweeper.storage.load import load_trials
    from sweeper.storage.store import Store
    from sweeper.version import code_version

    class Meter(CohortListener):
        """Prints the progress at each tenth of `total` trials."""

        def __init__(self, total: int, files: Files) -> None:
            self._total, self._done, self._tenth, self._since = total, 0, 0, (time.perf_counter(), time.process_time())
            self._files = files

        def recorded(self, cohort: Cohort, rows: Sequence[Row]) -> None:
            self._done += len(rows)
            if 10 * self._done // self._total > self._tenth:
                now = time.perf_counter(), time.process_time()
                count = self._done - self._total * self._tenth / 10
                self._tenth = 10 * self._done // self._total
                files = [len(self._files.list(f"{kind}/sweep=anomaly_grid")) for kind in ("trials", "history")]
                ms, core_ms = (1000 * (end - begin) / count for begin, end in zip(self._since, now, strict=True))
                times = f"{self._done:10,} {ms:10.2f} {core_ms:10.2f}"
                print(f"{times} {memory():12.0f} {files[0]:9} {files[1]:8}", flush=True)
                self._since = time.perf_counter(), time.process_time()

    seeds = ",".join(map(str, range(math.ceil(options.trials / GRID))))
    arguments = ["anomaly_grid", "--preset", "digits", "--axis", f"seed={seeds}", "--store", store]
    begun, before = time.perf_counter(), memory()
    store_of = Store(store)
    plan, columns = prepare(parse(arguments), store_of)
    planned = time.perf_counter()
    cuts = [Cut(options.size, options.size)] * len(plan.groups)
    source = CohortQueue(cohorts.remaining(cohorts.cut(plan.groups, cuts), plan.statuses))
    cut = time.perf_counter()
    print(
        f"{options.case}: {plan.total:,} trials planned in {planned - begun:.1f} s "
        f"({1e6 * (planned - begun) / plan.total:.0f} us a trial, {memory() - before:.0f} MiB), "
        f"cut into {len(source.cohorts):,} cohorts in {cut - planned:.1f} s"
    )
    print(
        f"{'trials':>10} {'ms a trial':>10} {'driver ms':>10} {'driver MiB':>12} {'row files':>9} {'history':>8}",
        flush=True,
    )
    columns = store_of.prepare(plan.name, columns)
    with connected(None) as scratch, Path(os.devnull).open("w") as nothing:
        from rich.console import Console

        from sweeper.execution import ray_backend
        from sweeper.execution.loop import CohortFiles, Limits, dispatch
        from sweeper.execution.stages import Stage

        ray_backend.run_cohort = report_at_once

        progress = SweepProgress(plan, console=Console(file=nothing))
        followers = [progress, Meter(plan.total, store_of.files)]
        stopping = StopSignal()
        begun, begun_on_core = time.perf_counter(), time.process_time()
        dispatch(
            Stage(source, Slots((SlotResources({"CPU": 1.0}, os.cpu_count() or 1),), local=True)),
            ray_backend.RayBackend(None, "data", scratch, stopping, print),
            CohortFiles("data", store_of.files, partial(checkpoint_path, plan.name)),
            Limits(3, 60.0, 600.0),
            listeners(store_of, plan.name, RowFormat(columns, code_version()), source, followers),
            stopping,
        )
        took, took_on_core = time.perf_counter() - begun, time.process_time() - begun_on_core
    begun = time.perf_counter()
    store_of.prepare(plan.name, columns)
    rows = load_trials(store_of.files, plan.name, plan.ids)
    assert len(rows) == plan.total and set(rows["status"]) == {"finished"}
    print(
        f"all rows read in {time.perf_counter() - begun:.1f} s; {1000 * took / plan.total:.2f} ms a trial dispatched, "
        f"{1000 * took_on_core / plan.total:.2f} ms of it on the driver's core"
    )
    again(arguments, Path(store))
    return 1000 * took / plan.total


def again(arguments: Sequence[str], store: Path) -> None:
    """Print what the command takes once everything is trained, beside pandas, which reads the rows alone."""
    import pandas as pd

    hours_ago = time.time() - 7200
    for path in store.rglob("*.parquet"):
        os.utime(path, (hours_ago, hours_ago))
    command, begun, said = [sys.executable, "-m", "sweeper.run", *arguments], time.perf_counter(), 0.0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "nothing left to train" in line:
                said = time.perf_counter() - begun
    took = time.perf_counter() - begun
    begun = time.perf_counter()
    pd.read_parquet(store / "trials")
    plain = time.perf_counter() - begun
    print(
        f"the same command again: {said:.1f} s until it says that nothing is left, {took:.1f} s with figures and page; "
        f"{took / plain:.0f} times what pandas takes to read the rows"
    )


def paper(options: argparse.Namespace, store: str) -> None:
    """Run the grid on a cluster on paper, and say what it took."""
    from sweeper.commands.arguments import parse
    from sweeper.execution.loop import CohortFiles, Limits, dispatch
    from sweeper.execution.signals import StopSignal
    from sweeper.execution.stages import stages
    from sweeper.planning.prepare import prepare
    from sweeper.record.rows import RowFormat, listeners
    from sweeper.storage.layout import checkpoint_path
    from sweeper.storage.lease import Lease
    from sweeper.storage.load import load_trials
    from sweeper.storage.store import Store
    from sweeper.version import code_version
    from tests.benchmarks.fleet import GPUS, Fleet

    seeds = ",".join(map(str, range(math.ceil(options.trials / GRID))))
    every = f"report_every={800 // options.reports}"
    arguments = ["anomaly_grid", "--preset", "paper", "--plan", "--set", every, "--axis", f"seed={seeds}"]
    prices = ",".join(f"{gpu.name}={gpu.price:g}" for gpu in GPUS)
    begun, before = time.process_time(), memory()
    request, store_of = parse([*arguments, "--store", store, "--node-price", prices]), Store(store)
    plan, columns = prepare(request, store_of)
    columns = store_of.prepare(plan.name, columns)
    steps = plan.steps[0]
    fleet = Fleet(options.gpus, steps, METRICS, 3600 * options.loss_hours)
    lease = Lease(store_of.files, plan.name)
    lease.open()
    (stage,) = stages(request, plan, store_of, fleet, lease)
    planned = time.process_time() - begun
    listened = listeners(
        *(store_of, plan.name, RowFormat(columns, code_version(), request.node_price), stage.source),
        clock=lambda: fleet.now,
    )
    files = CohortFiles("data", store_of.files, partial(checkpoint_path, plan.name))
    dispatch(stage, fleet, files, Limits(3, 30.0, 600.0), listened, StopSignal())
    lease.close()
    driver, megabytes = time.process_time() - begun, memory() - before
    rows = load_trials(store_of.files, plan.name, plan.ids)
    assert len(rows) == plan.total and set(rows["status"]) == {"finished"}

    least = fleet.least_seconds(plan.total)
    print(f"{plan.total:,} trials of {steps:,} steps on {options.gpus:,} GPUs, {fleet.losses} times a node was lost")
    print(f"driver: {planned:.0f} s to plan, {driver:.0f} s in all, {megabytes:.0f} MiB")
    print(f"hours: {fleet.now / 3600:.2f}, at least {least / 3600:.2f}; share {least / fleet.now:.1%}")
    print(f"cost: {fleet.price * fleet.now / 3600:,.0f}, at least {fleet.price * least / 3600:,.0f}")
    shares = fleet.usage(0.0, fleet.now)
    for gpu in fleet.counts:
        print(f"{gpu}: " + ", ".join(f"{what} {share:.1%}" for (name, what), share in shares.items() if name == gpu))
    if options.figure:
        draw(fleet, Path(options.figure))


def draw(fleet: Any, path: Path) -> None:
    """Draw what the GPUs of each kind did over time, as SVG."""
    import vl_convert

    moments = [fleet.now * index / 60 for index in range(61)]
    order = ["trains", "trains in vain", "starts", "is away", "is idle"]
    values = [
        {"hour": (begin + end) / 7200, "gpu": f"{gpu} ({fleet.counts[gpu]})", "it": what, "share": round(share, 4)}
        for begin, end in itertools.pairwise(moments)
        for (gpu, what), share in fleet.usage(begin, end).items()
    ]
    colour = {"domain": order, "range": ["#4c78a8", "#e45756", "#72b7b2", "#bab0ac", "#eeeeee"]}
    chart = {
        "data": {"values": values},
        "transform": [{"calculate": f"indexof({json.dumps(order)}, datum.it)", "as": "order"}],
        "config": {"aria": False},
        "padding": {"left": 5, "top": 5, "right": 15, "bottom": 5},  # fonts of browsers are wider
        "mark": {"type": "area", "interpolate": "step"},
        "width": 220,
        "height": 110,
        "encoding": {
            "column": {"field": "gpu", "title": None},
            "x": {"field": "hour", "type": "quantitative", "title": "hours"},
            "y": {
                "field": "share",
                "type": "quantitative",
                "title": "share of GPUs",
                "axis": {"format": "%"},
                "stack": True,
            },
            "color": {"field": "it", "title": None, "scale": colour},
            "order": {"field": "order"},
        },
    }
    path.write_text(re.sub(r"(\.\d)\d+", r"\1", vl_convert.vegalite_to_svg(chart)))


def tune_alone(options: argparse.Namespace) -> float:
    """Milliseconds a trial of as many function trials, actors reused, nothing kept."""
    from sweeper.execution.session import connected

    with connected(None) as scratch:
        from ray import tune

        def train(config: dict[str, Any]) -> None:
            tune.report({name: random.random() for name in METRICS})

        begun, before = time.perf_counter(), memory()
        tune.Tuner(
            tune.with_resources(train, {"CPU": 1}),
            param_space={"index": tune.grid_search(list(range(options.alone)))},
            tune_config=tune.TuneConfig(reuse_actors=True),
            run_config=tune.RunConfig(storage_path=scratch, name="tune", verbose=0),
        ).fit()
        took = time.perf_counter() - begun
    ms = 1000 * took / options.alone
    print(f"Tune alone: {options.alone:,} trials, {ms:.1f} ms a trial, {memory() - before:.0f} MiB more on the driver")
    return ms


def memory() -> float:
    """MiB of this process."""
    return float(psutil.Process().memory_info().rss) / 2**20


def run(options: argparse.Namespace) -> None:
    if options.case == "tune":
        ms = tune_alone(options)
    else:
        if options.case == "loose":
            from sweeper.storage import parquet_files as folding

            folding.MANY = 10**9
        with tempfile.TemporaryDirectory(dir=options.folder or None) as store:
            ms = service(options, store)
    print(json.dumps({"ms": ms}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=32, help="members of a cohort")
    parser.add_argument("--alone", type=int, default=400, help="trials of Tune alone")
    parser.add_argument("--folder", default="", help="a folder of the disk to measure; by default a temporary one")
    parser.add_argument("--gpus", type=int, default=0, help="GPUs of a cluster on paper")
    parser.add_argument("--loss-hours", type=float, default=1.0, help="mean time until a node is lost")
    parser.add_argument("--reports", type=int, default=1, help="of each trial")
    parser.add_argument("--figure", default="", help="SVG of what the GPUs did")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.gpus:
        with tempfile.TemporaryDirectory(dir=arguments.folder or None) as folder:
            paper(arguments, folder)
    elif arguments.case:
        run(arguments)
    else:
        main(arguments)
