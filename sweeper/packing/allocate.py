"""Where a plan's trials are cut into cohorts, and on what these run: as asked, as the sweep was begun, or as is best
by measurement."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from sweeper.packing import placement as placing
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
    """How a grid runs."""

    cuts: tuple[Cut, ...]
    """Of each group."""
    places: Mapping[int, Slots]
    """By how many workers train a trial."""
    placed: Placement | None
    """Of the trials that one process each trains; None where there are none."""
    measured: Sequence[Sequence[Stack]]
    """Of the groups of these."""
    timed: bool
    """Whether all that trains was measured."""
    devices: Sequence[str]
    """What the shares of the places are of."""


def asked_cut(request: Request) -> Cut | None:
    """What `--cohort` and `--stack` say."""
    return Cut(request.cohort, request.stack or request.cohort) if request.cohort else None


def settled_cuts(request: Request, plan: GridPlan, store: Store) -> list[Cut] | None:
    """Of each group, as asked, else as the sweep was begun; None where that is open."""
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
    """How the grid runs on these devices. What has to be known for that is measured, unless it is kept in the store;
    None where there is no `measure` for it."""
    settled = settled_cuts(request, plan, store)
    whole = placing.whole(seen, request.fraction, here, grows)
    places = {workers: whole.of(workers) for workers in map(cohorts.workers, plan.groups)}
    workloads = []
    for place, (group, steps) in enumerate(zip(plan.groups, plan.steps, strict=True)):
        timed = seen[0].kind.gpus or worth_measuring(group, steps)
        # on cores what ends sooner than its measurement is cut like trials without a step
        workloads.append(Workload(group, (), steps if timed else 0, settled[place] if settled else None))
    alone = [workload for workload in workloads if cohorts.workers(workload.members) == 1]
    needed = not settled or request.probe or (seen[0].kind.gpus and not request.fraction)
    profiler = Profiler(alone, fusible, ProfileStore(store.files, code_version()), measure if needed else None)
    threads = recorded_threads(store.files, plan) if settled and not request.cohort else 1 if settled else None
    found = _surveyed(profiler, request, seen, whole, threads) if alone else ([], None)
    if found is None:
        return None
    measured, placed = found
    shares = placed.packing.shares if placed else [1] * len(seen)
    chosen = iter(placed.packing.cuts if placed else ())
    return Allocation(
        cuts=tuple(
            next(chosen) if cohorts.workers(workload.members) == 1 else _of_workers(workload, places)
            for workload in workloads
        ),
        places=places | ({1: placed.slots} if placed else {}),
        placed=placed,
        measured=[workload.measured for workload in measured],  # type: ignore[misc]
        timed=len(alone) == len(workloads) and all(workload.measured or not workload.steps for workload in measured),
        devices=[one.device for one, used in zip(seen, shares, strict=True) if used],
    )


def _of_workers(workload: Workload, places: Mapping[int, Slots]) -> Cut:
    slots = places[cohorts.workers(workload.members)]
    return pack([workload], [Devices(slots.count * slots.workers, 1)]).cuts[0]


def _surveyed(
    profiler: Profiler, request: Request, seen: Sequence[DeviceInfo], whole: Slots, threads: int | None
) -> tuple[list[Workload], Placement | None] | None:
    """What is known of the groups of the first kind of device, and how they are placed; `threads` of a process on a CPU
    where they are settled."""
    if not seen[0].kind.gpus:
        return _on_cores(profiler, request, seen[0], whole, threads)
    known = [profiler.known(one, max(1, int(one.kind.cores))) for one in seen]
    if None in known:
        return None
    found = [one for one in known if one is not None]
    workloads = profiled_workloads(profiler.workloads, found[0])
    if not request.fraction:
        place = placing.heaviest(workloads)
        found = [profiler.with_overlap(*there, place) for there in zip(seen, found, strict=True)]
    placed = placing.on_gpus(
        workloads, seen, found, fraction=request.fraction, grows=whole.grows, node_price=request.node_price
    )
    return workloads, placed


def _on_cores(
    profiler: Profiler, request: Request, seen: DeviceInfo, whole: Slots, threads: int | None
) -> tuple[list[Workload], Placement | None] | None:
    known = profiler.known(seen, 1)
    if known is None:
        return None
    workloads, overhead = profiled_workloads(profiler.workloads, known), max(one.overhead for one in known)
    settled, cores = 1 if request.fraction else threads, max(seen.kind.nodes)
    least = min(settled, cores) if settled else placing.least_threads(workloads, seen, overhead)
    by_threads = {least: workloads}
    more = seen.kind.count // sum(workload.total for workload in workloads)
    if not settled and least < more <= cores:  # fewer trials than cores
        wider = profiler.known(seen, more)
        by_threads |= (
            {more: profiled_workloads(profiler.workloads, wider)}
            if wider and all(one.measured for one in wider)
            else {}
        )
    return workloads, placing.on_cores(
        by_threads,
        seen,
        overhead,
        fraction=request.fraction,
        here=whole.here,
        grows=whole.grows,
        node_price=request.node_price,
    )


def grid_arrangement(
    request: Request, plan: GridPlan, store: Store, seen: Sequence[DeviceInfo], site: Site
) -> Allocation:
    """How the grid runs there, measured where that is needed; and keep how it is cut."""
    settled = recorded_cut(store.files, plan) is not None
    found = allocate(request, plan, store, seen, here=site.here, grows=site.grows, measure=site.measure)
    if not settled and not request.cohort and recorded_cut(store.files, plan):
        found = allocate(request, plan, store, seen, here=site.here, grows=site.grows)  # begun twice at once: one cut
        settled = True
    assert found is not None
    if request.cohort or not settled:
        measured = [[asdict(stack) for stack in stacks] for stacks in found.measured]
        record_cut(store.files, plan, found.cuts, measured, found.placed.threads if found.placed else 1)
    return found


def wave_cut(request: Request, slots: int, studies: int) -> Callable[[Sequence[Group], bool], list[Cut]]:
    """How to cut the groups of a wave: as asked, else so that no cohort has more than one slot's part of the wave.

    Nothing is measured, so that a seed gives the same search again, to the last bit. `studies` share the `slots`. The
    second argument of the cut says whether groups must stay whole, as a population must, whose members copy each other.
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
    """How the cohorts of each cut step, in words."""
    words = [
        f"up to {cut.size} trials each, " + (f"{cut.width} stacked as one" if cut.width > 1 else "stepped in turn")
        for cut in cuts
    ]
    return list(dict.fromkeys(words))
