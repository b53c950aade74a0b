"""Small real sweeps from the command line to the files.

Trials that hang, exhaust the memory or kill their process fail alone and are named; all others finish.
"""

import contextlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sweeper.commands import run, sweep_run
from sweeper.execution import session
from sweeper.storage.checkpoints import labelled
from sweeper.storage.files import Files
from sweeper.storage.layout import checkpoint_path
from sweeper.storage.load import load, load_history
from tests.end_to_end.poisons import DIES, EATS, HANGS, POISON
from tests.end_to_end.sweeps import assert_same_results, rows
from tests.end_to_end.undisturbed import EPOCHS, GRID, TRIALS, undisturbed_output, undisturbed_store
from tests.fake_executor import without_ray

pytestmark = pytest.mark.slow

VIEWS = f"heatmaps/anomaly_grid/digits, epochs={EPOCHS} nu=0.5,3,inf"
SMALL = ["--axis", "beta=0.5,1", "--axis", "nu=0.5", "--axis", "normal_class=0", "--set", "epochs=2"]
"""2 trials."""
NUS = (HANGS, DIES, EATS, 20)
"""In two cohorts, one with a trial that is not poisoned."""
POISONED = [
    *("--set", "normal_class=0", "--axis", "beta=1", "--axis", f"nu={','.join(map(str, NUS))}", "--set", "epochs=5"),
    *("--cohort", "2", "--retries", "0", "--step-timeout", "2"),
]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the undisturbed sweep's store, with figures: the same command draws them."""
    store = Path(shutil.copytree(undisturbed_store(), tmp_path_factory.mktemp("finished") / "a folder"))
    assert run.main(["anomaly_grid", "--preset", "digits", "--store", str(store), *GRID]) == 0
    return store


@pytest.fixture
def poisoned_ray() -> Iterator[None]:
    """This process is connected to a local Ray of one core, where trials with a nu of `tests.end_to_end.poisons` are
    poisoned. A driver of its own would be poisoned, too."""
    init_arguments = session._init_arguments
    with pytest.MonkeyPatch.context() as patched, contextlib.ExitStack() as stack:
        with pytest.MonkeyPatch.context() as started:  # what Ray's processes inherit, and no others
            started.setattr(session, "_init_arguments", lambda *options: init_arguments(*options) | {"num_cpus": 1})
            for name, value in {"PYTHONPATH": POISON, "OMP_NUM_THREADS": "1"}.items():
                started.setenv(name, value)
            scratch = stack.enter_context(session.connected(None))
        patched.setattr(sweep_run, "connected", lambda *_, **__: contextlib.nullcontext(scratch))
        yield


