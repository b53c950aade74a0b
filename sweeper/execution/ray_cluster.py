"""Makes measurements where training will run: on whole devices of a cluster, or on this machine's cores."""

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import ray

from sweeper.execution.probe import probe
from sweeper.execution.process.stop_signal import StopSignal
from sweeper.packing.cluster import (
    ASSUMED_KIND,
    Cluster,
    DeviceKind,
    ProbeRequest,
    device_kinds,
    is_local,
    kind_resources,
)
from sweeper.spec import user_code
from trainables.profiling.measurement import Probe
from trainables.worker.ray_train import assigned_device, import_from

MEASUREMENT_TIMEOUT = 300.0
"""Seconds after which a worker that measures ends itself. What hangs there would hang in training, too."""


def ray_cluster(address: str | None, data: str, stopping: StopSignal, say: Callable[[str], None]) -> Cluster:
    """Return the cluster to which Ray is connected.

    If the cluster has no worker yet, this waits for its first. `data` is the folder of the data sets. `say` is called
    with a line before anything is measured.
    """
    local = is_local(address)
    kinds = device_kinds(ray.nodes(), local)
    if kinds == (ASSUMED_KIND,):
        _on_workers([ProbeRequest(ASSUMED_KIND)], data, kinds, stopping)
        kinds = tuple(replace(kind, on_demand=True) for kind in device_kinds(ray.nodes(), local))

    def measure(requests: Sequence[ProbeRequest]) -> list[Probe | None]:
        if line := announcement(requests):
            say(line)
        if local and not kinds[0].gpus:  # in this process, to save the start of a worker
            return [probe(request, data, assigned_device(), stopping.check) for request in requests]
        return _on_workers(requests, data, kinds, stopping)

    return Cluster(address, kinds, measure)


def announcement(requests: Sequence[ProbeRequest]) -> str:
    """Say what is about to be measured, and for how long at most; empty if devices are only looked at."""
    timed = [request for request in requests if request.seconds]
    if timed:
        what = "one shape of cohort" if len(timed) == 1 else f"{len(timed)} shapes of cohort"
        seconds = sum(request.seconds for request in timed)
        return f"measuring speed and memory of {what}, for up to {seconds:.0f} s"
    if any(request.compiled and request.compiled.build for request in requests):
        return "compiling steps, which takes about half a minute for each shape that was not compiled before"
    if any(request.processes for request in requests):
        return "measuring what it gives when several cohorts share a device"
    return ""


def _on_workers(
    requests: Sequence[ProbeRequest], data: str, among: Sequence[DeviceKind], stopping: StopSignal
) -> list[Probe | None]:
    """Make each measurement on a worker that has a whole device for itself; None for one that fails."""
    folders = user_code.folders()
    tasks = [
        ray.remote(**_options(request, among))(_measure_in_time).remote(request, data, folders) for request in requests
    ]
    pending = tasks
    while pending:
        _, pending = ray.wait(pending, num_returns=len(pending), timeout=1.0)
        stopping.check()
    return [_result(task) for task in tasks]


def _options(request: ProbeRequest, among: Sequence[DeviceKind]) -> dict[str, Any]:
    """Return the arguments of `ray.remote`. The worker ends after its call, so that it frees the device for cohorts."""
    gpus = request.kind.gpus
    return {
        "num_gpus": int(gpus),
        "num_cpus": min(1.0, request.kind.cores) if gpus else request.threads,
        "resources": kind_resources(request.kind, among),
        "max_retries": 1,
        "max_calls": 1,
    }


def _measure_in_time(request: ProbeRequest, data: str, folders: Sequence[str]) -> Probe:
    """Measure on this worker, which exits if it takes longer than `MEASUREMENT_TIMEOUT` seconds. `folders` are those of
    the user's modules."""
    import_from(folders)
    timer = threading.Timer(MEASUREMENT_TIMEOUT, os._exit, [1])
    timer.start()
    try:
        return probe(request, data, assigned_device())
    finally:
        timer.cancel()


def _result(task: Any) -> Probe | None:
    try:
        probe: Probe = ray.get(task)
        return probe
    except ray.exceptions.RayError:
        return None
