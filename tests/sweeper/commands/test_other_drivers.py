"""A run beside other drivers and commands: it waits, heeds a signal, and sees rows that have come and gone."""

from pathlib import Path

import pytest

from sweeper.commands.other_drivers import OtherDriver, alone, refuse_others, share, wait_for_others
from sweeper.commands.sweep_run import SweepRun
from sweeper.execution.signals import StopSignal
from sweeper.planning.plan import Plan
from sweeper.request import Request
from sweeper.runtime import Machine, Runtime
from sweeper.storage.files import Files
from sweeper.storage.lease import Drivers, Lease
from sweeper.storage.removal import plan_removal, remove
from sweeper.storage.store import Store
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


def test_no_run_begins_while_a_command_has_the_sweep_for_itself(tmp_path: Path) -> None:
    """Such as `sweeper rm`, and a run with --fresh until it has set rows aside."""
    files, plan = Files(tmp_path), Plan("tiny", "digits", TINY)
    mine, fresh = Lease(files, "tiny", "digits"), Lease(files, "tiny", "digits", alone=True)
    mine.open()
    with (
        pytest.raises(OtherDriver, match="must not run, but another driver runs it"),
        alone(files, "tiny", "sweeper rm tiny", "a sweep that is removed must not run"),
    ):
        raise AssertionError
    mine.close()
    mine = Lease(files, "tiny", "digits")
    mine.open()
    with pytest.raises(OtherDriver, match=r"while its results are removed, .*; --wait waits for its end"):
        fresh.open()
        share(mine, plan, False, print, lambda: None)
    fresh.admit_others()
    share(mine, plan, False, print, lambda: None)
    mine.close()
    fresh.close()


def test_rows_that_were_removed_since_a_run_was_planned_are_trained_again(tmp_path: Path) -> None:
    store = Store(tmp_path)
    planned = SweepRun.planned(Request("tiny", TINY, store=str(tmp_path)))
    columns = store.prepare("tiny", planned.columns)
    rows = [{"trial_id": trial.id, **trial.config, "status": "finished"} for trial in planned.plan.trials]
    store.write("tiny", "c", rows, columns)
    planned = SweepRun.planned(Request("tiny", TINY, store=str(tmp_path)))
    assert planned.plan.trials_left == 0
    remove(store.files, plan_removal(store.files, "tiny"))
    begun = planned.begin(StopSignal())
    begun.lease.close()
    assert begun.plan.trials_left == begun.plan.total == len(rows)
