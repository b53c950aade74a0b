"""The end of a run: its exit status, and what it prints."""

import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from sweeper.commands import best as best_command
from sweeper.commands import table
from sweeper.commands.command_line import EXIT_FAILED, EXIT_OK
from sweeper.commands.conclusion import MAX_LINES, finish, finish_so_far, print_how_to_continue
from sweeper.definition import Metric, Selection, Table
from sweeper.planning.changes import Change, Changes
from sweeper.planning.plan import Plan
from sweeper.report.answers import find_answer
from sweeper.report.figures import figures_of
from sweeper.report.kinds import write_figures
from sweeper.request import Keep, Request
from sweeper.storage.checkpoints import labelled
from sweeper.storage.layout import checkpoint_path
from sweeper.storage.models import trials_with_models
from sweeper.storage.requests import selecting_line, write_request
from sweeper.storage.rows import Columns
from sweeper.storage.store import Store
from tests.sweeper.planning.test_cohorts import make
from tests.sweeper.record.test_models import write

COLUMNS = Columns({"beta": int, "nu": int, "dataset": str}, ("auroc",))
REQUEST = Request("grid")


def store_of(folder: Path, plan: Plan, statuses: Mapping[str, str]) -> Store:
    """A store with the rows of the trials in `statuses`, in one cohort."""
    store = Store(folder)
    store.prepare("grid", COLUMNS)
    rows = [
        {"trial_id": trial.id, **trial.config, "auroc": 0.5, "status": statuses[trial.id], "cohort": "c0"}
        | {"cohort_size": len(statuses), "preset": "paper", "changes": ""}
        | ({"error": f"loss was not finite in epoch {trial.id[1:]}"} if statuses[trial.id] == "diverged" else {})
        for trial in plan.trials
        if trial.id in statuses
    ]
    store.write("grid", "c0", rows, COLUMNS)
    write_request(store.files, "grid", plan.request_rows)
    return store


@pytest.mark.parametrize(
    ("last", "status", "counts"),
    [("diverged", EXIT_OK, "3 finished, 1 diverged"), ("failed", EXIT_FAILED, "3 finished, 1 failed")],
)
def test_a_run_ends_well_if_every_trial_has_a_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], last: str, status: int, counts: str
) -> None:
    plan = make(4)
    store = store_of(tmp_path, plan, {"t0": "finished", "t1": "finished", "t2": "finished", "t3": last})
    store.files.write(checkpoint_path("grid", "c0"), labelled([f"t{trial}" for trial in range(4)], b"weights"))
    assert finish(plan, store, COLUMNS, REQUEST) == status
    out, answer = capsys.readouterr().out, find_answer(store.files, "grid")
    table, ending = out.split(f"\n\n{counts}")
    assert table.startswith("auroc; * is the best setting, chosen on test images\n\n")
    assert f"{counts}{ending}".splitlines() == [
        f"{counts} of 4 trials",
        *(["first to diverge: trial t3 (beta=1, nu=3), loss was not finite in epoch 3"] if last == "diverged" else []),
        f"rows: {selecting_line(store.files, 'grid', plan.request_rows)}",
        f"figures: {tmp_path}/{{heatmaps,tables}}/grid/paper",
        f"page: {tmp_path}/reports/grid.html",
        answer.text,
        "sweeper best grid --preset paper  # how sure, the model, how to train it again",
    ]
    assert answer.text.startswith("best auroc")
    assert (tmp_path / "heatmaps/grid/paper/auroc.png").exists()
    assert store.files.list("checkpoints/sweep=grid") == ([] if status == EXIT_OK else ["c0.pt"])


def test_of_several_that_diverged_the_first_of_the_plan_is_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = make(4)
    finish(plan, store_of(tmp_path, plan, {"t3": "diverged", "t1": "diverged", "t0": "finished"}), COLUMNS, REQUEST)
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "diverge:" in line]
    assert line == "first to diverge: trial t1 (beta=1, nu=1), loss was not finite in epoch 1"


