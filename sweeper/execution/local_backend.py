"""Runs cohorts in this process, one after the other, without Ray: for a debugger, and for tests."""

import contextlib
import math
import os
import pdb
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import torch

from sweeper.definition import user_code
from sweeper.execution.backend import Backend, Emit, Ended, MessageReceived, Started, failure_of
from sweeper.execution.signals import DebuggerQuit
from sweeper.option_values import DeviceChoice
from sweeper.packing.cluster import Cluster, DeviceKind, MeasurementRequest, SlotResources
from trainables.training.measurement import DeviceMeasurement
from trainables.worker.messages import CohortTask, Message
from trainables.worker.resources import measure_device
from trainables.worker.worker import Dispatch, train_cohort


class LocalBackend(Backend):
    """Trains on the first GPU of this machine, or without one on a core.

    A cohort has no memory limit, and is not ended if it makes no step. It trains in the main thread, so that
    breakpoints stop it, and what it prints is not kept in a log.
    """

    def __init__(self, data: str, *, debug: bool = False, devices: DeviceChoice | None = None) -> None:
        """`data` is the folder of the data sets. `devices` is what it trains on if that is asked for. With `debug` an
        exception in a cohort is printed, and opens `pdb` where there is a terminal."""
        self._data, self._debug = data, debug
        self._device = torch.device("cuda" if devices == "gpu" else "cpu") if devices else local_device()
        self._tasks = deque[CohortTask]()
        self._dispatch: Dispatch | None = None

    def cluster(self) -> Cluster:
        kind = DeviceKind(self._device.type == "cuda", "", (1,))

        def measure(requests: Sequence[MeasurementRequest]) -> list[DeviceMeasurement | None]:
            return [measure_device(request, self._data, self._device) for request in requests]

        return Cluster(None, (kind,), measure)

    @contextlib.contextmanager
    def training(self, dispatch: Dispatch) -> Iterator[None]:
        retries = 0 if self._debug else dispatch.settings.retries
        settings = replace(dispatch.settings, step_timeout=math.inf, logs=None, retries=retries)
        self._dispatch = replace(dispatch, settings=settings)
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # as a process with one core
        try:
            yield
        finally:
            torch.set_num_threads(threads)
            self._tasks.clear()

    def start(self, task: CohortTask, slot: SlotResources) -> None:
        self._tasks.append(replace(task, memory=None))

    def advance(self, emit: Emit) -> None:
        if not self._tasks:
            time.sleep(1.0)  # for what the caller waits for elsewhere
            return
        task = self._tasks.popleft()
        emit(Started(task.cohort))
        emit(self._trained(task, emit))

    def _trained(self, task: CohortTask, emit: Emit) -> Ended:
        def send(message: Message) -> None:
            try:
                emit(MessageReceived(task.cohort, message))
            except Exception as error:
                raise _Refused(error) from error

        try:
            self.train(task, send)
        except _Refused as refused:
            raise refused.error from None
        except Exception as error:
            if self._debug:
                show_exception(error)
            return Ended(task.cohort, failure_of(error))
        return Ended(task.cohort)

    def train(self, task: CohortTask, send: Callable[[Message], None]) -> None:
        """Train the task's cohort and `send` its messages."""
        assert self._dispatch
        show = show_exception if self._debug else (lambda error: None)
        train_cohort(task, self._dispatch.settings, self._device, send, show_exception=show)


def show_exception(error: BaseException, *, debugger: bool = True) -> None:
    """Print an exception with its traceback, and with `debugger` open `pdb` at it where there is a terminal. Raises
    KeyboardInterrupt if the user quits it."""
    traceback.print_exception(error)
    if debugger and sys.stdin.isatty():
        opened = pdb.Pdb()
        opened.reset()
        opened.interaction(None, error.__traceback__)  # as `pdb.post_mortem`, which does not say how it was left
        if opened.quitting:
            raise DebuggerQuit


def show_cause(error: Exception) -> None:
    """Show the exception of the user's own code that an error is due to, if there is one, and open `pdb` at it."""
    cause: BaseException = error
    while cause.__cause__:
        cause = cause.__cause__
    files = [frame.filename for frame in traceback.extract_tb(cause.__traceback__)]
    own = any(file == each or file.startswith(f"{each}{os.sep}") for file in files for each in user_code.modules())
    if own and isinstance(cause, Exception):
        with contextlib.suppress(DebuggerQuit):  # nothing has begun that could be ended
            show_exception(cause)


def local_device() -> torch.device:
    """The first GPU of this machine, or without one the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


class _Refused(BaseException):
    """Leaves a training whose message raised an exception, which is not the training's own."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error
