"""Measure how much processes that share a device slow each other down, with real steps of several processes at once.

Each process (`python -m trainables.profiling.contention`) reads requests from its standard input, one JSON object per
line, and replies to each with a number: first all build their cohort, then all step it for the same time. They inherit
the device from the process that starts them.
"""

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import torch

from trainables.config.trial import resolve_sent
from trainables.config.trial_config import TrialConfig
from trainables.training.cohort import Cohort

STEP_SECONDS = 0.4
"""Seconds for which all processes step at once, for each measurement."""
TIMEOUT = 120.0
"""Seconds after which the processes are killed, whatever they do."""


def measure_slowdowns(
    configs: Sequence[TrialConfig],
    data: Path,
    device: torch.device | str,
    *,
    widths: Sequence[int],
    max_processes: int,
    cores: int = 1,
    seconds: float = STEP_SECONDS,
) -> dict[int, dict[int, float]]:
    """Return the slowdown of a step by stack width and number of processes.

    `result[width][n]` is the time of a step while n processes share the device, divided by that of a process alone
    (dimensionless, >= 1). n is 2, 4, ..., up to `max_processes` and to the number of processes whose cohorts fit into
    memory. The processes share `cores` CPU cores and step for `seconds` each time.
    """
    with _started_processes(configs, data, torch.device(device), max_processes) as processes:
        slowdowns = {width: _slowdowns(processes, width, cores, seconds) for width in sorted(widths)}
    return {width: by_count for width, by_count in slowdowns.items() if by_count}


def _slowdowns(processes: Sequence[subprocess.Popen[str]], width: int, cores: int, seconds: float) -> dict[int, float]:
    """Number of processes -> slowdown of a step, for stacks of this width."""
    ready = [process for process, fits in zip(processes, _request(processes, {"width": width}), strict=True) if fits]
    slowdowns: dict[int, float] = {}
    alone, count = 0.0, 1
    while count <= len(ready):
        step_times = _request(ready[:count], {"seconds": seconds, "threads": max(1, cores // count)})
        if not all(step_times):
            break
        mean = sum(step_times) / count
        alone = alone or mean
        slowdowns |= {count: max(1.0, mean / alone)} if count > 1 else {}
        count *= 2
    return slowdowns


def _request(processes: Sequence[subprocess.Popen[str]], request: dict[str, Any]) -> list[float]:
    """Send a request to all processes, then read their replies. 0.0 from a process that failed or has ended."""
    for process in processes:
        with contextlib.suppress(OSError):
            print(json.dumps(request), file=process.stdin, flush=True)
    return [float(process.stdout.readline() or 0.0) for process in processes if process.stdout]


@contextlib.contextmanager
def _started_processes(
    configs: Sequence[TrialConfig], data: Path, device: torch.device, count: int
) -> Iterator[list[subprocess.Popen[str]]]:
    """Start `count` processes and kill them at the end."""
    task = {"configs": [config.flat() for config in configs], "data": str(data), "device": str(device)}
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "trainables.profiling.contention"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        for _ in range(count)
    ]

    def kill_all() -> None:
        for process in processes:
            process.kill()

    timer = threading.Timer(TIMEOUT, kill_all)
    timer.start()
    try:
        _request(processes, task)
        yield processes
    finally:
        timer.cancel()
        kill_all()
        for process in processes:
            process.communicate()


def _serve(requests: IO[str], replies: IO[str]) -> None:
    """Main loop of a process that shares the device. The first line is the task: configs, data, device. Then `{"width":
    w}` builds a cohort (reply: 1), and `{"seconds": s, "threads": n}` steps it (reply: the seconds of a step). The
    reply is 0 where the device runs out of memory, or has done so since the last cohort was built."""
    task = json.loads(requests.readline())
    configs, device = [resolve_sent(config) for config in task["configs"]], torch.device(task["device"])
    cohort: Cohort | None = None
    print(1.0, file=replies, flush=True)
    for line in requests:
        request, reply = json.loads(line), 0.0
        try:
            if "width" in request:
                cohort = None
                cohort = Cohort(configs[: request["width"]], Path(task["data"]), device, width=None)
                _step_time(cohort, device, 0.0, least=3)
                reply = 1.0
            elif cohort:
                torch.set_num_threads(request["threads"])
                reply = _step_time(cohort, device, request["seconds"])
        except torch.OutOfMemoryError:
            cohort = None
        print(reply, file=replies, flush=True)


def _step_time(cohort: Cohort, device: torch.device, seconds: float, least: int = 1) -> float:
    """Mean seconds of a step, over at least `least` steps and `seconds` seconds."""
    orders, done, begun = cohort.orders(0), 0, time.perf_counter()
    while done < least or time.perf_counter() - begun < seconds:
        cohort.step(0, 0, orders, rate=0.0)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        done += 1
    return (time.perf_counter() - begun) / done


if __name__ == "__main__":
    reply_stream = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # anything else that is printed goes to standard error, so that it is not read as a reply
    _serve(sys.stdin, reply_stream)