def test_a_run_without_all_rows_has_failed(tmp_path: Path) -> None:
    plan = make(4)
    assert finish(plan, store_of(tmp_path, plan, {"t0": "finished", "t1": "finished"}), COLUMNS, REQUEST) == EXIT_FAILED


def test_an_interrupted_run_prints_how_much_is_done(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = make(4)
    store = store_of(tmp_path, plan, {"t0": "finished", "t1": "diverged", "t2": "failed"})
    print_how_to_continue(plan, store, fresh=False)
    assert capsys.readouterr().out == f"stopped: 2 of 4 trials are in {tmp_path}; the same command continues\n"


def test_an_interrupted_run_has_a_page_of_what_there_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = make(4)
    finish_so_far(plan, Store(tmp_path / "empty"), REQUEST)
    assert not list(tmp_path.glob("empty/**/*"))
    finish_so_far(plan, store_of(tmp_path, plan, {"t0": "finished"}), REQUEST)
    assert capsys.readouterr().out == f"page: {tmp_path}/reports/grid.html\n"
    assert (tmp_path / "reports/grid.html").exists()


def test_an_interrupted_run_with_keep_best_deletes_what_is_not_best_so_far(tmp_path: Path) -> None:
    plan = make(3)
    store = store_of(tmp_path, plan, {"t0": "finished", "t1": "diverged"})
    write(store.files, "t0", "t1", "t2", sweep="grid")
    finish_so_far(plan, store, replace(REQUEST, keep=Keep("all")))
    assert trials_with_models(store.files, "grid") == ["t0", "t1", "t2"]
    finish_so_far(plan, store, REQUEST)
    assert trials_with_models(store.files, "grid") == ["t0", "t2"], "t2 has no result yet"


def test_folders_in_which_nothing_was_drawn_are_not_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The request has no trial of the table's only selection."""
    plan = make(4)
    table = Table(
        "other", ("kind",), (Metric("auroc", "maximize"),), selections=(Selection({"kind": "other"}, {"beta": 99}),)
    )
    plan = replace(plan, sweep=replace(plan.sweep, figures=(*plan.sweep.figures, table)))
    store = store_of(tmp_path, plan, dict.fromkeys(("t0", "t1", "t2", "t3"), "finished"))
    assert finish(plan, store, COLUMNS, REQUEST) == EXIT_OK
    out = capsys.readouterr().out
    assert f"figures: {tmp_path}/heatmaps/grid/paper\n" in out


def test_the_end_is_short_and_names_the_commands_that_print_the_rest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of 30 trials, whose heatmap has 15 rows, on three data sets, each with a best setting; one diverged."""
    plan = make(30)
    trials = tuple(
        replace(trial, config={"beta": index % 15, "nu": index // 15, "dataset": f"set{index % 3}"})
        for index, trial in enumerate(plan.grid_trials)
    )
    plan = replace(plan, grid_trials=trials, changes=Changes("paper", {"epochs": Change((5,), (800,))}))
    store = store_of(tmp_path, plan, {trial.id: "diverged" if trial.id == "t7" else "finished" for trial in trials})
    assert finish(plan, store, COLUMNS, replace(REQUEST, store=str(tmp_path))) == EXIT_OK
    ended = capsys.readouterr().out
    lines = ended.splitlines()
    assert len(lines) <= MAX_LINES == 15 and lines[0] == "29 finished, 1 diverged of 30 trials"
    best, table_line = lines[-2:]
    again = f"grid --preset paper --changes epochs=5 --store {tmp_path}"
    assert best == f"sweeper best {again}  # 1 more best setting, how sure, the model, how to train it again"
    assert table_line == f"sweeper table {again} --format text  # tables, heatmaps and studies"
    assert [line[:10] for line in lines[-4:-2]] == ["best auroc"] * 2
    write_figures(store.files, "grid", figures_of(plan.sweep, "paper"))
    assert table.main([*shlex.split(table_line, comments=True)[2:]]) == 0
    assert capsys.readouterr().out.splitlines()[0].startswith("auroc")
    assert best_command.main([*shlex.split(best, comments=True)[2:]]) == 0
    assert set(lines[-4:-2]) < {*capsys.readouterr().out.splitlines()}
