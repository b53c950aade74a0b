"""A store in memory, below the real `sweeper.storage.files.Files`: what an object store does, and how it fails.

Every operation takes time, in which others go on. It may fail with or without having had its effect, or answer nothing.
The driver may die before it or after it.
"""

from __future__ import annotations

import contextlib
import copy
import errno
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any, TypeVar

from pyarrow import fs

from sweeper.execution.signals import StopSignal
from sweeper.runtime import Runtime
from sweeper.storage.files import Files
from sweeper.storage.retry import NoAnswerError
from tests.simulation.processes import BEGINNING, Killed, Time

BUCKET, ROOT, OTHER = "s3://simulated/", "store", "other"
"""Address of the bucket; the folders of the store and of one that is merged into it."""
READS = ("read", "list", "look")
SILENCE = 60.0
"""Seconds after which an operation that is not answered is given up. It may have taken effect until then."""
SLOWEST = 20.0
"""Seconds that a slow operation takes. A lease that is renewed at intervals of 15 s does not end by it."""
Result = TypeVar("Result")


@dataclass(frozen=True)
class Kind:
    """What a kind of store allows itself."""

    name: str
    seconds: float
    """Mean time of an operation."""
    staleness: float = 0.0
    """Longest time for which a listing may lack what was written, or have what was deleted."""


OBJECTS = Kind("object store", 0.02)
SHARE = Kind("network share", 0.005, staleness=3.0)


@dataclass
class Faults:
    """How often operations fail. Each is a probability for an operation."""

    fail: float = 0.0
    """It fails without an effect."""
    lie: float = 0.0
    """It has its effect, and says that it failed."""
    silent: float = 0.0
    """It does not answer; it may take effect later."""
    slow: float = 0.0
    """It takes up to `SLOWEST` seconds."""
    outage: tuple[float, float] = (0.0, 0.0)
    """From when until when every operation fails."""


@dataclass
class Blob:
    data: bytes
    written: float
    """When it was created."""
    by: set[str]
    """The machines that created, wrote or deleted it, which see that at once."""
    deleted: float | None = None


@dataclass(eq=False)
class Client:
    """A process group that uses the store: a driver with its threads, or a node with its workers."""

    name: str
    dead: bool = False
    operations: int = 0
    die_at: tuple[int, bool] | None = None
    """Number of the operation at which it dies, and whether that still takes effect."""
    on_death: Callable[[], None] = lambda: None
    faulty: bool = True
    """Whether faults hit it."""
    slowness: float = 1.0
    """How much longer its operations take than others'."""
    preset: str = ""
    """The preset of its request, if it is a driver."""
    fresh: bool = False
    """Whether it is a driver that trains everything anew."""
    asleep: tuple[float, float] = (0.0, 0.0)
    """From when until when its machine sleeps."""
    asleep_at: tuple[int, float] | None = None
    """Number of the operation at which its machine falls asleep, and the seconds for which it sleeps."""
    late: set[str] = field(default_factory=set)
    """Paths of operations that are about to take effect late: its machine slept meanwhile, or it has given them up."""
    asked_at: float | None = None
    """When it got a signal."""
    command: str = ""
    """`rm` or `merge`, if it is no driver."""
    begun_at: float | None = None
    """When it had planned, if it is a driver. Until then somebody waits, so that nothing is tried again."""
    stopping: StopSignal | None = None
    """Takes the signals that it gets."""
    output: io.StringIO = field(default_factory=io.StringIO)
    """What it prints."""
    refused: bool = False
    """Whether a tracker has refused a call after its last line."""

    @property
    def machine(self) -> str:
        return self.name.partition(" ")[0]


