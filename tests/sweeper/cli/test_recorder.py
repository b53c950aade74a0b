from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from sweeper.cli.recorder import HISTORY_SECONDS
from sweeper.storage.layout import checkpoint_path
from tests.sweeper.cli.recorder_harness import COHORTS, STARTED, Harness, diverged, error, message
from trainables.reports import Heartbeat


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return Harness(tmp_path)


def test_a_finished_cohort_becomes_a_row_a_trial(harness: Harness) -> None:
    harness.report("c0", message(1, [0.5, 0.6]), message(2, [0.7, 0.8], done=True))
    rows = harness.rows()
    assert rows["auroc"].to_dict() == {"a0": 0.7, "a1": 0.8} and rows["nu"].to_dict() == {"a0": 0.0, "a1": 1.0}
    assert rows["loss"].isna().all() and rows["error"].isna().all()
    assert set(rows["status"]) == {"finished"} and set(rows["epochs_run"]) == {2} and set(rows["cohort"]) == {"c0"}
    assert (
        set(rows["code_version"]) == {"0.1.0+abc"} and set(rows["host"]) == {"here"} and set(rows["device"]) == {"cpu"}
    )
    assert (rows["started"] == pd.Timestamp(STARTED)).all() and (rows["ended"] > rows["started"]).all()
    assert harness.progress.done == 2


def test_a_trial_is_charged_its_share_of_the_cohorts_seconds(harness: Harness) -> None:
    harness.report("c0", message(2, [0.7, 0.8], done=True))
    assert harness.rows()["seconds"].tolist() == [3.0, 3.0] and set(harness.rows()["cohort_size"]) == {2}


def test_every_report_is_history(harness: Harness) -> None:
    harness.report("c0", message(1, [0.5, None]), message(2, [0.7, 0.8], done=True))
    assert harness.history() == [("a0", 1, "auroc", 0.5), ("a0", 2, "auroc", 0.7), ("a1", 2, "auroc", 0.8)]


def test_a_report_is_in_the_history_while_the_cohort_trains(harness: Harness) -> None:
    harness.report("c0", message(1, [0.5, 0.6]))
    assert harness.history() == [("a0", 1, "auroc", 0.5), ("a1", 1, "auroc", 0.6)]
    assert harness.store.statuses("grid") == {}, "a row means that the trial has ended"


def test_frequent_reports_are_written_together_with_the_next_heartbeat(harness: Harness) -> None:
    harness.report("c0", message(1, [0.5, 0.6]), message(2, [0.7, 0.8]))
    assert len(harness.history()) == 2
    harness.now += HISTORY_SECONDS
    harness.recorder.started("c1")
    harness.recorder.advanced("c1", Heartbeat(0.5, 4, 1.0))
    assert len(harness.history()) == 4


