"""The cluster on which a sweep runs: its kinds of devices, the slots on them, and how to measure on them.

Processes on a GPU take turns. They gain the time in which a single stack leaves the GPU idle, which only a measurement
tells; without one, n processes are assumed to take n times as long. CPU cores are not shared.
"""

from __future__ import annotations

import json
import math
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from sweeper.errors import ClusterError, SpecError
from sweeper.option_values import DeviceChoice, NodePrice, memory_text
from sweeper.planning.cohorts import content_hash
from sweeper.request import Request
from sweeper.storage.files import Files, read_record
from sweeper.storage.layout import devices_path
from trainables.json_input import Amount, PositiveCount
from trainables.training.measurement import DeviceMeasurement, DeviceMemory, MeasurementWork

PREFIX = "accelerator_type:"
"""Prefix of the Ray resources that name a kind of GPU, e.g. `accelerator_type:H100`."""


@dataclass(frozen=True)
class DeviceKind:
    """Equal devices of a cluster."""

    gpus: bool
    """True for GPUs, False for CPU cores."""
    accelerator: str
    """Ray's name of the GPU, e.g. `H100`; empty for cores and for GPUs that Ray does not name."""
    nodes: tuple[PositiveCount, ...]
    """Number of devices of each node; not empty."""
    cores: Amount = 1.0
    """CPU cores per device, on the node that has fewest."""
    node_ids: tuple[str, ...] = ()
    """Ray's ids of the nodes, in their order; empty if Ray did not start them."""
    others: tuple[str, ...] = ()
    """Ids of the nodes whose GPUs have the same name but another memory: A100 of 40 and of 80 GB, parts of a GPU."""
    takes_new: bool = True
    """Whether a node with GPUs of this name that joins later counts as one of this kind."""
    on_demand: bool = False
    """True if the cluster starts nodes while cohorts wait: it had no node before one was requested."""

    def __post_init__(self) -> None:
        if not self.nodes:
            raise ValueError("a kind of device must have nodes, but has none")

    @property
    def count(self) -> int:
        return sum(self.nodes)

    def of_nodes(self, node_ids: Collection[str]) -> DeviceKind:
        """Return the devices of some of its nodes."""
        chosen = [index for index, node in enumerate(self.node_ids) if node in node_ids]
        return replace(
            self,
            nodes=tuple(self.nodes[index] for index in chosen),
            node_ids=tuple(self.node_ids[index] for index in chosen),
        )

    @property
    def only_on(self) -> tuple[str, ...]:
        """Ids of the only nodes where its tasks may run; empty for all but `never_on`."""
        return () if self.takes_new else self.node_ids

    @property
    def never_on(self) -> tuple[str, ...]:
        """Ids of nodes where its tasks must not run."""
        return self.others if self.takes_new else ()

    @property
    def expected_count(self) -> int:
        """Devices for which cohorts are cut: those that are there now, and those that may come."""
        return max(self.count, EXPECTED_DEVICES) if self.on_demand else self.count


EXPECTED_DEVICES = 8
"""Devices for which cohorts are cut where nodes come on demand. If they were cut for the few devices that are there at
first, no cohort would wait, and no further node would come."""
ASSUMED_GPU, ASSUMED_CORE = DeviceKind(True, "", (1,), cores=0.0), DeviceKind(False, "", (1,), cores=0.0)
"""Assumed kinds of a cluster that can grow but has no node yet of the devices to train on."""


