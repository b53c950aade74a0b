"""Packs measured groups onto devices: how many cohorts share a device, how large they are and how wide their stacks."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sweeper.packing.makespan import CutOption, SlotPool, list_schedule, makespan, minimise_makespan
from sweeper.packing.profiling.devices import Devices
from sweeper.packing.profiling.workloads import Candidate, Workload, candidate_cuts, one_per_cohort
from sweeper.plan.cohorts import Cut

COHORT_START_SECONDS = 0.4
"""Seconds to start one more cohort in a running worker, at most (measured: 0.1 to 0.2 s for the digits on a core)."""
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
    """Expected seconds until all cohorts have ended, without evaluations and training that could not be measured."""

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
    layouts = [slots for slots in itertools.product(*choices) if any(slots)]
    pools = {slots: _slot_pool(devices, slots) for slots in layouts}
    options = {slots: [_options(candidates, devices, slots) for candidates in groups] for slots in layouts}
    least = {
        slots: makespan(minimise_makespan(options[slots], pools[slots]), pools[slots])
        if all(options[slots])
        else math.inf
        for slots in layouts
    }
    limit = TOLERANCE * min(least.values())
    best = min(
        (slots for slots in layouts if least[slots] <= limit), key=lambda slots: (sum(pools[slots].slots), least[slots])
    )
    tolerance = limit / least[best] if workloads else 1.0
    chosen = minimise_makespan(options[best], pools[best], tolerance)
    return Packing(best, tuple(option.cut for option in chosen), list_schedule(chosen, pools[best]))


def _slot_pool(devices: Sequence[Devices], slots_per_device: Sequence[int]) -> SlotPool:
    return SlotPool.of_devices([kind.count for kind in devices], [kind.speed for kind in devices], slots_per_device)


def _candidates(workload: Workload, devices: Sequence[Devices], fewest: Sequence[int]) -> list[Candidate]:
    """Return the ways to cut a group.

    A group that fits on no device, even with the `fewest` cohorts per device, is claimed to need exactly the largest
    capacity, with its settled cut or else a cohort for each member.
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