def plan(store: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    """Output of `--plan --json`, run in this process."""
    command = ["anomaly_grid", "--preset", "digits", "--store", str(store), *arguments, "--plan", "--json"]
    assert run.main(command) == 0
    content: dict[str, object] = json.loads(capsys.readouterr().out)
    return content


def test_a_sweep_ends_with_rows_history_and_figures(finished: Path) -> None:
    frame = rows(finished)
    assert len(frame) == TRIALS and set(frame["status"]) == {"finished"} and set(frame["epochs_run"]) == {EPOCHS}
    assert set(zip(frame["beta"], frame["nu"], frame["normal_class"], strict=True)) == {
        (beta, nu, c) for beta in (0.5, 1.0) for nu in (0.5, 3.0, float("inf")) for c in (0, 1)
    }
    kinds = {
        name: str(frame[name].dtype) for name in ("beta", "nu", "normal_class", "epochs", "auroc_joint", "seconds")
    }
    assert kinds == {
        **{"beta": "float64", "nu": "float64", "normal_class": "int64", "epochs": "int64"},
        **{"auroc_joint": "float64", "seconds": "float64"},
    }
    assert set(frame["small_stem"]) == {True} and set(frame["method"]) == {"vje"}
    assert set(frame["preset"]) == {"digits"} and frame["nu"].eq(float("inf")).any()
    assert frame["changes"].eq(np.where(frame["nu"] < np.inf, f"epochs={EPOCHS}", f"epochs={EPOCHS} nu=inf")).all()
    assert len(load("anomaly_grid", finished, preset="digits", changes=f"epochs={EPOCHS}")) == 8
    assert frame["auroc_joint"].between(0, 1).all() and frame["loss"].notna().all()
    history = load_history("anomaly_grid", finished)
    assert EPOCHS in set(history["epoch"]) and set(history["trial_id"]) == set(frame.index)
    final = history[(history["epoch"] == EPOCHS) & (history["metric"] == "auroc_joint")].set_index("trial_id")["value"]
    pd.testing.assert_series_equal(final.sort_index(), frame["auroc_joint"], check_names=False, check_exact=True)
    for metric in ("auroc_joint", "auroc_dir", "auroc_rad", "auroc_variance", "auroc_entropy"):
        assert (finished / VIEWS / f"{metric}.png").read_bytes().startswith(b"\x89PNG")
        assert len(pd.read_parquet(finished / VIEWS / f"{metric}.parquet")) == 6
    assert not list(finished.glob("checkpoints/*/*")) and "12 finished of 12 trials" in undisturbed_output()


def test_the_same_command_again_trains_nothing(
    finished: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mtimes = {path: path.stat().st_mtime_ns for path in finished.glob("trials/*/*.parquet")}
    trial = rows(finished).index[0]
    orphan = checkpoint_path("anomaly_grid", "c")  # as a second driver leaves it
    Files(finished).write(orphan, labelled([trial], b"weights"))
    monkeypatch.setattr(sweep_run, "connected", lambda *_, **__: pytest.fail("Ray was started"))
    assert run.main(["anomaly_grid", "--preset", "digits", "--store", str(finished), *GRID]) == 0
    assert Files(finished).read(orphan) is None
    out, err = capsys.readouterr()
    expected = undisturbed_output().replace(str(undisturbed_store()), str(finished))
    best = [[line for line in text.splitlines() if line.startswith("best ")] for text in (out, expected)]
    assert err == "" and best[0] == best[1] != [] and "12 finished of 12 trials" in out
    assert {path: path.stat().st_mtime_ns for path in finished.glob("trials/*/*.parquet")} == mtimes


def test_a_changed_axis_leaves_only_what_is_new(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [argument.replace("nu=0.5,3,inf", "nu=0.5,3,20,inf") for argument in GRID]
    planned = plan(finished, arguments, capsys)
    assert (planned["trials"], planned["finished"], planned["to run"]) == (16, 12, 4)


def test_a_trial_that_cannot_train_takes_no_other_with_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No machine has room for 10^12 hidden units, which neither the measurement nor the training survives."""
    command = ["anomaly_grid", "--preset", "digits", "--store", str(tmp_path), *SMALL, "--retries", "0", "--debug"]
    assert run.main([*command, "--axis", "width=16,1000000000000"]) == 1, capsys.readouterr()
    frame = rows(tmp_path)
    assert frame.groupby("width")["status"].agg(set).to_dict() == {16: {"finished"}, 10**12: {"failed"}}
    assert frame[frame["status"] == "failed"]["error"].str.contains("allocate|memory").all(), frame["error"].tolist()


@pytest.mark.soak
def test_a_poisoned_trial_takes_no_other_with_it_and_is_named(
    poisoned_ray: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`test_the_cause_of_a_failure_follows_the_messages_before_it` of `test_ray_backend.py`,
    `test_a_process_that_hangs_ends_itself_and_says_where` of `test_worker.py`, and
    `test_a_trial_that_cannot_train_fails_alone_and_is_tried_again_by_the_next_run` assert its parts."""
    status = run.main(["anomaly_grid", "--preset", "digits", "--store", str(tmp_path), *POISONED])
    frame = rows(tmp_path).set_index("nu")
    assert status == 1 and "3 failed, 1 finished of 4 trials" in capsys.readouterr().out, frame["error"].to_dict()
    errors = frame["error"].dropna()
    assert set(errors.index) == {HANGS, EATS, DIES} and not errors.str.contains("\n").any(), errors
    assert "died" in errors[DIES], errors
    assert errors[HANGS].startswith("hung: no step was completed within 2 s, at "), errors
    assert "sitecustomize.py" in errors[HANGS] and "OutOfMemory" in errors[EATS], errors


def test_fresh_archives_what_it_trains_again_and_restore_brings_it_back(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Path(shutil.copytree(finished, tmp_path / "store"))
    before = rows(store)
    narrowed = [argument.replace("normal_class=0,1", "normal_class=0") for argument in GRID]
    retrained = before["normal_class"] == 0
    with without_ray(tmp_path):
        assert run.main(["anomaly_grid", "--preset", "digits", "--store", str(store), *narrowed, "--fresh"]) == 0
    out = capsys.readouterr().out
    assert "6 of 6 trials to run" in out and "archived: 6 rows, from " in out, out
    after = rows(store)
    assert_same_results(after, before)
    assert (after.loc[retrained, "ended"] > before["ended"].max()).all()
    assert after[~retrained].equals(before[~retrained])
    (archived,) = (store / "_replaced").iterdir()
    pd.testing.assert_frame_equal(rows(archived), before[retrained])
    assert run.main(["anomaly_grid", "--store", str(store), "--restore", archived.name]) == 0
    pd.testing.assert_frame_equal(rows(store), before)


def test_a_fresh_plan_says_what_would_be_archived(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [argument.replace("normal_class=0,1", "normal_class=0,2") for argument in GRID]
    planned = plan(finished, [*arguments, "--fresh"], capsys)
    archived = planned["archived"]
    assert isinstance(archived, dict) and (planned["to run"], archived["rows"]) == (12, 6)
    assert len(rows(finished)) == TRIALS and not (finished / "_replaced").exists()
