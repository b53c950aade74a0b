"""A connection of this process to Ray, made and ended in a thread of its own.

So Ray starts while the main thread imports what a sweep needs, and ends while it draws the results.
"""

from __future__ import annotations

import contextlib
import gc
import os
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

from sweeper.errors import ClusterError, first_line
from sweeper.execution.driver.ray_environment import environment_of_workers, quiet_loggers, set_environment
from sweeper.execution.driver.ray_token import make_token
from sweeper.execution.driver.scratch import scratch_folder
from sweeper.execution.process.signal_disposition import kept_disposition
from sweeper.packing.profiling.cluster import is_local
from sweeper.spec import user_code


class RaySession:
    """Context manager that ends the connection, if `begin` was called.

    The thread lives as long as the connection does. The processes of a local cluster would not survive it: the system
    kills them with the thread that started them.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._settled, self._over = threading.Event(), threading.Event()
        self._scratch, self._error = "", ""
        self._restore_gc = False

    def begin(self, address: str | None, trials: int = 0) -> None:
        """Begin to join the cluster at `address`, or to start a local one, for this many trials, if that is None or
        `local`. Returns at once."""
        set_environment(is_local(address))
        self._thread = threading.Thread(target=self._run, args=(address, trials), name="ray", daemon=True)
        self._thread.start()

    def wait(self) -> str:
        """Wait until Ray can be used, and return a folder of this machine for its scratch files. Raises ClusterError if
        Ray cannot be started or joined."""
        self._settled.wait()
        if self._error:
            raise ClusterError(self._error)
        return self._scratch

    def end(self) -> None:
        """Begin to end the connection, and with it a local cluster. Returns at once.

        Garbage is not collected until that is done: among it are references to objects of Ray, whose end is told to a
        Ray that is half ended, which then ends this process.
        """
        if self._thread and not self._over.is_set() and gc.isenabled():
            self._restore_gc = True
            gc.disable()
        self._over.set()

    def __enter__(self) -> RaySession:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.end()
        if self._thread:
            self._thread.join()
        self._collect_again()  # if the thread had ended before

    def _run(self, address: str | None, trials: int) -> None:
        try:
            import ray  # noqa: F401 (it sets its loggers' levels)

            with contextlib.ExitStack() as stack:
                stack.enter_context(quiet_loggers())
                if is_local(address):
                    stack.enter_context(environment_of_workers(trials))
                self._scratch = str(stack.enter_context(scratch_folder()))
                stack.callback(_shut_down)
                _start_or_join(address, self._scratch)
                self._settled.set()
                self._over.wait()
        except ClusterError as error:
            self._error = str(error)
        except Exception as error:
            self._error = f"cannot use Ray: {first_line(error, type(error).__name__)}"
        finally:
            self._settled.set()
            self._collect_again()

    def _collect_again(self) -> None:
        if self._restore_gc:
            self._restore_gc = False
            gc.enable()


def _start_or_join(address: str | None, scratch: str) -> None:
    """Start a local cluster, or join the one at `address`. Raises ClusterError if that fails."""
    import ray

    from sweeper.execution.driver.local_node import lean_start  # here: it imports Ray

    if is_local(address):
        make_token(Path.home(), os.environ)
    try:
        with kept_disposition(), lean_start() if is_local(address) else contextlib.nullcontext():
            ray.init(log_to_driver=False, configure_logging=False, **_init_arguments(address, scratch))
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        what = "start Ray here" if is_local(address) else f"join the Ray cluster at {address}"
        raise ClusterError(f"cannot {what}: {first_line(error, type(error).__name__)}") from error


def _shut_down() -> None:
    """Call `ray.shutdown`."""
    import ray

    with kept_disposition():
        ray.shutdown()


def _init_arguments(address: str | None, scratch: str) -> dict[str, Any]:
    """Return the arguments of `ray.init`. A local cluster has no dashboard.

    A cluster elsewhere is sent the user's modules and our code, which the working directory of a Ray job has already.
    """
    if is_local(address):
        return {"address": "local", "include_dashboard": False, "_temp_dir": scratch}
    modules = [*user_code.modules()]
    if address == os.environ.get("RAY_ADDRESS"):
        modules = [module for module in modules if Path(module).parent != Path.cwd()]
    else:
        modules += [str(Path(__file__).parents[3] / name) for name in user_code.WORKER_PACKAGES]
    return {"address": address, "runtime_env": {"py_modules": modules}} if modules else {"address": address}
