"""What a cluster has: its GPUs by kind, else its cores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PREFIX = "accelerator_type:"
"""How Ray's resources begin that name a kind of GPU."""


@dataclass(frozen=True)
class DeviceKind:
    """Equal devices."""

    gpus: bool
    """Whether they are GPUs; else cores."""
    accelerator: str
    """As Ray names it; '' of GPUs that it does not name, and of cores."""
    nodes: tuple[int, ...]
    """Devices of each node."""
    cores: float = 1.0
    """CPU cores that come with each device, at the least."""
    comes: bool = False
    """Whether nodes come when cohorts wait: the cluster had none before it was asked for one."""

    @property
    def count(self) -> int:
        return sum(self.nodes)

    @property
    def most(self) -> int:
        """Devices that are counted upon."""
        return max(self.count, MAY_COME) if self.comes else self.count


MAY_COME = 8
"""Devices for which cohorts are cut where nodes come: cut for the few that are there at first, none would wait."""
UNSEEN = DeviceKind(True, "", (1,), cores=0.0)
"""Of a cluster that has no worker yet and will grow: a GPU."""


def kinds(nodes: Sequence[Mapping[str, Any]], grows: bool) -> tuple[DeviceKind, ...]:
    """Of Ray's nodes those of the GPUs, most frequent first; without any the cores; UNSEEN where a cluster that grows
    has neither."""
    there = [node["Resources"] for node in nodes if node["Alive"]]
    found: dict[str, list[Mapping[str, float]]] = {}
    for one in there:
        if one.get("GPU", 0) >= 1:
            name = next((key.removeprefix(PREFIX) for key in sorted(one) if key.startswith(PREFIX)), "")
            found.setdefault(name, []).append(one)
    if found:
        gpus = [_gpus(name, some) for name, some in found.items()]
        return tuple(sorted(gpus, key=lambda kind: (-kind.count, kind.accelerator)))
    cores = tuple(int(one["CPU"]) for one in there if one.get("CPU", 0) >= 1)
    return (DeviceKind(False, "", cores),) if cores else (UNSEEN if grows else DeviceKind(False, "", (1,)),)


def _gpus(accelerator: str, nodes: Sequence[Mapping[str, float]]) -> DeviceKind:
    cores = min(one.get("CPU", 0.0) / one["GPU"] for one in nodes)
    return DeviceKind(True, accelerator, tuple(int(one["GPU"]) for one in nodes), cores)


def requirement(kind: DeviceKind, among: Sequence[DeviceKind]) -> dict[str, float]:
    """What a task takes beside its devices so that it comes to this kind of several; nothing where there is one, as an
    autoscaler may not know what its nodes will call their devices."""
    return {PREFIX + kind.accelerator: 0.001} if len(among) > 1 and kind.accelerator else {}
