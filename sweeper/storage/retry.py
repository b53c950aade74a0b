"""Retries of storage operations with exponential backoff, for errors that may be transient.

Calls to a store that is reached over a network, which can be silent for minutes.

pyarrow waits in C++, where no signal reaches Python. So each call is made in a thread of its own, and the caller waits
for it in Python.
"""

from __future__ import annotations

import errno
import os
import random
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception, wait_exponential

TRANSIENT_ERRNOS = frozenset(
    getattr(errno, name)
    for name in (
        *("EIO", "ENOSPC", "EDQUOT", "EAGAIN", "EINTR", "EBUSY", "ENOMEM", "ENOBUFS", "EMFILE", "ENFILE", "ENOLCK"),
        *("ESTALE", "EREMOTEIO", "EROFS", "ENOTCONN", "ESHUTDOWN", "EPIPE", "ETIMEDOUT", "ECONNREFUSED", "ECONNRESET"),
        *("ECONNABORTED", "ENETDOWN", "ENETUNREACH", "ENETRESET", "EHOSTDOWN", "EHOSTUNREACH"),
    )
    if hasattr(errno, name)
)
"""Error numbers of transient failures, such as a full disk, an unmounted folder or a server that is down."""
_PERMANENT = re.compile(
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
    """Seconds from the start of the first attempt that failed, during which to retry; 0 means a single attempt."""
    first_wait: float = 0.25
    """Seconds before the second attempt. The wait doubles each time, and a random part of up to half is subtracted."""
    longest_wait: float = 8.0
    """Maximum wait between two attempts, in seconds."""


NO_RETRIES = RetryPolicy(0.0)
"""For operations whose result a person is waiting for."""
LONG_RETRIES = RetryPolicy(60.0)
"""For operations whose failure would lose hours of training."""
SHORT_RETRIES = RetryPolicy(2.0)
"""For operations that block training."""
STORE_TIMEOUT = "SWEEPER_STORE_TIMEOUT"
"""Environment variable: how many seconds to wait for a store that has stopped working or does not answer."""
MIN_ANSWER_SECONDS = 5.0
"""Seconds within which a store can always answer, whatever the environment says."""


def answer_seconds(policy: RetryPolicy) -> float:
    """Return for how many seconds a store may be silent. A policy without retries, too, waits for an answer."""
    try:
        seconds = float(os.environ.get(STORE_TIMEOUT, LONG_RETRIES.seconds))
    except ValueError:
        seconds = LONG_RETRIES.seconds
    seconds = seconds if 0 <= seconds <= threading.TIMEOUT_MAX else LONG_RETRIES.seconds
    return max(seconds, policy.seconds, MIN_ANSWER_SECONDS)


def is_transient(error: BaseException) -> bool:
    """Return whether the error, if it is an OSError, or else the OSError that caused it, may be transient."""
    cause = error if isinstance(error, OSError) else error.__cause__
    if not isinstance(cause, OSError):
        return False
    return cause.errno in TRANSIENT_ERRNOS if cause.errno else not _PERMANENT.search(str(cause))


def call_with_retries(
    operation: Callable[[], Result],
    policy: RetryPolicy,
    on_first_failure: Callable[[BaseException, float], None],
    on_recovery: Callable[[float], None],
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    draw: Callable[[], float] = random.random,
) -> Result:
    """Call `operation` until it succeeds, and return its result.

    Raises its exception if that is not transient, or when the policy's time is up. `on_first_failure` is called once,
    with the first exception and the seconds that are left; `on_recovery` is called after a later success, with the
    seconds since the first attempt. `clock`, `sleep` and `draw` (a random number in [0, 1)) are parameters for tests.
    """
    begun = clock()
    try:
        return operation()  # nearly always all there is to do
    except Exception as error:
        first_error: Exception | None = error
    failed = False
    backoff = wait_exponential(multiplier=policy.first_wait, max=policy.longest_wait)

    def seconds_left() -> float:
        return begun + policy.seconds - clock()

    def before_sleep(state: RetryCallState) -> None:
        nonlocal failed
        if not failed and state.outcome and (error := state.outcome.exception()):
            failed = True
            on_first_failure(error, seconds_left())

    def attempt() -> Result:
        nonlocal first_error
        error, first_error = first_error, None
        if error:
            raise error
        return operation()

    retrying = Retrying(
        retry=retry_if_exception(is_transient),
        wait=lambda state: min(seconds_left(), backoff(state) * (1.0 - 0.5 * draw())),
        stop=lambda _: seconds_left() <= 0,
        before_sleep=before_sleep,
        sleep=sleep,
        reraise=True,
    )
    result = retrying(attempt)
    if failed:
        on_recovery(clock() - begun)
    return result


SILENCE_SECONDS = 8.0
"""Seconds without an answer after which `on_silence` is called."""
ENDING_SECONDS = 1.0
"""Seconds that a call may still take after an interrupt, so that a write that has nearly ended is not left alone."""
_OF_THREAD = threading.local()


class NoAnswerError(OSError):
    """The store has not answered in time."""


def call_remotely(
    operation: Callable[[], Result],
    limit: float,
    on_silence: Callable[[float], None],
    silence: float = SILENCE_SECONDS,
) -> Result:
    """Return `operation()`, or raise what it raises. Raises NoAnswerError after `limit` seconds without an answer.

    `operation` runs in a daemon thread. After `silence` seconds without an answer `on_silence` is called once, with the
    seconds that are left. An operation of several steps calls `made_progress` after each, and the time begins anew. If
    there is no answer in time, or this thread is interrupted, the operation is left alone: it may still take effect.
    What an operation calls in turn is a part of it.
    """
    if _call_of_thread():
        return operation()
    call = _ThreadedCall(operation)
    threading.Thread(target=call.run, name="store", daemon=True).start()
    warned = False
    try:
        while not call.ended.wait(max(0.01, call.progress_at + (limit if warned else min(limit, silence)) - _now())):
            silent = _now() - call.progress_at
            if silent >= limit:
                raise NoAnswerError(f"no answer for {silent:.0f} s")
            if silent >= silence and not warned:
                warned = True
                on_silence(limit - silent)
    except BaseException as error:
        if not isinstance(error, NoAnswerError):
            call.ended.wait(ENDING_SECONDS)
        raise
    return call.outcome()


def made_progress() -> None:
    """Say that the store has answered, from within an operation; elsewhere nothing happens."""
    if call := _call_of_thread():
        call.progress_at = _now()


def step_of_call(act: Callable[[str], Result]) -> Callable[[str], Result]:
    """Return `act` as a step of the operation that calls this, which other threads may make for it: its end is
    progress, and what it calls remotely is called in its own thread."""
    call = _call_of_thread()

    def step(name: str) -> Result:
        _OF_THREAD.call = call
        result = act(name)
        made_progress()
        return result

    return step


def _call_of_thread() -> _ThreadedCall[Any] | None:
    """The call of whose operation this thread is a part."""
    call: _ThreadedCall[Any] | None = getattr(_OF_THREAD, "call", None)
    return call


class _ThreadedCall(Generic[Result]):
    """A call in progress."""

    def __init__(self, operation: Callable[[], Result]) -> None:
        self.ended, self.progress_at = threading.Event(), _now()
        self._operation = operation
        self._results: list[Result] = []
        self._error: BaseException | None = None

    def run(self) -> None:
        _OF_THREAD.call = self
        try:
            self._results.append(self._operation())
        except BaseException as error:
            self._error = error
        self.ended.set()

    def outcome(self) -> Result:
        if self._error:
            raise self._error
        return self._results[0]


_now = time.monotonic
