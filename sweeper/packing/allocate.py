"""Decides how the parts of a plan are cut into cohorts and on which slots they run: as requested, as the sweep was
begun, or as is fastest by measurement."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from sweeper.option_values import NodePrice
from sweeper.packing.cluster import (
    DeviceInfo,
    DevicePart,
    Devices,
    Measure,
    Slots,
    check_gpu_memory,
    core_slots,
    cpu_devices,
    gpu_slots,
    requested_part,
    whole_device_slots,
)
from sweeper.packing.compilation import (
    StudySteps,
    StudyWork,
    WaveCutter,
    compiled_cut,
    paying_shapes,
    record_steps,
    recorded_steps,
    with_compiled_steps,
)
from sweeper.packing.cuts import record_cuts, recorded_cuts, recorded_threads, requested_cut, settled_cuts
from sweeper.packing.packer import Packing, pack
from sweeper.packing.profiler import (
    GroupProfile,
    Profiler,
    ProfileStore,
    fixed_shape,
    profiled_workloads,
    worth_measuring,
)
from sweeper.packing.workloads import Workload, candidate_cuts, cut_in_turn, of_functions, one_per_cohort
from sweeper.planning import cohorts
from sweeper.planning.cohorts import Cut, Group
from sweeper.planning.plan import Plan
from sweeper.request import Request
from sweeper.storage.files import Files
from sweeper.version import code_version


@dataclass(frozen=True)
class Allocator:
    """Gives the grids and the studies of a plan their cuts, their slots and their compiled steps."""

    request: Request
    plan: Plan
    files: Files
    """The store's, with what was recorded and measured."""
    devices: Sequence[DeviceInfo]
    """One for each kind."""
    local: bool
    """Whether no node can come to the cluster, see `Cluster.local`."""
    measure: Measure | None = None
    """Makes the measurements that the store lacks; None makes none."""

    def __post_init__(self) -> None:
        check_gpu_memory(self.request, self.devices)

    def begin_grids(self) -> Packing:
        """Decide how the grids run, with measurements where they are needed, and record how they are cut."""
        begun = recorded_cuts(self.files, self.plan) is not None
        packing = self.grids()
        if not begun and not self.request.cohort and recorded_cuts(self.files, self.plan):
            # Another run of this sweep has recorded its cut while this one measured: use that.
            packing = replace(self, measure=None).grids()
        assert packing is not None
        if self.request.cohort or list(packing.cuts) != recorded_cuts(self.files, self.plan):
            measured = [[asdict(stack) for stack in workload.measurements] for workload in packing.workloads]
            record_cuts(self.files, self.plan, packing.cuts, measured, packing.threads)
        return packing

    def grids(self) -> Packing | None:
        """Decide how the grids run. Returns None if a measurement is needed, and none is made."""
        settled = settled_cuts(self.request, self.plan, self.files)
        whole_devices = whole_device_slots(self.devices, self.request, self.local)
        slots = {count: whole_devices.for_workers(count) for count in map(cohorts.worker_count, self.plan.groups)}
        workloads = self._workloads(settled)
        single = [workload for workload in workloads if cohorts.worker_count(workload.group) == 1]
        packing = self._packing(single, settled) if single else Packing((), (), (), (), 0.0)
        if packing is None:
            return None
        slots |= packing.slots
        packed_cuts = iter(packing.cuts)
        cuts = [
            next(packed_cuts)
            if cohorts.worker_count(workload.group) == 1
            else _cut_for_workers(workload, slots, self.request.compile == "always")
            for workload in workloads
        ]
        return replace(packing, cuts=tuple(cuts), slots=slots)

    def studies(self, works: Sequence[StudyWork], workers: int) -> WaveCutter:
        """Decide where studies whose trials take so many `workers` run, and which train with compiled steps, and
        record the latter.

        `--compile always` and `never` decide; else what was recorded when a study began; else what pays. On GPUs, with
        `--cohort`, for several workers, and in a study that was begun by a version without records nothing is compiled
        by itself.
        """
        slots = whole_device_slots(self.devices, self.request, self.local).for_workers(workers)
        judged = any(work.factor > 1 for work in works)
        cutter = WaveCutter(slots, len(works), requested_cut(self.request), judged=judged)
        recorded = {work.id: recorded_steps(self.files, self.plan.name, work.id) for work in works}
        steps = {work.id: recorded[work.id] or StudySteps(cutter.width(work)) for work in works}
        if self.request.compile != "auto":
            every = self.request.compile == "always"
            steps = {study: StudySteps(own.width, every) for study, own in steps.items()}
        else:
            new = [work for work in works if not recorded[work.id] and not work.begun]
            shapes = set[str]()
            if not self.request.cohort and not self.devices[0].kind.gpus and workers == 1:
                shapes = paying_shapes(new, cutter, self.devices[0], self._profiler(()))
            for work in new:
                own_shapes = shapes & {fixed_shape(config) for config in work.configs}
                steps[work.id] = StudySteps(steps[work.id].width, shapes=tuple(sorted(own_shapes)))
        for study, own in steps.items():
            if own != recorded[study]:
                record_steps(self.files, self.plan.name, study, own)
        return replace(cutter, steps=steps)

    def _profiler(self, workloads: Sequence[Workload], needed: bool = True) -> Profiler:
        profiles = ProfileStore(self.files, code_version())
        return Profiler(workloads, profiles, self.measure if needed else None)

    def _workloads(self, settled: Sequence[Cut] | None) -> list[Workload]:
        """Return the groups of the plan. On cores, one that trains faster than its measurement would has no steps."""
        gpus, slots = self.devices[0].kind.gpus, sum(device.kind.expected_count for device in self.devices)
        known: Sequence[Cut | None] = settled or [None] * len(self.plan.groups)
        cuts = [
            cut_in_turn(group, slots, cut) if of_functions(group) else cut
            for group, cut in zip(self.plan.groups, known, strict=True)
        ]
        return [
            Workload(group, (), _reports(group) or (steps if gpus or worth_measuring(group, steps) else 0), cut)
            for group, steps, cut in zip(self.plan.groups, self.plan.steps, cuts, strict=True)
        ]

    def _packing(self, workloads: Sequence[Workload], settled: Sequence[Cut] | None) -> Packing | None:
        """Pack the groups whose trials are trained by one process each, with compiled steps where they are requested
        or, by measurement, pay; None if a measurement is needed, and none is made."""
        request, gpus = self.request, self.devices[0].kind.gpus
        needed = not settled or request.measure or bool(gpus and not request.fixes_share)
        if all(of_functions(workload.group) for workload in workloads):  # who knows what else a function does
            needed = request.measure
        profiler = self._profiler(workloads, needed)
        if gpus:
            packing = self._on_gpus(profiler)
        else:
            threads = 1 if request.cohort else recorded_threads(self.files, self.plan) if settled else None
            packing = self._on_cores(profiler, threads)
        if packing is None or request.compile == "never":
            return packing
        if request.compile == "always":
            chosen = [
                replace(workload, settled_cut=workload.settled_cut or compiled_cut(workload.group, cut))
                for workload, cut in zip(packing.workloads, packing.cuts, strict=True)
            ]
        else:
            left = [self.plan.share_left(workload.group) for workload in packing.workloads]
            chosen = with_compiled_steps(packing, profiler, self.devices[0], left)
        compiled = any(workload.settled_cut and workload.settled_cut.compiled for workload in chosen)
        return packing.with_workloads(chosen) if compiled else packing

    def _on_gpus(self, profiler: Profiler) -> Packing | None:
        """Profile the groups on each kind of GPU, and pack them."""
        profiles = []
        for device in self.devices:
            device_profiles = profiler.profiles(device, max(1, int(device.kind.cores)))
            if device_profiles is None:
                return None
            profiles.append(device_profiles)
        workloads = profiled_workloads(profiler.workloads, profiles[0])
        if not self.request.fixes_share:
            longest = longest_group(workloads)
            profiles = [
                profiler.with_slowdowns(device, device_profiles, longest)
                for device, device_profiles in zip(self.devices, profiles, strict=True)
            ]
        return on_gpus(
            workloads,
            self.devices,
            profiles,
            [requested_part(self.request, device) for device in self.devices],
            local=self.local,
            node_price=self.request.node_price,
        )

    def _on_cores(self, profiler: Profiler, threads: int | None) -> Packing | None:
        """As `_on_gpus`, on CPU cores. `threads` is the settled number of threads per process; None chooses it."""
        device = self.devices[0]
        profiles = profiler.profiles(device, 1)
        if profiles is None:
            return None
        workloads = profiled_workloads(profiler.workloads, profiles)
        overhead = max(profile.overhead for profile in profiles)
        settled, cores = 1 if self.request.gpu_fraction else threads, max(device.kind.nodes)
        least = min(settled, cores) if settled else least_threads(workloads, device, overhead)
        by_threads = {least: workloads}
        more = device.kind.count // sum(workload.member_count for workload in workloads)
        if not settled and least < more <= cores:  # fewer trials than cores: also try several threads for each trial
            wider = profiler.profiles(device, more)
            if wider and all(profile.measurements for profile in wider):
                by_threads[more] = profiled_workloads(profiler.workloads, wider)
        return on_cores(
            by_threads,
            device,
            overhead,
            fraction=self.request.gpu_fraction,
            local=self.local,
            node_price=self.request.node_price,
        )


