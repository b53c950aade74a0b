import errno
import os

import pytest

from sweeper.errors import StoreError
from sweeper.storage.retry import LONG_RETRIES, NO_RETRIES, RetryPolicy, call_with_retries, is_transient

UNREACHABLE = (
    "When reading information for key 'x' in bucket 'b': AWS Error NETWORK_CONNECTION during HeadObject operation"
)


class FlakyOperation:
    """An operation that fails a given number of times, with a clock that only sleeping advances."""

    def __init__(self, failures: float, error: Exception | None = None) -> None:
        self.failures, self.error = failures, error or OSError(errno.ETIMEDOUT, "timed out")
        self.now, self.slept, self.callbacks = 0.0, list[float](), list[str]()

    def act(self) -> str:
        if len(self.slept) < self.failures:
            raise self.error
        return "done"

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def call(self, policy: RetryPolicy, draw: float = 0.0) -> str:
        return call_with_retries(
            self.act,
            policy,
            lambda error, left: self.callbacks.append(str(error)),
            lambda seconds: self.callbacks.append(f"after {seconds:g}"),
            clock=lambda: self.now,
            sleep=self.sleep,
            draw=lambda: draw,
        )


def test_waits_double_up_to_the_longest():
    operation = FlakyOperation(7)
    assert operation.call(RetryPolicy(60.0, first_wait=0.5, longest_wait=4.0)) == "done"
    assert operation.slept == [0.5, 1.0, 2.0, 4.0, 4.0, 4.0, 4.0]
    assert operation.callbacks == ["[Errno 110] timed out", "after 19.5"]
    swift = FlakyOperation(3)
    swift.call(RetryPolicy(60.0, first_wait=0.5), draw=1.0)
    assert swift.slept == [0.25, 0.5, 1.0], "up to half of a wait is subtracted at random"


def test_retries_end_when_the_time_of_the_policy_is_over():
    operation = FlakyOperation(float("inf"))
    with pytest.raises(TimeoutError):
        operation.call(LONG_RETRIES)
    assert operation.now == LONG_RETRIES.seconds and len(operation.callbacks) == 1


def test_success_at_once_calls_no_callback():
    operation = FlakyOperation(0)
    assert operation.call(LONG_RETRIES) == "done" and operation.callbacks == operation.slept == []


@pytest.mark.parametrize(("policy", "error"), [(NO_RETRIES, None), (LONG_RETRIES, PermissionError(errno.EACCES, "no"))])
def test_without_a_timeout_or_for_a_permanent_error_there_is_one_attempt(policy, error):
    operation = FlakyOperation(1, error)
    with pytest.raises(OSError):
        operation.call(policy)
    assert operation.slept == operation.callbacks == []


def test_an_interrupt_ends_the_wait():
    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        call_with_retries(
            FlakyOperation(1).act, LONG_RETRIES, lambda error, left: None, lambda seconds: None, sleep=interrupted
        )


@pytest.mark.parametrize(
    "error",
    [
        *(OSError(number, "") for number in (errno.EIO, errno.ENOSPC, errno.EROFS, errno.ETIMEDOUT, errno.ESTALE)),
        OSError(UNREACHABLE),
        OSError("AWS Error SLOW_DOWN during PutObject operation: Please reduce your request rate."),
        *(OSError(f"AWS Error UNKNOWN (HTTP status {status}) during PutObject") for status in (500, 503, 429, 408)),
        OSError("google::cloud::Status(UNAVAILABLE: Retry policy exhausted in InsertObjectMedia)"),
    ],
)
def test_transient_errors(error):
    assert is_transient(error)
    wrapped = StoreError("one line")
    wrapped.__cause__ = error
    assert is_transient(wrapped)


@pytest.mark.parametrize(
    "error",
    [
        *(OSError(number, os.strerror(number)) for number in (errno.EACCES, errno.ENOTDIR)),
        OSError("AWS Error NO_SUCH_BUCKET during CreateMultipartUpload operation: The specified bucket does not exist"),
        OSError("AWS Error ACCESS_DENIED during PutObject operation: Access Denied"),
        OSError("AWS Error UNKNOWN (HTTP status 403) during HeadObject operation: No response body."),
        OSError("google::cloud::Status(PERMISSION_DENIED: no)"),
        ValueError("no file"),
        StoreError("of our own"),
    ],
)
def test_permanent_errors(error):
    assert not is_transient(error)
