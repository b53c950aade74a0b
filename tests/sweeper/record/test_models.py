"""Which models the driver deletes, and when, as the rows of cohorts come."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from sweeper.definition import Grid, Metric, Table
from sweeper.planning.cohorts import Cohort, Trial
from sweeper.planning.plan import Plan
from sweeper.record.models import KeptModels, keep_best
from sweeper.storage.files import Files
from sweeper.storage.layout import model_path
from sweeper.storage.models import trials_with_models
from sweeper.storage.requests import RequestRows
from tests.sweeper.small_sweeps import FIXED, TINY

PLAN = Plan("tiny", "digits", TINY)

COHORT = Cohort("c0", (), 1)


def row(trial: str, beta: float, value: float) -> dict[str, Any]:
    return {"trial_id": trial, "status": "finished", "beta": beta, "auroc_joint": value}


def write(files: Files, *trials: str, kept: str = "best", sweep: str = "tiny") -> None:
    """The beginning of a model's file of each trial."""
    for trial in trials:
        metadata = {"format": 1, "kept": kept, "config": {}, "shapes": {}, "inputs": {}, "digest": ""}
        header = json.dumps({"__metadata__": {"sweeper": json.dumps(metadata)}}).encode()
        files.write(model_path(sweep, trial), len(header).to_bytes(8, "little") + header + b"weights")


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def models(files: Files) -> list[str]:
    return trials_with_models(files, "tiny")


def keep(files: Files, plan: Plan, *rows: dict[str, Any]) -> None:
    keep_best(files, plan, pd.DataFrame(rows, columns=["trial_id", "status", "beta", "nu", "auroc_joint"]))


def request_of(request: str, *trials: str) -> Plan:
    """A plan of a request with these trials."""
    return replace(PLAN, whole=RequestRows(request, "digits", trials))


def test_worse_ones_of_a_cohort_go_before_its_rows_are_written_and_displaced_ones_at_the_end(files: Files) -> None:
    kept, first = KeptModels(files, PLAN), [row("a", 0.5, 0.7), row("b", 1.5, 0.6), row("c", 1.5, 0.5)]
    write(files, "a", "b", "c")
    kept.ended(COHORT, first)
    assert models(files) == ["a", "b"]
    write(files, "d", "e")
    kept.ended(COHORT, [row("d", 0.5, 0.8), row("e", 0.5, 0.75)])
    assert models(files) == ["a", "b", "d"], "nothing displaces the models of another cohort while the sweep runs"
    keep(files, PLAN, *first, row("d", 0.5, 0.8), row("e", 0.5, 0.75))
    assert models(files) == ["b", "d"]


def test_the_model_of_a_trial_that_fails_stays_as_another_may_have_trained_it(files: Files) -> None:
    plan, failed = request_of("digits", "a", "b"), {**row("a", 0.5, 0.5), "status": "failed"}
    write(files, "a", "b")
    KeptModels(files, plan).ended(COHORT, [failed, row("b", 0.5, 0.6)])
    assert models(files) == ["a", "b"]
    keep(files, plan, failed, row("b", 0.5, 0.6))
    assert models(files) == ["a", "b"]
    keep(files, plan, row("a", 0.5, 0.5), row("b", 0.5, 0.6))  # as the store has them
    assert models(files) == ["b"]


def test_while_a_trial_has_no_result_the_best_of_each_setting_stays_which_it_may_make_the_best(files: Files) -> None:
    grid = Grid(FIXED, {"beta": (0.5, 1.5), "nu": (0.5, 3.0), "seed": (0, 1)})
    figures = (Table("auroc", ("nu",), (Metric("auroc_joint", "maximize"),)),)
    sweep = replace(TINY, presets={"digits": grid}, figures=figures)
    plan = Plan("tiny", "digits", sweep, whole=RequestRows("digits", "digits", ("a", "b", "c")))
    rows = [{**row("a", 0.5, 0.7), "nu": 0.5}, {**row("b", 1.5, 0.6), "nu": 0.5}]
    last = {**row("c", 2.5, 0.5), "nu": 0.5}
    write(files, "a", "b")
    keep(files, plan, *rows)
    assert models(files) == ["a", "b"]
    keep(files, plan, *rows, {**last, "status": "failed"})
    assert models(files) == ["a", "b"]
    keep(files, plan, *rows, last)
    assert models(files) == ["a"]


@pytest.mark.parametrize(("policy", "left"), [("best", ["b", "new"]), ("all", ["a", "b", "new"])])
def test_what_a_killed_driver_has_left_goes_at_the_end_but_not_what_was_kept_on_request(
    policy: str, left: list[str], files: Files
) -> None:
    write(files, "a", kept=policy)
    write(files, "b", "new")  # `new` has no row yet: another driver is about to write it
    keep(files, PLAN, row("a", 0.5, 0.7), row("b", 0.5, 0.8))
    assert models(files) == left


def test_the_best_of_another_request_stay_whichever_comes_first(files: Files) -> None:
    first, later = request_of("first", "a", "c"), request_of("later", "a", "b")
    a, b, c = row("a", 0.5, 0.7), row("b", 0.5, 0.8), row("c", 0.5, 0.75)
    keep(files, first)
    write(files, "a")
    keep(files, later, a)
    write(files, "b")
    keep(files, later, a, b)
    assert models(files) == ["a", "b"], "the first has not ended, and a may be its best"
    write(files, "c")
    keep(files, first, a, c)
    assert models(files) == ["b", "c"], "a is the best of neither any more"


def test_what_may_become_the_best_of_a_request_that_was_killed_stays_when_another_ends(files: Files) -> None:
    killed, other = request_of("killed", "a", "b"), request_of("other", "a", "b", "c")
    keep(files, killed)
    write(files, "a", "b", "c")
    KeptModels(files, other).ended(COHORT, rows := [row("a", 0.5, 0.7), row("b", 0.5, 0.6), row("c", 0.5, 0.8)])
    keep(files, other, *rows)
    assert models(files) == ["a", "b", "c"]
    keep(files, killed, *rows[:2])
    assert models(files) == ["a", "c"]


def test_the_trials_of_a_search_that_has_not_ended_stay_when_another_request_ends(files: Files) -> None:
    search = replace(PLAN, whole=RequestRows("search", "digits", (), ("s",)))
    other = request_of("other", "a", "b", "c")
    keep_best(files, replace(search, grid_trials=(Trial("later", {}),)), pd.DataFrame({"trial_id": [], "status": []}))
    write(files, "a", "b", "c")
    rows = [{**row("a", 0.5, 0.7), "study_id": "s"}, {**row("b", 0.5, 0.6), "study_id": None}, row("c", 0.5, 0.8)]
    KeptModels(files, other).ended(COHORT, rows)
    assert models(files) == ["a", "c"]


@pytest.mark.parametrize("damage", [b"", b"\xff" * 20, b"\2\0\0\0\0\0\0\0{}", b"\2\0\0\0\0\0\0\0[]"])
def test_a_damaged_file_is_left_alone(damage: bytes, files: Files) -> None:
    files.write(model_path("tiny", "a"), damage)
    keep(files, PLAN, row("a", 0.5, 0.7), row("b", 0.5, 0.8))
    assert models(files) == ["a"]
