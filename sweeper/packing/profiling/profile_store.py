"""Profiles of groups of trials, kept in the store by shape, device, threads and code version."""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from sweeper.plan.cohorts import Group
from sweeper.plan.trials import content_hash
from sweeper.storage.files import Files, read_record
from trainables.json_input import Count, PositiveAmount, PositiveCount
from trainables.training.measurement import Measurement

MAX_MEMBERS = 64
"""Largest number of members of a group that are measured together."""


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
class _MeasurementRecord:
    """A measurement as `ProfileStore.write` writes it."""

    width: PositiveCount
    seconds: PositiveAmount
    bytes: Count
    held: Count


@dataclass(frozen=True)
class _ProfileRecord:
    """A profile as `ProfileStore.write` writes it."""

    measured: list[_MeasurementRecord]
    overhead: Count
    overlap: Mapping[PositiveCount, Mapping[PositiveCount, PositiveAmount]] | None
    compiled: Mapping[PositiveCount, PositiveAmount] = field(default_factory=dict)

    def profile(self) -> GroupProfile:
        """Return the profile. Raises ValueError if it lacks a stack of width 1."""
        if self.measured and (narrowest := min(stack.width for stack in self.measured)) != 1:
            raise ValueError(f"a profile must have a stack of width 1, but its narrowest has width {narrowest}")
        measurements = tuple(Measurement(**asdict(stack)) for stack in self.measured)
        return GroupProfile(measurements, self.overhead, self.overlap, self.compiled)


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
        return f"probes/{content_hash([shape, device, threads, self._version])}.json"


def measured_configs(group: Group) -> list[Mapping[str, Any]]:
    """Return the configs that are measured for a group: those of its first `MAX_MEMBERS` members."""
    return [trial.config for stream in group for trial in stream][:MAX_MEMBERS]


def shape_hash(group: Group, fusible: Callable[[str], frozenset[str]]) -> str:
    """Return a hash of a config without its `fusible` keys, and of how many members of each stream are measured."""
    streams = [index for index, stream in enumerate(group) for _ in stream][:MAX_MEMBERS]
    return content_hash([_fixed(group[0][0].config, fusible), list(Counter(streams).values())])


def fixed_shape(config: Mapping[str, Any], fusible: Callable[[str], frozenset[str]]) -> str:
    """Return a hash of a config without its `fusible` keys."""
    return content_hash(_fixed(config, fusible))


def _fixed(config: Mapping[str, Any], fusible: Callable[[str], frozenset[str]]) -> dict[str, Any]:
    fusible_keys = fusible(str(config["method"]))
    return {key: value for key, value in config.items() if key not in fusible_keys}
