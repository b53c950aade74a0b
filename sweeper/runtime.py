"""What a run takes from its machine besides files: time, random names, threads, and which processes there are.

`sweeper.storage.files.Files` carries it to whoever reads or writes. Tests give one of their own, in which time jumps
and nothing is random.
"""

import contextlib
import getpass
import os
import random
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

import psutil


@dataclass(frozen=True)
class Machine:
    """Where the number of a process names the same process."""

    host: str
    boot: str
    """Changes when the machine starts anew, and differs in a container that numbers its own processes."""

    @staticmethod
    def here() -> "Machine":
        boot = str(psutil.boot_time())
        with contextlib.suppress(OSError):
            with open("/proc/sys/kernel/random/boot_id") as stream:
                boot = stream.read().strip()
            boot += f" {os.readlink('/proc/self/ns/pid')}"
        return Machine(socket.gethostname(), boot)


USER = "SWEEPER_USER"
"""Environment variable: the user who began the run. A submitted job has it from the process that submitted it, and a
container where everyone has one account can set it."""


def user_name() -> str | None:
    """The user who began the run; None if this machine does not know the account."""
    if named := os.environ.get(USER, "").strip():
        return named
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # the account has no name, as in some containers
        return None


class BackgroundThread(Protocol):
    """What runs beside the caller: a thread."""

    def is_alive(self) -> bool: ...

    def join(self, timeout: float | None = None) -> None: ...


class Condition(Protocol):
    """A `threading.Condition`."""

    def __enter__(self) -> Any: ...

    def __exit__(self, *exception: Any) -> Any: ...

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any: ...

    def notify(self) -> None: ...


def _now() -> datetime:
    return datetime.now(UTC)


def _token() -> str:
    return uuid.uuid4().hex


THREADS = 8
"""Most calls at once, which hides the latency of an object store."""


def _map(act: Callable[[str], Any], names: Iterable[str]) -> list[Any]:
    """Call `act` in threads that do not keep the process alive, as those of a `ThreadPoolExecutor` do."""
    names = list(names)
    if len(names) <= 1:  # a single name is not worth a thread
        return [act(name) for name in names]
    results, errors = dict[int, Any](), list[BaseException]()
    left = iter(list(enumerate(names)))

    def work() -> None:
        for index, name in left:
            try:
                results[index] = act(name)
            except BaseException as error:
                errors.append(error)
            if errors:
                return

    threads = [_begin("map", work) for _ in range(min(THREADS, len(names)))]
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return [results[index] for index in range(len(names))]


def _begin(name: str, act: Callable[[], None]) -> BackgroundThread:
    thread = threading.Thread(target=act, name=name, daemon=True)
    thread.start()
    return thread


@dataclass(frozen=True)
class Runtime:
    """The machine as a run sees it."""

    monotonic: Callable[[], float] = time.monotonic
    """Seconds that never go back, from an unknown beginning."""
    now: Callable[[], datetime] = _now
    """The time in UTC, which may go back."""
    sleep: Callable[[float], None] = time.sleep
    wait: Callable[[threading.Event, float], bool] = threading.Event.wait
    """Waits for an event, so many seconds at most. Returns whether it has come."""
    begin: Callable[[str, Callable[[], None]], BackgroundThread] = _begin
    """Begins a function as a thread of this name, which does not keep the process alive."""
    lock: Callable[[], AbstractContextManager[object]] = threading.Lock
    """Makes a lock for what `begin` has begun."""
    condition: Callable[[], Condition] = threading.Condition
    """As `lock`, for one that waits for what another notes."""
    map: Callable[[Callable[[str], Any], Iterable[str]], list[Any]] = _map
    """Calls a function for each name in several threads, and returns the results in the order of the names. Raises its
    first error; names whose turn has not come by then are left out.

    The function should not retry by itself, because nothing can interrupt a thread that sleeps between two attempts.
    """
    draw: Callable[[], float] = random.random
    """A random number in [0, 1)."""
    token: Callable[[], str] = _token
    """32 random hexadecimal digits."""
    machine: Callable[[], Machine] = Machine.here
    open_leases: set[str] = field(default_factory=set)
    """Ids of the leases that this process has open."""

    def __reduce__(self) -> str:
        """A copy in another process has the runtime there."""
        return "REAL"


REAL = Runtime()
