import io
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from sweeper.cli.progress import Progress
from sweeper.cli.recorder import HISTORY_SECONDS, Recorder
from sweeper.plan.cohort_source import CohortQueue
from sweeper.plan.cohorts import Cohort
from sweeper.plan.trials import Trial
from sweeper.storage.layout import checkpoint_path
from sweeper.storage.load import load, load_history
from sweeper.storage.schema import Columns
from sweeper.storage.store import Store
from trainables.contract import Heartbeat, Member, Report, Status
from trainables.worker.messages import CohortReport, Failure, Origin

COLUMNS = Columns({"nu": float}, ("auroc", "loss"))
COHORTS = (
    Cohort("c0", tuple(Trial(f"a{i}", {"nu": float(i)}) for i in range(2)), 2),
    Cohort("c1", (Trial("b0", {"nu": 9.0}),), 1),
)
STARTED = datetime(2026, 1, 1, 12, tzinfo=UTC)
ORIGIN = Origin("cpu", "here", 1, STARTED)


def message(epoch: int, aurocs: list[float | None], done: bool = False) -> CohortReport:
    status: Status = "finished" if done else "running"
    seconds = 3.0 * epoch / len(aurocs)
    members = tuple(Member(status, epoch, {"auroc": value}, seconds=seconds) for value in aurocs)
    return CohortReport(Report(epoch, members, 3.0 * epoch, done), ORIGIN)


def diverged(reported: CohortReport, member: int, epoch: int) -> CohortReport:
    """The message `reported`, with one member diverged in the given epoch."""
    members = list(reported.report.members)
    members[member] = Member("diverged", epoch, {"auroc": None}, f"not finite in {epoch}", seconds=0.5)
    return replace(reported, report=replace(reported.report, members=tuple(members)))


def error(reason: str) -> Failure:
    return Failure("error", reason)


class Bench:
    """A `Recorder` on a store in a folder, with its printed output and a clock."""

    def __init__(self, folder: Path) -> None:
        self.store, self.out = Store(folder), io.StringIO()
        console = Console(file=self.out, highlight=False, width=200)
        self.progress = Progress(3, {}, "auroc", "maximize", "grid", console=console)
        self.store.prepare("grid", COLUMNS)
        self.source = CohortQueue(COHORTS)
        self.now = 0.0
        self.recorder = Recorder(
            self.store, "grid", COLUMNS, self.source, self.progress, "0.1.0+abc", clock=lambda: self.now
        )

    def tell(self, cohort: str, *messages: CohortReport) -> None:
        self.recorder.started(cohort)
        for report in messages:
            self.recorder.reported(cohort, report)

    def rows(self) -> pd.DataFrame:
        return load("grid", self.store.files).set_index("trial_id").sort_index()

    def history(self) -> list[tuple[str, int, str, float]]:
        frame = load_history("grid", self.store.files)
        return list(frame[["trial_id", "epoch", "metric", "value"]].itertuples(index=False, name=None))

    def files(self) -> dict[str, bytes]:
        folder = self.store.files.local_folder
        assert folder is not None
        return {str(path): path.read_bytes() for path in folder.rglob("*.parquet")}


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_finished_cohort_becomes_a_row_a_trial(bench: Bench) -> None:
    bench.tell("c0", message(1, [0.5, 0.6]), message(2, [0.7, 0.8], done=True))
    rows = bench.rows()
    assert rows["auroc"].to_dict() == {"a0": 0.7, "a1": 0.8} and rows["nu"].to_dict() == {"a0": 0.0, "a1": 1.0}
    assert rows["loss"].isna().all() and rows["error"].isna().all()
    assert set(rows["status"]) == {"finished"} and set(rows["epochs_run"]) == {2} and set(rows["cohort"]) == {"c0"}
    assert (
        set(rows["code_version"]) == {"0.1.0+abc"} and set(rows["host"]) == {"here"} and set(rows["device"]) == {"cpu"}
    )
    assert (rows["started"] == pd.Timestamp(STARTED)).all() and (rows["ended"] > rows["started"]).all()
    assert bench.progress.done == 2


