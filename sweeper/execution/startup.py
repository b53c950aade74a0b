"""How a process starts and ends sooner: imports in a thread, garbage collection after them, and a quick exit."""

import atexit
import contextlib
import gc
import importlib
import os
import pkgutil
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import NoReturn

from sweeper.execution.signals import exit_at_signals


@contextlib.contextmanager
def imported_meanwhile(modules: Sequence[str]) -> Iterator[None]:
    """Context at whose end the modules are imported. One that cannot be imported raises its error when it is used."""
    thread = threading.Thread(target=_import, args=(modules,), name="imports", daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def import_all(packages: Sequence[str]) -> None:
    """Import every module of the packages. One that cannot be imported raises its error when it is used."""
    for package in packages:
        found = pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}.")
        _import([module.name for module in found if not module.name.endswith(".__main__")])


def _import(modules: Sequence[str]) -> None:
    for module in modules:
        with contextlib.suppress(Exception):
            importlib.import_module(module)


def delay_collection() -> None:
    """Collect no garbage until `begin_collection`. During imports the collector finds next to nothing and costs a fifth
    of the time."""
    gc.disable()


def begin_collection() -> None:
    """Collect garbage from now on, but never look at what exists already. Does nothing if the collection runs, as where
    another program has called the command line."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()


def end_process(status: int) -> NoReturn:
    """End this process as `sys.exit(status)` does, with what was registered for the exit, but leave its objects to the
    operating system: to take PyTorch and Ray apart takes Python a second or two.

    A signal ends it at once with the same status, and calls to a store that does not answer are not waited for.
    """
    exit_at_signals(status, "")
    if filesystems := sys.modules.get("pyarrow.fs"):
        with contextlib.suppress(AttributeError):
            atexit.unregister(filesystems.ensure_s3_finalized)  # it waits until all calls have returned
    threading._shutdown()  # type: ignore[attr-defined]  # joins threads, and lets idle thread pools end before
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # nobody reads it any more
            stream.flush()
    os._exit(status)
