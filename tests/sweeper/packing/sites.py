"""Made-up devices and measurements on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from sweeper.packing.device_kinds import DeviceKind
from sweeper.packing.measurements import Asked, Site
from tests.sweeper.packing.measured import MIB

CORES = DeviceKind(False, "", (4,))
LARGE, MANY = DeviceKind(True, "A", (2,), cores=8.0), DeviceKind(True, "B", (4, 4), cores=4.0)


class Bench:
    """A `measurements.Measure` that keeps what it was asked.

    A step of a stack of width w takes sqrt(w) times as long as one of width 1, half as long on LARGE, and less with
    more threads. Each member takes 100 MiB, and sharing a device costs nothing.
    """

    def __init__(self, memory: Mapping[str, int], seconds: float = 0.01) -> None:
        self.asked: list[Asked] = []
        self._memory, self._seconds = memory, seconds

    def __call__(self, asked: Sequence[Asked]) -> list[Any]:
        self.asked += asked
        return [self._probe(measurement) for measurement in asked]

    def site(self, *kinds: DeviceKind) -> Site:
        return Site(kinds, here=not kinds[0].gpus, grows=False, measure=self)

    @property
    def measured(self) -> list[Asked]:
        return [measurement for measurement in self.asked if "seconds" in measurement.how]

    @property
    def shared(self) -> list[Asked]:
        return [measurement for measurement in self.asked if "sharing" in measurement.how]

    def _probe(self, measurement: Asked) -> SimpleNamespace:
        name, how = measurement.kind.accelerator, measurement.how
        step = self._seconds / (2 if name == "A" else 1) / how.get("threads", 1) ** 0.5
        measured = [
            SimpleNamespace(width=2**k, seconds=step / 2 ** (k / 2), bytes=2**k * 100 * MIB, held=0)
            for k in range(len(measurement.configs).bit_length() if "seconds" in how else 0)
        ]
        overlap = {64: dict.fromkeys((2, 4, 8), 1.0)} if "sharing" in how else None
        room = SimpleNamespace(device=f"device {name}", bytes=self._memory[name], overhead=50 * MIB)
        return SimpleNamespace(room=room, measured=measured, overlap=overlap)