@dataclass
class Memory:
    """The files, by path, and what happens to operations on them."""

    time: Time
    random: Random
    kind: Kind = OBJECTS
    faults: Faults = field(default_factory=Faults)
    blobs: dict[str, Blob] = field(default_factory=dict)
    watch: Callable[[Client, str, str], None] = lambda client, verb, path: None
    """Called after each operation that has changed something."""

    def operate(self, client: Client, verb: str, path: str, effect: Callable[[], Result]) -> Result:
        """An operation of a client."""
        process = self.time.current
        if client.dead or process.killed:
            raise Killed
        mutates = verb not in READS
        if mutates:
            client.operations += 1
            if client.asleep_at and client.asleep_at[0] == client.operations:
                client.asleep = self.time.now, self.time.now + client.asleep_at[1]
            if client.die_at and client.operations >= client.die_at[0]:
                if client.die_at[1]:
                    self._take_effect(client, verb, path, effect)
                self._die(client, f"{'after' if client.die_at[1] else 'before'} {verb} {path}")
        process.sleep(self.random.expovariate(1.0) * self.kind.seconds * client.slowness)
        while client.asleep[0] <= self.time.now < client.asleep[1]:
            client.late.add(path)
            process.sleep(client.asleep[1] - self.time.now)
        fault = self._fault(client) if client.faulty else ""
        if fault == "slow":
            process.sleep(self.random.uniform(1.0, SLOWEST))
        if fault:
            self.time.say(f"{client.name}: {verb} {path}: {fault}")
        if fault == "silent":
            if self.random.random() < 0.5 and mutates:
                late = self.random.uniform(0.0, SILENCE)
                self.time.begin("late", lambda: self._take_late_effect(client, verb, path, effect), after=late)
            until = self.time.now + SILENCE
            while self.time.now < until:  # a message that comes meanwhile does not end the wait
                process.sleep(until - self.time.now)
            raise NoAnswerError(f"no answer for {SILENCE:.0f} s")
        if fault in ("fail", "outage"):
            raise OSError(self.random.choice((errno.EIO, errno.ECONNRESET, errno.ETIMEDOUT)), "simulated")
        result = self._take_effect(client, verb, path, effect)
        if fault == "lie":
            raise OSError(errno.ECONNRESET, "simulated, and done")
        return result

    def _take_late_effect(self, client: Client, verb: str, path: str, effect: Callable[[], Result]) -> None:
        client.late.add(path)
        with contextlib.suppress(OSError):  # nobody waits for the answer: another may have deleted the file first
            self._take_effect(client, verb, path, effect)

    def _take_effect(self, client: Client, verb: str, path: str, effect: Callable[[], Result]) -> Result:
        result = effect()
        if verb not in READS:
            self.time.say(f"{client.name}: {verb} {path}")
            self.watch(client, verb, path)
        client.late.discard(path)
        return result

    def _fault(self, client: Client) -> str:
        faults, drawn = self.faults, self.random.random()
        if faults.outage[0] <= self.time.now < faults.outage[1]:
            return "outage"
        for name in ("fail", "lie", "silent", "slow"):
            drawn -= getattr(faults, name)
            if drawn < 0:
                return name
        return ""

    def _die(self, client: Client, where: str) -> None:
        self.time.say(f"{client.name}: dies {where}")
        client.dead = True
        client.on_death()
        raise Killed

    # What files there are

    def get(self, path: str) -> bytes | None:
        blob = self.blobs.get(path)
        return None if blob is None or blob.deleted is not None else blob.data

    def put(self, path: str, data: bytes, by: str = "") -> None:
        old = self.blobs.get(path)
        if old is None or old.deleted is not None:
            self.blobs[path] = Blob(data, self.time.now, {by})
        else:
            old.data = data
            old.by.add(by)

    def remove(self, path: str, by: str = "") -> None:
        if self.get(path) is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        if self.kind.staleness:
            self.blobs[path] = Blob(b"", self.blobs[path].written, {by}, self.time.now)
        else:
            del self.blobs[path]

    def paths(self, below: str = "", *, seen_by: str | None = None) -> dict[str, Blob]:
        """The files below a folder; as a listing shows them on a machine, or as they are."""
        prefix, found = f"{below}/" if below else "", {}
        for path, blob in self.blobs.items():
            if path.startswith(prefix):
                shown = blob.deleted is None
                changed = blob.written if blob.deleted is None else blob.deleted
                if seen_by is not None and seen_by not in blob.by and self.time.now - changed < self.kind.staleness:
                    lag = Random(f"{seen_by} {path} {changed}").random() * self.kind.staleness
                    shown = shown != (self.time.now - changed < lag)
                if shown:
                    found[path] = blob
        return found


