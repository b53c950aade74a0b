"""What is known of the groups of a grid on the devices there are: kept measurements, and new ones where they are
missing."""

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

LONGEST_MEASURED, ALL_MEASURED = 3.0, 12.0
"""Seconds for the measurement of one group of trials, and of all of them."""
STEPS_MEASURED = 4
"""Steps of each stack that a measurement makes (`trainables.profiling.throughput`)."""
MOST_SHARING = 8
"""Processes on a device at once for which is measured what sharing gives."""


def profile_devices(site: Site) -> list[DeviceInfo]:
    """One device of each kind. ClusterError where none can be looked at."""
    seen = [
        DeviceInfo(kind, found.room.device, found.room.bytes, found.room.overhead)
        for kind, found in zip(site.kinds, site.measure([Asked(kind) for kind in site.kinds]), strict=True)
        if found
    ]
    if not seen:
        raise ClusterError("a worker must start on the cluster and say what devices it has, but none did")
    return seen


@dataclass(frozen=True)
class Profiler:
    """The groups of trials that one process each trains."""

    workloads: Sequence[Workload]
    """Without what was measured of them."""
    free: Callable[[str], frozenset[str]]
    """The keys of a method in which the members of a cohort may differ."""
    probes: ProfileStore
    measure: Measure | None
    """None leaves it at what is kept."""

    def known(self, seen: DeviceInfo, threads: int) -> list[GroupProfile] | None:
        """Of each group. None where one should be measured to be cut, and must not be."""
        shapes = [shape(workload.members, self.free) for workload in self.workloads]
        nothing = GroupProfile((), seen.overhead)
        found = [
            self.probes.read(one, seen.device, threads) if workload.steps else nothing
            for one, workload in zip(shapes, self.workloads, strict=True)
        ]
        missing = [place for place, one in enumerate(found) if one is None]
        if not self.measure:
            settled = all(self.workloads[place].by for place in missing)
            return [one or nothing for one in found] if settled else None
        how = {"seconds": min(LONGEST_MEASURED, ALL_MEASURED / max(1, len(missing))), "threads": threads}
        asked = [Asked(seen.kind, sample(self.workloads[place].members), how) for place in missing]
        for place, probe in zip(missing, self.measure(asked), strict=True):
            one = GroupProfile(_stacks(probe.measured), probe.room.overhead) if probe else nothing
            found[place] = one
            if one.measured:
                self.probes.write(shapes[place], seen.device, threads, one)
        return [one or nothing for one in found]

    def with_overlap(self, seen: DeviceInfo, known: Sequence[GroupProfile], place: int) -> list[GroupProfile]:
        """The same, and for the group in this place what sharing a device gives."""
        found, cores = known[place], max(1, int(seen.kind.cores))
        if found.overlap is not None or not found.measured or not self.measure:
            return list(known)
        need = found.measured[0].bytes + found.overhead
        room = min(MOST_SHARING, cores, int(MEMORY_MARGIN * seen.bytes / max(1, need)))
        overlap: Mapping[int, Mapping[int, float]] = {}
        members = self.workloads[place].members
        if room > 1:
            widths = [one.width for one in found.measured][::2]
            how = {"threads": cores, "sharing": 2 ** (room.bit_length() - 1), "widths": widths}
            (probe,) = self.measure([Asked(seen.kind, sample(members), how)])
            overlap = (probe and probe.overlap) or {}
        found = replace(found, overlap=overlap)
        self.probes.write(shape(members, self.free), seen.device, cores, found)
        return [*known[:place], found, *known[place + 1 :]]


def worth_measuring(group: Group, steps: int) -> bool:
    """Whether the trials of a group, of so many steps each, make more steps than their measurement would.

    A measurement steps stacks of 1, 2, 4, ... members `STEPS_MEASURED` times each.
    """
    members = len(sample(group))
    widths = [*(2**power for power in range(members.bit_length()) if 2**power < members), members]
    return steps * sum(map(len, group)) > STEPS_MEASURED * sum(widths)


def profiled_workloads(workloads: Sequence[Workload], known: Sequence[GroupProfile]) -> list[Workload]:
    """With what was measured of them."""
    return [replace(workload, measured=one.measured) for workload, one in zip(workloads, known, strict=True)]


def _stacks(measured: Sequence[Any]) -> tuple[Stack, ...]:
    return tuple(Stack(one.width, one.seconds, one.bytes, one.held) for one in measured)
