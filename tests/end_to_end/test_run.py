"""Small real sweeps from the command line to the files, each in a process of its own."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sweeper import run
from sweeper.cli import preview
from sweeper.cli.arguments import EXIT_FAILED, parse
from sweeper.cli.prepare import prepare
from sweeper.errors import StoreError
from sweeper.execution.stop_signal import StopSignal
from sweeper.plan import cohorts
from sweeper.plan.cohorts import Cohort, Cut
from sweeper.plan.plan import GridPlan
from sweeper.storage.io.files import Files
from sweeper.storage.layout import checkpoint_path
from sweeper.storage.load import load, load_history
from sweeper.storage.store import Store
from tests.end_to_end.sweeps import Outcome, Sweeps, assert_same_results, rows, survivors

GRID = ["--axis", "beta=0.5,1", "--axis", "nu=0.5,inf", "--axis", "normal_class=0,1", "--set", "epochs=4"]
GRID += ["--set", "report_every=2"]
"""8 trials."""
VIEWS = "heatmaps/anomaly_grid/digits, beta=0.5,1 epochs=4 normal_class=0,1 nu=0.5,inf report_every=2"
SMALL = ["--axis", "beta=0.5,1", "--axis", "nu=0.5", "--axis", "normal_class=0", "--set", "epochs=2", "--cohort", "1"]
"""2 trials in 2 cohorts."""


@pytest.fixture(scope="module")
def finished(sweeps: Sweeps, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    """A store with GRID in it, and what was printed."""
    store = tmp_path_factory.mktemp("finished") / "a folder"
    return store, sweeps.run(store, *GRID, cores=1)


def plan(store: Path, words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    """What `--plan --json` says, in this process."""
    asked = ["anomaly_grid", "--preset", "digits", "--store", str(store), *words, "--plan", "--json"]
    assert run.main(asked) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def cohorts_of(store: Path, words: list[str], size: int) -> tuple[Cohort, ...]:
    request = parse(["anomaly_grid", "--preset", "digits", "--store", str(store), *words])
    made, _ = prepare(request, Store(store))
    assert isinstance(made, GridPlan)
    return cohorts.cut(made.groups, [Cut(size, size)] * len(made.groups))


def test_a_plan_runs_nothing_and_counts_trials_and_cohorts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = plan(tmp_path, [], capsys)
    assert (found["trials"], found["to run"], found["cohorts"]) == (560, 560, None)
    found = plan(tmp_path, ["--cohort", "56"], capsys)
    assert (found["cohorts"], found["cohort_sizes"]) == (10, [56])
    assert list(tmp_path.iterdir()) == []


def test_data_are_looked_for_where_the_command_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """While Ray is connected the working folder is another, for a plan that measures, too."""
    monkeypatch.setattr(preview, "show", lambda request, *_: request.data)
    monkeypatch.chdir(tmp_path)
    words = ["anomaly_grid", "--preset", "digits", "--store", str(tmp_path), "--data", "here", "--plan"]
    assert run.main(words) == 0 and capsys.readouterr().out == f"{tmp_path / 'here'}\n"


def test_a_plan_for_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["anomaly_grid", "--preset", "digits", "--store", str(tmp_path), "--plan"]) == 0
    out, err = capsys.readouterr()
    assert "560: 0 finished" in out and "560 to run" in out and err == "" and list(tmp_path.iterdir()) == []


def test_the_list_names_every_sweep_with_its_presets(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["--list"]) == 0
    out, _ = capsys.readouterr()
    assert "anomaly_grid: " in out and "paper (560 trials), digits (560 trials)" in out


@pytest.mark.slow
def test_a_sweep_ends_with_rows_history_and_figures(finished: tuple[Path, Outcome]) -> None:
    store, outcome = finished
    assert outcome.status == 0 and outcome.err == "", outcome
    found = rows(store)
    assert len(found) == 8 and set(found["status"]) == {"finished"} and set(found["epochs_run"]) == {4}
    assert set(zip(found["beta"], found["nu"], found["normal_class"], strict=True)) == {
        (beta, nu, c) for beta in (0.5, 1.0) for nu in (0.5, float("inf")) for c in (0, 1)
    }
    kinds = {
        name: str(found[name].dtype) for name in ("beta", "nu", "normal_class", "epochs", "auroc_joint", "seconds")
    }
    assert kinds == {
        **{"beta": "float64", "nu": "float64", "normal_class": "int64", "epochs": "int64"},
        **{"auroc_joint": "float64", "seconds": "float64"},
    }
    assert set(found["small_stem"]) == {True} and set(found["method"]) == {"vje"}
    assert set(found["preset"]) == {"digits"} and found["nu"].eq(float("inf")).any()
    short = "epochs=4 report_every=2"
    assert found["changes"].eq(np.where(found["nu"] == 0.5, short, "epochs=4 nu=inf report_every=2")).all()
    assert len(load("anomaly_grid", store, preset="digits", changes=short)) == 4
    assert found["auroc_joint"].between(0, 1).all() and found["loss"].notna().all()
    history = load_history("anomaly_grid", store)
    assert set(history["epoch"]) == {2, 4} and set(history["trial_id"]) == set(found.index)
    last = history[(history["epoch"] == 4) & (history["metric"] == "auroc_joint")].set_index("trial_id")["value"]
    pd.testing.assert_series_equal(last.sort_index(), found["auroc_joint"], check_names=False, check_exact=True)
    for metric in ("auroc_joint", "auroc_dir", "auroc_rad", "auroc_variance", "auroc_entropy"):
        assert (store / VIEWS / f"{metric}.png").read_bytes().startswith(b"\x89PNG")
        assert len(pd.read_parquet(store / VIEWS / f"{metric}.parquet")) == 4
    assert not list(store.glob("checkpoints/*/*")) and "8 finished of 8 trials" in outcome.out


def test_the_same_command_again_trains_nothing(
    finished: tuple[Path, Outcome], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store, first = finished
    before = {path: path.stat().st_mtime_ns for path in store.glob("trials/*/*.parquet")}
    orphan = checkpoint_path("anomaly_grid", rows(store)["cohort"].iloc[0])  # as a second driver leaves it
    Files(store).write(orphan, b"weights")
    monkeypatch.setattr(run, "connected", lambda _: pytest.fail("Ray was started"))
    assert run.main(["anomaly_grid", "--preset", "digits", "--store", str(store), *GRID]) == 0
    assert Files(store).read(orphan) is None
    out, err = capsys.readouterr()
    assert err == "" and out.splitlines()[-1] == first.out.splitlines()[-1] and "8 finished of 8 trials" in out
    assert {path: path.stat().st_mtime_ns for path in store.glob("trials/*/*.parquet")} == before


def test_a_changed_axis_leaves_only_what_is_new(
    finished: tuple[Path, Outcome], capsys: pytest.CaptureFixture[str]
) -> None:
    words = [word.replace("nu=0.5,inf", "nu=0.5,3,inf") for word in GRID]
    found = plan(finished[0], words, capsys)
    assert (found["trials"], found["finished"], found["to run"]) == (12, 8, 4)


@pytest.mark.slow
def test_a_trial_that_cannot_train_takes_no_other_with_it(sweeps: Sweeps, tmp_path: Path) -> None:
    """No machine has room for 10^12 hidden units, which neither the measurement nor the training survives."""
    words = [word for word in SMALL if word not in ("--cohort", "1")]
    outcome = sweeps.run(tmp_path, *words, "--axis", "width=16,1000000000000", "--retries", "0", cores=1)
    found = rows(tmp_path)
    assert outcome.status == 1 and "Traceback" not in outcome.out + outcome.err, outcome
    assert found.groupby("width")["status"].agg(set).to_dict() == {16: {"finished"}, 10**12: {"failed"}}
    assert found[found["status"] == "failed"]["error"].str.contains("allocate|memory").all(), found["error"].tolist()


@pytest.mark.slow
def test_fresh_sets_aside_what_it_trains_again_and_restore_brings_it_back(sweeps: Sweeps, tmp_path: Path) -> None:
    sweep = sweeps.start(tmp_path, *SMALL, cores=1)
    assert sweep.outcome().status == 0 and survivors(sweep) == []
    before = rows(tmp_path)
    narrowed = [word.replace("beta=0.5,1", "beta=0.5") for word in SMALL]
    outcome = sweeps.run(tmp_path, *narrowed, "--fresh", "--gpu-fraction", "0.5", cores=1)
    assert outcome.status == 0 and "1 of 1 trials to run" in outcome.out and "2 at a time" in outcome.out, outcome
    assert "set aside: 1 rows, from 2 files of rows and history, in " in outcome.out, outcome
    after = rows(tmp_path)
    assert_same_results(after, before)
    again = before["beta"] == 0.5
    assert (after.loc[again, "ended"] > before["ended"].max()).all() and after[~again].equals(before[~again])
    (aside,) = (tmp_path / "_replaced").iterdir()
    pd.testing.assert_frame_equal(rows(aside), before[again])
    assert run.main(["anomaly_grid", "--store", str(tmp_path), "--restore", aside.name]) == 0
    pd.testing.assert_frame_equal(rows(tmp_path), before)


def test_a_fresh_plan_says_what_would_be_set_aside(
    finished: tuple[Path, Outcome], capsys: pytest.CaptureFixture[str]
) -> None:
    words = [word.replace("normal_class=0,1", "normal_class=0,2") for word in GRID]
    found = plan(finished[0], [*words, "--fresh"], capsys)
    rows_aside = found["set_aside"]
    assert isinstance(rows_aside, dict) and (found["to run"], rows_aside["rows"]) == (8, 4)
    assert len(rows(finished[0])) == 8 and not (finished[0] / "_replaced").exists()


def test_a_store_that_is_gone_for_good_is_an_error_in_one_line_and_how_to_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> None:
        raise StoreError("store gone: cannot write 'x'")

    request = parse(["anomaly_grid", "--preset", "digits", "--store", str(tmp_path), *SMALL])
    plan, columns = prepare(request, Store(tmp_path))
    monkeypatch.setattr(run._Run, "_train", gone)
    monkeypatch.setattr(Files, "list", gone)
    assert run._Run(request, plan, Store(tmp_path), columns, StopSignal(), str).execute() == EXIT_FAILED
    out, error = capsys.readouterr()
    assert error == "error: store gone: cannot write 'x'\n"
    assert out == f"stopped: what is in {tmp_path} cannot be read now; the same command continues\n"
