"""Simulated time, and the processes of a simulated world, which run one at a time in an order that a seed decides.

A process is a greenlet: a function that runs until it sleeps. Whatever in the world takes time sleeps, so that others
go on meanwhile: a driver's storage operations, the steps of a training, the renewal of a lease.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import greenlet

BEGINNING = datetime(2026, 1, 31, 12, tzinfo=UTC)
"""Wall clock at the beginning of a world."""


class Killed(BaseException):
    """Ends a process at once. What it does in handlers on its way out has no effect on the world."""


class Stuck(Exception):
    """The world has not come to its end in the time that it should take."""


class Process:
    """A process, or a thread, of the world."""

    def __init__(self, time: Time, name: str, act: Callable[[], object], group: object = None) -> None:
        """`group` is what dies together: a driver with its threads, or the workers of a node."""
        self.name, self.group = name, group
        self.killed = self.ended = False
        self.interrupt: Callable[[], BaseException] | None = None
        """Makes what it raises when it goes on, once."""
        self.on_step: Callable[[int, Mapping[str, Any] | None], float] = lambda epoch, config: 0.0
        """Called in each step of a training; of a function with the parameters of its trial. Returns the seconds that
        the step takes."""
        self.asked = False
        """Whether it has received SIGTERM."""
        self.cohort: Any = None
        """The cohort that it trains, if that is none of functions."""
        self.files: Callable[[str], Any] = lambda uri: None
        """Opens a store, for a command."""
        self.stepped = 0.0
        """Seconds of the steps that it has made."""
        self._time, self._act, self._turn = time, act, 0
        self._greenlet = greenlet.greenlet(self._run, parent=time.hub)

    def _run(self) -> None:
        try:
            if not self.killed:
                self._act()
        except Killed:
            pass
        except Exception as error:
            self._time.failure = self._time.failure or error
        finally:
            self.ended = True

    def sleep(self, seconds: float) -> None:
        """Let others go on for so long, unless it is woken. Only the process itself may call it."""
        if self.killed:
            raise Killed
        self._turn += 1
        self._time.at(seconds, self, self._turn)
        self._time.hub.switch()
        if self.killed:
            raise Killed
        if self.interrupt:
            make, self.interrupt = self.interrupt, None
            raise make()

    def wake(self) -> None:
        """End its sleep."""
        self._time.at(0.0, self, self._turn)

    def resume(self, turn: int) -> None:
        """Go on, unless it has been woken since. Only the hub may call it."""
        if not self.ended and turn == self._turn:
            self._turn += 1
            self._greenlet.switch()

    def kill(self) -> None:
        self.killed = True
        if greenlet.getcurrent() is not self._greenlet:
            self.wake()

    # As `sweeper.runtime.Task`.

    def is_alive(self) -> bool:
        return not self.ended

    def join(self, timeout: float | None = None) -> None:
        deadline = self._time.now + (math.inf if timeout is None else timeout)
        while not self.ended and self._time.now < deadline:
            self._time.current.sleep(min(0.5, deadline - self._time.now))


class Lock:
    """A lock of processes."""

    def __init__(self, time: Time) -> None:
        self._time, self._held_by = time, list[Process]()

    def acquire(self, timeout: float = math.inf) -> bool:
        deadline = self._time.now + timeout
        while self._held_by and not self._held_by[0].ended:
            if self._time.now >= deadline:
                return False
            self._time.current.sleep(0.01)
        self._held_by = [self._time.current]
        return True

    def release(self) -> None:
        self._held_by.clear()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class Condition(Lock):
    """As `threading.Condition`, of processes."""

    def __init__(self, time: Time) -> None:
        super().__init__(time)
        self._waiting: list[Process] = []

    def wait_for(self, predicate: Callable[[], object], timeout: float | None = None) -> None:
        deadline = self._time.now + (math.inf if timeout is None else timeout)
        while not predicate() and self._time.now < deadline:
            self.release()
            self._waiting.append(self._time.current)
            self._time.current.sleep(deadline - self._time.now)
            self.acquire()

    def notify(self) -> None:
        while self._waiting:
            self._waiting.pop().wake()


@dataclass
class Time:
    """The world's clock, and what is to happen."""

    random: Random
    history: list[str] = field(default_factory=list)
    """What has happened, a line each."""
    now: float = 0.0
    jumped: float = 0.0
    """Seconds by which the wall clock is off."""
    failure: Exception | None = None
    """What a process has raised that it must not."""

    def __post_init__(self) -> None:
        self.hub = greenlet.getcurrent()
        self._heap: list[tuple[float, int, Process, int]] = []
        self._count = itertools.count()
        self._running: Process | None = None

    @property
    def current(self) -> Process:
        """The process that runs."""
        assert self._running
        return self._running

    def wall(self) -> datetime:
        return BEGINNING + timedelta(seconds=self.now + self.jumped)

    def at(self, seconds: float, process: Process, turn: int) -> None:
        heapq.heappush(self._heap, (self.now + max(0.0, seconds), next(self._count), process, turn))

    def begin(self, name: str, act: Callable[[], object], group: object = None, after: float = 0.0) -> Process:
        process = Process(self, name, act, group)
        self.at(after, process, 0)
        return process

    def run(self, until: Callable[[], bool], limit: float) -> None:
        """Let all processes go on until something holds. Raises Stuck if that takes `limit` seconds, or for ever."""
        while not until():
            if self.failure:
                raise self.failure
            if not self._heap or self.now > limit:
                raise Stuck(f"nothing has ended after {self.now:.0f} s")
            moment, _, process, turn = heapq.heappop(self._heap)
            self.now, self._running = max(self.now, moment), process
            process.resume(turn)
        if self.failure:
            raise self.failure

    def say(self, line: str) -> None:
        self.history.append(f"{self.now:10.3f}  {line}")
