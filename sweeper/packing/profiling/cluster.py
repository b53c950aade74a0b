"""The cluster on which a sweep runs: where it is, its devices, and how to measure on them."""

import json
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sweeper.errors import ClusterError
from sweeper.packing.profiling.device_kinds import DeviceKind
from sweeper.plan.trials import content_hash
from sweeper.storage.io.files import Files
from sweeper.storage.io.json_records import number, read_record, text, truth, whole
from trainables.profiling.measurement import CompiledProbe, DeviceMemory, Probe


def is_local(address: str | None) -> bool:
    """Whether an address means a cluster that is started on this machine. To any other cluster nodes may come."""
    return address in (None, "local")


@dataclass(frozen=True)
class DeviceInfo(DeviceMemory):
    """Devices of one kind, as a process on one of them saw it."""

    kind: DeviceKind


@dataclass(frozen=True)
class ProbeRequest:
    """A measurement to make on a whole device of one kind (see `trainables.worker.ray_train.measure_configs`)."""

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


def read_devices(files: Files, address: str | None) -> list[DeviceInfo] | None:
    """Return the devices that were last seen at a cluster's address; None if there are none, or the file is damaged."""
    return read_record(files, _path(address), lambda plain: [_parsed_device(device) for device in plain] or None)


def write_devices(files: Files, address: str | None, devices: Sequence[DeviceInfo]) -> None:
    """Keep the devices that were seen at a cluster's address."""
    files.write(_path(address), json.dumps([asdict(device) for device in devices], indent=1).encode())


def _parsed_device(plain: Any) -> DeviceInfo:
    """Parse one device of those that `write_devices` wrote. Raises an error for anything else."""
    kind = plain["kind"]
    nodes = tuple(whole(devices, 1) for devices in kind["nodes"])
    if not nodes:
        raise ValueError("a kind of device must have nodes, but has none")
    on_demand = truth(kind["on_demand"] if "on_demand" in kind else kind["comes"])  # the key of earlier versions
    return DeviceInfo(
        text(plain["device"]),
        whole(plain["bytes"]),
        whole(plain["overhead"]),
        DeviceKind(truth(kind["gpus"]), text(kind["accelerator"]), nodes, number(kind["cores"]), on_demand),
    )


def _path(address: str | None) -> str:
    return f"probes/devices/{content_hash(socket.gethostname() if is_local(address) else address)}.json"