def _reports(group: Group) -> int:
    """Return how often a trial of functions reports, which are its steps: after each epoch, or once; 0 for others."""
    epochs = group[0][0].config.get("epochs")
    return (epochs if isinstance(epochs, int) and epochs > 0 else 1) if of_functions(group) else 0


def _cut_for_workers(workload: Workload, slots: Mapping[int, Slots], compiled: bool) -> Cut:
    """Return the cut of a group whose trials take several workers each: few cohorts, because workers start slowly."""
    at_once = slots[cohorts.worker_count(workload.group)].count
    return workload.settled_cut or Cut(math.ceil(workload.member_count / at_once), 1, compiled)


def on_gpus(
    workloads: Sequence[Workload],
    devices: Sequence[DeviceInfo],
    profiles: Sequence[Sequence[GroupProfile]],
    requested: Sequence[DevicePart | None],
    *,
    local: bool,
    node_price: NodePrice | None = None,
) -> Packing:
    """Pack the groups on GPUs. Requested parts of these fix how many cohorts share one.

    `profiles` has the profile of each group, by kind of device; `workloads` carry the measurements of the first kind.
    """
    kinds = tuple(
        _devices(workloads, device, device_profiles, profiles[0], node_price)
        for device, device_profiles in zip(devices, profiles, strict=True)
    )
    parts = [part for part in requested if part]
    if parts:  # what they leave of a device is nobody's
        kinds = tuple(
            replace(kind, bytes=part.count * part.memory) if part.count else kind
            for kind, part in zip(kinds, parts, strict=True)
        )
    packing = pack(workloads, kinds, [part.count for part in parts] if parts else None)
    used = [index for index, slots in enumerate(packing.slots_per_device) if slots]
    by_kind = tuple(
        gpu_slots(devices[index], devices, requested[index] or packing.slots_per_device[index]) for index in used
    )
    capacities = [kinds[index].capacity(packing.slots_per_device[index]) for index in used]
    fitting_kinds = {
        trial.id: fitting
        for workload, cut in zip(workloads, packing.cuts, strict=True)
        if len(fitting := _fitting(replace(workload, settled_cut=cut), capacities)) < len(capacities)
        for stream in workload.group
        for trial in stream
    }
    return replace(packing, slots={1: Slots(by_kind, local, fitting_kinds=fitting_kinds)})


