"""Turns measurements into a packing and its slots: on shared GPUs of one kind or several, or on CPU cores."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sweeper.packing.device_kinds import requirement
from sweeper.packing.devices import Devices, cpus
from sweeper.packing.measurements import DeviceInfo, GroupProfile
from sweeper.packing.packer import Packing, pack, pack_cores
from sweeper.packing.slots import SlotResources, Slots
from sweeper.packing.workloads import Workload, alone, candidate_cuts


@dataclass(frozen=True)
class Placement:
    """A packing, with the devices and the slots that it is for."""

    packing: Packing
    devices: tuple[Devices, ...]
    """One for each kind of device."""
    slots: Slots
    threads: int = 1
    """Threads of each process on CPU cores."""

    @property
    def cost(self) -> float | None:
        """Price of the nodes that are used until all cohorts have ended; None if unknown."""
        return self.packing.cost(self.devices)


def whole_device_slots(seen: Sequence[DeviceInfo], fraction: float | None, here: bool, grows: bool) -> Slots:
    """Return slots of one whole device each, or of a requested `fraction` of one."""
    part = fraction or 1.0
    if seen[0].kind.gpus:
        return Slots(tuple(_gpu_share(device, seen, int(1 / part), part) for device in seen), here, grows)
    return Slots((_core_share(seen[0], part),), here, grows)


def on_gpus(
    workloads: Sequence[Workload],
    seen: Sequence[DeviceInfo],
    profiles: Sequence[Sequence[GroupProfile]],
    *,
    fraction: float | None,
    grows: bool,
    node_price: float | None = None,
) -> Placement:
    """Place the groups on GPUs.

    `profiles` has the profile of each group, by kind of device; `workloads` carry the measurements of the first kind.
    A requested `fraction` of a GPU fixes how many cohorts share one.
    """
    kinds = tuple(
        _devices(workloads, device, device_profiles, profiles[0], node_price)
        for device, device_profiles in zip(seen, profiles, strict=True)
    )
    packing = pack(workloads, kinds, [int(1 / fraction)] * len(kinds) if fraction else None)
    used = [index for index, share in enumerate(packing.shares) if share]
    shares = tuple(_gpu_share(seen[index], seen, packing.shares[index], fraction) for index in used)
    rooms = [kinds[index].room(packing.shares[index]) for index in used]
    only = {
        trial.id: fitting
        for workload, cut in zip(workloads, packing.cuts, strict=True)
        if len(fitting := _fitting(replace(workload, settled_cut=cut), rooms)) < len(rooms)
        for stream in workload.members
        for trial in stream
    }
    return Placement(packing, kinds, Slots(shares, here=False, grows=grows, only=only))


def on_cores(
    workloads: Mapping[int, Sequence[Workload]],
    seen: DeviceInfo,
    overhead: int,
    *,
    fraction: float | None,
    here: bool,
    grows: bool,
    node_price: float | None = None,
) -> Placement:
    """Place the groups on CPU cores.

    `workloads` maps a number of threads to the groups as measured with it. `overhead` is the bytes of a process beside
    its tensors. With a requested `fraction` of a core, processes have one thread each.
    """
    if fraction:
        share = _core_share(seen, fraction)
        kind = Devices(
            share.count, share.memory or 1, overhead=overhead, node_price=node_price, node_devices=share.count
        )
        threads, packing = 1, pack(workloads[1], [kind])
    else:
        threads, packing = pack_cores(workloads, seen.kind.nodes, seen.bytes, overhead=overhead, node_price=node_price)
        kind = cpus(seen.kind.nodes, seen.bytes, threads, overhead=overhead, node_price=node_price)
        share = _core_share(seen, threads)
    return Placement(packing, (kind,), Slots((share,), here, grows), threads)


def least_threads(workloads: Sequence[Workload], seen: DeviceInfo, overhead: int) -> int:
    """Return the least number of threads per process with which all processes of a machine fit into its memory.

    The result is a power of two, or all cores of the largest machine.
    """
    need = max((alone(workload).bytes for workload in workloads), default=0)
    threads, cores = 1, max(seen.kind.nodes)
    while threads < cores and cpus(seen.kind.nodes, seen.bytes, threads, overhead=overhead).room(1) < need:
        threads = min(2 * threads, cores)
    return threads


def heaviest(workloads: Sequence[Workload]) -> int:
    """Return the index of the group that trains longest; the gain from sharing a device is measured with it."""
    return max(range(len(workloads)), key=lambda index: workloads[index].total * alone(workloads[index]).seconds)


def _devices(
    workloads: Sequence[Workload],
    seen: DeviceInfo,
    profiles: Sequence[GroupProfile],
    references: Sequence[GroupProfile],
    node_price: float | None,
) -> Devices:
    """Return the devices of one kind; `profiles` has the groups' profiles on it, `references` those on the first kind.

    Their speed is relative to the first kind, over all groups that were measured on both.
    """
    pairs = [
        _common(reference, profile)
        for reference, profile in zip(references, profiles, strict=True)
        if reference.measured and profile.measured
    ]
    reference_seconds, seconds = sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)
    return Devices(
        count=seen.kind.most,
        bytes=seen.bytes,
        cores=max(1, int(seen.kind.cores)),
        speed=reference_seconds / seconds if seconds else 1.0,
        overhead=max((profile.overhead for profile in profiles), default=seen.overhead),
        overlap=(profiles[heaviest(workloads)].overlap or {}) if workloads else {},
        node_price=node_price,
        node_devices=max(seen.kind.nodes),
    )


def _common(reference: GroupProfile, profile: GroupProfile) -> tuple[float, float]:
    """Return the seconds of a member's step on both devices, in the widest stack that was measured on both."""
    by_width = {stack.width: stack.seconds for stack in profile.measured}
    return next(
        (stack.seconds, by_width[stack.width])
        for stack in sorted(reference.measured, key=lambda stack: -stack.width)
        if stack.width in by_width
    )


def _fitting(workload: Workload, rooms: Sequence[int]) -> tuple[int, ...]:
    """Return the indices of the `rooms` (bytes) that hold the group's cohorts; the largest room if none does."""
    need = min(candidate_cuts(workload)[0].bytes, max(rooms))
    return tuple(index for index, room in enumerate(rooms) if room >= need)


def _gpu_share(seen: DeviceInfo, among: Sequence[DeviceInfo], sharing: int, fraction: float | None) -> SlotResources:
    """Return a GPU's `1 / sharing` part, or the requested `fraction`, with as large a part of its CPU cores.

    Amounts are rounded down to ten-thousandths, the unit in which Ray counts.
    """
    cores = seen.kind.cores / sharing
    resources = {
        "GPU": fraction or math.floor(10_000 / sharing) / 10_000,
        "CPU": float(int(cores)) if cores >= 1 else math.floor(10_000 * cores) / 10_000,
        **requirement(seen.kind, [device.kind for device in among]),
    }
    resources = {name: amount for name, amount in resources.items() if amount}
    return SlotResources(resources, seen.kind.count * sharing, seen.bytes // sharing)


def _core_share(seen: DeviceInfo, cores: float) -> SlotResources:
    """Return several whole `cores`, or a part of one, with as large a part of a machine's memory."""
    per_node = max(1, int(max(seen.kind.nodes) / cores))
    count = max(1, sum(int(node_cores / cores) for node_cores in seen.kind.nodes))
    return SlotResources({"CPU": float(cores)}, count, seen.bytes // per_node)
