"""What was measured, kept in the store: of groups of trials by shape, device and code version; and which devices there
were."""

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

MEASURED = 64
"""Members of a group that are measured together at most."""


@dataclass(frozen=True)
class Stack:
    """Speed and memory of a stack (`trainables.profiling.throughput.Measurement`)."""

    width: int
    seconds: float
    bytes: int
    held: int


@dataclass(frozen=True)
class GroupProfile:
    """What was measured of a group on a device."""

    measured: tuple[Stack, ...]
    """Nothing where it could not be measured."""
    overhead: int
    """Bytes that each process takes beside."""
    overlap: Mapping[int, Mapping[int, float]] | None = None
    """See `Devices.overlap`; None where it was not measured."""


@dataclass(frozen=True)
class DeviceInfo:
    """Devices of a kind, as one of them was seen."""

    kind: DeviceKind
    device: str
    """Name and memory."""
    bytes: int
    """Memory of each; of a node where the devices are cores, as far as it is free."""
    overhead: int


@dataclass(frozen=True)
class Asked:
    """A measurement to make, on a whole device of a kind."""

    kind: DeviceKind
    configs: Sequence[Mapping[str, Any]] = ()
    how: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments of `trainables.worker.ray_train.measure_configs`."""


Measure = Callable[[Sequence[Asked]], Sequence[Any]]
"""Makes all of these; of each a `trainables.worker.ray_train.Probe`, or None where it cannot be made."""


@dataclass(frozen=True)
class Site:
    """Where a sweep is to run."""

    kinds: tuple[DeviceKind, ...]
    here: bool
    """On this machine's cores."""
    grows: bool
    measure: Measure


def sample(group: Group) -> list[Mapping[str, Any]]:
    """The configs that are measured for a group."""
    return [trial.config for stream in group for trial in stream][:MEASURED]


def shape(group: Group, free: Callable[[str], frozenset[str]]) -> str:
    """A hash of what a measurement depends on: of the configs all but what is `free` for their method to differ, and of
    how many members each data stream has."""
    config, left, lengths = group[0][0].config, MEASURED, []
    for stream in group:
        lengths += [min(left, len(stream))]
        left -= lengths[-1]
        if not left:
            break
    fusible = free(str(config["method"]))
    return content_hash([{key: value for key, value in config.items() if key not in fusible}, lengths])


class ProfileStore:
    """The measurements in a store that this version of the code has made."""

    def __init__(self, files: Files, version: str) -> None:
        self._files, self._version = files, version

    def read(self, shape: str, device: str, threads: int) -> GroupProfile | None:
        """None where there is nothing, or the file is damaged."""
        return read_record(self._files, self._path(shape, device, threads), _known)

    def write(self, shape: str, device: str, threads: int, known: GroupProfile) -> None:
        where = {"shape": shape, "device": device, "threads": threads, "version": self._version}
        content = json.dumps(where | asdict(known), indent=1)
        self._files.write(self._path(shape, device, threads), content.encode())

    def _path(self, shape: str, device: str, threads: int) -> str:
        return f"probes/{content_hash([shape, device, threads, self._version])}.json"


def read_seen(files: Files, address: str | None) -> list[DeviceInfo] | None:
    """The devices that were last seen at an address, or on this machine; None where none were, or the file is
    damaged."""
    return read_record(files, _seen_path(address), lambda plain: [_seen(one) for one in plain] or None)


def write_seen(files: Files, address: str | None, seen: Sequence[DeviceInfo]) -> None:
    files.write(_seen_path(address), json.dumps([asdict(one) for one in seen], indent=1).encode())


def _known(plain: Any) -> GroupProfile:
    """What `ProfileStore.write` wrote. An error where it is of another kind."""
    stacks = tuple(
        Stack(whole(one["width"], 1), number(one["seconds"], positive=True), whole(one["bytes"]), whole(one["held"]))
        for one in plain["measured"]
    )
    if stacks and min(one.width for one in stacks) != 1:
        raise ValueError("a stack of 1 must be measured, but is not")
    overlap = plain["overlap"] and {
        whole(int(width), 1): {whole(int(count), 1): number(ratio, positive=True) for count, ratio in ratios.items()}
        for width, ratios in plain["overlap"].items()
    }
    return GroupProfile(stacks, whole(plain["overhead"]), overlap)


def _seen(plain: Any) -> DeviceInfo:
    """One of what `write_seen` wrote. An error where it is of another kind."""
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
