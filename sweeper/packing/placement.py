"""Measurements to a packing and its slots: on shared GPUs of one kind or several, or on CPU cores."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sweeper.errors import ClusterError
from sweeper.packing.cluster import DeviceInfo, Devices, cpu_devices, kind_resources
from sweeper.packing.packer import Packing, pack
from sweeper.packing.profiler import GroupProfile
from sweeper.packing.workloads import Workload, candidate_cuts, one_per_cohort
from sweeper.spec.node_price import NodePrice


@dataclass(frozen=True)
class Placement:
    """A packing, with the devices and the slots that it is for."""

    packing: Packing
    devices: tuple[Devices, ...]
    """One for each kind of device."""
    slots: Slots
    workloads: Sequence[Workload]
    """The groups, with their measurements on the first kind of device with so many threads."""
    threads: int = 1
    """Threads of each process on CPU cores."""

    @property
    def cost(self) -> float | None:
        """Price of the nodes that are used until all cohorts have ended; None if unknown."""
        return self.packing.cost(self.devices)


def whole_device_slots(devices: Sequence[DeviceInfo], fraction: float | None, local: bool) -> Slots:
    """Return slots of one whole device each, or of a requested `fraction` of one."""
    part = fraction or 1.0
    if devices[0].kind.gpus:
        return Slots(tuple(_gpu_slots(device, devices, int(1 / part), part) for device in devices), local)
    return Slots((_core_slots(devices[0], part),), local)


def on_gpus(
    workloads: Sequence[Workload],
    devices: Sequence[DeviceInfo],
    profiles: Sequence[Sequence[GroupProfile]],
    *,
    fraction: float | None,
    local: bool,
    node_price: NodePrice | None = None,
) -> Placement:
    """Place the groups on GPUs. A requested `fraction` of a GPU fixes how many cohorts share one.

    `profiles` has the profile of each group, by kind of device; `workloads` carry the measurements of the first kind.
    """
    kinds = tuple(
        _devices(workloads, device, device_profiles, profiles[0], node_price)
        for device, device_profiles in zip(devices, profiles, strict=True)
    )
    packing = pack(workloads, kinds, [int(1 / fraction)] * len(kinds) if fraction else None)
    used = [index for index, slots in enumerate(packing.slots_per_device) if slots]
    by_kind = tuple(_gpu_slots(devices[index], devices, packing.slots_per_device[index], fraction) for index in used)
    capacities = [kinds[index].capacity(packing.slots_per_device[index]) for index in used]
    fitting_kinds = {
        trial.id: fitting
        for workload, cut in zip(workloads, packing.cuts, strict=True)
        if len(fitting := _fitting(replace(workload, settled_cut=cut), capacities)) < len(capacities)
        for stream in workload.group
        for trial in stream
    }
    return Placement(packing, kinds, Slots(by_kind, local, fitting_kinds=fitting_kinds), workloads)


def on_cores(
    workloads: Mapping[int, Sequence[Workload]],
    device: DeviceInfo,
    overhead: int,
    *,
    fraction: float | None,
    local: bool,
    node_price: NodePrice | None = None,
) -> Placement:
    """Place the groups on CPU cores, with the number of threads per process that has the shortest makespan.

    `workloads` maps a number of threads to the groups as measured with it. `overhead` is the bytes of a process beside
    its tensors. With a requested `fraction` of a core there is one thread.
    """
    costs: dict[str, Any] = {"overhead": overhead, "node_price": node_price.of("") if node_price else None}
    if fraction:
        slots = _core_slots(device, fraction)
        kinds = {1: Devices(slots.count, slots.memory or 1, node_devices=slots.count, **costs)}
    else:
        kinds = {threads: cpu_devices(device.kind.nodes, device.bytes, threads, **costs) for threads in workloads}
    packings = {threads: pack(workloads[threads], [kind]) for threads, kind in kinds.items()}
    threads = min(packings, key=lambda threads: (packings[threads].seconds, threads))
    slots = _core_slots(device, fraction or threads)
    return Placement(packings[threads], (kinds[threads],), Slots((slots,), local), workloads[threads], threads)


def with_settled_cuts(placement: Placement, workloads: Sequence[Workload]) -> Placement:
    """Return the placement with other workloads, whose cuts are settled, on the same slots."""
    packing = pack(workloads, placement.devices, placement.packing.slots_per_device)
    return replace(placement, packing=packing, workloads=workloads)


def least_threads(workloads: Sequence[Workload], device: DeviceInfo, overhead: int) -> int:
    """Return the fewest threads, a power of two or all cores, with which a machine's processes fit into its memory."""
    need = max((one_per_cohort(workload).bytes for workload in workloads), default=0)
    threads, (nodes, cores) = 1, (device.kind.nodes, max(device.kind.nodes))
    while threads < cores and cpu_devices(nodes, device.bytes, threads, overhead=overhead).capacity(1) < need:
        threads = min(2 * threads, cores)
    return threads


