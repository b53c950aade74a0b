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
from tests.end_to_end.poisons import POISON
from tests.end_to_end.sweeps import Outcome


class SharedRay:
    """Runs sweeps. Trials with a nu of `tests.end_to_end.poisons` are poisoned."""

    def run(self, store: Path | str, *arguments: str, name: str = "anomaly_grid", preset: str = "digits") -> Outcome:
        """Run `python -m sweeper.run NAME --preset PRESET --store STORE ARGUMENTS`, without a new process."""
        begun, out, err = time.monotonic(), io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = run.main([name, "--preset", preset, "--store", str(store), *arguments])
        return Outcome(status, out.getvalue(), err.getvalue(), time.monotonic() - begun)


@contextlib.contextmanager
def shared_ray() -> Iterator[SharedRay]:
    """Connect this process to a local Ray with one core."""
    init_arguments = session._init_arguments
    with pytest.MonkeyPatch.context() as patched, contextlib.ExitStack() as stack:
        with pytest.MonkeyPatch.context() as started:  # what Ray's processes inherit, and no others
            started.setattr(session, "_init_arguments", lambda *options: init_arguments(*options) | {"num_cpus": 1})
            for name, value in {"PYTHONPATH": POISON, "OMP_NUM_THREADS": "1"}.items():
                started.setenv(name, value)
            scratch = stack.enter_context(session.connected(None))
        patched.setattr(run, "connected", lambda *_, **__: contextlib.nullcontext(scratch))
        yield SharedRay()