def test_a_trial_is_charged_its_share_of_the_cohorts_seconds(bench: Bench) -> None:
    bench.tell("c0", message(2, [0.7, 0.8], done=True))
    assert bench.rows()["seconds"].tolist() == [3.0, 3.0] and set(bench.rows()["cohort_size"]) == {2}


def test_every_report_is_history(bench: Bench) -> None:
    bench.tell("c0", message(1, [0.5, None]), message(2, [0.7, 0.8], done=True))
    assert bench.history() == [("a0", 1, "auroc", 0.5), ("a0", 2, "auroc", 0.7), ("a1", 2, "auroc", 0.8)]


def test_a_report_is_in_the_history_while_the_cohort_trains(bench: Bench) -> None:
    bench.tell("c0", message(1, [0.5, 0.6]))
    assert bench.history() == [("a0", 1, "auroc", 0.5), ("a1", 1, "auroc", 0.6)]
    assert bench.store.statuses("grid") == {}, "a row means that the trial has ended"


def test_reports_that_come_fast_are_written_together_with_the_next_sign_of_life(bench: Bench) -> None:
    bench.tell("c0", message(1, [0.5, 0.6]), message(2, [0.7, 0.8]))
    assert len(bench.history()) == 2
    bench.now += HISTORY_SECONDS
    bench.recorder.started("c1")
    bench.recorder.advanced("c1", Heartbeat(0.5, 4, 1.0))
    assert len(bench.history()) == 4


