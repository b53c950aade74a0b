"""By how much processes that share a device slow each other down, from real steps of several at once.

Each is a process of its own (`python -m trainables.profiling.contention`) that is told what to do line by line: all
make ready, then all step for the same while. Which device they are on, they inherit.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import torch

from trainables.config.trial import TrialConfig, resolve
from trainables.training.cohort import Cohort

STEPPING = 0.4
"""Seconds that all step at once."""
LONGEST = 120.0
"""Seconds after which the processes are ended, whatever they do."""


def measure_overlap(
    configs: Sequence[TrialConfig],
    data: Path,
    device: torch.device | str,
    *,
    widths: Sequence[int],
    most: int,
    cores: int = 1,
    seconds: float = STEPPING,
) -> dict[int, dict[int, float]]:
    """Width of a stack -> n -> seconds of a step while n processes share the device, over those alone; n is 2, 4, ...
    up to `most`, and the n that found room. `cores` are those that the processes share."""
    with _started(configs, data, torch.device(device), most) as sharers:
        found = {width: _ratios(sharers, width, cores, seconds) for width in sorted(widths)}
    return {width: ratios for width, ratios in found.items() if ratios}


def _ratios(sharers: Sequence[_Sharer], width: int, cores: int, seconds: float) -> dict[int, float]:
    ready = [sharer for sharer, well in zip(sharers, _all(sharers, {"width": width}), strict=True) if well]
    ratios: dict[int, float] = {}
    alone, count = 0.0, 1
    while count <= len(ready):
        told = _all(ready[:count], {"seconds": seconds, "threads": max(1, cores // count)})
        if not all(told):
            break
        mean = sum(told) / count
        alone = alone or mean
        ratios |= {count: max(1.0, mean / alone)} if count > 1 else {}
        count *= 2
    return ratios


@dataclass(frozen=True)
class _Sharer:
    to: IO[str]
    by: IO[str]


def _all(sharers: Sequence[_Sharer], order: dict[str, Any]) -> list[float]:
    """What each answers, once all have been told; 0.0 of one that cannot or is gone."""
    for sharer in sharers:
        with contextlib.suppress(OSError):
            print(json.dumps(order), file=sharer.to, flush=True)
    return [float(sharer.by.readline() or 0.0) for sharer in sharers]


@contextlib.contextmanager
def _started(configs: Sequence[TrialConfig], data: Path, device: torch.device, most: int) -> Iterator[list[_Sharer]]:
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
        for _ in range(most)
    ]

    def end() -> None:
        for process in processes:
            process.kill()

    timer = threading.Timer(LONGEST, end)
    timer.start()
    try:
        sharers = [_Sharer(process.stdin, process.stdout) for process in processes if process.stdin and process.stdout]
        _all(sharers, task)
        yield sharers
    finally:
        timer.cancel()
        end()
        for process in processes:
            process.communicate()


def _serve(orders: IO[str], answers: IO[str]) -> None:
    """One process that shares."""
    task = json.loads(orders.readline())
    configs, device = [resolve(config) for config in task["configs"]], torch.device(task["device"])
    cohort: Cohort | None = None
    print(1.0, file=answers, flush=True)
    for line in orders:
        order, answer = json.loads(line), 0.0
        try:
            if "width" in order:
                cohort = None
                cohort = Cohort(configs[: order["width"]], Path(task["data"]), device, width=None)
                _steps(cohort, device, 0.0, least=3)
                answer = 1.0
            elif cohort:
                torch.set_num_threads(order["threads"])
                answer = _steps(cohort, device, order["seconds"])
        except torch.OutOfMemoryError:
            cohort = None
        print(answer, file=answers, flush=True)


def _steps(cohort: Cohort, device: torch.device, seconds: float, least: int = 1) -> float:
    """Seconds of a step, over so many."""
    orders, done, begun = cohort.orders(0), 0, time.perf_counter()
    while done < least or time.perf_counter() - begun < seconds:
        cohort.step(0, 0, orders, rate=0.0)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        done += 1
    return (time.perf_counter() - begun) / done


if __name__ == "__main__":
    sent = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what else is printed goes where nobody reads
    _serve(sys.stdin, sent)
