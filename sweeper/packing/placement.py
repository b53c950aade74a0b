"""What was measured -> how cohorts are cut and where they run: on shared GPUs of several kinds, or on cores."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sweeper.packing.device_kinds import requirement
from sweeper.packing.devices import Devices, cpus
from sweeper.packing.measurements import DeviceInfo, GroupProfile
from sweeper.packing.packer import Packing, pack, pack_cores
from sweeper.packing.slots import SlotResources, Slots
from sweeper.packing.workloads import Workload, alone, choices


@dataclass(frozen=True)
class Placement:
    """A packing on the devices there are."""

    packing: Packing
    devices: tuple[Devices, ...]
    slots: Slots
    threads: int = 1
    """Of each process on a CPU."""

    @property
    def cost(self) -> float | None:
        return self.packing.cost(self.devices)


def whole(seen: Sequence[DeviceInfo], fraction: float | None, here: bool, grows: bool) -> Slots:
    """What a cohort takes where nothing is chosen: a device, or this fraction of one."""
    part = fraction or 1.0
    if seen[0].kind.gpus:
        return Slots(tuple(_gpu_share(one, seen, int(1 / part), part) for one in seen), here, grows)
    return Slots((_core_share(seen[0], part),), here, grows)


def on_gpus(
    workloads: Sequence[Workload],
    seen: Sequence[DeviceInfo],
    known: Sequence[Sequence[GroupProfile]],
    *,
    fraction: float | None,
    grows: bool,
    node_price: float | None = None,
) -> Placement:
    """On GPUs; `known`: of each kind and group what was measured. `workloads` are those of the first kind."""
    kinds = tuple(_devices(workloads, *there, known[0], node_price) for there in zip(seen, known, strict=True))
    packing = pack(workloads, kinds, [int(1 / fraction)] * len(kinds) if fraction else None)
    used = [index for index, share in enumerate(packing.shares) if share]
    shares = tuple(_gpu_share(seen[index], seen, packing.shares[index], fraction) for index in used)
    rooms = [kinds[index].room(packing.shares[index]) for index in used]
    only = {
        trial.id: fitting
        for workload, by in zip(workloads, packing.cuts, strict=True)
        if len(fitting := _fitting(replace(workload, by=by), rooms)) < len(rooms)
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
    """On cores; `workloads` by the number of threads with which they were measured."""
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
    """With fewer threads a process there would be too many processes at once for a machine's memory."""
    need = max((alone(workload).bytes for workload in workloads), default=0)
    threads, cores = 1, max(seen.kind.nodes)
    while threads < cores and cpus(seen.kind.nodes, seen.bytes, threads, overhead=overhead).room(1) < need:
        threads = min(2 * threads, cores)
    return threads


def heaviest(workloads: Sequence[Workload]) -> int:
    """The group that most time is for: what sharing a device gives is measured of it."""
    return max(range(len(workloads)), key=lambda one: workloads[one].total * alone(workloads[one]).seconds)


def _devices(
    workloads: Sequence[Workload],
    seen: DeviceInfo,
    known: Sequence[GroupProfile],
    first: Sequence[GroupProfile],
    node_price: float | None,
) -> Devices:
    there = [_common(one, other) for one, other in zip(first, known, strict=True) if one.measured and other.measured]
    seconds, others = sum(one for one, _ in there), sum(other for _, other in there)
    return Devices(
        count=seen.kind.most,
        bytes=seen.bytes,
        cores=max(1, int(seen.kind.cores)),
        speed=seconds / others if others else 1.0,
        overhead=max((one.overhead for one in known), default=seen.overhead),
        overlap=(known[heaviest(workloads)].overlap or {}) if workloads else {},
        node_price=node_price,
        node_devices=max(seen.kind.nodes),
    )


def _common(one: GroupProfile, other: GroupProfile) -> tuple[float, float]:
    """Seconds of a member's step on both devices, in the widest stack that was measured on both."""
    by_width = {stack.width: stack.seconds for stack in other.measured}
    return next(
        (stack.seconds, by_width[stack.width])
        for stack in sorted(one.measured, key=lambda stack: -stack.width)
        if stack.width in by_width
    )


def _fitting(workload: Workload, rooms: Sequence[int]) -> tuple[int, ...]:
    """Where its cohorts have room; where they have none anywhere, where there is most."""
    need = min(choices(workload)[0].bytes, max(rooms))
    return tuple(index for index, room in enumerate(rooms) if room >= need)


def _gpu_share(seen: DeviceInfo, among: Sequence[DeviceInfo], sharing: int, fraction: float | None) -> SlotResources:
    """One of so many parts of a GPU, with its part of the cores. Ray counts in ten-thousandths."""
    cores = seen.kind.cores / sharing
    resources = {
        "GPU": fraction or math.floor(10_000 / sharing) / 10_000,
        "CPU": float(int(cores)) if cores >= 1 else math.floor(10_000 * cores) / 10_000,
        **requirement(seen.kind, [one.kind for one in among]),
    }
    resources = {name: amount for name, amount in resources.items() if amount}
    return SlotResources(resources, seen.kind.count * sharing, seen.bytes // sharing)


def _core_share(seen: DeviceInfo, cores: float) -> SlotResources:
    """So many whole cores, or a part of one, with their part of a machine's memory."""
    each = max(1, int(max(seen.kind.nodes) / cores))
    return SlotResources(
        {"CPU": float(cores)}, max(1, sum(int(one / cores) for one in seen.kind.nodes)), seen.bytes // each
    )