def on_cores(
    workloads: Mapping[int, Sequence[Workload]],
    device: DeviceInfo,
    overhead: int,
    *,
    fraction: float | None,
    local: bool,
    node_price: NodePrice | None = None,
) -> Packing:
    """Pack the groups on CPU cores, with the number of threads per process that has the shortest makespan.

    `workloads` maps a number of threads to the groups as measured with it. `overhead` is the bytes of a process beside
    its tensors. With a requested `fraction` of a core there is one thread.
    """
    costs: dict[str, Any] = {"overhead": overhead, "node_price": node_price.of("") if node_price else None}
    if fraction:
        slots = core_slots(device, fraction)
        kinds = {1: Devices(slots.count, slots.memory or 1, node_devices=slots.count, **costs)}
    else:
        kinds = {threads: cpu_devices(device.kind.nodes, device.bytes, threads, **costs) for threads in workloads}
    packings = {threads: pack(workloads[threads], [kind]) for threads, kind in kinds.items()}
    threads = min(packings, key=lambda threads: (packings[threads].seconds, threads))
    slots = core_slots(device, fraction or threads)
    return replace(packings[threads], slots={1: Slots((slots,), local)}, threads=threads)


def least_threads(workloads: Sequence[Workload], device: DeviceInfo, overhead: int) -> int:
    """Return the fewest threads, a power of two or all cores, with which a machine's processes fit into its memory."""
    need = max((one_per_cohort(workload).bytes for workload in workloads), default=0)
    threads, (nodes, cores) = 1, (device.kind.nodes, max(device.kind.nodes))
    while threads < cores and cpu_devices(nodes, device.bytes, threads, overhead=overhead).capacity(1) < need:
        threads = min(2 * threads, cores)
    return threads


