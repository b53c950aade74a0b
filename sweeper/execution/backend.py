"""The interface of what runs cohorts: processes of a Ray cluster (`RayBackend`), or this process (`LocalBackend`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sweeper.packing.cluster import Cluster
    from sweeper.packing.placement import SlotResources
    from sweeper.search.rung_server import Service
    from trainables.worker.messages import CohortTask, Failure, Message
    from trainables.worker.worker import Dispatch


@dataclass(frozen=True)
class Started:
    """A process has begun with the cohort."""

    cohort: str
    """Id of the cohort."""


@dataclass(frozen=True)
class Told:
    """The cohort has sent a message."""

    cohort: str
    message: Message


@dataclass(frozen=True)
class Ended:
    """The cohort trains no more."""

    cohort: str
    failure: Failure | None = None
    """Why its training failed or was lost; None if it returned."""


Event = Started | Told | Ended
Tell = Callable[[Event], None]
"""Takes an event. An exception that it raises leaves `Backend.advance`."""


class Backend(ABC):
    """Runs cohorts, and tells what happens to them. It decides nothing: what fails is not tried again here.

    Events of one cohort come in order: one `Started`, messages, one `Ended`.
    """

    @abstractmethod
    def cluster(self) -> Cluster:
        """Return the devices on which cohorts run, and how to measure on them."""

    @abstractmethod
    def serve(self, server: Callable[..., Any], *arguments: object) -> Service:
        """Return the client of `server(*arguments)`, an object that the driver and all cohorts may call."""

    @abstractmethod
    def training(self, dispatch: Dispatch) -> AbstractContextManager[None]:
        """Context in which cohorts may be started. At its end all that still train are stopped."""

    @abstractmethod
    def start(self, task: CohortTask, slot: SlotResources) -> None:
        """Train the task's cohort, as soon as devices with the slot's resources are free. Returns at once."""

    @abstractmethod
    def advance(self, tell: Tell) -> None:
        """Tell the events that have come. Waits for one, for about a second at most."""
