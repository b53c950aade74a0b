import errno
import os

import pytest

from sweeper.errors import StoreError
from sweeper.storage.io.retry import LONG, ONCE, RetryPolicy, insist, may_pass

UNREACHABLE = (
    "When reading information for key 'x' in bucket 'b': AWS Error NETWORK_CONNECTION during HeadObject operation"
)


class Weather:
    """An operation that fails a given number of times, with a clock that only sleeping advances."""

    def __init__(self, failures: float, error: Exception | None = None) -> None:
        self.failures, self.error = failures, error or OSError(errno.ETIMEDOUT, "timed out")
        self.now, self.slept, self.said = 0.0, list[float](), list[str]()

    def act(self) -> str:
        if len(self.slept) < self.failures:
            raise self.error
        return "done"

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def insist(self, patience: RetryPolicy, draw: float = 0.0) -> str:
        return insist(
            self.act,
            patience,
            lambda error: self.said.append(str(error)),
            lambda seconds: self.said.append(f"after {seconds:g}"),
            clock=lambda: self.now,
            sleep=self.sleep,
            draw=lambda: draw,
        )


def test_attempts_are_further_and_further_apart():
    weather = Weather(7)
    assert weather.insist(RetryPolicy(60.0, first=0.5, longest=4.0)) == "done"
    assert weather.slept == [0.5, 1.0, 2.0, 4.0, 4.0, 4.0, 4.0]
    assert weather.said == ["[Errno 110] timed out", "after 19.5"]
    swift = Weather(3)
    swift.insist(RetryPolicy(60.0, first=0.5), draw=1.0)
    assert swift.slept == [0.25, 0.5, 1.0], "up to half of a wait is subtracted at random"


def test_patience_ends_when_its_seconds_are_over():
    weather = Weather(float("inf"))
    with pytest.raises(TimeoutError):
        weather.insist(LONG)
    assert weather.now == LONG.seconds and len(weather.said) == 1


def test_what_goes_well_is_not_talked_about():
    weather = Weather(0)
    assert weather.insist(LONG) == "done" and weather.said == weather.slept == []


@pytest.mark.parametrize(("patience", "error"), [(ONCE, None), (LONG, PermissionError(errno.EACCES, "no"))])
def test_one_attempt_is_all_without_patience_and_without_hope(patience, error):
    weather = Weather(1, error)
    with pytest.raises(OSError):
        weather.insist(patience)
    assert weather.slept == weather.said == []


def test_an_interrupt_ends_the_wait():
    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        insist(Weather(1).act, LONG, lambda error: None, lambda seconds: None, sleep=interrupted)


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
def test_what_may_pass(error):
    assert may_pass(error)
    wrapped = StoreError("one line")
    wrapped.__cause__ = error
    assert may_pass(wrapped)


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
def test_what_lasts(error):
    assert not may_pass(error)
