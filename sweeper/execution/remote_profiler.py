"""Makes measurements where training will run: on whole devices of a cluster, or on this machine's cores."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import ray

from sweeper.execution.stop_signal import StopSignal
from sweeper.packing.device_kinds import UNSEEN, DeviceKind, kinds, requirement
from sweeper.packing.measurements import Asked, Site
from trainables.worker.ray_train import Probe, measure_configs

MEASUREMENT_TIMEOUT = 300.0
"""Seconds after which a worker that measures ends itself. What hangs there would hang in training, too."""


def site(address: str | None, data: str, stopping: StopSignal, say: Callable[[str], None]) -> Site:
    """Return the cluster to which Ray is connected.

    If the cluster has no worker yet, this waits for its first. `data` is the folder of the data sets. `say` is called
    with a line before anything is measured.
    """
    grows = address not in (None, "local")
    device_kinds = kinds(ray.nodes(), grows)
    if device_kinds == (UNSEEN,):
        _on_workers([Asked(UNSEEN)], data, device_kinds, stopping)
        device_kinds = tuple(replace(kind, comes=True) for kind in kinds(ray.nodes(), grows))
    here = not grows and not device_kinds[0].gpus

    def measure(asked: Sequence[Asked]) -> list[Probe | None]:
        if line := announcement(asked):
            say(line)
        if here:  # in this process, to save the start of a worker
            return [measure_configs(measurement.configs, data, **measurement.how) for measurement in asked]
        return _on_workers(asked, data, device_kinds, stopping)

    return Site(device_kinds, here, grows, measure)


def announcement(asked: Sequence[Asked]) -> str:
    """Say what is about to be measured, and for how long at most; empty if devices are only looked at."""
    timed = [measurement for measurement in asked if "seconds" in measurement.how]
    if timed:
        what = "one shape of cohort" if len(timed) == 1 else f"{len(timed)} shapes of cohort"
        seconds = sum(measurement.how["seconds"] for measurement in timed)
        return f"measuring speed and memory of {what}, for up to {seconds:.0f} s"
    if any("sharing" in measurement.how for measurement in asked):
        return "measuring what it gives when several cohorts share a device"
    return ""


def _on_workers(
    asked: Sequence[Asked], data: str, among: Sequence[DeviceKind], stopping: StopSignal
) -> list[Probe | None]:
    """Make each measurement on a worker that has a whole device for itself; None for one that fails."""
    tasks = [
        ray.remote(**_options(measurement, among))(_measure_in_time).remote(measurement, data) for measurement in asked
    ]
    pending = tasks
    while pending:
        _, pending = ray.wait(pending, num_returns=len(pending), timeout=1.0)
        stopping.check()
    return [_result(task) for task in tasks]


def _options(asked: Asked, among: Sequence[DeviceKind]) -> dict[str, Any]:
    """Return the arguments of `ray.remote`. The worker ends after its call, so that it frees the device for cohorts."""
    gpus = asked.kind.gpus
    return {
        "num_gpus": int(gpus),
        "num_cpus": min(1.0, asked.kind.cores) if gpus else asked.how.get("threads", 1),
        "resources": requirement(asked.kind, among),
        "max_retries": 1,
        "max_calls": 1,
    }


def _measure_in_time(asked: Asked, data: str) -> Probe:
    """Measure on this worker, which exits if it takes longer than `MEASUREMENT_TIMEOUT` seconds."""
    timer = threading.Timer(MEASUREMENT_TIMEOUT, os._exit, [1])
    timer.start()
    try:
        return measure_configs(asked.configs, data, **asked.how)
    finally:
        timer.cancel()


def _result(task: Any) -> Probe | None:
    try:
        probe: Probe = ray.get(task)
        return probe
    except ray.exceptions.RayError:
        return None
