"""The interface of what runs cohorts: processes of a Ray cluster (`RayBackend`), or this process (`LocalBackend`).

Below it stands what both need: why a cohort failed, and a measurement in this process.
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sweeper.errors import ClusterError, StoreError
from sweeper.storage.checkpoints import without_label
from sweeper.storage.files import Files
from trainables.reports import NoDevices, Stopped, UnusableGpu
from trainables.worker.messages import EXIT_SUFFIX, Failure, parse_failure

if TYPE_CHECKING:
    from sweeper.packing.cluster import Cluster, SlotResources
    from trainables.worker.messages import CohortTask, Failure, Message
    from trainables.worker.worker import Dispatch


@dataclass(frozen=True)
class Started:
    """A process has begun with the cohort."""

    cohort: str
    """Id of the cohort."""
    node: str = ""
    """Id of the node of the process; empty if there are no nodes."""


@dataclass(frozen=True)
class MessageReceived:
    """The cohort has sent a message."""

    cohort: str
    message: Message


@dataclass(frozen=True)
class Ended:
    """The cohort trains no more."""

    cohort: str
    failure: Failure | None = None
    """Why its training failed or was lost; None if it returned."""


Event = Started | MessageReceived | Ended
Emit = Callable[[Event], None]
"""Takes an event. An exception that it raises leaves `Backend.advance`."""


class Backend(ABC):
    """Runs cohorts and emits an event for what happens to them. It decides nothing: what fails is not tried again here.

    Events of one cohort come in order: one `Started`, messages, one `Ended`.
    """

    @abstractmethod
    def cluster(self) -> Cluster:
        """Return the devices on which cohorts run, and how to measure on them."""

    @abstractmethod
    def training(self, dispatch: Dispatch) -> AbstractContextManager[None]:
        """Context in which cohorts may be started. At its end all that still train are stopped."""

    @abstractmethod
    def start(self, task: CohortTask, slot: SlotResources) -> None:
        """Train the task's cohort, as soon as devices with the slot's resources are free. Returns at once."""

    def leave_out(self, node: str, reason: str) -> None:
        """Start no cohort on a node any more, because its GPU is unusable. Raises ClusterError if no node is left, as
        where there is only this one."""
        raise ClusterError(f"the GPU of this machine cannot be used: {reason}; --devices cpu trains on CPUs")

    def take_back(self, node: str, reason: str) -> None:
        """Start cohorts again on a node that was left out."""
        raise NotImplementedError  # where none can be left out

    @abstractmethod
    def advance(self, emit: Emit) -> None:
        """Emit the events that have arrived. Waits at most about a second for one."""


MEMORY = "OutOfMemory"
"""Part of the name of every error about memory."""


def read_exit_file(checkpoints: Files, checkpoint: str, run: str) -> Failure | None:
    """Return what a cohort's process wrote beside its `checkpoint` before it ended itself, and delete it.

    None if there is nothing, the store fails, or a process of another `run` wrote it.
    """
    with contextlib.suppress(StoreError):
        if (data := checkpoints.read(checkpoint + EXIT_SUFFIX)) is not None:
            checkpoints.delete(checkpoint + EXIT_SUFFIX)
            return parse_failure(without_label(data), run)
    return None


def failure_of(error: BaseException) -> Failure:
    """Return the failure that an exception of a training stands for. Its reason is the first line of the exception."""
    if isinstance(error, UnusableGpu):
        return Failure("device", str(error), error.node)
    if isinstance(error, NoDevices):
        return Failure("machine", str(error))
    if isinstance(error, Stopped):
        return Failure("machine", f"stopped: {error}")
    name, [line, *_] = type(error).__name__, str(error).strip().splitlines() or [""]
    return Failure("memory" if MEMORY in name else "error", f"{name}: {line}" if line else name)
