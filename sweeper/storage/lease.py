"""Which drivers run a sweep now, and what each has taken to train, so that several can share one store.

Each driver has a lease: a small file `.drivers/SWEEP/ID.json` that it renews. It lists the driver's claims: the ids of
trials, or those of whole studies. A claim is written before its trials start. Then the driver looks at the others'
claims, and withdraws its own if they overlap. So of two drivers at least one sees the other, and no trial starts twice.

The claims of a driver that has died are void: at once if that was on this machine, else when its lease has not changed
for `TERM` seconds. If such a driver lives after all, trials may be trained twice, which changes nothing in the store.
"""

import contextlib
import json
import os
import threading
from collections.abc import Callable, Collection, Hashable
from dataclasses import asdict, dataclass, replace
from typing import Annotated

import psutil
from msgspec import Meta

from sweeper.errors import StoreError
from sweeper.printing import printable
from sweeper.runtime import Machine
from sweeper.storage.files import Files, checked_record, say_few, say_once
from sweeper.storage.layout import leases_folder, timestamp
from sweeper.storage.retry import NO_RETRIES
from trainables.json_input import Count, Finite

TERM = 60.0
"""Seconds for which a lease of another machine counts without being renewed."""
RENEWAL_SECONDS = 15.0
"""Seconds between two renewals of a lease."""
MOST = 1000
"""Most leases that are read at once, those written last: a driver that lives renews its own."""
SUFFIX = ".json"


@dataclass(frozen=True)
class Content:
    """What a lease's file says."""

    host: str
    boot: str
    process: Annotated[int, Meta(ge=1, le=2**31 - 1)]
    created: Finite
    """When the process was created, in seconds since 1970: its number may be given again."""
    since: str
    """When the driver began, in UTC: `2026-01-31 12:00:05`."""
    request: str
    """The name of the request that it runs."""
    claims: list[str]
    claimed: Count = 0
    """How often its claims have changed."""
    renewed: Count = 0
    """How often the file was written."""
    ended: bool = False
    alone: bool = False
    """Whether it needs the sweep for itself, so that no driver may begin."""

    @property
    def machine(self) -> Machine:
        return Machine(self.host, self.boot)


@dataclass(frozen=True)
class Driver:
    """Another driver of the sweep."""

    id: str
    lease: Content
    proven: bool
    """Whether it was seen to be alive; else it counts as alive because not enough time has passed."""

    def __str__(self) -> str:
        lease = self.lease
        return printable(f"{lease.host} (process {lease.process}, since {lease.since} UTC, {lease.request})")


