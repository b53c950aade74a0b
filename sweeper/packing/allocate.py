"""Decides how a plan is cut into cohorts and on which slots they run: as requested, as the sweep was begun, or as is
fastest by measurement."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from sweeper.packing import placement
from sweeper.packing.devices import Devices
from sweeper.packing.measurements import DeviceInfo, Measure, ProfileStore, Site, Stack
from sweeper.packing.packer import pack
from sweeper.packing.placement import Placement
from sweeper.packing.profiler import Profiler, profiled_workloads, worth_measuring
from sweeper.packing.recorded_cuts import record_cut, recorded_cut, recorded_threads
from sweeper.packing.slots import Slots
from sweeper.packing.workloads import Workload
from sweeper.plan import cohorts
from sweeper.plan.cohorts import Cut, Group
from sweeper.plan.plan import GridPlan
from sweeper.spec.request import Request
from sweeper.storage.store import Store
from sweeper.version import code_version
from trainables.config.trial import fusible


@dataclass(frozen=True)
class Allocation:
    """How a grid runs: the cut of each group, and the slots of its cohorts."""

    cuts: tuple[Cut, ...]
    """The cut of each group."""
    places: Mapping[int, Slots]
    """Number of workers per trial -> the slots of the cohorts of such trials."""
    placed: Placement | None
    """Placement of the groups whose trials are trained by one process each; None if there are none."""
    measured: Sequence[Sequence[Stack]]
    """Measured stacks of each group of `placed`, on the first kind of device."""
    timed: bool
    """True if the expected time covers all groups: none takes several workers, and each was measured unless it trains
    no step or, on cores, trains faster than its measurement would."""
    devices: Sequence[str]
    """Names of the kinds of devices that are used."""


def asked_cut(request: Request) -> Cut | None:
    """Return the cut that `--cohort` and `--stack` request; None without `--cohort`."""
    return Cut(request.cohort, request.stack or request.cohort) if request.cohort else None


def settled_cuts(request: Request, plan: GridPlan, store: Store) -> list[Cut] | None:
    """Return the cut of each group as requested, else as the sweep was begun; None if neither settles it."""
    asked = asked_cut(request)
    return [asked] * len(plan.groups) if asked else recorded_cut(store.files, plan)


def allocate(
    request: Request,
    plan: GridPlan,
    store: Store,
    seen: Sequence[DeviceInfo],
    *,
    here: bool,
    grows: bool,
    measure: Measure | None = None,
) -> Allocation | None:
    """Decide how the grid runs on the devices that were `seen`.

    Measurements that are needed and not in the store are made with `measure`. Returns None if one is needed and
    `measure` is None. `here` and `grows` are those of `Site`.
    """
    settled = settled_cuts(request, plan, store)
    whole = placement.whole_device_slots(seen, request.fraction, here, grows)
    places = {workers: whole.for_workers(workers) for workers in map(cohorts.workers, plan.groups)}
    workloads = []
    for index, (group, steps) in enumerate(zip(plan.groups, plan.steps, strict=True)):
        timed = seen[0].kind.gpus or worth_measuring(group, steps)
        # On cores, a group that trains faster than its measurement would is cut like trials that train no step.
        workloads.append(Workload(group, (), steps if timed else 0, settled[index] if settled else None))
    alone = [workload for workload in workloads if cohorts.workers(workload.members) == 1]
    needed = not settled or request.probe or (seen[0].kind.gpus and not request.fraction)
    profiler = Profiler(alone, fusible, ProfileStore(store.files, code_version()), measure if needed else None)
    threads = recorded_threads(store.files, plan) if settled and not request.cohort else 1 if settled else None
    profiled = _profile_and_place(profiler, request, seen, whole, threads) if alone else ([], None)
    if profiled is None:
        return None
    measured, placed = profiled
    shares = placed.packing.shares if placed else [1] * len(seen)
    packed_cuts = iter(placed.packing.cuts if placed else ())
    return Allocation(
        cuts=tuple(
            next(packed_cuts) if cohorts.workers(workload.members) == 1 else _cut_for_workers(workload, places)
            for workload in workloads
        ),
        places=places | ({1: placed.slots} if placed else {}),
        placed=placed,
        measured=[workload.measured for workload in measured],  # type: ignore[misc]
        timed=len(alone) == len(workloads) and all(workload.measured or not workload.steps for workload in measured),
        devices=[device.device for device, share in zip(seen, shares, strict=True) if share],
    )


def _cut_for_workers(workload: Workload, places: Mapping[int, Slots]) -> Cut:
    """Return the cut of a group whose trials take several workers each."""
    slots = places[cohorts.workers(workload.members)]
    return pack([workload], [Devices(slots.count * slots.workers, 1)]).cuts[0]


def _profile_and_place(
    profiler: Profiler, request: Request, seen: Sequence[DeviceInfo], whole: Slots, threads: int | None
) -> tuple[list[Workload], Placement | None] | None:
    """Return the groups as measured on the first kind of device, and their placement.

    `threads` is the settled number of threads per process on CPU cores; None chooses it. Returns None if a measurement
    is needed and must not be made.
    """
    if not seen[0].kind.gpus:
        return _profile_and_place_on_cores(profiler, request, seen[0], whole, threads)
    profiles = []
    for device in seen:
        device_profiles = profiler.profiles(device, max(1, int(device.kind.cores)))
        if device_profiles is None:
            return None
        profiles.append(device_profiles)
    workloads = profiled_workloads(profiler.workloads, profiles[0])
    if not request.fraction:
        heaviest = placement.heaviest(workloads)
        profiles = [
            profiler.with_overlap(device, device_profiles, heaviest)
            for device, device_profiles in zip(seen, profiles, strict=True)
        ]
    placed = placement.on_gpus(
        workloads, seen, profiles, fraction=request.fraction, grows=whole.grows, node_price=request.node_price
    )
    return workloads, placed


def _profile_and_place_on_cores(
    profiler: Profiler, request: Request, seen: DeviceInfo, whole: Slots, threads: int | None
) -> tuple[list[Workload], Placement | None] | None:
    profiles = profiler.profiles(seen, 1)
    if profiles is None:
        return None
    workloads = profiled_workloads(profiler.workloads, profiles)
    overhead = max(profile.overhead for profile in profiles)
    settled, cores = 1 if request.fraction else threads, max(seen.kind.nodes)
    least = min(settled, cores) if settled else placement.least_threads(workloads, seen, overhead)
    by_threads = {least: workloads}
    more = seen.kind.count // sum(workload.total for workload in workloads)
    if not settled and least < more <= cores:  # fewer trials than cores: also try several threads for each trial
        wider = profiler.profiles(seen, more)
        if wider and all(profile.measured for profile in wider):
            by_threads[more] = profiled_workloads(profiler.workloads, wider)
    return workloads, placement.on_cores(
        by_threads,
        seen,
        overhead,
        fraction=request.fraction,
        here=whole.here,
        grows=whole.grows,
        node_price=request.node_price,
    )


def allocate_grid(request: Request, plan: GridPlan, store: Store, seen: Sequence[DeviceInfo], site: Site) -> Allocation:
    """Decide how the grid runs on the site, with measurements where they are needed, and record how it is cut."""
    settled = recorded_cut(store.files, plan) is not None
    allocation = allocate(request, plan, store, seen, here=site.here, grows=site.grows, measure=site.measure)
    if not settled and not request.cohort and recorded_cut(store.files, plan):
        # Another run of this sweep has recorded its cut while this one measured: use that.
        allocation = allocate(request, plan, store, seen, here=site.here, grows=site.grows)
        settled = True
    assert allocation is not None
    if request.cohort or not settled:
        measured = [[asdict(stack) for stack in stacks] for stacks in allocation.measured]
        threads = allocation.placed.threads if allocation.placed else 1
        record_cut(store.files, plan, allocation.cuts, measured, threads)
    return allocation


def wave_cut(request: Request, slots: int, studies: int) -> Callable[[Sequence[Group], bool], list[Cut]]:
    """Return a function that cuts the groups of a wave: as requested, else to at most one slot's part of its trials.

    One slot's part is the number of trials divided by the slots of one study; the `studies` share the `slots` equally.
    Groups are not joined, so several groups may give more cohorts than there are slots. Nothing is measured, so that a
    seed gives the same search again, to the last bit.

    The second argument of the returned function says whether groups must stay whole, as a population must, because its
    members copy each other.
    """
    asked = asked_cut(request)

    def cut(groups: Sequence[Group], whole: bool) -> list[Cut]:
        sizes = [sum(map(len, group)) for group in groups]
        if whole:
            return [Cut(size, min(size, asked.width) if asked else size) for size in sizes]
        if asked:
            return [asked] * len(groups)
        part = math.ceil(sum(sizes) / max(1, slots // studies))
        return [Cut(part, part if cohorts.workers(group) == 1 else 1) for group in groups]

    return cut


def widths(cuts: Sequence[Cut]) -> list[str]:
    """Describe each different cut in words, e.g. "up to 56 trials each, 8 stacked as one"."""
    words = [
        f"up to {cut.size} trials each, " + (f"{cut.width} stacked as one" if cut.width > 1 else "stepped in turn")
        for cut in cuts
    ]
    return list(dict.fromkeys(words))
