"""Packs measured groups onto devices: how many cohorts share a device, how large they are and how wide their stacks.

All cohorts on one kind of device take the same part of it, 1/n. The numbers n and the cut of each group are chosen
together for the shortest makespan that fits into the devices' memory.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sweeper.packing.devices import Devices
from sweeper.packing.makespan import CutOption, SlotPool, list_schedule, makespan, minimise_makespan
from sweeper.packing.workloads import Candidate, Workload, candidate_cuts, one_per_cohort
from sweeper.plan.cohorts import Cut

COHORT_START_SECONDS = 0.4
"""Seconds to start one more cohort in a running worker (measured: 0.3 to 0.4 s through Tune and Train)."""
TOLERANCE = 1.1
"""Largest slowdown, relative to the fastest packing, that is accepted for fewer processes per device or for smaller
cohorts: these lose less when they are killed."""


@dataclass(frozen=True)
class Packing:
    """How all groups are cut, and how many of their cohorts share a device."""

    slots_per_device: tuple[int, ...]
    """Cohorts that share a device, for each kind of device; 0 leaves the kind unused."""
    cuts: tuple[Cut, ...]
    """The cut of each group."""
    seconds: float
    """Expected seconds until all cohorts have ended. Evaluations are not counted, nor is training that could not be
    measured."""

    @property
    def hours(self) -> float:
        return self.seconds / 3600

    def cost(self, devices: Sequence[Devices]) -> float | None:
        """Return the price of all nodes of the used kinds, for `hours`; None if one of them has no price."""
        used = [kind for kind, slots in zip(devices, self.slots_per_device, strict=True) if slots]
        if any(kind.node_price is None for kind in used):
            return None
        return sum(math.ceil(kind.count / kind.node_devices) * (kind.node_price or 0.0) for kind in used) * self.hours


def pack(
    workloads: Sequence[Workload], devices: Sequence[Devices], slots_per_device: Sequence[int] | None = None
) -> Packing:
    """Return the packing with the shortest makespan, or one up to `TOLERANCE` times as long that loses less if killed.

    `slots_per_device` fixes how many cohorts share a device of each kind; None chooses them. Members that fit on no
    device train alone, on the largest part of one.
    """
    if slots_per_device:
        choices = [[slots] for slots in slots_per_device]
    else:  # one of several kinds of device may stay unused
        choices = [[0] * (len(devices) > 1) + kind.process_counts for kind in devices]
    fewest = [min(filter(None, kind_choices), default=0) for kind_choices in choices]
    groups = [_candidates(workload, devices, fewest) for workload in workloads]
    layouts = [_layout(groups, devices, slots) for slots in itertools.product(*choices) if any(slots)]
    limit = TOLERANCE * min(layout.seconds for layout in layouts)
    best = min(
        (layout for layout in layouts if layout.seconds <= limit),
        key=lambda layout: (sum(layout.slot_pool.slots), layout.seconds),
    )
    options = minimise_makespan(best.groups, best.slot_pool, tolerance=limit / best.seconds if workloads else 1.0)
    seconds = list_schedule(options, best.slot_pool)
    return Packing(best.slots_per_device, tuple(option.cut for option in options), seconds)


def _candidates(workload: Workload, devices: Sequence[Devices], fewest: Sequence[int]) -> list[Candidate]:
    """Return the ways to cut a group.

    A group that fits on no device, even with the `fewest` cohorts per device, is claimed to need exactly the largest
    capacity that there is, with its settled cut or else a cohort for each member.
    """
    candidates = candidate_cuts(workload)
    if _options(candidates, devices, fewest):
        return candidates
    largest = max(kind.capacity(slots) for kind, slots in zip(devices, fewest, strict=True) if slots)
    return [replace(candidates[0] if workload.settled_cut else one_per_cohort(workload), bytes=largest)]


def _options(
    candidates: Sequence[Candidate], devices: Sequence[Devices], slots_per_device: Sequence[int]
) -> list[CutOption]:
    """Return the candidates that fit on some kind of device, with so many slots per device of each kind."""
    options = [
        CutOption(
            candidate.cut,
            candidate.count,
            tuple(_seconds(candidate, kind, slots) for kind, slots in zip(devices, slots_per_device, strict=True)),
        )
        for candidate in candidates
    ]
    return [option for option in options if math.isfinite(min(option.seconds))]


def _seconds(candidate: Candidate, kind: Devices, slots: int) -> float:
    """Return the seconds of one cohort on a kind of device with so many slots; infinite if it does not fit."""
    if not slots or candidate.bytes > kind.capacity(slots):
        return math.inf
    return COHORT_START_SECONDS + candidate.seconds * kind.slowdown(candidate.cut.width, slots) / kind.speed


@dataclass(frozen=True)
class _Layout:
    """The options of all groups for fixed numbers of slots per device."""

    slots_per_device: tuple[int, ...]
    slot_pool: SlotPool
    groups: Sequence[Sequence[CutOption]]
    seconds: float
    """Least makespan; infinite if a group fits nowhere."""


def _layout(
    groups: Sequence[Sequence[Candidate]], devices: Sequence[Devices], slots_per_device: tuple[int, ...]
) -> _Layout:
    counts, speeds = [kind.count for kind in devices], [kind.speed for kind in devices]
    slot_pool = SlotPool.of_devices(counts, speeds, slots_per_device)
    options = [_options(candidates, devices, slots_per_device) for candidates in groups]
    seconds = makespan(minimise_makespan(options, slot_pool), slot_pool) if all(options) else math.inf
    return _Layout(slots_per_device, slot_pool, options, seconds)
