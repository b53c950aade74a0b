"""Measured groups -> how they are packed onto devices: how many cohorts share one, how large and how wide they are.

All cohorts take the same part, 1/n, of a device of a kind; which n, and how each group is cut, is what ends soonest
within the memory.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sweeper.packing.devices import Devices, cpus
from sweeper.packing.makespan import CutOption, SlotPool, list_schedule, makespan, minimise_makespan
from sweeper.packing.workloads import Candidate, Workload, alone, choices
from sweeper.plan.cohorts import Cut, workers

SECONDS_A_COHORT = 0.4
"""What starting one more cohort in a running worker costs (measured: 0.3 to 0.4 s through Tune and Train)."""
WORTH = 1.1
"""A packing that is this much slower than the fastest is still taken, if fewer processes share a device or its cohorts
are smaller: less is lost at a kill."""


@dataclass(frozen=True)
class Packing:
    """Where and how all groups train."""

    shares: tuple[int, ...]
    """Of each kind of device: how many cohorts share one, each with 1/n of it; 0 leaves the kind alone."""
    cuts: tuple[Cut, ...]
    """Of each group."""
    parts: tuple[tuple[int, ...], ...]
    """Of each group: how many of its cohorts go to each kind of device; nothing of groups of several workers."""
    seconds: float
    """Expected until all have ended; of evaluations, and of training that could not be measured, nothing is counted."""

    @property
    def hours(self) -> float:
        return self.seconds / 3600

    def cost(self, devices: Sequence[Devices]) -> float | None:
        """Of the nodes that are used, from the first cohort to the last; None where one has no price."""
        used = [kind for kind, share in zip(devices, self.shares, strict=True) if share]
        if any(kind.node_price is None for kind in used):
            return None
        return sum(math.ceil(kind.count / kind.node_devices) * (kind.node_price or 0.0) for kind in used) * self.hours


def pack(workloads: Sequence[Workload], devices: Sequence[Devices], shares: Sequence[int] | None = None) -> Packing:
    """How to end soonest; `shares` says how many cohorts share a device of each kind, which is chosen where it is None.

    What no device has room for trains alone, on as large a part of one as may be. Members that several workers
    train share a group of workers, which takes long to start, and are stepped in turn.
    """
    if not devices or (shares is not None and (len(shares) != len(devices) or min(shares) < 0 or not any(shares))):
        raise ValueError(
            "each of one or more kinds of device is shared by one cohort or more, or by 0 if there is another, but got "
            f"shares={shares} of {len(devices)} kinds"
        )
    together = {workers(workload.members) for workload in workloads} or {1}
    if len(together) > 1:
        raise ValueError(f"groups that are packed together have equally many workers, but got {sorted(together)}")
    if max(together) > 1:
        slots = max(1, sum(kind.count for kind in devices) // max(together))
        cuts = tuple(workload.by or Cut(math.ceil(workload.total / slots), 1) for workload in workloads)
        return Packing((1,) * len(devices), cuts, (), 0.0)
    idle = [0] if len(devices) > 1 else []
    ranges = [[share] for share in shares] if shares else [idle + kind.sharing for kind in devices]
    least = [min(filter(None, some), default=0) for some in ranges]
    groups = [_choices(workload, devices, least) for workload in workloads]
    tries = [_Try.of(groups, devices, some) for some in itertools.product(*ranges) if any(some)]
    limit = WORTH * min(one.seconds for one in tries)
    taken = min((one for one in tries if one.seconds <= limit), key=lambda one: (sum(one.slot_pool.slots), one.seconds))
    picked = minimise_makespan(taken.groups, taken.slot_pool, worth=limit / taken.seconds if workloads else 1.0)
    parts, end = list_schedule(picked, taken.slot_pool)
    return Packing(taken.shares, tuple(one.cut for one in picked), tuple(map(tuple, parts)), end)


def pack_cores(
    workloads: Mapping[int, Sequence[Workload]],
    cores: Sequence[int],
    memory: int,
    *,
    overhead: int = 0,
    node_price: float | None = None,
) -> tuple[int, Packing]:
    """How many threads each process has with which all end soonest on machines of so many cores and
    of so much memory each, and how they are packed then.

    `workloads`: the same by the number of threads with which they were measured.
    """
    packed = {
        threads: pack(some, [cpus(cores, memory, threads, overhead=overhead, node_price=node_price)])
        for threads, some in workloads.items()
    }
    threads = min(packed, key=lambda threads: (packed[threads].seconds, threads))
    return threads, packed[threads]


def _choices(workload: Workload, devices: Sequence[Devices], least: Sequence[int]) -> list[Candidate]:
    """The ways to cut a group. What has no room is tried alone where there is most. `least` says how many cohorts share
    a device of each kind at the least."""
    found = choices(workload)
    if _options(found, devices, least):
        return found
    most = max(kind.room(few) for kind, few in zip(devices, least, strict=True) if few)
    return [replace(found[0] if workload.by else alone(workload), bytes=most)]


def _options(found: Sequence[Candidate], devices: Sequence[Devices], shares: Sequence[int]) -> list[CutOption]:
    """Those with room somewhere, if so many cohorts share a device of each kind."""
    options = [
        CutOption(one.cut, one.count, tuple(_seconds(one, *there) for there in zip(devices, shares, strict=True)))
        for one in found
    ]
    return [option for option in options if math.isfinite(min(option.seconds))]


def _seconds(choice: Candidate, kind: Devices, sharing: int) -> float:
    """Of one cohort there; infinite where it has no room."""
    if not sharing or choice.bytes > kind.room(sharing):
        return math.inf
    return SECONDS_A_COHORT + choice.seconds * kind.stretch(choice.cut.width, sharing) / kind.speed


@dataclass(frozen=True)
class _Try:
    """All groups on devices that so many cohorts share."""

    shares: tuple[int, ...]
    slot_pool: SlotPool
    groups: Sequence[Sequence[CutOption]]
    seconds: float
    """Until all have ended, if they are cut for that; infinite where a group fits nowhere."""

    @classmethod
    def of(cls, groups: Sequence[Sequence[Candidate]], devices: Sequence[Devices], shares: tuple[int, ...]) -> _Try:
        slot_pool = SlotPool.of([kind.count for kind in devices], [kind.speed for kind in devices], shares)
        options = [_options(group, devices, shares) for group in groups]
        return cls(
            shares,
            slot_pool,
            options,
            makespan(minimise_makespan(options, slot_pool), slot_pool) if all(options) else math.inf,
        )
