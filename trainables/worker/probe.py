"""Measure how cohorts would train on a device of this process."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from trainables.config import resolve_sent
from trainables.training.measurement import CompiledProbe, Measurement, Probe
from trainables.training.profiling import device_memory, measure, measure_compiled, measure_slowdowns
from trainables.worker.environment import use_cores


def measure_configs(
    configs: Sequence[Mapping[str, Any]],
    data: str,
    device: torch.device,
    *,
    seconds: float,
    threads: int,
    processes: int,
    widths: Sequence[int],
    compiled: CompiledProbe | None = None,
    wait: Callable[[], None] = lambda: None,
) -> Probe:
    """Describe a device of this process and measure how `configs` train on it.

    `seconds`: time limit of the throughput measurement; 0 leaves it out. `threads`: CPU threads to use. With
    `processes > 1` up to so many processes then share the device, each stepping a stack of each of `widths`, to measure
    how they slow each other down. `compiled` asks for a measurement of compiled steps; `wait` is called while they are
    compiled, and may raise to end that. `measurements` is empty where training fails.
    """
    use_cores(threads)
    resolved = [resolve_sent(config) for config in configs]
    measurements: Sequence[Measurement] = ()
    if seconds:
        with contextlib.suppress(Exception):  # training will raise the same error again and report it
            measurements = measure(resolved, Path(data), device, seconds)
    slowdowns = None
    if processes > 1:
        slowdowns = measure_slowdowns(
            resolved, Path(data), device, widths=widths, max_processes=processes, cores=threads
        )
    seconds_compiled = None
    if compiled:
        with contextlib.suppress(Exception):  # as above
            members = resolved[: compiled.width]
            seconds_compiled = measure_compiled(members, Path(data), device, build=compiled.build, wait=wait)
    return Probe(device_memory(device), measurements, slowdowns, seconds_compiled)
