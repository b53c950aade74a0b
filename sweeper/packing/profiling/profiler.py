"""Profiles of a grid's groups on the devices of a cluster: read from the store, or measured if they are missing."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from sweeper.packing.profiling.cluster import DeviceInfo, Measure, ProbeRequest
from sweeper.packing.profiling.devices import MEMORY_MARGIN
from sweeper.packing.profiling.profile_store import GroupProfile, ProfileStore, measured_configs, shape_hash
from sweeper.packing.profiling.workloads import Workload
from sweeper.plan.cohorts import Group
from trainables.training.measurement import STEPS, CompiledProbe, stack_widths

GROUP_SECONDS, TOTAL_SECONDS = 3.0, 12.0
"""Most seconds for the measurement of one group of trials, and of all groups together."""
MAX_PROCESSES = 8
"""Largest number of processes on a device for which the slowdown is measured."""


@dataclass(frozen=True)
class Profiler:
    """Profiles the groups whose trials are trained by one process each."""

    workloads: Sequence[Workload]
    """The groups, without their measurements."""
    fusible: Callable[[str], frozenset[str]]
    """Name of a method -> keys in which the members of a cohort may differ."""
    store: ProfileStore
    measure: Measure | None
    """Makes missing measurements; None uses only those in the store."""

    def profiles(self, device: DeviceInfo, threads: int) -> list[GroupProfile] | None:
        """Return the profile of each group on a device, with so many CPU `threads` per process.

        Missing profiles are measured and kept. A group that cannot be measured has an empty profile. Returns None if a
        profile is missing, there is no `measure`, and the group's cut is not settled.
        """
        shapes = [shape_hash(workload.group, self.fusible) for workload in self.workloads]
        unmeasured = GroupProfile((), device.overhead)
        profiles = [
            self.store.read(shape, device.device, threads) if workload.steps else unmeasured
            for shape, workload in zip(shapes, self.workloads, strict=True)
        ]
        missing = [index for index, profile in enumerate(profiles) if profile is None]
        if not self.measure:
            settled = all(self.workloads[index].settled_cut for index in missing)
            return [profile or unmeasured for profile in profiles] if settled else None
        seconds = min(GROUP_SECONDS, TOTAL_SECONDS / max(1, len(missing)))
        requests = [
            ProbeRequest(device.kind, measured_configs(self.workloads[index].group), seconds, threads)
            for index in missing
        ]
        for index, probe in zip(missing, self.measure(requests), strict=True):
            profile = GroupProfile(tuple(probe.measurements), probe.memory.overhead) if probe else unmeasured
            profiles[index] = profile
            if profile.measurements:
                self.store.write(shapes[index], device.device, threads, profile)
        return [profile or unmeasured for profile in profiles]

    def with_slowdowns(self, device: DeviceInfo, profiles: Sequence[GroupProfile], index: int) -> list[GroupProfile]:
        """Return the `profiles`, the one at `index` with slowdowns, which are measured if missing and possible."""
        profile, cores = profiles[index], max(1, int(device.kind.cores))
        if profile.slowdowns is not None or not profile.measurements or not self.measure:
            return list(profiles)
        need = profile.measurements[0].bytes + profile.overhead
        processes = min(MAX_PROCESSES, cores, int(MEMORY_MARGIN * device.bytes / max(1, need)))
        slowdowns: Mapping[int, Mapping[int, float]] = {}
        group = self.workloads[index].group
        if processes > 1:
            request = ProbeRequest(
                device.kind,
                measured_configs(group),
                threads=cores,
                processes=2 ** (processes.bit_length() - 1),
                widths=[measurement.width for measurement in profile.measurements][::2],
            )
            (probe,) = self.measure([request])
            slowdowns = (probe and probe.slowdowns) or {}
        profile = replace(profile, slowdowns=slowdowns)
        self.store.write(shape_hash(group, self.fusible), device.device, cores, profile)
        return [*profiles[:index], profile, *profiles[index + 1 :]]

    def measure_compiled(self, device: DeviceInfo, threads: int, index: int, probe: CompiledProbe) -> float | None:
        """Measure compiled steps of the group at `index`, and keep the result in its profile. Returns the seconds per
        step and member; None if they cannot be had."""
        group = self.workloads[index].group
        request = ProbeRequest(device.kind, measured_configs(group), threads=threads, compiled=probe)
        (measured,) = self.measure([request]) if self.measure else [None]
        if measured is None or measured.compiled is None:
            return None
        shape = shape_hash(group, self.fusible)
        if profile := self.store.read(shape, device.device, threads):
            compiled = {**profile.compiled, probe.width: measured.compiled}
            self.store.write(shape, device.device, threads, replace(profile, compiled=compiled))
        return measured.compiled


def worth_measuring(group: Group, steps: int) -> bool:
    """Whether the trials of a group, with `steps` steps each, make more steps than their measurement would."""
    return steps * sum(map(len, group)) > STEPS * sum(stack_widths(len(measured_configs(group))))


def profiled_workloads(workloads: Sequence[Workload], profiles: Sequence[GroupProfile]) -> list[Workload]:
    """Return the workloads with the measurements of their profiles."""
    return [
        replace(workload, measurements=profile.measurements, compiled=profile.compiled)
        for workload, profile in zip(workloads, profiles, strict=True)
    ]
