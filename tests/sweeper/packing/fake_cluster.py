"""A made-up cluster: its devices, and measurements on them.

Groups of trials, with made-up measurements.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from sweeper.packing.cluster import Cluster, DeviceKind, MeasurementRequest
from sweeper.packing.workloads import Workload
from sweeper.planning.cohorts import Group, Trial
from trainables.training.measurement import DeviceMeasurement, DeviceMemory, Measurement

CORES = DeviceKind(False, "", (4,))
LARGE, MANY = DeviceKind(True, "A", (2,), cores=8.0), DeviceKind(True, "B", (4, 4), cores=4.0)


class FakeMeasure:
    """A `cluster.Measure` that keeps the requests it got.

    A step of a stack of width w takes sqrt(w) times as long as one of width 1, half as long on LARGE, and less with
    more threads. Each member takes 100 MiB, and sharing a device costs nothing.
    """

    def __init__(self, memory: Mapping[str, int], seconds: float = 0.01) -> None:
        """`memory` maps the name of an accelerator to the bytes of a device, `seconds` are those of a step."""
        self.requests: list[MeasurementRequest] = []
        self._memory, self._seconds = memory, seconds

    def __call__(self, requests: Sequence[MeasurementRequest]) -> list[DeviceMeasurement]:
        self.requests += requests
        return [self._probe(request) for request in requests]

    def cluster(self, *kinds: DeviceKind, address: str | None = None) -> Cluster:
        return Cluster(address, kinds, self)

    @property
    def timed(self) -> list[MeasurementRequest]:
        return [request for request in self.requests if request.seconds]

    @property
    def shared(self) -> list[MeasurementRequest]:
        return [request for request in self.requests if request.processes]

    def _probe(self, request: MeasurementRequest) -> DeviceMeasurement:
        name = request.kind.accelerator
        step = self._seconds / (2 if name == "A" else 1) / request.threads**0.5
        measurements = [
            Measurement(2**k, step / 2 ** (k / 2), 2**k * 100 * MIB, held=0)
            for k in range(len(request.configs).bit_length() if request.seconds else 0)
        ]
        slowdowns = {64: dict.fromkeys((2, 4, 8), 1.0)} if request.processes else None
        return DeviceMeasurement(DeviceMemory(f"device {name}", self._memory[name], 50 * MIB), measurements, slowdowns)


MIB = 2**20
PLENTY = 2**40


def measurement(width: int, seconds: float, bytes: int = MIB, held: int = 0) -> Measurement:
    return Measurement(width, seconds, bytes, held)


STACKING_PAYS = [measurement(w, 1e-3 / math.sqrt(w)) for w in (1, 2, 4, 8, 16, 32)]
STACKING_COSTS = [measurement(w, 1e-3 * w) for w in (1, 2, 4, 8, 16, 32)]
FLAT = [measurement(w, 1e-3) for w in (1, 2, 4, 8, 16, 32)]
EACH_100_MIB = [replace(stack, bytes=stack.width * 100 * MIB) for stack in STACKING_PAYS]


def members(*lengths: int, **config: int) -> Group:
    """Return a group with one stream of each length."""
    return [[Trial(f"{stream}.{i}", config) for i in range(length)] for stream, length in enumerate(lengths)]


FOUR_OF_EIGHT = members(8, 8, 8, 8)
LONG = Workload(FOUR_OF_EIGHT, [measurement(1, 1e-3, 100 * MIB)], 100_000)
"""A workload of a hundred seconds per member."""
