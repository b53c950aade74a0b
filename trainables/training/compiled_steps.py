"""This user's compiled steps on this machine: shared libraries in a private folder. `StepCompiler` finds or makes the
steps of a cohort; without them the cohort trains with eager steps.

Libraries are machine code, so they are neither written to a store nor read from a store: each machine compiles for
itself. A library is loaded only if it has the hash in its record, because a damaged library would crash the process.

For comparison, with PyTorch's own cache for `torch.compile` (VJE with the MLP on `digits`, one core, PyTorch 2.14) a
step takes 1.49 instead of 1.38 ms, the first step of a process 5.7 instead of 0.02 CPU seconds, and the process 250 MB
more, because every training process loads tracing and the compiler.
"""

import contextlib
import fcntl
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from trainables.cache import OpenFolderError, cache_folder, check_closed, make_closed
from trainables.contract import Shapes
from trainables.learners.compiled import FindLibrary, Library, SharedLibrary, StepShape
from trainables.sections import TrialConfig
from trainables.training.compile_step import RECORD, StepTask, environment, error_line, file_hash, is_unchanged, send

SCRATCH = "compiler"
"""Folder of the compiler's own files, within the folder of libraries."""
ABANDONED = 3600.0
"""Seconds after which files of an unfinished compilation are deleted."""
TURN = 0.05
"""Seconds between two checks of a running compilation."""


class CompilationError(Exception):
    """A step cannot be compiled. The message is one line with the reason."""


def default_folder() -> Path:
    """`steps` in the user's cache folder."""
    return cache_folder() / "steps"


@dataclass(frozen=True)
class LibraryFolder:
    """A folder of libraries, with mode 0700."""

    path: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", Path(os.path.realpath(self.path)))  # a link could be changed after a check

    def find(self, task: StepTask, notify: Callable[[str], None] = lambda line: None) -> SharedLibrary | None:
        """Return the library of a step; None if it must be compiled. `notify` is called with a line if this is because
        the library is damaged. Raises CompilationError if the step is known not to compile, or if another user could
        have written the folder."""
        library = self._library(task)
        with self._used():
            check_closed(self.path)
        try:
            record = json.loads(library.with_suffix(RECORD).read_text())
            if not is_unchanged(record["code"]):
                return None
            error, parts, digests = record.get("error"), tuple(record.get("parts", ())), dict(record["digests"])
            whole = error or all(file_hash(str(self.path / name)) == digest for name, digest in digests.items())
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            whole = False
        if not whole or not (error or library.name in digests):
            notify(f"the compiled step {library} is damaged, so it is compiled again")
            return None
        if error:
            raise CompilationError(error)
        return SharedLibrary(library, parts)

    def find_or_compile(
        self,
        task: StepTask,
        wait: Callable[[], None] = lambda: None,
        notify: Callable[[str], None] = lambda line: None,
    ) -> SharedLibrary:
        """Return the library of a step, compiling it first if necessary.

        If several processes need it, one compiles it and the others wait. `wait` is called repeatedly; if it raises,
        the compilation ends. `notify`: as in `find`. Raises CompilationError.
        """
        found = self.find(task, notify)
        if found:
            return found
        if not shutil.which(os.environ.get("CXX", "g++")):
            raise CompilationError("there is no C++ compiler (g++) on this machine")
        with self._used():
            make_closed(self.path)
            with _locked(self._library(task).with_suffix(".lock"), wait):
                if not self.find(task):
                    self._compile(task, wait)
            found = self.find(task)
        if not found:
            raise CompilationError("the code of a step was changed while it was compiled")
        return found

    @contextlib.contextmanager
    def _used(self) -> Iterator[None]:
        """Context that raises CompilationError if the folder must not or cannot be used."""
        try:
            yield
        except OpenFolderError as error:
            raise CompilationError(str(error)) from error
        except OSError as error:
            raise CompilationError(f"{self.path} cannot be used: {error.strerror or error}") from error

    def _library(self, task: StepTask) -> Path:
        return self.path / f"{task.digest(_environment())}.so"

    def _compile(self, task: StepTask, wait: Callable[[], None]) -> None:
        """Compile a step in its own process."""
        scratch = self.path / SCRATCH
        scratch.mkdir(mode=0o700, exist_ok=True)
        for left in scratch.glob("tmp*"):  # left by a killed process
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
                lines = errors.read().decode(errors="replace").strip().splitlines() or ["no reason was given"]
                killed = [line for line in lines if "signal terminated program" in line]  # g++, on its own compiler
                raise CompilationError(f"a step cannot be compiled: {(killed or lines)[-1]}")


@contextlib.contextmanager
def _started(arguments: list[str], scratch: Path, errors: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process that builds a library; at the end, end it and all compilers that it started. PyTorch keeps
    precompiled headers in `scratch`, which the next compilation reuses."""
    options = {"TORCHINDUCTOR_CACHE_DIR": str(scratch), "TMPDIR": str(scratch), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "trainables.training.compile_step", *arguments],
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
    """Hold a file's lock, which is released if the process dies."""
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


_libraries: dict[tuple[object, ...], Library] = {}
"""Cache of the libraries that this process has found, by folder and step, because it trains many cohorts of the same
shapes."""


class StepCompiler:
    """Compiles the steps of one cohort after another."""

    def __init__(
        self,
        notify: Callable[[str], None] = lambda line: None,
        folder: LibraryFolder | None = None,
        *,
        build: bool = True,
    ) -> None:
        """`notify` is called with a line for the user: once if steps cannot be compiled, and for each damaged compiled
        step. `build=False` only finds steps that were compiled before."""
        self._notify, self._folder, self._build = notify, folder or LibraryFolder(default_folder()), build
        self._found, self._failed = False, False

    @property
    def compiled(self) -> bool:
        """Whether at least one step has run and all steps so far were compiled."""
        return self._found and not self._failed

    def finder(self, config: TrialConfig, shapes: Shapes, wait: Callable[[], None]) -> FindLibrary:
        """Return the function that finds the libraries of a cohort whose members are like `config`. `wait` is called
        while a library is compiled, and may raise to end the compilation."""

        def find(step: StepShape) -> Library | None:
            task = StepTask.of(config, shapes, step)
            key = (self._folder.path, config.method, task.digest([]))
            try:
                if key not in _libraries:
                    _libraries[key] = self._library(task, wait)
            except CompilationError as error:
                if not self._failed:
                    self._notify(f"steps are not compiled: {error}")
                self._failed = True
                return None
            self._found = True
            return _libraries[key]

        return find

    def _library(self, task: StepTask, wait: Callable[[], None]) -> Library:
        found = self._folder.find_or_compile(task, wait, self._notify) if self._build else self._folder.find(task)
        if not found:
            raise CompilationError("they have not been compiled before")
        try:
            found.load(task.step.device)
        except RuntimeError as error:
            raise CompilationError(f"a compiled step cannot be loaded: {error_line(error)}") from error
        return found
