"""Profiles of a grid's groups on the devices of a cluster: read from the store, or measured if they are missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sweeper.errors import ClusterError
from sweeper.packing.devices import MEMORY_MARGIN
from sweeper.packing.measurements import (
    Asked,
    DeviceInfo,
    GroupProfile,
    Measure,
    ProfileStore,
    Site,
    Stack,
    sample,
    shape,
)
from sweeper.packing.workloads import Workload
from sweeper.plan.cohorts import Group

GROUP_SECONDS, TOTAL_SECONDS = 3.0, 12.0
"""Most seconds for the measurement of one group of trials, and of all groups together."""
STEPS_MEASURED = 4
"""Steps that a measurement makes with each stack (`trainables.profiling.throughput`)."""
MOST_SHARING = 8
"""Largest number of processes on a device for which the slowdown is measured."""


def profile_devices(site: Site) -> list[DeviceInfo]:
    """Look at one device of each kind. Kinds on which no worker starts are left out.

    Raises ClusterError if no worker starts at all.
    """
    seen = [
        DeviceInfo(kind, probe.room.device, probe.room.bytes, probe.room.overhead)
        for kind, probe in zip(site.kinds, site.measure([Asked(kind) for kind in site.kinds]), strict=True)
        if probe
    ]
    if not seen:
        raise ClusterError("a worker must start on the cluster and report its device, but none did")
    return seen


@dataclass(frozen=True)
class Profiler:
    """Profiles the groups whose trials are trained by one process each."""

    workloads: Sequence[Workload]
    """The groups, without their measurements."""
    free: Callable[[str], frozenset[str]]
    """Name of a method -> keys in which the members of a cohort may differ."""
    probes: ProfileStore
    measure: Measure | None
    """Makes missing measurements; None uses only those in the store."""

    def profiles(self, seen: DeviceInfo, threads: int) -> list[GroupProfile] | None:
        """Return the profile of each group on a device, with so many CPU `threads` per process.

        Missing profiles are measured and kept. A group that cannot be measured has an empty profile. Returns None if a
        profile is missing, there is no `measure`, and the group's cut is not settled.
        """
        shapes = [shape(workload.members, self.free) for workload in self.workloads]
        unmeasured = GroupProfile((), seen.overhead)
        profiles = [
            self.probes.read(group_shape, seen.device, threads) if workload.steps else unmeasured
            for group_shape, workload in zip(shapes, self.workloads, strict=True)
        ]
        missing = [index for index, profile in enumerate(profiles) if profile is None]
        if not self.measure:
            settled = all(self.workloads[index].settled_cut for index in missing)
            return [profile or unmeasured for profile in profiles] if settled else None
        how = {"seconds": min(GROUP_SECONDS, TOTAL_SECONDS / max(1, len(missing))), "threads": threads}
        asked = [Asked(seen.kind, sample(self.workloads[index].members), how) for index in missing]
        for index, probe in zip(missing, self.measure(asked), strict=True):
            profile = GroupProfile(_stacks(probe.measured), probe.room.overhead) if probe else unmeasured
            profiles[index] = profile
            if profile.measured:
                self.probes.write(shapes[index], seen.device, threads, profile)
        return [profile or unmeasured for profile in profiles]

    def with_overlap(self, seen: DeviceInfo, profiles: Sequence[GroupProfile], index: int) -> list[GroupProfile]:
        """Return the `profiles`, that of the group at `index` with its `overlap`, which is measured if missing.

        The profiles stay as they are if there is no `measure`, or if the group could not be measured.
        """
        profile, cores = profiles[index], max(1, int(seen.kind.cores))
        if profile.overlap is not None or not profile.measured or not self.measure:
            return list(profiles)
        need = profile.measured[0].bytes + profile.overhead
        most_sharing = min(MOST_SHARING, cores, int(MEMORY_MARGIN * seen.bytes / max(1, need)))
        overlap: Mapping[int, Mapping[int, float]] = {}
        members = self.workloads[index].members
        if most_sharing > 1:
            widths = [stack.width for stack in profile.measured][::2]
            how = {"threads": cores, "sharing": 2 ** (most_sharing.bit_length() - 1), "widths": widths}
            (probe,) = self.measure([Asked(seen.kind, sample(members), how)])
            overlap = (probe and probe.overlap) or {}
        profile = replace(profile, overlap=overlap)
        self.probes.write(shape(members, self.free), seen.device, cores, profile)
        return [*profiles[:index], profile, *profiles[index + 1 :]]


def worth_measuring(group: Group, steps: int) -> bool:
    """Whether the trials of a group, with `steps` steps each, make more steps than their measurement would.

    A measurement steps stacks of 1, 2, 4, ... members `STEPS_MEASURED` times each.
    """
    members = len(sample(group))
    widths = [*(2**power for power in range(members.bit_length()) if 2**power < members), members]
    return steps * sum(map(len, group)) > STEPS_MEASURED * sum(widths)


def profiled_workloads(workloads: Sequence[Workload], profiles: Sequence[GroupProfile]) -> list[Workload]:
    """Return the workloads with the measurements of their profiles."""
    return [replace(workload, measured=profile.measured) for workload, profile in zip(workloads, profiles, strict=True)]


def _stacks(measured: Sequence[Any]) -> tuple[Stack, ...]:
    return tuple(Stack(stack.width, stack.seconds, stack.bytes, stack.held) for stack in measured)