class Drivers:
    """The drivers of a sweep, as their leases say, without the one whose id is `own`."""

    def __init__(
        self,
        files: Files,
        sweep: str,
        own: str = "",
        *,
        machine: Machine | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """`machine` and `clock` are by default those of the runtime."""
        self._files, self._folder, self._own = files, leases_folder(sweep), own
        self.runtime = files.runtime
        self._clock = clock or self.runtime.monotonic
        self._machine = machine or self.runtime.machine()
        self._ended: dict[str, Content] = {}
        self._renewed: dict[str, tuple[int, float, bool]] = {}
        """Id of a lease of another machine -> its number of renewals, when this was seen first, and whether it has
        changed since the lease was found."""
        self.version: Hashable = frozenset[object]()
        """Equal after two reads if no driver has changed its claims, begun, ended or died between them."""

    def living(self) -> list[Driver]:
        """Read the leases, and return the drivers that count as alive, oldest first. Raises StoreError."""
        seen, living, damaged = set[tuple[str, int, bool]](), list[Driver](), list[str]()
        for lease_id in self._latest():
            content, problem = (self._ended.get(lease_id), "") if lease_id in self._ended else self._read(lease_id)
            if problem:
                damaged.append(
                    f"store {self._files.display_uri}: '{self.path(lease_id)}' is damaged and void: {problem}"
                )
            if content is None:  # deleted or damaged
                continue
            if content.ended:
                self._ended[lease_id] = content
            driver = self._alive(lease_id, content)
            seen.add((lease_id, content.claimed, driver is not None))
            living += [driver] if driver else []
        say_few(damaged)
        self.version = frozenset(seen)
        return sorted(living, key=lambda driver: driver.id)

    def ids(self) -> list[str]:
        """The ids of all leases, also of drivers that have ended or died."""
        names = self._files.list_files(self._folder, SUFFIX)
        return [name.removesuffix(SUFFIX) for name in names if name != f"{self._own}{SUFFIX}"]

    def path(self, lease_id: str) -> str:
        return f"{self._folder}/{lease_id}{SUFFIX}"

    def _latest(self) -> list[str]:
        """The ids of the `MOST` leases that were written last."""
        written = self._files.list_versions(self._folder, SUFFIX)
        names = sorted(written, key=lambda name: written[name].written_ns or 0, reverse=True)
        ids = [name.removesuffix(SUFFIX) for name in names if name != f"{self._own}{SUFFIX}"]
        if len(ids) > MOST:
            where = f"store {self._files.display_uri}: '{self._folder}'"
            say_once(f"{where} has {len(ids):,} leases of drivers; only the {MOST:,} that were written last are read")
        return ids[:MOST]

    def _read(self, lease_id: str) -> tuple[Content | None, str]:
        return checked_record(self._files, self.path(lease_id), Content)

    def _alive(self, lease_id: str, content: Content) -> Driver | None:
        if content.ended:
            return None
        if content.machine == self._machine:
            own = content.process == os.getpid()
            # One of this process that is not open was not closed, and is void.
            alive = lease_id in self.runtime.open_leases if own else _runs(content.process, content.created)
            return Driver(lease_id, content, proven=True) if alive else None
        now = self._clock()
        renewed, since, proven = self._renewed.get(lease_id, (content.renewed, now, False))
        if renewed != content.renewed:
            renewed, since, proven = content.renewed, now, True
        self._renewed[lease_id] = renewed, since, proven
        return Driver(lease_id, content, proven) if now - since < TERM else None


class Lease(Drivers):
    """This driver's lease. It is renewed by a thread from `open` until `close`."""

    def __init__(
        self,
        files: Files,
        sweep: str,
        request: str = "",
        *,
        machine: Machine | None = None,
        clock: Callable[[], float] | None = None,
        renewal_seconds: float = RENEWAL_SECONDS,
        alone: bool = False,
    ) -> None:
        self.id = f"{timestamp(files.runtime.now())}-{files.runtime.token()[:12]}"
        super().__init__(files, sweep, self.id, machine=machine, clock=clock)
        process = psutil.Process()
        since = f"{self.runtime.now():%Y-%m-%d %H:%M:%S}"
        host, boot = self._machine.host, self._machine.boot
        self._content = Content(host, boot, process.pid, process.create_time(), since, request, [], alone=alone)
        self._claims: set[str] = set()
        self._lock = self.runtime.lock()
        self._closed = threading.Event()
        self._renewal_seconds = renewal_seconds
        self._others: list[str] = []
        """Ids of the other drivers that were alive at the last read. Ids begin with the time."""

    def open(self) -> None:
        """Write the lease, and renew it from now on. Raises StoreError."""
        self.runtime.open_leases.add(self.id)
        self._write(self._files)
        self.runtime.begin("lease", self._keep_renewing)

    def admit_others(self) -> None:
        """Let drivers begin from now on. Raises StoreError."""
        self._content = replace(self._content, alone=False)
        self._write(self._files)

    @property
    def is_first(self) -> bool:
        """Whether no other driver that was alive at the last read began earlier."""
        return all(self.id < other for other in self._others)

    def living(self) -> list[Driver]:
        living = super().living()
        self._others = [driver.id for driver in living]
        return living

    def claim(self, names: Collection[str]) -> bool:
        """Claim the trials or studies with these ids. Returns False, and claims none, if another driver has claimed one
        of them, perhaps at the same moment. Raises StoreError."""
        self._claims |= set(names)
        self._write(self._files, changed=True)
        if any(not set(names).isdisjoint(driver.lease.claims) for driver in self.living()):
            self.release(names)
            self._write(self._files, changed=True)
            return False
        return True

    def release(self, names: Collection[str]) -> None:
        """Give claims up. Others learn of it when the lease is written next, which is when they look again for rows."""
        self._claims -= set(names)

    def renew(self) -> None:
        """Show the others that this driver lives, and what it has released. A thread does this. Raises StoreError."""
        self._write(self._files.with_retries(NO_RETRIES))

    def close(self) -> None:
        """End the lease. The last driver deletes all: until then the others see that one has ended. A store that cannot
        be written is left as it is: the lease of a process that has ended is void."""
        self._closed.set()
        self._claims.clear()
        with contextlib.suppress(StoreError):
            files = self._files.with_retries(NO_RETRIES)
            self._write(files, changed=True, ended=True)
            if not self.living():
                files.each("delete", self._folder, Files.delete, map(self.path, [*self.ids(), self.id]))
        self.runtime.open_leases.discard(self.id)

    def _keep_renewing(self) -> None:
        while not self.runtime.wait(self._closed, self._renewal_seconds):
            with contextlib.suppress(StoreError):  # the next one may succeed
                self.renew()

    def _write(self, files: Files, *, changed: bool = False, ended: bool = False) -> None:
        with self._lock:
            if self._closed.is_set() and not ended:
                return
            old = self._content
            claims = sorted(self._claims)
            claimed = old.claimed + (changed or claims != old.claims)
            self._content = replace(old, claims=claims, claimed=claimed, renewed=old.renewed + 1, ended=ended)
            files.write(self.path(self.id), json.dumps(asdict(self._content)).encode())


def _runs(process: int, created: float) -> bool:
    """Whether the process that was created then still runs."""
    try:
        found = psutil.Process(process)
        return abs(found.create_time() - created) < 1 and found.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
    except psutil.Error:  # it exists, but is another user's
        return True
