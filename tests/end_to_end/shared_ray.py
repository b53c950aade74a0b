"""One Ray for all sweeps of a module that need no process of their own: they run in this process, connected to it.

A sweep in a process of its own imports PyTorch and Ray and starts a cluster, which takes longer than its training.
"""

import contextlib
import io
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import sweeper.run as run
from sweeper.execution import session
from tests.end_to_end.poisons import BETA, POISON
from tests.end_to_end.sweeps import Outcome


class SharedRay:
    """Runs sweeps. Trials with a nu of `tests.end_to_end.poisons` or a beta above `poison_above` are poisoned."""

    def __init__(self, poison_file: Path) -> None:
        self._poison_file = poison_file

    def run(self, store: Path | str, *arguments: str, name: str = "anomaly_grid", preset: str = "digits") -> Outcome:
        """Run `python -m sweeper.run NAME --preset PRESET --store STORE ARGUMENTS`, without a new process."""
        begun, out, err = time.monotonic(), io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = run.main([name, "--preset", preset, "--store", str(store), *arguments])
        return Outcome(status, out.getvalue(), err.getvalue(), time.monotonic() - begun)

    @contextlib.contextmanager
    def poison_above(self, beta: float) -> Iterator[None]:
        self._poison_file.write_text(str(beta))
        try:
            yield
        finally:
            self._poison_file.unlink()


@contextlib.contextmanager
def shared_ray(folder: Path, cores: int = 1) -> Iterator[SharedRay]:
    """Connect this process to a local Ray with `cores` cores. `folder` must be empty."""
    init_arguments, poison = session._init_arguments, folder / "poison"
    with pytest.MonkeyPatch.context() as patched, contextlib.ExitStack() as stack:
        with pytest.MonkeyPatch.context() as started:  # what Ray's processes inherit, and no others
            started.setattr(session, "_init_arguments", lambda *options: init_arguments(*options) | {"num_cpus": cores})
            for name, value in {"PYTHONPATH": POISON, BETA: str(poison), "OMP_NUM_THREADS": "1"}.items():
                started.setenv(name, value)
            scratch = stack.enter_context(session.connected(None))
        patched.setattr(run, "connected", lambda *_, **__: contextlib.nullcontext(scratch))
        yield SharedRay(poison)
