"""Sweeps in this process without Ray: their cohorts train one after the other.

All is real but the measurement of the machine: the plan, the loop with its retries and tasks, the training, the rungs,
the listeners and the store.
"""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sweeper.commands import conclusion, sweep_run
from sweeper.execution.local_backend import LocalBackend
from sweeper.packing.cluster import Cluster, DeviceKind
from sweeper.report import charts, publish
from sweeper.report.page import contents
from trainables.training.measurement import DeviceMeasurement, DeviceMemory, Measurement
from trainables.worker.messages import CohortTask, Message

CORES = DeviceKind(False, "", (2,))
PROBE = DeviceMeasurement(
    DeviceMemory("cpu", 2**34, 2**20), [Measurement(width, 0.01, 2**20, 0) for width in (1, 2, 4, 8)]
)


@contextlib.contextmanager
def without_ray(scratch: Path, before_training: Callable[[CohortTask], None] = lambda task: None) -> Iterator[None]:
    """Context in which `run.main` trains in this process, in the empty folder `scratch`.

    `before_training` is called with the task of every attempt; an exception that it raises is the worker's.
    """

    class Measured(LocalBackend):
        def cluster(self) -> Cluster:
            return Cluster(None, (CORES,), lambda requests: [PROBE] * len(requests))

        def train(self, task: CohortTask, send: Callable[[Message], None]) -> None:
            before_training(task)
            super().train(task, send)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sweep_run, "backend_of", lambda request, *_: contextlib.nullcontext(Measured(request.data)))
        yield


def report_nothing(patched: pytest.MonkeyPatch) -> None:
    """Let runs end without figures, tables and claims: with their rows, models, studies and page alone. The page lacks
    what is judged of requests, and the pictures of studies are none."""
    patched.setattr(charts, "png", lambda chart, **values: b"png")
    patched.setattr(contents, "stored_requests", lambda *_: ([], {}))
    patched.setattr(publish, "write", lambda *_, **__: "")
    patched.setattr(conclusion, "write_claims", lambda *_: None)
