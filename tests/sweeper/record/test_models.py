"""Which models the driver deletes, and when, as the rows of cohorts come."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sweeper.planning.changes import Change, Changes
from sweeper.planning.cohorts import Cohort
from sweeper.planning.plan import Plan
from sweeper.record.models import KeptModels, remove_displaced
from sweeper.spec import Grid, Metric, Table
from sweeper.storage.files import Files
from sweeper.storage.layout import model_path
from sweeper.storage.models import trials_with_models
from sweeper.storage.requests import RequestRows
from tests.sweeper.small_sweeps import FIXED, TINY

PLAN = Plan("tiny", "digits", TINY)

COHORT = Cohort("c0", (), 1)


def row(trial: str, beta: float, value: float) -> dict[str, Any]:
    return {"trial_id": trial, "status": "finished", "beta": beta, "auroc_joint": value}


def write(files: Files, *trials: str, kept: str = "best") -> None:
    """The beginning of a model's file of each trial."""
    for trial in trials:
        metadata = {"format": 1, "kept": kept, "config": {}, "shapes": {}, "inputs": {}, "digest": ""}
        header = json.dumps({"__metadata__": {"sweeper": json.dumps(metadata)}}).encode()
        files.write(model_path("tiny", trial), len(header).to_bytes(8, "little") + header + b"weights")


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def models(files: Files) -> list[str]:
    return trials_with_models(files, "tiny")


def test_worse_ones_go_before_the_rows_are_written_and_displaced_ones_afterwards(files: Files) -> None:
    kept, first = KeptModels(files, PLAN), [row("a", 0.5, 0.7), row("b", 1.5, 0.6), row("c", 1.5, 0.5)]
    write(files, "a", "b", "c")
    kept.ended(COHORT, first)
    assert models(files) == ["a", "b"]
    kept.recorded(COHORT, [])
    write(files, "d", "e")
    kept.ended(COHORT, [row("d", 0.5, 0.8), row("e", 0.5, 0.75)])
    assert models(files) == ["a", "b", "d"], "until the rows are written, a is the best that has one"
    kept.recorded(COHORT, [])
    assert models(files) == ["b", "d"]


def test_a_run_that_continues_knows_the_best_from_their_rows(files: Files) -> None:
    kept = KeptModels(files, PLAN)
    write(files, "a", "b")
    kept.begin([row("a", 0.5, 0.7)])
    kept.ended(COHORT, [row("b", 0.5, 0.6)])
    kept.recorded(COHORT, [])
    assert models(files) == ["a"]


def test_the_model_of_a_trial_that_fails_stays_until_the_end_as_another_may_have_trained_it(files: Files) -> None:
    kept, failed = KeptModels(files, PLAN), {**row("a", 0.5, 0.7), "status": "failed"}
    write(files, "a", "b")
    kept.ended(COHORT, [failed, row("b", 0.5, 0.6)])
    kept.recorded(COHORT, [])
    assert models(files) == ["a", "b"]
    remove_displaced(files, PLAN, [row("a", 0.5, 0.7), row("b", 0.5, 0.6)])  # as the store has them
    assert models(files) == ["a"]
    remove_displaced(files, PLAN, [failed, row("b", 0.5, 0.6)])
    assert models(files) == []


def test_while_a_trial_has_no_result_the_best_of_each_setting_stays_which_it_may_make_the_best(files: Files) -> None:
    grid = Grid(FIXED, {"beta": (0.5, 1.5), "nu": (0.5, 3.0), "seed": (0, 1)})
    figures = (Table("auroc", ("nu",), (Metric("auroc_joint", "maximize"),)),)
    sweep = replace(TINY, presets={"digits": grid}, figures=figures)
    plan = Plan("tiny", "digits", sweep, whole=RequestRows("digits", "digits", ("a", "b", "c")))
    rows = [{**row("a", 0.5, 0.7), "nu": 0.5}, {**row("b", 1.5, 0.6), "nu": 0.5}]
    last = {**row("c", 2.5, 0.5), "nu": 0.5}
    write(files, "a", "b")
    remove_displaced(files, plan, rows)
    assert models(files) == ["a", "b"]
    remove_displaced(files, plan, [*rows, {**last, "status": "failed"}])
    assert models(files) == ["a", "b"]
    remove_displaced(files, plan, [*rows, last])
    assert models(files) == ["a"]


@pytest.mark.parametrize(("keep", "left"), [("best", ["b", "new"]), ("all", ["a", "b", "new"])])
def test_what_a_killed_driver_has_left_goes_at_the_end_but_not_what_was_kept_on_request(
    keep: str, left: list[str], files: Files
) -> None:
    write(files, "a", kept=keep)
    write(files, "b", "new")  # `new` has no row yet: another driver is about to write it
    remove_displaced(files, PLAN, [row("a", 0.5, 0.7), row("b", 0.5, 0.8)])
    assert models(files) == left


def test_the_best_of_another_request_stay_whichever_comes_first(files: Files) -> None:
    more_seeds = replace(PLAN, changes=Changes("digits", {"seed": Change((0, 1), (0,))}))
    first, later = KeptModels(files, PLAN), KeptModels(files, more_seeds)
    write(files, "a")
    first.ended(COHORT, [row("a", 0.5, 0.7)])
    later.begin([row("a", 0.5, 0.7)])
    write(files, "b")
    later.ended(COHORT, [row("b", 0.5, 0.8)])
    later.recorded(COHORT, [])
    remove_displaced(files, more_seeds, [row("a", 0.5, 0.7), row("b", 0.5, 0.8)])
    assert models(files) == ["a", "b"]
    write(files, "c")
    first.ended(COHORT, [row("c", 0.5, 0.75)])
    first.recorded(COHORT, [])
    assert models(files) == ["b", "c"], "a is the best of neither any more"


@pytest.mark.parametrize("damage", [b"", b"\xff" * 20, b"\2\0\0\0\0\0\0\0{}", b"\2\0\0\0\0\0\0\0[]"])
def test_a_damaged_file_is_left_alone(damage: bytes, files: Files) -> None:
    files.write(model_path("tiny", "a"), damage)
    rows: list[Mapping[str, Any]] = [row("a", 0.5, 0.7), row("b", 0.5, 0.8)]
    remove_displaced(files, PLAN, rows)
    assert models(files) == ["a"]