def test_the_history_of_a_cohort_that_trains_is_not_folded(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweeper.storage.compaction.MANY", 2)
    bench.tell("c1", message(1, [0.9], done=True))
    bench.tell("c0", message(1, [0.5, 0.6]))
    names = {Path(path).name for path in bench.files() if "history" in path}
    assert names == {"c0.parquet", "c1.parquet"}


def test_halves_report_in_the_place_of_their_whole(bench: Bench) -> None:
    assert bench.source.next() is not None
    bench.tell("c0", message(1, [0.5, 0.6]))
    parts = bench.source.halve(COHORTS[0])
    bench.recorder.split("c0", parts, error("out of memory"))
    bench.tell(parts[0].id, message(1, [0.55], done=True))
    assert bench.history() == [("a0", 1, "auroc", 0.55)]


def test_the_epoch_and_the_last_metric_of_what_runs_are_shown(bench: Bench) -> None:
    view = bench.progress.running_cohorts
    bench.tell("c0", message(1, [0.5, 0.6]))
    bench.recorder.advanced("c0", Heartbeat(1.5, 4, 2.25))
    assert view.lines("auroc") == ["cohort c0  2 trials  epoch 1.5 of 4  loss 2.25  auroc 0.6"]
    bench.recorder.interrupted("c0", error("the worker died"))
    assert view.lines("auroc") == []
    bench.tell("c0", message(1, [0.5, 0.6]), message(2, [0.7, 0.8], done=True))
    assert view.lines("auroc") == []


def test_a_cohort_that_starts_again_is_not_in_the_history_twice(bench: Bench) -> None:
    bench.tell("c0", message(1, [0.5, 0.6]))
    bench.recorder.interrupted("c0", error("the worker died"))
    bench.tell("c0", message(1, [0.5, 0.6]), message(2, [0.7, 0.8], done=True))
    assert len(bench.history()) == 4
    assert "cohort c0 (2 trials)" in bench.out.getvalue() and "the worker died" in bench.out.getvalue()


def test_a_replay_changes_no_result(bench: Bench, tmp_path: Path) -> None:
    messages = message(1, [0.5, 0.6]), message(2, [0.7, 0.8], done=True)
    bench.tell("c0", *messages)
    before, history = bench.rows(), bench.history()
    again = Bench(tmp_path)
    again.tell("c0", *messages)
    pd.testing.assert_frame_equal(again.rows().drop(columns="ended"), before.drop(columns="ended"))
    assert again.history() == history and len(again.files()) == 2


def test_a_diverged_member_is_a_result_with_its_epoch_and_no_numbers(bench: Bench) -> None:
    first = diverged(message(1, [0.5, 0.6]), member=1, epoch=1)
    bench.tell("c0", first, diverged(message(2, [0.7, 0.8], done=True), member=1, epoch=1))
    rows = bench.rows()
    assert rows["status"].to_dict() == {"a0": "finished", "a1": "diverged"}
    assert rows["epochs_run"].to_dict() == {"a0": 2, "a1": 1}
    assert rows.loc["a1", "error"] == "not finite in 1" and pd.isna(rows.loc["a1", "auroc"])
    assert {trial for trial, *_ in bench.history()} == {"a0"}


def test_the_checkpoint_of_a_whole_stays_until_its_last_part_has_a_result(bench: Bench) -> None:
    files, source = bench.store.files, bench.source
    assert source.next() is not None
    parts = source.halve(COHORTS[0])
    paths = [checkpoint_path("grid", cohort.id) for cohort in (COHORTS[0], *parts)]
    for path in paths:
        files.write(path, b"standing")
    bench.recorder.split("c0", parts, error("out of memory"))
    assert "goes on in 2 halves: out of memory" in bench.out.getvalue()
    for part, left in zip(parts, ([True, False, True], [False] * 3), strict=True):
        bench.tell(part.id, message(1, [0.5], done=True))
        assert [files.read(path) is not None for path in paths] == left
    assert set(bench.rows().index) == {"a0", "a1"}


def test_a_cohort_that_failed_has_rows_that_say_why(bench: Bench) -> None:
    bench.recorder.started("c0")
    bench.recorder.failed("c0", error("RuntimeError: out of luck"))
    rows = bench.rows()
    assert set(rows["status"]) == {"failed"} and set(rows["error"]) == {"RuntimeError: out of luck"}
    assert set(rows["epochs_run"]) == {0} and rows["auroc"].isna().all()
    assert bench.progress.done == 0 and "out of luck" in bench.out.getvalue()


def test_a_cohort_that_failed_before_it_started_has_rows_too(bench: Bench) -> None:
    bench.recorder.failed("c0", error("no room in the cluster"))
    assert set(bench.rows()["status"]) == {"failed"} and bench.rows()["started"].notna().all()


def test_a_later_success_replaces_a_failure(bench: Bench) -> None:
    bench.recorder.started("c0")
    bench.recorder.failed("c0", error("lost"))
    bench.tell("c0", message(2, [0.7, 0.8], done=True))
    rows = bench.rows()
    assert set(rows["status"]) == {"finished"} and rows["error"].isna().all() and len(rows) == 2


def test_the_checkpoint_goes_once_the_rows_are_there(bench: Bench) -> None:
    path = checkpoint_path("grid", "c0")
    bench.store.files.write(path, b"state")
    bench.tell("c0", message(1, [0.5, 0.6]))
    assert bench.store.files.read(path) == b"state"
    bench.tell("c0", message(2, [0.7, 0.8], done=True))
    assert bench.store.files.read(path) is None


def test_a_cohort_that_is_cut_off_or_fails_keeps_its_checkpoint(bench: Bench) -> None:
    path = checkpoint_path("grid", "c0")
    bench.store.files.write(path, b"state")
    bench.tell("c0", message(1, [0.5, 0.6]))
    bench.recorder.interrupted("c0", error("killed"))
    assert bench.store.files.read(path) == b"state"
    bench.recorder.failed("c0", error("killed"))
    assert bench.store.files.read(path) == b"state"


def test_cohorts_that_overlap_in_time_do_not_mix(bench: Bench) -> None:
    bench.recorder.started("c0")
    bench.recorder.started("c1")
    for cohort, report in [
        ("c0", message(1, [0.1, 0.2])),
        ("c1", message(1, [0.9])),
        ("c1", message(2, [0.95], done=True)),
        ("c0", message(2, [0.3, 0.4], done=True)),
    ]:
        bench.recorder.reported(cohort, report)
    assert bench.rows()["auroc"].to_dict() == {"a0": 0.3, "a1": 0.4, "b0": 0.95}
    assert len(bench.history()) == 6
