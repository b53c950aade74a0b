"""Two drivers in two processes on one store, without Ray: the first is held at its second cohort."""

import contextlib
import io
import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from sweeper.commands import run
from sweeper.storage.load import load
from tests.end_to_end.heads import wait_until
from tests.end_to_end.held import HELD, signal_of
from tests.end_to_end.sweeps import Sweep, Sweeps, assert_same_results, rows
from tests.fake_executor import without_ray

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("unreported")]

GRID = (
    *("--set", "epochs=5", "--axis", "beta=0.5,1", "--axis", "normal_class=0", "--axis", "seed=0"),
    *("--cohort", "4", "--compile", "never"),
)
COHORTS, TRIALS = 4, 16
SEARCH = ("--trials", "4", "--wave", "2", "--cohort", "2", "--set", "epochs=20", "--set", "report_every=10")


def command(store: Path, *arguments: str, name: str = "anomaly_grid") -> int:
    """Run the command line in this process."""
    return run.main([name, "--preset", "digits", "--store", str(store), *arguments])


def held(sweeps: Sweeps, store: Path, *arguments: str, name: str = "anomaly_grid") -> Sweep:
    """The first driver, in a process of its own, held at a cohort."""
    first = sweeps.start(store, *arguments, name=name, module="tests.end_to_end.held")
    first.wait_until(lambda: HELD in first.printed, "its second cohort")
    return first


def beside(first: Sweep, store: Path, *arguments: str, name: str, line: str, then: Callable[[], None]) -> str:
    """Run the second driver in this process to its end, and return what it prints. `then()` is called once it has
    printed `line`; the first driver ends with it."""
    out, failures = io.StringIO(), list[BaseException]()

    def watch() -> None:
        try:
            wait_until(lambda: line in out.getvalue(), line)
            then()
        except BaseException as failure:
            failures.append(failure)
            first.kill()

    watcher = threading.Thread(target=watch)
    watcher.start()
    with contextlib.redirect_stdout(out):
        status = command(store, *arguments, name=name)
    watcher.join()
    assert status == 0 and failures == [], (failures, out.getvalue())
    return out.getvalue()


def leases(store: Path) -> list[Path]:
    return list((store / ".drivers").glob("*/*.json"))


@pytest.mark.soak
def test_two_drivers_share_a_sweep_and_one_takes_over_what_the_other_leaves(
    sweeps: Sweeps, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`test_lease.py` asserts whose claims count, the worlds of `tests/simulation` the rows of two drivers."""
    store, alone, scratch = (tmp_path / name for name in ("shared", "alone", "scratch"))
    scratch.mkdir()
    first = held(sweeps, store, *GRID)
    assert command(store, *GRID, "--plan", "--json") == 0
    assert len(json.loads(capsys.readouterr().out)["drivers"]) == 1
    assert command(store, *GRID, "--fresh") == 2
    assert capsys.readouterr().err.startswith("error: --fresh needs the sweep for itself, but another driver runs it: ")

    def take_over() -> None:
        wait_until(
            lambda: len(load("anomaly_grid", str(store))) == TRIALS - 8, "all but the first driver's two cohorts"
        )
        first.kill()

    with without_ray(scratch):
        line = "waiting for 8 trials of another driver: "
        printed = beside(first, store, *GRID, name="anomaly_grid", line=line, then=take_over)
    assert "another driver runs this sweep, too: " in printed and f"{TRIALS} finished of {TRIALS} trials" in printed
    assert leases(store) == []
    assert f"cohorts {COHORTS} of {COHORTS}" not in printed, "the first driver has trained some"
    with without_ray(scratch):
        assert command(alone, *GRID) == 0
    assert_same_results(rows(store), rows(alone))


def test_a_search_has_one_driver_and_another_one_waits_for_it(
    sweeps: Sweeps, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "store"
    first = held(sweeps, store, *SEARCH, name="vje_search")
    assert command(store, *SEARCH, name="vje_search") == 2
    error = capsys.readouterr().err
    assert error.startswith("error: a search needs its studies for itself, but another driver runs it: ")
    assert error.endswith("--wait waits for its end\n") and error.count("\n") == 1
    line = "waiting for another driver of this sweep: "
    with without_ray(tmp_path):
        printed = beside(first, store, *SEARCH, "--wait", name="vje_search", line=line, then=signal_of(store).touch)
    assert first.outcome().status == 0
    assert "trials to run" not in printed and " of 4 trials\nrows: " in printed
    assert len(rows(store, "vje_search")) == 4 and leases(store) == []
