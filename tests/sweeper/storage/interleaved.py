"""Several drivers in threads, of which one at a time does one operation on the store, in an order that a seed gives."""

import os
import random
import threading
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from sweeper.storage.files import Files

STEPS = ("read", "write", "delete", "list_files", "list_versions")
"""The operations on a store between which other drivers go on."""


class Killed(BaseException):
    """Ends a driver between two operations, as SIGKILL does."""


class Interleaving:
    """Runs drivers on the store in `folder`."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder, self._choice = folder, random.Random(seed)
        self._turns: dict[str, threading.Semaphore] = {}
        self._waiting = threading.Semaphore(0)
        """Counts drivers that have come to their next operation, or to their end."""
        self._errors: list[BaseException] = []
        self.steps = 0
        """Operations so far."""
        self.kill_at: dict[int, str] = {}
        """Number of an operation -> a driver that is killed instead, if it is its turn from then on."""
        self.killed: set[str] = set()

    def run(self, drivers: Mapping[str, Callable[[str, Files, random.Random], None]]) -> None:
        """Call each driver with its name, its files and its random numbers. Raises the first error of one."""
        threads = {}
        for name, drive in drivers.items():
            self._turns[name] = threading.Semaphore(0)
            choice = random.Random(self._choice.random())
            threads[name] = threading.Thread(target=self._drive, args=(name, drive, choice), daemon=True)
        for thread in threads.values():
            thread.start()
            self._waiting.acquire()
        while self._turns:
            self._turns[self._choice.choice(sorted(self._turns))].release()
            self._waiting.acquire()
        for thread in threads.values():
            thread.join()
        if self._errors:
            raise self._errors[0]

    def pause(self, name: str) -> None:
        """Let the other drivers go on. Raises Killed if this one is to die here."""
        turn = self._turns[name]
        self._waiting.release()
        turn.acquire()
        self.steps += 1
        if any(victim == name and self.steps >= step for step, victim in self.kill_at.items()):
            self.killed.add(name)
            raise Killed

    def _drive(self, name: str, drive: Callable[[str, Files, random.Random], None], choice: random.Random) -> None:
        files = Files(self._folder)
        files.write = partial(_write_fast, self._folder)  # type: ignore[method-assign]
        for step in STEPS:
            setattr(files, step, self._gated(name, getattr(files, step)))
        files.with_retries = lambda *_: files  # type: ignore[method-assign]
        try:
            self.pause(name)
            drive(name, files, choice)
        except Killed:
            pass
        except BaseException as error:
            self._errors.append(error)
        finally:
            del self._turns[name]
            self._waiting.release()

    def _gated(self, name: str, operation: Callable[..., Any]) -> Callable[..., Any]:
        def gated(*arguments: Any) -> Any:
            self.pause(name)
            return operation(*arguments)

        return gated


def _write_fast(folder: Path, path: str, data: bytes) -> None:
    """Write a file atomically, as `Files.write` does, but do not wait for the disk."""
    target, temporary = folder / path, folder / f".{uuid.uuid4().hex}"
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary.write_bytes(data)
    os.replace(temporary, target)
