"""The parts of a training step by name, so that a profile can say where its time goes."""

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

PARTS = {
    "data": "batches and their views, noise",
    "forward": "forward and loss",
    "backward": "backward",
    "optimiser": "optimiser, averaged weights and queues",
}
"""Name of a part -> what it does. A method without gradients has its fit in `forward`."""

Observer = Callable[[str], AbstractContextManager[object]]
"""Makes the context of a part that it is given the name of."""

_NOTHING = contextlib.nullcontext()
_observers: list[Observer] = []
"""The last of them observes."""


def part_of_step(name: str) -> AbstractContextManager[object]:
    """Context of a part of a step, one of `PARTS`. It does nothing unless steps are observed."""
    return _observers[-1](name) if _observers else _NOTHING


@contextlib.contextmanager
def observed(observer: Observer) -> Iterator[None]:
    """Context in which the parts of eager steps of this process run in contexts of the observer."""
    _observers.append(observer)
    try:
        yield
    finally:
        _observers.pop()
