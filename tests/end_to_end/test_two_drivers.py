"""Two drivers in processes of their own on one store: the first with Ray, the second without."""

import json
from pathlib import Path

import pytest

import sweeper.run as run
from tests.end_to_end.sweeps import Sweep, Sweeps, assert_same_results, row_files, rows
from tests.fake_executor import without_ray

pytestmark = pytest.mark.slow

GRID = (
    *("--set", "epochs=20", "--axis", "beta=0.5,1,2", "--axis", "normal_class=0", "--axis", "seed=0"),
    *("--cohort", "4", "--compile", "never"),
)
COHORTS, TRIALS = 6, 24
SEARCH = ("--trials", "8", "--wave", "4", "--set", "epochs=20", "--set", "report_every=1")


def command(store: Path, *arguments: str, name: str = "anomaly_grid") -> int:
    """Run the command line in this process."""
    return run.main([name, "--preset", "digits", "--store", str(store), *arguments])


def training(sweep: Sweep) -> None:
    sweep.wait_until(sweep.trainers, "training")


def leases(store: Path) -> list[Path]:
    return list((store / ".drivers").glob("*/*.json"))


def test_two_drivers_share_a_sweep_and_one_takes_over_what_the_other_leaves(
    sweeps: Sweeps, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, alone, scratch = (tmp_path / name for name in ("shared", "alone", "scratch"))
    scratch.mkdir()
    first = sweeps.start(store, *GRID, cores=1)
    first.wait_until(lambda: row_files(store) and first.suspend(), "rows and another cohort")  # its driver goes on
    second = sweeps.start(store, *GRID, "--debug", cores=1)
    second.wait_until(lambda: "another driver runs this sweep, too: " in second.printed, "word of the other driver")
    assert command(store, *GRID, "--plan", "--json") == 0
    assert len(json.loads(capsys.readouterr().out)["drivers"]) == 2
    assert command(store, *GRID, "--fresh") == 2
    assert capsys.readouterr().err.startswith("error: --fresh needs the sweep for itself, but another driver runs it: ")
    second.wait_until(lambda: "waiting for 4 trials of another driver: " in second.printed, "the end of what is free")
    assert len(rows(store)) == TRIALS - 4, "but for one cohort, which is suspended"
    first.kill()
    outcome = second.outcome()
    assert outcome.status == 0 and f"{TRIALS} finished of {TRIALS} trials" in outcome.out, outcome
    assert leases(store) == []
    assert f"cohorts {COHORTS} of {COHORTS}" not in outcome.out, "the first driver has trained some"
    with without_ray(scratch):
        assert command(alone, *GRID) == 0
    assert_same_results(rows(store), rows(alone))


def test_a_search_has_one_driver_and_another_one_waits_for_it(
    sweeps: Sweeps, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = sweeps.start(tmp_path, *SEARCH, name="vje_search", cores=1)
    training(first)
    trainers = first.suspend()
    assert command(tmp_path, *SEARCH, name="vje_search") == 2
    error = capsys.readouterr().err
    assert error.startswith("error: a search needs its studies for itself, but another driver runs it: ")
    assert error.endswith("--wait waits for its end\n") and error.count("\n") == 1
    second = sweeps.start(tmp_path, *SEARCH, "--wait", "--debug", name="vje_search", cores=1)
    second.wait_until(lambda: "waiting for another driver of this sweep: " in second.printed, "its wait")
    for trainer in trainers:
        trainer.resume()
    assert [first.outcome().status, second.outcome().status] == [0, 0]
    assert "trials to run" not in second.printed and " of 8 trials\nrows: " in second.printed
    assert len(rows(tmp_path, "vje_search")) == 8 and leases(tmp_path) == []
