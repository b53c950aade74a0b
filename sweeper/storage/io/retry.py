"""Retries of storage operations with exponential backoff, for errors that may be transient."""

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
"""Error numbers of transient failures, such as a full disk, an unmounted folder or a server that is down."""
_LASTING = re.compile(
    "ACCESS_DENIED|NO_SUCH_|INVALID_|SIGNATURE|UNRECOGNIZED_CLIENT|MISSING_|OPT_IN_REQUIRED|REQUEST_TIME_TOO_SKEWED"
    "|PERMISSION_DENIED|UNAUTHENTICATED|NOT_FOUND|FAILED_PRECONDITION|does not exist|HTTP status 4(?!08|09|25|29)"
)
"""Object stores report errors as text without a number. This pattern finds those that do not pass, such as a missing
bucket or a lack of permission."""
Result = TypeVar("Result")


@dataclass(frozen=True)
class RetryPolicy:
    """How long and how often to retry."""

    seconds: float
    """Seconds from the first failure during which to retry; 0 means a single attempt."""
    first: float = 0.25
    """Seconds before the second attempt. The wait doubles each time, and a random part of up to half is subtracted."""
    longest: float = 8.0
    """Maximum wait between two attempts, in seconds."""


ONCE = RetryPolicy(0.0)
"""For operations whose result a person is waiting for."""
LONG = RetryPolicy(60.0)
"""For operations whose failure would lose hours of training."""
BRIEF = RetryPolicy(2.0)
"""For operations that block training."""


def may_pass(error: BaseException) -> bool:
    """Return whether the error, if it is an OSError, or else the OSError that caused it, may be transient."""
    cause = error if isinstance(error, OSError) else error.__cause__
    if not isinstance(cause, OSError):
        return False
    return cause.errno in PASSING if cause.errno else not _LASTING.search(str(cause))


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
    """Call `act` until it succeeds, and return its result.

    Raises its exception if that is not transient, or when the policy's time is up. `waiting` is called once, with the
    first exception; `went_on` is called after a later success, with the seconds since that exception. `clock`, `sleep`
    and `draw` (a random number in [0, 1)) are parameters for tests.
    """
    first_failure: float | None = None
    wait = patience.first
    while True:
        try:
            result = act()
        except Exception as error:
            now = clock()
            left = patience.seconds - (0.0 if first_failure is None else now - first_failure)
            if left <= 0 or not may_pass(error):
                raise
            if first_failure is None:
                first_failure = now
                waiting(error)
        else:
            if first_failure is not None:
                went_on(clock() - first_failure)
            return result
        sleep(min(left, wait * (1.0 - 0.5 * draw())))
        wait = min(2 * wait, patience.longest)
