"""How long Ray takes to start, within whatever connects to it."""

import contextlib
import time
from collections.abc import Iterator, Sequence

from sweeper.execution import session as cluster


@contextlib.contextmanager
def timed(address: str | None, meanwhile: Sequence[str] = (), *, started: list[float]) -> Iterator[str]:
    """`cluster.connected`, adding the seconds of its start to `started`."""
    begun = time.perf_counter()
    with cluster.connected(address, meanwhile) as scratch:
        started.append(time.perf_counter() - begun)
        yield scratch