def device_kinds(
    nodes: Sequence[Mapping[str, Any]],
    local: bool,
    devices: DeviceChoice | None = None,
    node_types: Collection[Mapping[str, float]] | None = None,
) -> tuple[DeviceKind, ...]:
    """Return the kinds of GPUs among Ray's `nodes`, most frequent first.

    Without any GPU, and without a GPU in `node_types`, the resources of the nodes that an autoscaler may start, return
    one kind that stands for the CPU cores. Without any core either, return a single core if the cluster is `local`,
    else an assumed kind, because nodes may come: a core if node types are known and none has a GPU.

    `devices` chooses GPUs or cores. Raises ClusterError if a `local` cluster lacks the GPUs that it asks for.
    """
    alive = [node for node in nodes if node["Alive"]]
    gpus_may_come = not local and (devices == "gpu" or any(each.get("GPU", 0) >= 1 for each in node_types or ()))
    gpu_nodes: dict[str, list[Mapping[str, Any]]] = {}
    for node in alive:
        resources = node["Resources"]
        if resources.get("GPU", 0) >= 1:
            accelerator = next((key.removeprefix(PREFIX) for key in sorted(resources) if key.startswith(PREFIX)), "")
            gpu_nodes.setdefault(accelerator, []).append(node)
    if gpu_nodes and devices != "cpu":
        gpus = [_gpus(accelerator, same_kind) for accelerator, same_kind in gpu_nodes.items()]
        return tuple(sorted(gpus, key=lambda kind: (-kind.count, kind.accelerator)))
    cores = tuple(int(node["Resources"]["CPU"]) for node in alive if node["Resources"].get("CPU", 0) >= 1)
    if devices == "gpu" and local:
        raise ClusterError("--devices gpu needs a GPU, but Ray finds none here; leave it out to train on CPUs")
    if gpus_may_come and devices != "cpu":
        return (ASSUMED_GPU,)
    if cores or local:
        return (DeviceKind(False, "", cores or (1,)),)
    return (ASSUMED_CORE if node_types or devices == "cpu" else ASSUMED_GPU,)


def _gpus(accelerator: str, nodes: Sequence[Mapping[str, Any]]) -> DeviceKind:
    resources = [node["Resources"] for node in nodes]
    cores = min(own.get("CPU", 0.0) / own["GPU"] for own in resources)
    counts = tuple(int(own["GPU"]) for own in resources)
    return DeviceKind(True, accelerator, counts, cores, tuple(node["NodeID"] for node in nodes))


def kind_resources(kind: DeviceKind, among: Sequence[DeviceKind]) -> dict[str, float]:
    """Return the Ray resources that bind a task to this kind; none for one kind, as its nodes may yet lack the name."""
    return {PREFIX + kind.accelerator: 0.001} if len(among) > 1 and kind.accelerator else {}


MEMORY_MARGIN = 0.8
"""Fraction of its part of a device's memory that the measured need of a cohort may fill."""


@dataclass(frozen=True)
class Devices:
    """Equal devices: GPUs of one kind, or CPU cores (see `cpu_devices`)."""

    count: int
    bytes: int
    """Memory of each device, in bytes."""
    cores: int = 1
    """CPU cores per device. No more processes than cores share a device."""
    speed: float = 1.0
    """Steps per second, relative to the device that was measured."""
    overhead: int = 0
    """Bytes that each process takes beside its tensors, such as the CUDA context."""
    slowdowns: Mapping[int, Mapping[int, float]] = field(default_factory=dict)
    """Width of a stack -> number n of processes on a device -> slowdown of a step, between 1 (as if alone) and n
    (sharing gains nothing). The ratios of a width also serve narrower stacks. Unless a fraction is requested, only the
    measured numbers of processes share a device."""
    node_price: float | None = None
    """Price of a node for an hour; None if unknown."""
    node_devices: int = 1
    """Devices per node."""

    def __post_init__(self) -> None:
        for name in ("count", "bytes", "cores", "speed", "node_devices"):
            if not getattr(self, name) > 0:
                raise ValueError(f"`{name} > 0` must hold of devices, but got {name}={getattr(self, name)}")
        ratios = [ratio for ratios in self.slowdowns.values() for ratio in ratios.values()]
        if not min(ratios, default=1.0) >= 1:
            raise ValueError(f"`slowdowns >= 1` must hold of devices that are shared, but got {min(ratios)}")

    @property
    def process_counts(self) -> list[int]:
        """Numbers of processes that may share a device, ascending, regardless of memory."""
        measured = {n for ratios in self.slowdowns.values() for n in ratios}
        return sorted({1} | {n for n in measured if n <= self.cores})

    @property
    def price(self) -> float | None:
        """Price of all their nodes for an hour; None if unknown."""
        return None if self.node_price is None else math.ceil(self.count / self.node_devices) * self.node_price

    def capacity(self, processes: int) -> int:
        """Return the most bytes that a cohort may be measured to need if so many `processes` share a device."""
        return math.floor(MEMORY_MARGIN * self.bytes / processes) - self.overhead

    def slowdown(self, width: int, processes: int) -> float:
        """Return the slowdown (>= 1) of a step with so many `processes` on a device; proportional if not measured."""
        wider = [measured_width for measured_width in self.slowdowns if measured_width >= width]
        ratios = {1: 1.0} | (dict(self.slowdowns[min(wider)]) if wider else {})
        nearest = max(n for n in ratios if n <= processes)
        return ratios[nearest] * processes / nearest


