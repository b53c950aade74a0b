"""Imports modules in a thread while the main thread waits for something else, such as Ray's start."""

import contextlib
import importlib
import threading
from collections.abc import Iterator, Sequence


@contextlib.contextmanager
def imported_meanwhile(modules: Sequence[str]) -> Iterator[None]:
    """Context at whose end the modules are imported. One that cannot be imported raises its error when it is used."""
    thread = threading.Thread(target=_import, args=(modules,), name="imports", daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def _import(modules: Sequence[str]) -> None:
    for module in modules:
        with contextlib.suppress(Exception):
            importlib.import_module(module)
