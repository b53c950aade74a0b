"""Actors of a real cluster with two cores: what runs where, reported deaths, and how many calls one takes."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import ray

from sweeper.execution import ray_backend
from sweeper.execution.backend import Ended, Event, MessageReceived, Started
from sweeper.execution.ray_backend import RayBackend
from sweeper.execution.session import connected
from sweeper.execution.signals import StopSignal
from sweeper.packing.cluster import SlotResources
from tests.trainables.small import config_of
from trainables.reports import OutOfMemory
from trainables.worker.messages import CohortSpec, CohortTask, Failure
from trainables.worker.worker import Dispatch, WorkerSettings

pytestmark = pytest.mark.slow

CORE, GPU = SlotResources({"CPU": 1.0}, 2), SlotResources({"GPU": 1.0}, 1)
SPEC = CohortSpec.of([config_of().flat()], 1, "c.pt")
SETTINGS = WorkerSettings("run", "data", checkpoints=None)  # type: ignore[arg-type]


def act(task: CohortTask, dispatch: Dispatch, messages: Any) -> None:
    """Instead of `run_cohort`: send this process's id, then do what the cohort is named after."""
    messages.put(os.getpid())
    what = task.cohort.rstrip("0123456789")
    if what == "killed":
        time.sleep(0.3)  # the message is on its way
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "raises":
        raise ValueError("out of luck\nmore of it")
    if what == "large":
        raise OutOfMemory("it may use 1 MiB, but needed more")
    if what == "long":
        time.sleep(1000)


@contextmanager
def free_cores() -> Iterator[None]:
    """Context after which all cores are free."""
    yield
    deadline = time.monotonic() + 60
    while ray.available_resources().get("CPU", 0) < ray.cluster_resources()["CPU"]:
        assert time.monotonic() < deadline, "an actor was left"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def training() -> Iterator[RayBackend]:
    """One backend for all tests: its actors, which need seconds to start, are those that the test before has left. All
    of them end with it."""
    with connected(None) as scratch, pytest.MonkeyPatch.context() as patched:
        patched.setattr(ray_backend, "run_cohort", act)
        patched.setattr(ray_backend, "IDLE_SECONDS", 600.0)
        backend = RayBackend(None, "data", scratch, StopSignal(), print)
        with free_cores(), backend.training(Dispatch(SETTINGS)):
            yield backend


def start(backend: RayBackend, slot: SlotResources, *names: str) -> None:
    for name in names:
        backend.start(CohortTask(name, SPEC), slot)


def all_cores() -> SlotResources:
    return SlotResources({"CPU": float(ray.cluster_resources()["CPU"])}, 1)


def until(backend: RayBackend, condition: Callable[[list[Event]], object]) -> list[Event]:
    """Events until the condition holds for them."""
    events: list[Event] = []
    deadline = time.monotonic() + 300
    while not condition(events):
        assert time.monotonic() < deadline, events
        backend.advance(events.append)
    return events


def ended(count: int) -> Callable[[list[Event]], object]:
    return lambda events: sum(isinstance(event, Ended) for event in events) == count


def test_an_actor_trains_one_cohort_after_the_other(training: RayBackend) -> None:
    """The events of each cohort keep their order."""
    start(training, CORE, *(f"c{index}" for index in range(6)))
    events = until(training, ended(6))
    processes = {event.message for event in events if isinstance(event, MessageReceived)}
    for index in range(6):
        own = [event for event in events if event.cohort == f"c{index}"]
        assert [type(event) for event in own] == [Started, MessageReceived, Ended] and own[-1] == Ended(f"c{index}")
    assert 1 <= len(processes) < 6 and os.getpid() not in processes


def test_the_cause_of_a_failure_follows_the_messages_before_it(training: RayBackend) -> None:
    failures = {
        "killed": Failure("error", "its worker process has died"),
        "raises": Failure("error", "ValueError: out of luck"),
        "large": Failure("memory", "OutOfMemory: it may use 1 MiB, but needed more"),
        "next": None,
    }
    start(training, CORE, *failures)
    events = until(training, ended(4))
    for name, failure in failures.items():
        own = [event for event in events if event.cohort == name]
        assert [type(event) for event in own] == [Started, MessageReceived, Ended] and own[-1] == Ended(name, failure)


def test_actors_give_their_cores_up_to_tasks_with_other_resources(training: RayBackend) -> None:
    start(training, CORE, "a", "b")
    until(training, ended(2))
    begun = time.monotonic()
    start(training, all_cores(), "whole")
    until(training, ended(1))
    assert not [actor for actor in training._actors if actor.demand.resources == (("CPU", 1.0),)], (
        time.monotonic() - begun
    )


def test_a_cohort_that_waits_for_devices_holds_none_back(training: RayBackend) -> None:
    """It still waits, and another one still trains, when the backend ends."""
    start(training, GPU, "waits")
    start(training, all_cores(), "c0", "long")
    events = until(
        training, lambda events: any(isinstance(event, MessageReceived) and event.cohort == "long" for event in events)
    )
    assert {event.cohort for event in events} == {"c0", "long"}
