"""Trying again, further and further apart, while something fails that may pass."""

from __future__ import annotations

import errno
import random
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

PASSING = frozenset(
    getattr(errno, name)
    for name in (
        *("EIO", "ENOSPC", "EDQUOT", "EAGAIN", "EINTR", "EBUSY", "ENOMEM", "ENOBUFS", "EMFILE", "ENFILE", "ENOLCK"),
        *("ESTALE", "EREMOTEIO", "EROFS", "ENOTCONN", "ESHUTDOWN", "EPIPE", "ETIMEDOUT", "ECONNREFUSED", "ECONNRESET"),
        *("ECONNABORTED", "ENETDOWN", "ENETUNREACH", "ENETRESET", "EHOSTDOWN", "EHOSTUNREACH"),
    )
    if hasattr(errno, name)
)
"""What a disk or a network recovers from: a full disk that is cleared, a folder that is mounted again, a server that is
started again."""
_LASTING = re.compile(
    "ACCESS_DENIED|NO_SUCH_|INVALID_|SIGNATURE|UNRECOGNIZED_CLIENT|MISSING_|OPT_IN_REQUIRED|REQUEST_TIME_TOO_SKEWED"
    "|PERMISSION_DENIED|UNAUTHENTICATED|NOT_FOUND|FAILED_PRECONDITION|does not exist|HTTP status 4(?!08|09|25|29)"
)
"""In the texts of object stores, which have no number, what stays as it is: no such bucket, no right to it."""
Result = TypeVar("Result")


@dataclass(frozen=True)
class RetryPolicy:
    """How long to try again."""

    seconds: float
    """From the first failure; 0 tries once."""
    first: float = 0.25
    """Seconds before the second attempt; twice as long each time, less up to half by chance."""
    longest: float = 8.0
    """Seconds between two attempts, at most."""


ONCE = RetryPolicy(0.0)
"""Where somebody awaits the answer."""
LONG = RetryPolicy(60.0)
"""Where hours of training hang on it."""
BRIEF = RetryPolicy(2.0)
"""Where training waits meanwhile."""


def may_pass(error: BaseException) -> bool:
    """Whether what the storage says, or what was the cause of the error, can be otherwise in a while."""
    said = error if isinstance(error, OSError) else error.__cause__
    if not isinstance(said, OSError):
        return False
    return said.errno in PASSING if said.errno else not _LASTING.search(str(said))


def insist(
    act: Callable[[], Result],
    patience: RetryPolicy,
    waiting: Callable[[Exception], None],
    went_on: Callable[[float], None],
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    draw: Callable[[], float] = random.random,
) -> Result:
    """What `act` returns, in the end; its exception where that may not pass, or is still there when patience ends.

    `waiting` is told the first exception, `went_on` the seconds that it took.
    """
    begun: float | None = None
    wait = patience.first
    while True:
        try:
            result = act()
        except Exception as error:
            now = clock()
            left = patience.seconds - (0.0 if begun is None else now - begun)
            if left <= 0 or not may_pass(error):
                raise
            if begun is None:
                begun = now
                waiting(error)
        else:
            if begun is not None:
                went_on(clock() - begun)
            return result
        sleep(min(left, wait * (1.0 - 0.5 * draw())))
        wait = min(2 * wait, patience.longest)
