"""The compiled steps of this user on this machine: shared libraries in a folder of the user's own.

They are machine code, so they are neither written to a store nor read from one: each machine compiles for itself.
"""

import contextlib
import fcntl
import functools
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from trainables.learners.compiled.library import SharedLibrary
from trainables.training.compilation.build import OPERATIONS, RECORD, send
from trainables.training.compilation.loaded_code import environment, is_unchanged
from trainables.training.compilation.task import StepTask

SCRATCH = "compiler"
"""Folder of the compiler's own files, within that of the libraries."""
ABANDONED = 3600.0
"""Seconds after which files of a compilation that did not end are deleted."""
TURN = 0.05
"""Seconds between two looks at a compilation that is under way."""


class CompilationError(Exception):
    """A step that cannot be compiled, in one line that says why."""


def default_folder() -> Path:
    """`sweeper/steps` in `XDG_CACHE_HOME`, which is `~/.cache` by default."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sweeper" / "steps"


@dataclass(frozen=True)
class LibraryFolder:
    """A folder of libraries, with mode 0700."""

    path: Path

    def find(self, task: StepTask) -> SharedLibrary | None:
        """Return the library of a step; None if it is to be compiled. Raises CompilationError where it is known that it
        cannot be, or where another user could have written the folder."""
        library = self._library(task)
        try:
            self._check_owner()
            record = json.loads(library.with_suffix(RECORD).read_text())
            if not is_unchanged(record["code"]):
                return None
            error, parts, operations = record.get("error"), tuple(record.get("parts", ())), record.get("operations")
        except (OSError, ValueError, KeyError, TypeError, AttributeError):  # there is none, or it is damaged
            return None
        if error:
            raise CompilationError(error)
        needed = (library, library.with_suffix(OPERATIONS)) if operations else (library,)
        return SharedLibrary(library, parts) if all(path.exists() for path in needed) else None

    def find_or_compile(self, task: StepTask, wait: Callable[[], None] = lambda: None) -> SharedLibrary:
        """Return the library of a step, compiled first if it has to be.

        Of several processes that need it one compiles it, and the others wait. `wait` is called all the while; if it
        raises, the compilation ends. Raises CompilationError.
        """
        found = self.find(task)
        if found:
            return found
        if not shutil.which(os.environ.get("CXX", "g++")):
            raise CompilationError("there is no C++ compiler (g++) on this machine")
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            with _locked(self._library(task).with_suffix(".lock"), wait):
                if not self.find(task):
                    self._compile(task, wait)
            found = self.find(task)
        except OSError as error:
            raise CompilationError(f"{self.path} cannot be used: {error.strerror or error}") from error
        if not found:
            raise CompilationError("the code of a step was changed while it was compiled")
        return found

    def _library(self, task: StepTask) -> Path:
        return self.path / f"{task.digest(_environment())}.so"

    def _check_owner(self) -> None:
        """Raise CompilationError if anyone else can write to the folder: what is in it is executed."""
        status = self.path.stat()
        if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o022:
            raise CompilationError(f"{self.path} must belong to you and be writable for no one else")

    def _compile(self, task: StepTask, wait: Callable[[], None]) -> None:
        """Compile a step in a process of its own."""
        scratch = self.path / SCRATCH
        scratch.mkdir(mode=0o700, exist_ok=True)
        for left in scratch.glob("tmp*"):  # by a process that was killed
            if time.time() - left.stat().st_mtime > ABANDONED:
                shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryFile() as errors, tempfile.TemporaryDirectory(dir=scratch) as outputs:
            with _started([str(self._library(task)), outputs], scratch, errors) as process:
                assert process.stdin
                send(task, process.stdin)
                while process.poll() is None:
                    _sleep(wait)
            if process.returncode < 0:
                name = signal.Signals(-process.returncode).name
                raise CompilationError(
                    f"a step was not compiled: {name} ended the compiler, perhaps for lack of memory"
                )
            if process.returncode:
                errors.seek(0)
                lines = errors.read().decode(errors="replace").strip().splitlines()
                raise CompilationError(f"a step cannot be compiled: {(lines or ['no reason was given'])[-1]}")


@contextlib.contextmanager
def _started(arguments: list[str], scratch: Path, errors: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process that builds a library, and end it and all compilers that it started. PyTorch keeps precompiled
    headers in `scratch`, which the next compilation needs again."""
    options = {"TORCHINDUCTOR_CACHE_DIR": str(scratch), "TMPDIR": str(scratch), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "trainables.training.compilation.build", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        env=os.environ | options | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdin:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()


@contextlib.contextmanager
def _locked(path: Path, wait: Callable[[], None]) -> Iterator[None]:
    """Hold the lock of a file. A process that dies lets go of it."""
    with path.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                _sleep(wait)
        yield


def _sleep(wait: Callable[[], None]) -> None:
    wait()
    time.sleep(TURN)


_environment = functools.cache(environment)
