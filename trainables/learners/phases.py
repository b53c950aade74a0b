"""The named parts of a training step, so that a profile can show where its time goes."""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

PARTS = {
    "data": "batches and their views, noise",
    "forward": "forward and loss",
    "backward": "backward",
    "optimiser": "optimiser, averaged weights and queues",
}
"""Name of a part -> what it does. For a method without gradients, `forward` contains the fit."""

Observer = Callable[[str], AbstractContextManager[object]]
"""Makes the context for the part with this name."""

_NOTHING = contextlib.nullcontext()
_observers: list[Observer] = []
"""Stack of observers; the last one is active."""


def part_of_step(name: str) -> AbstractContextManager[object]:
    """Context for a part of a step, one of `PARTS`. Does nothing unless steps are observed."""
    return _observers[-1](name) if _observers else _NOTHING


@contextlib.contextmanager
def observed(observer: Observer) -> Iterator[None]:
    """Context in which the parts of this process's eager steps run in contexts from the observer."""
    _observers.append(observer)
    try:
        yield
    finally:
        _observers.pop()