def cpu_devices(
    cores: Sequence[int], memory: int, threads: int = 1, *, overhead: int = 0, node_price: float | None = None
) -> Devices:
    """Return the `cores` of each machine as devices: one for each process of `threads` threads.

    Every process gets an equal part of the `memory` (bytes) of the machine that has most cores.
    """
    if not 1 <= threads <= max(cores):
        raise ValueError(f"`1 <= threads <= cores` must hold, but got threads={threads} of {max(cores)} cores")
    processes = max(cores) // threads
    count = sum(machine_cores // threads for machine_cores in cores)
    return Devices(count, max(1, memory // processes), overhead=overhead, node_price=node_price, node_devices=processes)


def is_local(address: str | None) -> bool:
    """Whether an address means a cluster that is started on this machine. To any other cluster nodes may come."""
    return address in (None, "local")


@dataclass(frozen=True)
class DeviceInfo(DeviceMemory):
    """Devices of one kind, as a process on one of them saw it."""

    kind: DeviceKind


def hourly_price(devices: Sequence[DeviceInfo], price: NodePrice | None) -> float | None:
    """Return the price of all nodes of these kinds of devices for an hour; None if one of them has none."""
    total = 0.0
    for kind in (device.kind for device in devices):
        of_node = price.of(kind.accelerator) if price else None
        nodes = Devices(kind.expected_count, 1, node_price=of_node, node_devices=max(kind.nodes))
        if nodes.price is None:
            return None
        total += nodes.price
    return total


@dataclass(frozen=True)
class SlotResources:
    """What one process takes of a kind of device."""

    resources: Mapping[str, float]
    """Ray resources, e.g. `{"GPU": 0.5, "CPU": 4.0}`."""
    count: int
    """Processes that run at once on the devices that are there now."""
    memory: int | None = None
    """Bytes that the process may allocate: its part of a GPU without its CUDA context, or its part of the machine; None
    if unknown."""
    device: str = ""
    """Name of the device, see `DeviceMemory.device`."""
    only_on: tuple[str, ...] = ()
    """See `DeviceKind.only_on`, as is what follows."""
    never_on: tuple[str, ...] = ()


@dataclass(frozen=True)
class Slots:
    """What a cohort takes of a cluster, and how many cohorts run at once on what is there now."""

    by_kind: tuple[SlotResources, ...]
    """What each worker of a cohort takes, by kind of device; only kinds that are used."""
    local: bool
    """True if no node can come to the cluster, see `Cluster.local`."""
    workers: int = 1
    """Processes that train one cohort together."""
    fitting_kinds: Mapping[str, Collection[int]] = field(default_factory=dict)
    """trial_id -> indices in `by_kind` of the kinds that have room for its cohort. A trial that is not a key fits all
    kinds."""

    @property
    def resources(self) -> dict[str, float]:
        """Ray resources of a worker on the first kind of device."""
        return dict(self.by_kind[0].resources)

    @property
    def count(self) -> int:
        """Cohorts that run at once, at least 1. An autoscaling cluster may grow beyond it."""
        return max(1, sum(kind.count for kind in self.by_kind) // self.workers)

    def for_workers(self, workers: int) -> Slots:
        """Return the slots of cohorts that several `workers` train, all of them on the first kind of device.

        Raises ClusterError if several workers would share a GPU, or if the machine has too few devices and cannot grow.
        """
        if workers > 1 and self.resources.get("GPU", 1.0) < 1:
            raise ClusterError(
                f"each of several workers must have a GPU of its own, but got workers={workers} with "
                f"{self.resources['GPU']:g} of a GPU each; leave out --gpu-fraction or --gpu-memory"
            )
        if workers > self.count and self.local:
            raise ClusterError(
                f"workers must not exceed {self.count}, the processes that this machine has devices for, but got "
                f"workers={workers}; choose fewer with --set workers=N, or pass the --address of a cluster"
            )
        return replace(self, by_kind=self.by_kind if workers == 1 else self.by_kind[:1], workers=workers)


@dataclass(frozen=True)
class DevicePart:
    """The part of a GPU that a cohort takes by request."""

    fraction: float
    """In Ray's unit of ten-thousandths where it follows from memory."""
    count: int
    """Cohorts that have room on a GPU; 0 if none has."""
    memory: int
    """Bytes that each may use."""


def requested_part(request: Request, device: DeviceInfo) -> DevicePart | None:
    """Return the part of a GPU that `--gpu-memory` or `--gpu-fraction` asks for; None without."""
    if request.gpu_memory is not None:
        units = math.ceil(10_000 * request.gpu_memory / device.bytes)
        return DevicePart(units / 10_000, 10_000 // units, request.gpu_memory)
    if request.gpu_fraction is not None:
        count = int(1 / request.gpu_fraction)
        return DevicePart(request.gpu_fraction, count, device.bytes // count)
    return None


def check_gpu_memory(request: Request, devices: Sequence[DeviceInfo]) -> None:
    """Raise SpecError if `--gpu-memory` is asked for without GPUs, or if none of these has as much."""
    if request.gpu_memory is None:
        return
    asked = f"--gpu-memory {memory_text(request.gpu_memory)}"
    if not devices[0].kind.gpus:
        raise SpecError(f"--gpu-memory needs GPUs, but there are none; leave out {asked}")
    largest = max(devices, key=lambda device: device.bytes)
    if request.gpu_memory > largest.bytes:
        raise SpecError(
            f"--gpu-memory must not exceed the memory of a GPU, {memory_text(largest.bytes)} of {largest.device}, but "
            f"got {asked}"
        )


def whole_device_slots(devices: Sequence[DeviceInfo], request: Request, local: bool) -> Slots:
    """Return slots of one whole device each, or of the part of one that is requested."""
    if not devices[0].kind.gpus:
        return Slots((core_slots(devices[0], request.gpu_fraction or 1.0),), local)
    parts = [requested_part(request, device) for device in devices]
    slots = (gpu_slots(device, devices, part or 1) for device, part in zip(devices, parts, strict=True))
    return Slots(tuple(slot for slot in slots if slot.count), local)


def gpu_slots(device: DeviceInfo, among: Sequence[DeviceInfo], part: DevicePart | int) -> SlotResources:
    """Return slots of a requested part of a GPU, or of equal parts of so many, and of its cores, in Ray's unit of
    ten-thousandths."""
    if isinstance(part, int):
        part = DevicePart(math.floor(10_000 / part) / 10_000, part, device.bytes // part)
    cores = device.kind.cores / max(1, part.count)
    resources = {
        "GPU": part.fraction,
        "CPU": float(int(cores)) if cores >= 1 else math.floor(10_000 * cores) / 10_000,
        **kind_resources(device.kind, [other.kind for other in among]),
    }
    resources = {name: amount for name, amount in resources.items() if amount}
    count, kind = device.kind.count * part.count, device.kind
    memory = max(0, part.memory - device.overhead)
    return SlotResources(resources, count, memory, device.device, kind.only_on, kind.never_on)


def core_slots(device: DeviceInfo, cores: float) -> SlotResources:
    """Return slots of several whole `cores`, or a part of one, with as large a part of a machine's memory."""
    per_node = max(1, int(max(device.kind.nodes) / cores))
    count = max(1, sum(int(node_cores / cores) for node_cores in device.kind.nodes))
    return SlotResources({"CPU": float(cores)}, count, device.bytes // per_node, device.device)


@dataclass(frozen=True)
class MeasurementRequest(MeasurementWork):
    """A measurement to make on a whole device of one kind."""

    kind: DeviceKind = field(kw_only=True)


Measure = Callable[[Sequence[MeasurementRequest]], Sequence[DeviceMeasurement | None]]
"""Makes the measurements and returns the results, or None for one that failed."""


@dataclass(frozen=True)
class Cluster:
    """The Ray cluster on which a sweep is to run."""

    address: str | None
    kinds: tuple[DeviceKind, ...]
    measure: Measure
    left_out: Collection[str] = ()
    """Ids of the nodes that are left out, now and later: measurements showed that their GPUs cannot be used."""

    @property
    def local(self) -> bool:
        """True if the cluster is started on this machine, and no node can come."""
        return is_local(self.address)


def profile_devices(cluster: Cluster) -> list[DeviceInfo]:
    """Look at a GPU of each node, or at the cores of one. Raises ClusterError if no worker starts at all.

    A kind on which no worker starts is left out, and so are the nodes that `measure` adds to `Cluster.left_out`. GPUs
    of one name are several kinds if their memories differ. A node on which no worker starts in time, and one that joins
    later, counts as one of the kind of its name with the least memory.
    """
    looks = [(kind, here) for kind in cluster.kinds for here in _places(kind)]
    measured = cluster.measure([MeasurementRequest(kind=here) for _, here in looks])
    devices = []
    for kind in cluster.kinds:
        found = [
            (here, look.memory)
            for (of_kind, here), look in zip(looks, measured, strict=True)
            if of_kind is kind and look
        ]
        devices += _by_memory(kind, found, cluster.left_out)
    if not devices:
        raise ClusterError("a worker must start on the cluster and report its device, but none did")
    return devices


def _by_memory(
    kind: DeviceKind, found: Sequence[tuple[DeviceKind, DeviceMemory]], left_out: Collection[str]
) -> list[DeviceInfo]:
    """Return the devices of a kind by their memory, the largest first, from what was found on its nodes."""
    memories = {memory.device: memory for _, memory in found}
    names = sorted(memories, key=lambda name: -memories[name].bytes)
    if not kind.node_ids:
        return [DeviceInfo(**asdict(memories[name]), kind=kind) for name in names[:1]]
    usable, devices = [node for node in kind.node_ids if node not in left_out], list[DeviceInfo]()
    name_of = {here.node_ids[0]: memory.device for here, memory in found}
    for name in names:
        nodes = [node for node in usable if name_of.get(node, names[-1]) == name]
        others = tuple(node for node in usable if node not in nodes)
        own = replace(kind.of_nodes(nodes), others=others, takes_new=name == names[-1])
        devices.append(DeviceInfo(**asdict(memories[name]), kind=own))
    return devices


def _places(kind: DeviceKind) -> list[DeviceKind]:
    """Return the devices of each node by themselves, where it is known which these are."""
    return [kind.of_nodes([node]) for node in kind.node_ids] or [kind]


def read_devices(files: Files, address: str | None, choice: DeviceChoice | None = None) -> list[DeviceInfo] | None:
    """Return the devices that were last seen at a cluster's address under this choice of `--devices`; None if there are
    none, or the file is damaged."""
    return read_record(files, _path(address, choice), list[DeviceInfo], lambda devices: devices or None)


def write_devices(
    files: Files, address: str | None, devices: Sequence[DeviceInfo], choice: DeviceChoice | None = None
) -> None:
    """Keep the devices that were seen at a cluster's address under this choice of `--devices`."""
    files.write(_path(address, choice), json.dumps([asdict(device) for device in devices], indent=1).encode())


def _path(address: str | None, choice: DeviceChoice | None) -> str:
    place = socket.gethostname() if is_local(address) else address
    return devices_path(content_hash([place, choice] if choice else place))