def test_the_history_of_a_cohort_that_trains_is_not_folded(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweeper.storage.parquet_files.MANY", 2)
    harness.report("c1", message(1, [0.9], done=True))
    harness.report("c0", message(1, [0.5, 0.6]))
    names = {Path(path).name for path in harness.files() if "history" in path}
    assert names == {"c0.parquet", "c1.parquet"}


def test_halves_report_in_place_of_their_whole(harness: Harness) -> None:
    assert harness.source.next() is not None
    harness.report("c0", message(1, [0.5, 0.6]))
    parts = harness.source.halve(COHORTS[0])
    harness.recorder.split("c0", parts, error("out of memory"))
    harness.report(parts[0].id, message(1, [0.55], done=True))
    assert harness.history() == [("a0", 1, "auroc", 0.55)]


def test_the_epoch_and_the_last_metric_of_running_cohorts_are_shown(harness: Harness) -> None:
    view = harness.progress.running_cohorts
    harness.report("c0", message(1, [0.5, 0.6]))
    harness.recorder.advanced("c0", Heartbeat(1.5, 4, 2.25))
    assert view.lines("auroc") == ["cohort c0  2 trials  epoch 1.5 of 4  loss 2.25  mean auroc 0.55"]
    harness.recorder.interrupted("c0", error("the worker died"))
    assert view.lines("auroc") == []
    harness.report("c0", message(1, [0.5, 0.6]), message(2, [0.7, 0.8], done=True))
    assert view.lines("auroc") == []


def test_a_cohort_that_starts_again_is_not_in_the_history_twice(harness: Harness) -> None:
    harness.report("c0", message(1, [0.5, 0.6]))
    harness.recorder.interrupted("c0", error("the worker died"))
    harness.report("c0", message(1, [0.5, 0.6]), message(2, [0.7, 0.8], done=True))
    assert len(harness.history()) == 4
    assert "cohort c0 (2 trials)" in harness.out.getvalue() and "the worker died" in harness.out.getvalue()


def test_a_message_that_comes_twice_or_late_changes_nothing(harness: Harness) -> None:
    first, last = message(1, [0.5, 0.6]), message(2, [0.7, 0.8], done=True)
    harness.report("c0", first, first, last)
    before, history, shown = harness.rows(), harness.history(), harness.out.getvalue()
    harness.recorder.reported("c0", last)
    harness.recorder.reported("c0", first)
    harness.recorder.advanced("c0", Heartbeat(1.5, 4, 2.25))
    pd.testing.assert_frame_equal(harness.rows(), before)
    assert harness.history() == history and len(history) == 4 and harness.out.getvalue() == shown
    assert harness.progress.done == 2 and harness.progress.running_cohorts.lines("auroc") == []


def test_a_replay_changes_no_result(harness: Harness, tmp_path: Path) -> None:
    messages = message(1, [0.5, 0.6]), message(2, [0.7, 0.8], done=True)
    harness.report("c0", *messages)
    before, history = harness.rows(), harness.history()
    restarted = Harness(tmp_path)
    restarted.report("c0", *messages)
    pd.testing.assert_frame_equal(restarted.rows().drop(columns="ended"), before.drop(columns="ended"))
    assert restarted.history() == history and len(restarted.files()) == 2


def test_a_diverged_member_is_a_result_with_its_epoch_and_no_numbers(harness: Harness) -> None:
    first = diverged(message(1, [0.5, 0.6]), member=1, epoch=1)
    harness.report("c0", first, diverged(message(2, [0.7, 0.8], done=True), member=1, epoch=1))
    rows = harness.rows()
    assert rows["status"].to_dict() == {"a0": "finished", "a1": "diverged"}
    assert rows["epochs_run"].to_dict() == {"a0": 2, "a1": 1}
    assert rows.loc["a1", "error"] == "not finite in 1" and pd.isna(rows.loc["a1", "auroc"])
    assert {trial for trial, *_ in harness.history()} == {"a0"}


def test_the_checkpoint_of_a_whole_stays_until_its_last_part_has_a_result(harness: Harness) -> None:
    files, source = harness.store.files, harness.source
    assert source.next() is not None
    parts = source.halve(COHORTS[0])
    paths = [checkpoint_path("grid", cohort.id) for cohort in (COHORTS[0], *parts)]
    for path in paths:
        files.write(path, b"standing")
    harness.recorder.split("c0", parts, error("out of memory"))
    assert "goes on in 2 halves: out of memory" in harness.out.getvalue()
    for part, left in zip(parts, ([True, False, True], [False] * 3), strict=True):
        harness.report(part.id, message(1, [0.5], done=True))
        assert [files.read(path) is not None for path in paths] == left
    assert set(harness.rows().index) == {"a0", "a1"}


def test_a_cohort_that_failed_has_rows_that_say_why(harness: Harness) -> None:
    harness.recorder.started("c0")
    harness.recorder.failed("c0", error("RuntimeError: out of luck"))
    rows = harness.rows()
    assert set(rows["status"]) == {"failed"} and set(rows["error"]) == {"RuntimeError: out of luck"}
    assert set(rows["epochs_run"]) == {0} and rows["auroc"].isna().all()
    assert harness.progress.done == 0 and "out of luck" in harness.out.getvalue()


def test_a_cohort_that_failed_before_it_started_has_rows_too(harness: Harness) -> None:
    harness.recorder.failed("c0", error("no room in the cluster"))
    assert set(harness.rows()["status"]) == {"failed"} and harness.rows()["started"].notna().all()


def test_a_later_success_replaces_a_failure(harness: Harness) -> None:
    harness.recorder.started("c0")
    harness.recorder.failed("c0", error("lost"))
    harness.report("c0", message(2, [0.7, 0.8], done=True))
    rows = harness.rows()
    assert set(rows["status"]) == {"finished"} and rows["error"].isna().all() and len(rows) == 2


def test_the_checkpoint_goes_once_the_rows_are_there(harness: Harness) -> None:
    path = checkpoint_path("grid", "c0")
    harness.store.files.write(path, b"state")
    harness.report("c0", message(1, [0.5, 0.6]))
    assert harness.store.files.read(path) == b"state"
    harness.report("c0", message(2, [0.7, 0.8], done=True))
    assert harness.store.files.read(path) is None


def test_a_cohort_that_is_cut_off_or_fails_keeps_its_checkpoint(harness: Harness) -> None:
    path = checkpoint_path("grid", "c0")
    harness.store.files.write(path, b"state")
    harness.report("c0", message(1, [0.5, 0.6]))
    harness.recorder.interrupted("c0", error("killed"))
    assert harness.store.files.read(path) == b"state"
    harness.recorder.failed("c0", error("killed"))
    assert harness.store.files.read(path) == b"state"


def test_cohorts_that_overlap_in_time_do_not_mix(harness: Harness) -> None:
    harness.recorder.started("c0")
    harness.recorder.started("c1")
    for cohort, report in [
        ("c0", message(1, [0.1, 0.2])),
        ("c1", message(1, [0.9])),
        ("c1", message(2, [0.95], done=True)),
        ("c0", message(2, [0.3, 0.4], done=True)),
    ]:
        harness.recorder.reported(cohort, report)
    assert harness.rows()["auroc"].to_dict() == {"a0": 0.3, "a1": 0.4, "b0": 0.95}
    assert len(harness.history()) == 6


def test_why_steps_are_not_compiled_is_said_once(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    uncompiled = replace(message(1, [0.5, 0.6]), about_steps="steps are not compiled: there is no compiler")
    for cohort in COHORTS:
        harness.report(cohort.id, replace(uncompiled, report=message(1, [0.5] * len(cohort.trials)).report))
    assert harness.out.getvalue().count("steps are not compiled: there is no compiler") == 1
