"""The kinds of devices that a cluster has: its GPUs by accelerator type, or its CPU cores if it has no GPU."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PREFIX = "accelerator_type:"
"""Prefix of the Ray resources that name a kind of GPU, e.g. `accelerator_type:H100`."""


@dataclass(frozen=True)
class DeviceKind:
    """Equal devices of a cluster."""

    gpus: bool
    """True for GPUs, False for CPU cores."""
    accelerator: str
    """Ray's name of the GPU, e.g. `H100`; empty for cores and for GPUs that Ray does not name."""
    nodes: tuple[int, ...]
    """Number of devices of each node."""
    cores: float = 1.0
    """CPU cores per device, on the node that has fewest."""
    on_demand: bool = False
    """True if the cluster starts nodes while cohorts wait: it had no node before one was requested."""

    @property
    def count(self) -> int:
        return sum(self.nodes)

    @property
    def expected_count(self) -> int:
        """Devices for which cohorts are cut: those that are there now, and those that may come."""
        return max(self.count, EXPECTED_DEVICES) if self.on_demand else self.count


EXPECTED_DEVICES = 8
"""Devices for which cohorts are cut where nodes come on demand. If they were cut for the few devices that are there at
first, no cohort would wait, and no further node would come."""
ASSUMED_KIND = DeviceKind(True, "", (1,), cores=0.0)
"""Assumed kind of a cluster that can grow but has no worker yet: one GPU."""


def device_kinds(nodes: Sequence[Mapping[str, Any]], local: bool) -> tuple[DeviceKind, ...]:
    """Return the kinds of GPUs among Ray's `nodes`, most frequent first.

    Without any GPU, return one kind that stands for the CPU cores. Without any core either, return a single core if
    the cluster is `local`, else `ASSUMED_KIND`, because nodes may come.
    """
    alive = [node["Resources"] for node in nodes if node["Alive"]]
    gpu_nodes: dict[str, list[Mapping[str, float]]] = {}
    for resources in alive:
        if resources.get("GPU", 0) >= 1:
            accelerator = next((key.removeprefix(PREFIX) for key in sorted(resources) if key.startswith(PREFIX)), "")
            gpu_nodes.setdefault(accelerator, []).append(resources)
    if gpu_nodes:
        gpus = [_gpus(accelerator, same_kind) for accelerator, same_kind in gpu_nodes.items()]
        return tuple(sorted(gpus, key=lambda kind: (-kind.count, kind.accelerator)))
    cores = tuple(int(resources["CPU"]) for resources in alive if resources.get("CPU", 0) >= 1)
    return (DeviceKind(False, "", cores),) if cores else (DeviceKind(False, "", (1,)) if local else ASSUMED_KIND,)


def _gpus(accelerator: str, nodes: Sequence[Mapping[str, float]]) -> DeviceKind:
    cores = min(resources.get("CPU", 0.0) / resources["GPU"] for resources in nodes)
    return DeviceKind(True, accelerator, tuple(int(resources["GPU"]) for resources in nodes), cores)


def kind_resources(kind: DeviceKind, among: Sequence[DeviceKind]) -> dict[str, float]:
    """Return the Ray resources that bind a task to this kind; none for one kind, as its nodes may yet lack the name."""
    return {PREFIX + kind.accelerator: 0.001} if len(among) > 1 and kind.accelerator else {}
