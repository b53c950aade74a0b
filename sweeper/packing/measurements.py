"""Measurements kept in the store: profiles of groups of trials, by shape, device and code version, and the devices that
were last seen."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from sweeper.packing.device_kinds import DeviceKind
from sweeper.plan.cohorts import Group
from sweeper.plan.trials import content_hash
from sweeper.storage.io.files import Files
from sweeper.storage.json_records import number, read_record, text, truth, whole

MOST_MEMBERS = 64
"""Largest number of members of a group that are measured together."""


@dataclass(frozen=True)
class Stack:
    """Speed and memory of a stack (`trainables.profiling.throughput.Measurement`)."""

    width: int
    """Members stacked."""
    seconds: float
    """Seconds of one step of one member: a step of the stack divided by its width."""
    bytes: int
    """Peak memory of the stack, beyond what the process had before."""
    held: int
    """Bytes that each member keeps while other members of its cohort are stepped."""


@dataclass(frozen=True)
class GroupProfile:
    """Speed and memory of a group of trials on one kind of device."""

    measured: tuple[Stack, ...]
    """Stacks of several widths, 1 among them; empty if the group could not be measured."""
    overhead: int
    """Bytes that each process takes beside its stacks."""
    overlap: Mapping[int, Mapping[int, float]] | None = None
    """Slowdowns on a shared device, see `Devices.overlap`; None if not measured."""


@dataclass(frozen=True)
class DeviceInfo:
    """Devices of one kind, as a process on one of them saw it."""

    kind: DeviceKind
    device: str
    """Name and memory of the device, which identify it in the store."""
    bytes: int
    """Memory of a GPU; for CPU cores the free memory of the node."""
    overhead: int
    """Bytes that a process takes before it trains anything."""


@dataclass(frozen=True)
class Asked:
    """A measurement to make on a whole device of one kind."""

    kind: DeviceKind
    configs: Sequence[Mapping[str, Any]] = ()
    """Configs of the members to train; empty to look at the device only."""
    how: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of `trainables.worker.ray_train.measure_configs`."""


Measure = Callable[[Sequence[Asked]], Sequence[Any]]
"""Makes the measurements and returns a `trainables.worker.ray_train.Probe` for each, or None for one that failed."""


@dataclass(frozen=True)
class Site:
    """The cluster on which a sweep is to run."""

    kinds: tuple[DeviceKind, ...]
    here: bool
    """True if cohorts run on this machine's cores."""
    grows: bool
    """True for a cluster elsewhere, to which nodes may come."""
    measure: Measure


def sample(group: Group) -> list[Mapping[str, Any]]:
    """Return the configs that are measured for a group: those of its first `MOST_MEMBERS` members."""
    return [trial.config for stream in group for trial in stream][:MOST_MEMBERS]


def shape(group: Group, free: Callable[[str], frozenset[str]]) -> str:
    """Return a hash of all that a group's measurement depends on.

    These are the config without the keys that are `free` to differ between the members of its method, and the number of
    measured members of each data stream.
    """
    config, members_left, lengths = group[0][0].config, MOST_MEMBERS, []
    for stream in group:
        lengths += [min(members_left, len(stream))]
        members_left -= lengths[-1]
        if not members_left:
            break
    fusible = free(str(config["method"]))
    return content_hash([{key: value for key, value in config.items() if key not in fusible}, lengths])


class ProfileStore:
    """The profiles in a store that one version of the code has measured."""

    def __init__(self, files: Files, version: str) -> None:
        self._files, self._version = files, version

    def read(self, shape: str, device: str, threads: int) -> GroupProfile | None:
        """Return the profile of a group's `shape` on a device; None if there is none, or its file is damaged."""
        return read_record(self._files, self._path(shape, device, threads), _parsed_profile)

    def write(self, shape: str, device: str, threads: int, profile: GroupProfile) -> None:
        """Keep the profile of a group's `shape`, measured with so many CPU `threads` per process."""
        key = {"shape": shape, "device": device, "threads": threads, "version": self._version}
        content = json.dumps(key | asdict(profile), indent=1)
        self._files.write(self._path(shape, device, threads), content.encode())

    def _path(self, shape: str, device: str, threads: int) -> str:
        return f"probes/{content_hash([shape, device, threads, self._version])}.json"


def read_seen(files: Files, address: str | None) -> list[DeviceInfo] | None:
    """Return the devices that were last seen at a cluster's address, or on this machine if that is None or `local`.

    None if no device was seen yet, or the file is damaged.
    """
    return read_record(files, _seen_path(address), lambda plain: [_parsed_device(device) for device in plain] or None)


def write_seen(files: Files, address: str | None, seen: Sequence[DeviceInfo]) -> None:
    """Keep the devices that were seen at an address; see `read_seen`."""
    files.write(_seen_path(address), json.dumps([asdict(device) for device in seen], indent=1).encode())


def _parsed_profile(plain: Any) -> GroupProfile:
    """Parse what `ProfileStore.write` wrote. Raises an error for anything else."""
    stacks = tuple(
        Stack(
            whole(stack["width"], 1),
            number(stack["seconds"], positive=True),
            whole(stack["bytes"]),
            whole(stack["held"]),
        )
        for stack in plain["measured"]
    )
    if stacks and (narrowest := min(stack.width for stack in stacks)) != 1:
        raise ValueError(f"a profile must have a stack of width 1, but its narrowest has width {narrowest}")
    overlap = plain["overlap"] and {
        whole(int(width), 1): {whole(int(count), 1): number(ratio, positive=True) for count, ratio in ratios.items()}
        for width, ratios in plain["overlap"].items()
    }
    return GroupProfile(stacks, whole(plain["overhead"]), overlap)


def _parsed_device(plain: Any) -> DeviceInfo:
    """Parse one device of those that `write_seen` wrote. Raises an error for anything else."""
    kind = plain["kind"]
    nodes = tuple(whole(devices, 1) for devices in kind["nodes"])
    if not nodes:
        raise ValueError("a kind of device must have nodes, but has none")
    return DeviceInfo(
        DeviceKind(truth(kind["gpus"]), text(kind["accelerator"]), nodes, number(kind["cores"]), truth(kind["comes"])),
        text(plain["device"]),
        whole(plain["bytes"]),
        whole(plain["overhead"]),
    )


def _seen_path(address: str | None) -> str:
    return f"probes/devices/{content_hash(socket.gethostname() if address in (None, 'local') else address)}.json"