def longest_group(workloads: Sequence[Workload]) -> int:
    """Return the index of the group that trains longest; the gain from sharing a device is measured with it."""
    seconds = [workload.member_count * one_per_cohort(workload).seconds for workload in workloads]
    return seconds.index(max(seconds))


def _devices(
    workloads: Sequence[Workload],
    device: DeviceInfo,
    profiles: Sequence[GroupProfile],
    references: Sequence[GroupProfile],
    node_price: NodePrice | None,
) -> Devices:
    """Return the devices of one kind. Their speed is relative to the first kind, with the profiles `references`."""
    pairs = [
        _common_seconds(reference, profile)
        for reference, profile in zip(references, profiles, strict=True)
        if reference.measurements and profile.measurements
    ]
    reference_seconds, seconds = sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)
    return Devices(
        count=device.kind.expected_count,
        bytes=device.bytes,
        cores=max(1, int(device.kind.cores)),
        speed=reference_seconds / seconds if seconds else 1.0,
        overhead=max((profile.overhead for profile in profiles), default=device.overhead),
        slowdowns=(profiles[longest_group(workloads)].slowdowns or {}) if workloads else {},
        node_price=node_price.of(device.kind.accelerator) if node_price else None,
        node_devices=max(device.kind.nodes),
    )


def _common_seconds(reference: GroupProfile, profile: GroupProfile) -> tuple[float, float]:
    """Return the seconds of a member's step on both devices, in the widest stack that was measured on both."""
    by_width = {stack.width: stack.seconds for stack in profile.measurements}
    return next(
        (stack.seconds, by_width[stack.width])
        for stack in sorted(reference.measurements, key=lambda stack: -stack.width)
        if stack.width in by_width
    )


def _fitting(workload: Workload, capacities: Sequence[int]) -> tuple[int, ...]:
    """Return the indices of the `capacities` (bytes) that hold the group's cohorts; the largest if none does."""
    need = min(candidate_cuts(workload)[0].bytes, max(capacities))
    return tuple(index for index, capacity in enumerate(capacities) if capacity >= need)


def _gpu_slots(
    device: DeviceInfo, among: Sequence[DeviceInfo], per_device: int, fraction: float | None
) -> SlotResources:
    """Return slots of `1 / per_device` or `fraction` of a GPU, and of its cores, in Ray's unit of ten-thousandths."""
    cores = device.kind.cores / per_device
    resources = {
        "GPU": fraction or math.floor(10_000 / per_device) / 10_000,
        "CPU": float(int(cores)) if cores >= 1 else math.floor(10_000 * cores) / 10_000,
        **kind_resources(device.kind, [other.kind for other in among]),
    }
    resources = {name: amount for name, amount in resources.items() if amount}
    return SlotResources(resources, device.kind.count * per_device, device.bytes // per_device)


def _core_slots(device: DeviceInfo, cores: float) -> SlotResources:
    """Return slots of several whole `cores`, or a part of one, with as large a part of a machine's memory."""
    per_node = max(1, int(max(device.kind.nodes) / cores))
    count = max(1, sum(int(node_cores / cores) for node_cores in device.kind.nodes))
    return SlotResources({"CPU": float(cores)}, count, device.bytes // per_node)


@dataclass(frozen=True)
class SlotResources:
    """What one process takes of a kind of device."""

    resources: Mapping[str, float]
    """Ray resources, e.g. `{"GPU": 0.5, "CPU": 4.0}`."""
    count: int
    """Processes that run at once on the devices that are there now."""
    memory: int | None = None
    """Bytes that the process may use: its part of the device, or of the machine; None if unknown."""


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
                f"{self.resources['GPU']:g} of a GPU each; leave out --gpu-fraction"
            )
        if workers > self.count and self.local:
            raise ClusterError(
                f"workers must not exceed {self.count}, the processes that this machine has devices for, but got "
                f"workers={workers}; choose fewer with --set workers=N, or pass the --address of a cluster"
            )
        return replace(self, by_kind=self.by_kind if workers == 1 else self.by_kind[:1], workers=workers)
