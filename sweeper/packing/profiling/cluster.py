"""The cluster on which a sweep runs: where it is, its devices, and how to measure on them."""

import json
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sweeper.errors import ClusterError
from sweeper.packing.profiling.device_kinds import DeviceKind
from sweeper.plan.trials import content_hash
from sweeper.storage.files import Files, read_record
from trainables.json_input import Amount, Count, PositiveCount
from trainables.training.measurement import CompiledProbe, DeviceMemory, Probe


def is_local(address: str | None) -> bool:
    """Whether an address means a cluster that is started on this machine. To any other cluster nodes may come."""
    return address in (None, "local")


@dataclass(frozen=True)
class DeviceInfo(DeviceMemory):
    """Devices of one kind, as a process on one of them saw it."""

    kind: DeviceKind


@dataclass(frozen=True)
class ProbeRequest:
    """A measurement to make on a whole device of one kind (see `trainables.worker.resources.measure_configs`)."""

    kind: DeviceKind
    configs: Sequence[Mapping[str, Any]] = ()
    """Configs of the members to train; empty to look at the device only."""
    seconds: float = 0.0
    """Time limit of the measurement of stacks of several widths; 0 leaves it out."""
    threads: int = 1
    """CPU threads that the processes use together."""
    processes: int = 0
    """Most processes that share the device, to measure how they slow each other down; 0 leaves it out."""
    widths: Sequence[int] = ()
    """Widths of the stacks that these processes step."""
    compiled: CompiledProbe | None = None
    """Measurement of compiled steps; None leaves it out."""


Measure = Callable[[Sequence[ProbeRequest]], Sequence[Probe | None]]
"""Makes the measurements and returns a probe for each, or None for one that failed."""


@dataclass(frozen=True)
class Cluster:
    """The Ray cluster on which a sweep is to run."""

    address: str | None
    kinds: tuple[DeviceKind, ...]
    measure: Measure

    @property
    def local(self) -> bool:
        """True if the cluster is started on this machine, and no node can come."""
        return is_local(self.address)


def profile_devices(cluster: Cluster) -> list[DeviceInfo]:
    """Look at one device of each kind on which a worker starts. Raises ClusterError if none starts at all."""
    probes = cluster.measure([ProbeRequest(kind) for kind in cluster.kinds])
    devices = [
        DeviceInfo(**asdict(probe.memory), kind=kind)
        for kind, probe in zip(cluster.kinds, probes, strict=True)
        if probe
    ]
    if not devices:
        raise ClusterError("a worker must start on the cluster and report its device, but none did")
    return devices


@dataclass(frozen=True)
class _KindRecord:
    """A kind of device as `write_devices` writes it."""

    gpus: bool
    accelerator: str
    nodes: tuple[PositiveCount, ...]
    cores: Amount
    on_demand: bool | None = None
    comes: bool | None = None
    """What earlier versions called `on_demand`."""


@dataclass(frozen=True)
class _DeviceRecord:
    """A device as `write_devices` writes it."""

    device: str
    bytes: Count
    overhead: Count
    kind: _KindRecord

    def info(self) -> DeviceInfo:
        """Return the device. Raises ValueError if it has no nodes."""
        kind = self.kind
        on_demand = kind.comes if kind.on_demand is None else kind.on_demand
        if not kind.nodes or on_demand is None:
            raise ValueError("a kind of device must have nodes and on_demand, but lacks one")
        known = DeviceKind(kind.gpus, kind.accelerator, kind.nodes, kind.cores, on_demand)
        return DeviceInfo(self.device, self.bytes, self.overhead, known)


def read_devices(files: Files, address: str | None) -> list[DeviceInfo] | None:
    """Return the devices that were last seen at a cluster's address; None if there are none, or the file is damaged."""
    return read_record(
        files, _path(address), list[_DeviceRecord], lambda devices: [device.info() for device in devices] or None
    )


def write_devices(files: Files, address: str | None, devices: Sequence[DeviceInfo]) -> None:
    """Keep the devices that were seen at a cluster's address."""
    files.write(_path(address), json.dumps([asdict(device) for device in devices], indent=1).encode())


def _path(address: str | None) -> str:
    return f"probes/devices/{content_hash(socket.gethostname() if is_local(address) else address)}.json"
