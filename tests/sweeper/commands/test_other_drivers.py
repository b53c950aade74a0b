"""A run that waits for other drivers heeds a signal."""

from pathlib import Path

import pytest

from sweeper.commands.other_drivers import refuse_others, share, wait_for_others
from sweeper.planning.plan import Plan
from sweeper.runtime import Machine, Runtime
from sweeper.storage.files import Files
from sweeper.storage.lease import Drivers, Lease
from tests.sweeper.small_sweeps import TINY


def test_a_run_that_was_asked_to_stop_waits_for_no_other_driver(tmp_path: Path) -> None:
    """Also where the KeyboardInterrupt of the signal was lost in foreign code: it is asked for between two reads."""
    now = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    def check() -> None:
        if now >= 5.0:
            raise KeyboardInterrupt

    other = Lease(Files(tmp_path), "tiny", "digits", machine=Machine("other", "boot"))
    other.open()
    files = Files(tmp_path, runtime=Runtime(monotonic=lambda: now, sleep=sleep))
    drivers, mine = Drivers(files, "tiny"), Lease(files, "tiny", "digits")
    for wait in (
        lambda: wait_for_others(drivers, print, check),
        lambda: refuse_others(drivers, "the law", "the remedy", check=check),
        lambda: share(mine, Plan("tiny", "digits", TINY), True, print, check),
    ):
        now = 0.0
        with pytest.raises(KeyboardInterrupt):
            wait()
        assert now == 6.0
    other.close()
