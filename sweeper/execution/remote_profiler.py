"""Measurements made where training will be: on whole devices of a cluster, or on this machine's cores."""

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

LONGEST = 300.0
"""Seconds after which a worker that measures is given up: what hangs there, hangs in training, too."""


def site(address: str | None, data: str, stopping: StopSignal, say: Callable[[str], None]) -> Site:
    """Where Ray is connected to. A cluster that has no worker yet is brought its first.

    `say` gets a line before anything is measured.
    """
    grows = address not in (None, "local")
    there = kinds(ray.nodes(), grows)
    if there == (UNSEEN,):
        _on_workers([Asked(UNSEEN)], data, there, stopping)
        there = tuple(replace(kind, comes=True) for kind in kinds(ray.nodes(), grows))
    here = not grows and not there[0].gpus

    def measure(asked: Sequence[Asked]) -> list[Probe | None]:
        if line := announcement(asked):
            say(line)
        if here:  # in this process, which spares a worker's start
            return [measure_configs(one.configs, data, **one.how) for one in asked]
        return _on_workers(asked, data, there, stopping)

    return Site(there, here, grows, measure)


def announcement(asked: Sequence[Asked]) -> str:
    """What is about to be measured, and for how long at most; empty where devices are only looked at."""
    timed = [one for one in asked if "seconds" in one.how]
    if timed:
        what = "one shape of cohort" if len(timed) == 1 else f"{len(timed)} shapes of cohort"
        return f"measuring speed and memory of {what}, for up to {sum(one.how['seconds'] for one in timed):.0f} s"
    if any("sharing" in one.how for one in asked):
        return "measuring what it gives when several cohorts share a device"
    return ""


def _on_workers(
    asked: Sequence[Asked], data: str, among: Sequence[DeviceKind], stopping: StopSignal
) -> list[Probe | None]:
    """Each on a worker that has a whole device for itself."""
    waiting = [ray.remote(**_whole(one, among))(_within).remote(one, data) for one in asked]
    left = waiting
    while left:
        _, left = ray.wait(left, num_returns=len(left), timeout=1.0)
        stopping.check()
    return [_or_none(one) for one in waiting]


def _whole(asked: Asked, among: Sequence[DeviceKind]) -> dict[str, Any]:
    """Arguments of `ray.remote`. The worker, and what it holds of a device, is gone when cohorts come."""
    gpus = asked.kind.gpus
    return {
        "num_gpus": int(gpus),
        "num_cpus": min(1.0, asked.kind.cores) if gpus else asked.how.get("threads", 1),
        "resources": requirement(asked.kind, among),
        "max_retries": 1,
        "max_calls": 1,
    }


def _within(asked: Asked, data: str) -> Probe:
    """On a worker, which ends if it takes too long."""
    timer = threading.Timer(LONGEST, os._exit, [1])
    timer.start()
    try:
        return measure_configs(asked.configs, data, **asked.how)
    finally:
        timer.cancel()


def _or_none(found: Any) -> Probe | None:
    try:
        probe: Probe = ray.get(found)
        return probe
    except ray.exceptions.RayError:
        return None
