"""Profiles of groups of trials on the devices of a cluster: read from the store, or measured if they are missing.

The store keeps them by shape, device, threads and code version.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from sweeper.packing.cluster import MEMORY_MARGIN, DeviceInfo, Measure, MeasurementRequest
from sweeper.packing.workloads import Workload
from sweeper.planning.cohorts import Group, content_hash
from sweeper.storage.files import Files, read_record
from sweeper.storage.layout import profile_path
from trainables.config import fusible_keys
from trainables.json_input import Count, PositiveAmount, PositiveCount
from trainables.training.measurement import STEPS, CompiledMeasurement, Measurement, stack_widths

MAX_MEMBERS = 64
"""Largest number of members of a group that are measured together."""
GROUP_SECONDS, TOTAL_SECONDS = 3.0, 12.0
"""Most seconds for the measurement of one group of trials, and of all groups together."""
MAX_PROCESSES = 8
"""Largest number of processes on a device for which the slowdown is measured."""


@dataclass(frozen=True)
class GroupProfile:
    """Speed and memory of a group of trials on one kind of device."""

    measurements: tuple[Measurement, ...]
    """Stacks of several widths, 1 among them; empty if the group could not be measured."""
    overhead: int
    """Bytes that each process takes beside its stacks."""
    slowdowns: Mapping[int, Mapping[int, float]] | None = None
    """Slowdowns on a shared device, see `Devices.slowdowns`; None if not measured."""
    compiled: Mapping[int, float] = field(default_factory=dict)
    """Width of a stack -> seconds per compiled step and member; empty if not measured, as in files of earlier
    versions."""


@dataclass(frozen=True)
class _ProfileRecord:
    """A profile as `ProfileStore.write` writes it."""

    measured: tuple[Measurement, ...]
    overhead: Count
    overlap: Mapping[PositiveCount, Mapping[PositiveCount, PositiveAmount]] | None
    compiled: Mapping[PositiveCount, PositiveAmount] = field(default_factory=dict)

    def profile(self) -> GroupProfile:
        """Return the profile. Raises ValueError if it lacks a stack of width 1."""
        if self.measured and (narrowest := min(stack.width for stack in self.measured)) != 1:
            raise ValueError(f"a profile must have a stack of width 1, but its narrowest has width {narrowest}")
        return GroupProfile(self.measured, self.overhead, self.overlap, self.compiled)


class ProfileStore:
    """The profiles in a store that one version of the code has measured."""

    def __init__(self, files: Files, version: str) -> None:
        self._files, self._version = files, version

    def read(self, shape: str, device: str, threads: int) -> GroupProfile | None:
        """Return the profile of a group's `shape` on a device; None if there is none, or its file is damaged."""
        return read_record(self._files, self._path(shape, device, threads), _ProfileRecord, _ProfileRecord.profile)

    def write(self, shape: str, device: str, threads: int, profile: GroupProfile) -> None:
        """Keep the profile of a group's `shape`, measured with so many CPU `threads` per process."""
        content = {
            **{"shape": shape, "device": device, "threads": threads, "version": self._version},
            "measured": [asdict(measurement) for measurement in profile.measurements],
            **{"overhead": profile.overhead, "overlap": profile.slowdowns, "compiled": profile.compiled},
        }
        self._files.write(self._path(shape, device, threads), json.dumps(content, indent=1).encode())

    def _path(self, shape: str, device: str, threads: int) -> str:
        return profile_path(content_hash([shape, device, threads, self._version]))


@dataclass(frozen=True)
class Profiler:
    """Profiles the groups whose trials are trained by one process each."""

    workloads: Sequence[Workload]
    """The groups, without their measurements."""
    store: ProfileStore
    measure: Measure | None
    """Makes missing measurements; None uses only those in the store."""

    def profiles(self, device: DeviceInfo, threads: int) -> list[GroupProfile] | None:
        """Return the profile of each group on a device, with so many CPU `threads` per process.

        Missing profiles are measured and kept. A group that cannot be measured has an empty profile. Returns None if a
        profile is missing, there is no `measure`, and the group's cut is not settled.
        """
        shapes = [shape_hash(workload.group) for workload in self.workloads]
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
            MeasurementRequest(measured_configs(self.workloads[index].group), seconds, threads, kind=device.kind)
            for index in missing
        ]
        for index, found in zip(missing, self.measure(requests), strict=True):
            profile = GroupProfile(tuple(found.measurements), found.memory.overhead) if found else unmeasured
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
            request = MeasurementRequest(
                measured_configs(group),
                threads=cores,
                processes=2 ** (processes.bit_length() - 1),
                widths=[measurement.width for measurement in profile.measurements][::2],
                kind=device.kind,
            )
            (found,) = self.measure([request])
            slowdowns = (found and found.slowdowns) or {}
        profile = replace(profile, slowdowns=slowdowns)
        self.store.write(shape_hash(group), device.device, cores, profile)
        return [*profiles[:index], profile, *profiles[index + 1 :]]

    def measure_compiled(
        self, device: DeviceInfo, threads: int, index: int, wanted: CompiledMeasurement
    ) -> float | None:
        """Measure compiled steps of the group at `index`, and keep the result in its profile. Returns the seconds per
        step and member; None if they cannot be had."""
        group = self.workloads[index].group
        request = MeasurementRequest(measured_configs(group), threads=threads, compiled=wanted, kind=device.kind)
        (measured,) = self.measure([request]) if self.measure else [None]
        if measured is None or measured.compiled is None:
            return None
        shape = shape_hash(group)
        if profile := self.store.read(shape, device.device, threads):
            compiled = {**profile.compiled, wanted.width: measured.compiled}
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


def measured_configs(group: Group) -> list[Mapping[str, Any]]:
    """Return the configs that are measured for a group: those of its first `MAX_MEMBERS` members."""
    return [trial.config for stream in group for trial in stream][:MAX_MEMBERS]


def shape_hash(group: Group) -> str:
    """Return a hash of a config without its fusible keys, and of how many members of each stream are measured."""
    streams = [index for index, stream in enumerate(group) for _ in stream][:MAX_MEMBERS]
    return content_hash([_fixed(group[0][0].config), list(Counter(streams).values())])


def fixed_shape(config: Mapping[str, Any]) -> str:
    """Return a hash of a config without its fusible keys: those in which the members of a cohort may differ."""
    return content_hash(_fixed(config))


def _fixed(config: Mapping[str, Any]) -> dict[str, Any]:
    fusible = fusible_keys(str(config["method"]))
    return {key: value for key, value in config.items() if key not in fusible}
