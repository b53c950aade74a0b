"""Packs measured groups onto devices: how many cohorts share a device, how large they are and how wide their stacks.

All cohorts on one kind of device take the same part of it, 1/n. The numbers n and the cut of each group are chosen
together for the shortest makespan that fits into the devices' memory.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sweeper.packing.devices import Devices, cpus
from sweeper.packing.makespan import CutOption, SlotPool, list_schedule, makespan, minimise_makespan
from sweeper.packing.workloads import Candidate, Workload, alone, candidate_cuts
from sweeper.plan.cohorts import Cut, workers

SECONDS_A_COHORT = 0.4
"""Seconds to start one more cohort in a running worker (measured: 0.3 to 0.4 s through Tune and Train)."""
WORTH = 1.1
"""Largest slowdown, relative to the fastest packing, that is accepted for fewer processes per device or for smaller
cohorts: these lose less when they are killed."""


@dataclass(frozen=True)
class Packing:
    """Where and how all groups train."""

    shares: tuple[int, ...]
    """Cohorts that share a device, for each kind of device; 0 leaves the kind unused."""
    cuts: tuple[Cut, ...]
    """The cut of each group."""
    parts: tuple[tuple[int, ...], ...]
    """Cohorts of each group that are expected on each kind of device; empty for groups of several workers."""
    seconds: float
    """Expected seconds until all cohorts have ended. Evaluations are not counted, nor is training that could not be
    measured."""

    @property
    def hours(self) -> float:
        """Expected hours until all cohorts have ended."""
        return self.seconds / 3600

    def cost(self, devices: Sequence[Devices]) -> float | None:
        """Return the price of all nodes of the used kinds, for `hours`; None if one of them has no price."""
        used = [kind for kind, share in zip(devices, self.shares, strict=True) if share]
        if any(kind.node_price is None for kind in used):
            return None
        return sum(math.ceil(kind.count / kind.node_devices) * (kind.node_price or 0.0) for kind in used) * self.hours


def pack(workloads: Sequence[Workload], devices: Sequence[Devices], shares: Sequence[int] | None = None) -> Packing:
    """Return the packing with the shortest makespan, or one at most `WORTH` times as long that loses less at a kill.

    `shares` fixes how many cohorts share a device, one number for each kind of device; None chooses them. Members that
    fit on no device train alone, on the largest part of one. A group whose members take several workers each is cut
    into about one cohort for each slot, because workers start slowly, and its members are stepped in turn.
    """
    if not devices or (shares is not None and (len(shares) != len(devices) or min(shares) < 0 or not any(shares))):
        raise ValueError(
            "`shares` must have one number >= 0 for each kind of device, and at least one above 0, but got "
            f"shares={shares} for {len(devices)} kinds"
        )
    worker_counts = {workers(workload.members) for workload in workloads} or {1}
    if len(worker_counts) > 1:
        raise ValueError(
            f"groups that are packed together must have equally many workers, but got {sorted(worker_counts)}"
        )
    if max(worker_counts) > 1:
        slots = max(1, sum(kind.count for kind in devices) // max(worker_counts))
        cuts = tuple(workload.settled_cut or Cut(math.ceil(workload.total / slots), 1) for workload in workloads)
        return Packing((1,) * len(devices), cuts, (), 0.0)
    idle = [0] if len(devices) > 1 else []
    ranges = [[share] for share in shares] if shares else [idle + kind.sharing for kind in devices]
    least_shares = [min(filter(None, kind_shares), default=0) for kind_shares in ranges]
    groups = [_candidates(workload, devices, least_shares) for workload in workloads]
    layouts = [
        _Layout.of(groups, devices, combination) for combination in itertools.product(*ranges) if any(combination)
    ]
    limit = WORTH * min(layout.seconds for layout in layouts)
    best = min(
        (layout for layout in layouts if layout.seconds <= limit),
        key=lambda layout: (sum(layout.slot_pool.slots), layout.seconds),
    )
    picked = minimise_makespan(best.groups, best.slot_pool, worth=limit / best.seconds if workloads else 1.0)
    parts, end = list_schedule(picked, best.slot_pool)
    return Packing(best.shares, tuple(option.cut for option in picked), tuple(map(tuple, parts)), end)


def pack_cores(
    workloads: Mapping[int, Sequence[Workload]],
    cores: Sequence[int],
    memory: int,
    *,
    overhead: int = 0,
    node_price: float | None = None,
) -> tuple[int, Packing]:
    """Return the number of threads per process with the shortest makespan, and the packing with it.

    `workloads` maps a number of threads to the same groups, as measured with it. `cores` has the number of cores of
    each machine, `memory` is the bytes of a machine, `overhead` the bytes of a process beside its tensors.
    """
    packed = {
        threads: pack(measured, [cpus(cores, memory, threads, overhead=overhead, node_price=node_price)])
        for threads, measured in workloads.items()
    }
    threads = min(packed, key=lambda threads: (packed[threads].seconds, threads))
    return threads, packed[threads]


def _candidates(workload: Workload, devices: Sequence[Devices], least_shares: Sequence[int]) -> list[Candidate]:
    """Return the ways to cut a group.

    A group that fits on no device, even with the `least_shares` cohorts per device, is claimed to need exactly the
    largest room that there is, with its settled cut or else a cohort for each member.
    """
    candidates = candidate_cuts(workload)
    if _options(candidates, devices, least_shares):
        return candidates
    largest_room = max(kind.room(sharing) for kind, sharing in zip(devices, least_shares, strict=True) if sharing)
    return [replace(candidates[0] if workload.settled_cut else alone(workload), bytes=largest_room)]


def _options(candidates: Sequence[Candidate], devices: Sequence[Devices], shares: Sequence[int]) -> list[CutOption]:
    """Return the candidates that fit on some kind of device, if `shares` cohorts share a device of each kind."""
    options = [
        CutOption(
            candidate.cut,
            candidate.count,
            tuple(_seconds(candidate, kind, sharing) for kind, sharing in zip(devices, shares, strict=True)),
        )
        for candidate in candidates
    ]
    return [option for option in options if math.isfinite(min(option.seconds))]


def _seconds(candidate: Candidate, kind: Devices, sharing: int) -> float:
    """Return the seconds of one cohort on a kind of device; infinite if it has no room there."""
    if not sharing or candidate.bytes > kind.room(sharing):
        return math.inf
    return SECONDS_A_COHORT + candidate.seconds * kind.stretch(candidate.cut.width, sharing) / kind.speed


@dataclass(frozen=True)
class _Layout:
    """The options of all groups if a fixed number of cohorts shares a device of each kind."""

    shares: tuple[int, ...]
    slot_pool: SlotPool
    groups: Sequence[Sequence[CutOption]]
    seconds: float
    """Least makespan; infinite if a group fits nowhere."""

    @classmethod
    def of(cls, groups: Sequence[Sequence[Candidate]], devices: Sequence[Devices], shares: tuple[int, ...]) -> _Layout:
        slot_pool = SlotPool.of([kind.count for kind in devices], [kind.speed for kind in devices], shares)
        options = [_options(group, devices, shares) for group in groups]
        return cls(
            shares,
            slot_pool,
            options,
            makespan(minimise_makespan(options, slot_pool), slot_pool) if all(options) else math.inf,
        )