def longest_group(workloads: Sequence[Workload]) -> int:
    """Return the index of the group that trains longest; the gain from sharing a device is measured with it."""
    seconds = [workload.member_count * one_per_cohort(workload).alone for workload in workloads]
    return seconds.index(max(seconds))


def _devices(
    workloads: Sequence[Workload],
    device: DeviceInfo,
    profiles: Sequence[GroupProfile],
    references: Sequence[GroupProfile],
    node_price: NodePrice | None,
) -> Devices:
    """Return the devices of one kind. Their speed is relative to the first kind, with the profiles `references`."""
    pairs = [
        _common_seconds(reference, profile)
        for reference, profile in zip(references, profiles, strict=True)
        if reference.measurements and profile.measurements
    ]
    reference_seconds, seconds = sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)
    return Devices(
        count=device.kind.expected_count,
        bytes=device.bytes,
        cores=max(1, int(device.kind.cores)),
        speed=reference_seconds / seconds if seconds else 1.0,
        overhead=max((profile.overhead for profile in profiles), default=device.overhead),
        slowdowns=(profiles[longest_group(workloads)].slowdowns or {}) if workloads else {},
        node_price=node_price.of(device.kind.accelerator) if node_price else None,
        node_devices=max(device.kind.nodes),
    )


def _common_seconds(reference: GroupProfile, profile: GroupProfile) -> tuple[float, float]:
    """Return the seconds of a member's step on both devices, in the widest stack that was measured on both."""
    by_width = {stack.width: stack.seconds for stack in profile.measurements}
    return next(
        (stack.seconds, by_width[stack.width])
        for stack in sorted(reference.measurements, key=lambda stack: -stack.width)
        if stack.width in by_width
    )


def _fitting(workload: Workload, capacities: Sequence[int]) -> tuple[int, ...]:
    """Return the indices of the `capacities` (bytes) that hold the group's cohorts; the largest if none does."""
    need = min(candidate_cuts(workload)[0].bytes, max(capacities))
    return tuple(index for index, capacity in enumerate(capacities) if capacity >= need)
