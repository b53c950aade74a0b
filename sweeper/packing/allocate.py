"""Decides how a grid is cut into cohorts and on which slots they run: as requested, as the sweep was begun, or as is
fastest by measurement."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from sweeper.packing import placement as placements
from sweeper.packing.cluster import Cluster, DeviceInfo, DeviceKind, Measure
from sweeper.packing.compilation import compiled_cut, with_compiled_steps
from sweeper.packing.cuts import record_cuts, recorded_cuts, recorded_threads, settled_cuts
from sweeper.packing.packer import COHORT_START_SECONDS
from sweeper.packing.placement import Placement, Slots
from sweeper.packing.profiler import Profiler, ProfileStore, profiled_workloads, worth_measuring
from sweeper.packing.workloads import Workload, candidate_cuts
from sweeper.plan import cohorts
from sweeper.plan.cohorts import Cohort, Cut
from sweeper.plan.plan import Plan
from sweeper.request import Request
from sweeper.storage.store import Store
from sweeper.version import code_version
from trainables.config import fusible_keys


@dataclass(frozen=True)
class Allocation:
    """How a grid runs: the cut of each group, and the slots of its cohorts."""

    cuts: tuple[Cut, ...]
    slots: Mapping[int, Slots]
    """Number of workers per trial -> the slots of the cohorts of such trials."""
    placement: Placement | None
    """Placement of the groups whose trials are trained by one process each; None if there are none."""
    device_names: Sequence[str]
    """Names of the kinds of devices that are used."""

    @property
    def time_known(self) -> bool:
        """True if the expected time covers all groups: none takes several workers, and each with steps was measured."""
        workloads = self.placement.workloads if self.placement else ()
        return set(self.slots) <= {1} and all(workload.measurements or not workload.steps for workload in workloads)

    def cohort_seconds(self) -> Callable[[Cohort], float | None]:
        """Return a function that gives the expected seconds of a cohort on the slowest slot that it may get; None if it
        was not measured."""
        placement = self.placement
        if placement is None:
            return lambda cohort: None
        packing, devices = placement.packing, placement.devices
        used = [(kind, slots) for kind, slots in zip(devices, packing.slots_per_device, strict=True) if slots]
        of_trial = {
            trial.id: workload for workload in placement.workloads for stream in workload.group for trial in stream
        }

        def seconds(cohort: Cohort) -> float | None:
            workload = of_trial.get(cohort.trials[0].id)
            if workload is None or not (workload.steps and workload.measurements):
                return None
            cut = Cut(len(cohort.trials), cohort.width, cohort.compiled)
            (alone,) = candidate_cuts(replace(workload, group=[cohort.trials], settled_cut=cut))
            slowest = max(kind.slowdown(cohort.width, slots) / kind.speed for kind, slots in used)
            return COHORT_START_SECONDS + alone.seconds * slowest

        return seconds

    @property
    def price(self) -> float | None:
        """Price of the nodes that are used, per hour; None if it is unknown."""
        return self.placement.packing.price(self.placement.devices) if self.placement else None

    @property
    def compiled_time_known(self) -> bool:
        """True if all compiled steps were measured, so that the expected time is not that of eager ones."""
        workloads = self.placement.workloads if self.placement else ()
        return all(
            workload.compiled
            for workload in workloads
            if workload.steps and workload.settled_cut and workload.settled_cut.compiled
        )


def allocate(
    request: Request,
    plan: Plan,
    store: Store,
    devices: Sequence[DeviceInfo],
    *,
    local: bool,
    measure: Measure | None = None,
) -> Allocation | None:
    """Decide how the grid runs on the `devices`, one for each kind, of a cluster that is `local` or not.

    Measurements that the store lacks are made with `measure`. Returns None if one is needed and `measure` is None.
    """
    settled = settled_cuts(request, plan, store)
    device_slots = placements.whole_device_slots(devices, request.fraction, local)
    slots = {workers: device_slots.for_workers(workers) for workers in map(cohorts.worker_count, plan.groups)}
    workloads = _workloads(plan, devices[0].kind, settled)
    single = [workload for workload in workloads if cohorts.worker_count(workload.group) == 1]
    placement = None
    if single:
        needed = not settled or request.probe or (devices[0].kind.gpus and not request.fraction)
        profiles = ProfileStore(store.files, code_version())
        profiler = Profiler(single, fusible_keys, profiles, measure if needed else None)
        if devices[0].kind.gpus:
            placement = _place_on_gpus(profiler, request, devices, local)
        else:
            threads = 1 if request.cohort else recorded_threads(store.files, plan) if settled else None
            placement = _place_on_cores(profiler, request, devices[0], local, threads)
        if placement is None:
            return None
        placement = _with_chosen_steps(request, plan, placement, profiler, devices[0])
        slots[1] = placement.slots
    packed_cuts = iter(placement.packing.cuts if placement else ())
    used = placement.packing.slots_per_device if placement else [1] * len(devices)
    return Allocation(
        cuts=tuple(
            next(packed_cuts)
            if cohorts.worker_count(workload.group) == 1
            else _cut_for_workers(workload, slots, request.compile == "always")
            for workload in workloads
        ),
        slots=slots,
        placement=placement,
        device_names=[device.device for device, count in zip(devices, used, strict=True) if count],
    )


def _workloads(plan: Plan, kind: DeviceKind, settled: Sequence[Cut] | None) -> list[Workload]:
    """Return the groups of a plan. On cores, one that trains faster than its measurement would has no steps."""
    cuts: Sequence[Cut | None] = settled or [None] * len(plan.groups)
    return [
        Workload(group, (), steps if kind.gpus or worth_measuring(group, steps) else 0, cut)
        for group, steps, cut in zip(plan.groups, plan.steps, cuts, strict=True)
    ]


def _cut_for_workers(workload: Workload, slots: Mapping[int, Slots], compiled: bool) -> Cut:
    """Return the cut of a group whose trials take several workers each: few cohorts, because workers start slowly."""
    at_once = slots[cohorts.worker_count(workload.group)].count
    return workload.settled_cut or Cut(math.ceil(workload.member_count / at_once), 1, compiled)


def _with_chosen_steps(
    request: Request, plan: Plan, placement: Placement, profiler: Profiler, device: DeviceInfo
) -> Placement:
    """Return the placement with compiled steps where they are requested or, by measurement, pay."""
    if request.compile == "never":
        return placement
    if request.compile == "always":
        cuts = zip(placement.workloads, placement.packing.cuts, strict=True)
        workloads = [
            replace(workload, settled_cut=workload.settled_cut or compiled_cut(workload.group, cut))
            for workload, cut in cuts
        ]
    else:
        left = [plan.share_left(workload.group) for workload in placement.workloads]
        workloads = with_compiled_steps(placement, profiler, device, left)
    if not any(workload.settled_cut and workload.settled_cut.compiled for workload in workloads):
        return placement
    return placements.with_settled_cuts(placement, workloads)


def _place_on_gpus(
    profiler: Profiler, request: Request, devices: Sequence[DeviceInfo], local: bool
) -> Placement | None:
    """Profile the groups on each kind of GPU and place them; None if a measurement is needed and must not be made."""
    profiles = []
    for device in devices:
        device_profiles = profiler.profiles(device, max(1, int(device.kind.cores)))
        if device_profiles is None:
            return None
        profiles.append(device_profiles)
    workloads = profiled_workloads(profiler.workloads, profiles[0])
    if not request.fraction:
        longest = placements.longest_group(workloads)
        profiles = [
            profiler.with_slowdowns(device, device_profiles, longest)
            for device, device_profiles in zip(devices, profiles, strict=True)
        ]
    return placements.on_gpus(
        workloads, devices, profiles, fraction=request.fraction, local=local, node_price=request.node_price
    )


def _place_on_cores(
    profiler: Profiler, request: Request, device: DeviceInfo, local: bool, threads: int | None
) -> Placement | None:
    """As `_place_on_gpus`, on CPU cores. `threads` is the settled number of threads per process; None chooses it."""
    profiles = profiler.profiles(device, 1)
    if profiles is None:
        return None
    workloads = profiled_workloads(profiler.workloads, profiles)
    overhead = max(profile.overhead for profile in profiles)
    settled, cores = 1 if request.fraction else threads, max(device.kind.nodes)
    least = min(settled, cores) if settled else placements.least_threads(workloads, device, overhead)
    by_threads = {least: workloads}
    more = device.kind.count // sum(workload.member_count for workload in workloads)
    if not settled and least < more <= cores:  # fewer trials than cores: also try several threads for each trial
        wider = profiler.profiles(device, more)
        if wider and all(profile.measurements for profile in wider):
            by_threads[more] = profiled_workloads(profiler.workloads, wider)
    return placements.on_cores(
        by_threads, device, overhead, fraction=request.fraction, local=local, node_price=request.node_price
    )


def allocate_grid(
    request: Request, plan: Plan, store: Store, devices: Sequence[DeviceInfo], cluster: Cluster
) -> Allocation:
    """Decide how the grid runs on the cluster, with measurements where they are needed, and record how it is cut."""
    begun = recorded_cuts(store.files, plan) is not None
    allocation = allocate(request, plan, store, devices, local=cluster.local, measure=cluster.measure)
    if not begun and not request.cohort and recorded_cuts(store.files, plan):
        # Another run of this sweep has recorded its cut while this one measured: use that.
        allocation = allocate(request, plan, store, devices, local=cluster.local)
    assert allocation is not None
    if request.cohort or list(allocation.cuts) != recorded_cuts(store.files, plan):
        workloads, threads = [], 1
        if placement := allocation.placement:
            workloads, threads = list(placement.workloads), placement.threads
        measured = [[asdict(measurement) for measurement in workload.measurements] for workload in workloads]
        record_cuts(store.files, plan, allocation.cuts, measured, threads)
    return allocation