class MemoryFilesystem:
    """What `Files` calls of a filesystem of pyarrow."""

    def __init__(self, memory: Memory, client: Client) -> None:
        self.memory, self._client = memory, client

    def _do(self, verb: str, path: str, effect: Callable[[], Result]) -> Result:
        return self.memory.operate(self._client, verb, path.removeprefix(f"{ROOT}/"), effect)

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, what: Any) -> Any:
        if isinstance(what, fs.FileSelector):
            return self._do("list", what.base_dir, lambda: self._listing(what.base_dir, what.recursive))
        if isinstance(what, list):
            return [self.get_file_info(each) for each in what]
        return self._do("look", what, lambda: self._info(what))

    def _info(self, path: str) -> fs.FileInfo:
        if (data := self.memory.get(path)) is not None:
            return fs.FileInfo(path, fs.FileType.File, size=len(data))
        kind = fs.FileType.Directory if self.memory.paths(path) else fs.FileType.NotFound
        return fs.FileInfo(path, kind)

    def _listing(self, folder: str, recursive: bool) -> list[fs.FileInfo]:
        infos: dict[str, fs.FileInfo] = {}
        for path, blob in self.memory.paths(
            folder, seen_by=self._client.machine if self._client.faulty else None
        ).items():
            name, _, rest = path[len(folder) + 1 :].partition("/")
            if rest and not recursive:
                infos.setdefault(name, fs.FileInfo(f"{folder}/{name}", fs.FileType.Directory))
            else:
                written = BEGINNING + timedelta(seconds=max(0.0, blob.written))
                infos[path] = fs.FileInfo(path, fs.FileType.File, size=len(blob.data), mtime=written)
        return list(infos.values())

    def open_input_file(self, path: str) -> Reading:
        data = self._do("read", path, lambda: self.memory.get(path))
        if data is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return Reading(data)

    def open_output_stream(self, path: str) -> Writing:
        return Writing(lambda data: self._do("write", path, lambda: self.memory.put(path, data, self._client.machine)))

    def delete_file(self, path: str) -> None:
        self._do("delete", path, lambda: self.memory.remove(path, self._client.machine))

    def delete_dir(self, path: str) -> None:
        paths = self._do("list", path, lambda: list(self.memory.paths(path)))
        if not paths:
            raise FileNotFoundError(errno.ENOENT, "no such folder", path)
        for each in paths:  # not at once
            self.delete_file(each)

    def move(self, old: str, new: str) -> None:
        """A copy, then a deletion."""
        data = self.memory.get(old)
        if data is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", old)
        self._do("write", new, lambda: self.memory.put(new, data, self._client.machine))
        self._do("delete", old, lambda: self.memory.remove(old, self._client.machine))


class Reading:
    """An open file."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __enter__(self) -> Reading:
        return self

    def __exit__(self, *_: object) -> None: ...

    def size(self) -> int:
        return len(self._data)

    def read(self, size: int) -> bytes:
        part, self._data = self._data[:size], self._data[size:]
        return part


class Writing:
    """An object that is written when it is closed, as in an object store."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write, self._data = write, b""

    def __enter__(self) -> Writing:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._write(self._data)

    def write(self, data: bytes) -> None:
        self._data += data


class SimulatedFiles(Files):
    """The files of a world, as one client sees them."""

    def __init__(self, memory: Memory, client: Client, runtime: Runtime, root: str = ROOT) -> None:
        """`root`: the folder of the store, beside which there may be others."""
        super().__init__(f"{BUCKET}{root}", runtime=runtime)
        self._filesystem, self._root = MemoryFilesystem(memory, client), root

    def of(self, client: Client) -> SimulatedFiles:
        """The same store, as another client sees it."""
        files = copy.copy(self)
        files._filesystem, files._opened = MemoryFilesystem(self._filesystem.memory, client), None
        return files

    def _open_anew(self) -> Any:
        return self._filesystem, self._root

    def _call_remotely(self, operation: Callable[[], Result], deadline: float) -> Result:
        return operation()  # in the same process: only its silence is simulated


def contents(memory: Memory) -> Mapping[str, bytes]:
    """Path in the store -> content."""
    return {path.removeprefix(f"{ROOT}/"): blob.data for path, blob in memory.paths(ROOT).items()}
