"""Packs measured groups onto devices: how many cohorts share a device, how large they are and how wide their stacks.

The packing of least makespan is taken, see `makespan`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sweeper.packing.cluster import Devices, Slots
from sweeper.packing.makespan import SlotPool, list_schedule, makespan, minimise_makespan
from sweeper.packing.workloads import COHORT_START_SECONDS, CutOption, Workload, candidate_cuts, one_per_cohort
from sweeper.planning.cohorts import Cohort, Cut

TOLERANCE = 1.1
"""Largest slowdown, relative to the fastest packing, that is accepted for fewer processes per device or for smaller
cohorts: these lose less when they are killed."""


@dataclass(frozen=True)
class Packing:
    """How groups are cut, and on which slots their cohorts run."""

    cuts: tuple[Cut, ...]
    """The cut of each group."""
    workloads: Sequence[Workload]
    """The groups whose trials are trained by one process each, measured on the first kind of device. The time and the
    cost are theirs."""
    devices: tuple[Devices, ...]
    """One for each kind of device."""
    slots_per_device: tuple[int, ...]
    """Cohorts that share a device, for each kind of device; 0 leaves the kind unused."""
    seconds: float
    """Expected seconds until all cohorts have ended, without evaluations and training that could not be measured."""
    slots: Mapping[int, Slots] = field(default_factory=dict)
    """Number of workers per trial -> the slots of the cohorts of such trials."""
    threads: int = 1
    """Threads of each process on CPU cores."""

    @property
    def hours(self) -> float:
        return self.seconds / 3600

    @property
    def cost(self) -> float | None:
        """Price of all nodes of the used kinds, for `hours`; None if it is unknown."""
        return None if self.price is None else self.price * self.hours

    @property
    def price(self) -> float | None:
        """Price of all nodes of the used kinds for an hour; None if one of them has no price, or none is used."""
        prices = [kind.price for kind, slots in zip(self.devices, self.slots_per_device, strict=True) if slots]
        return None if None in prices or not prices else sum(filter(None, prices))

    @property
    def time_known(self) -> bool:
        """True if the expected time covers all groups: none takes several workers, and each with steps was measured."""
        return set(self.slots) <= {1} and all(
            workload.measurements or not workload.steps for workload in self.workloads
        )

    @property
    def compiled_time_known(self) -> bool:
        """True if all compiled steps were measured, so that the expected time is not that of eager ones."""
        compiled = [workload for workload in self.workloads if workload.settled_cut and workload.settled_cut.compiled]
        return all(workload.compiled for workload in compiled if workload.steps)

    def cohort_seconds(self) -> Callable[[Cohort], float | None]:
        """Return a function that gives the expected seconds of a cohort on the slowest slot that it may get; None if it
        was not measured."""
        used = [(kind, slots) for kind, slots in zip(self.devices, self.slots_per_device, strict=True) if slots]
        of_trial = {trial.id: workload for workload in self.workloads for stream in workload.group for trial in stream}

        def seconds(cohort: Cohort) -> float | None:
            workload = of_trial.get(cohort.trials[0].id)
            if workload is None or not (workload.steps and workload.measurements):
                return None
            cut = Cut(len(cohort.trials), cohort.width, cohort.compiled)
            (option,) = candidate_cuts(replace(workload, group=[cohort.trials], settled_cut=cut))
            slowest = max(kind.slowdown(cohort.width, slots) / kind.speed for kind, slots in used)
            return COHORT_START_SECONDS + option.alone * slowest

        return seconds

    def with_workloads(self, workloads: Sequence[Workload]) -> Packing:
        """Return the packing of other workloads, whose cuts are settled, on the same slots."""
        packing = pack(workloads, self.devices, self.slots_per_device)
        return replace(packing, slots=self.slots, threads=self.threads)


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
    cuts, seconds = tuple(option.cut for option in chosen), list_schedule(chosen, pools[best])
    return Packing(cuts, workloads, tuple(devices), best, seconds)


def _slot_pool(devices: Sequence[Devices], slots_per_device: Sequence[int]) -> SlotPool:
    return SlotPool.of_devices([kind.count for kind in devices], [kind.speed for kind in devices], slots_per_device)


def _candidates(workload: Workload, devices: Sequence[Devices], fewest: Sequence[int]) -> list[CutOption]:
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
    candidates: Sequence[CutOption], devices: Sequence[Devices], slots_per_device: Sequence[int]
) -> list[CutOption]:
    """Return the candidates that fit on some kind of device, with so many slots per device of each kind."""
    options = [candidate.on(devices, slots_per_device) for candidate in candidates]
    return [option for option in options if math.isfinite(min(option.seconds))]
