"""From reports to the store: what is written of a cohort, and in which order."""

import io
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from sweeper.option_values import NodePrice
from sweeper.planning.cohorts import Cohort, Trial
from sweeper.planning.sources import CohortQueue
from sweeper.record.progress import SweepProgress
from sweeper.record.rows import HISTORY_SECONDS, RowFormat, listeners
from sweeper.storage.layout import checkpoint_path
from sweeper.storage.load import load, load_history
from sweeper.storage.rows import PROVENANCE, Columns
from sweeper.storage.store import Store, StoreReader
from tests.sweeper.record.plans import plan_of
from trainables.reports import Heartbeat, Member, Report, Status
from trainables.worker.messages import CohortReport, DeviceShare, Environment, Failure, Origin

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


class Harness:
    """The listeners of a dispatch on a store in a folder, with what they show and a clock."""

    def __init__(self, folder: Path) -> None:
        self.store, self.out = Store(folder), io.StringIO()
        self.store.prepare("grid", COLUMNS)
        self.source = CohortQueue(COHORTS)
        self.progress = SweepProgress(
            plan_of(3, metric="auroc"), console=Console(file=self.out, highlight=False, width=200)
        )
        self.now = 0.0
        row_format = RowFormat(COLUMNS, "0.1.0+abc", user="ada")
        self._listeners = listeners(
            self.store, "grid", row_format, self.source, [self.progress], clock=lambda: self.now
        )

    def notify(self, event: str, cohort: str, *what: object) -> None:
        """Notify the listeners of an event of a cohort, as the loop does."""
        for listener in self._listeners:
            getattr(listener, event)(self.source.cohorts[cohort], *what)

    def report(self, cohort: str, *messages: CohortReport) -> None:
        self.notify("started", cohort)
        for message in messages:
            self.notify("reported", cohort, message)

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
    assert set(rows["user"]) == {"ada"}
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
    harness.notify("started", "c1")
    harness.notify("advanced", "c1", Heartbeat(0.5, 4, 1.0))
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
    harness.notify("split", "c0", parts, error("out of memory"))
    harness.report(parts[0].id, message(1, [0.55], done=True))
    assert harness.history() == [("a0", 1, "auroc", 0.55)]


def test_a_cohort_that_is_halved_leaves_the_history_of_those_with_a_result(harness: Harness) -> None:
    """They are in its file if a fresh run of the others was killed; then one half may be all that is left."""
    harness.store.write_history("grid", "c0", [("a2", 1, "auroc", 0.7)])
    assert harness.source.next() is not None
    harness.report("c0", message(1, [0.5, 0.6]))
    part, _ = harness.source.halve(COHORTS[0])
    harness.notify("split", "c0", [part], error("out of memory"))
    assert harness.history() == [("a2", 1, "auroc", 0.7)]


def test_a_cohort_that_is_halved_leaves_the_history_of_what_another_driver_has_trained_meanwhile(
    harness: Harness, tmp_path: Path
) -> None:
    """This driver's machine slept, and both halves are its own still."""
    assert harness.source.next() is not None
    harness.report("c0", message(1, [0.5, 0.6]))
    other = Harness(tmp_path)
    other.report("c0", message(1, [0.5, 0.6]), message(2, [0.7, 0.8], done=True))
    history = other.history()
    harness.notify("split", "c0", harness.source.halve(COHORTS[0]), error("out of memory"))
    assert harness.history() == history and len(history) == 4


def test_the_epoch_and_the_last_metric_of_running_cohorts_are_shown(harness: Harness) -> None:
    running = harness.progress.running_cohorts
    harness.report("c0", message(1, [0.5, 0.6]))
    harness.notify("advanced", "c0", Heartbeat(1.5, 4, 2.25))
    assert running.lines("auroc") == ["cohort c0  2 trials  epoch 1.5 of 4  loss 2.25  mean auroc 0.55"]
    harness.notify("interrupted", "c0", error("the worker died"))
    assert running.lines("auroc") == []
    harness.report("c0", message(1, [0.5, 0.6]), message(2, [0.7, 0.8], done=True))
    assert running.lines("auroc") == []


def test_a_cohort_that_starts_again_is_not_in_the_history_twice(harness: Harness) -> None:
    harness.report("c0", message(1, [0.5, 0.6]))
    harness.notify("interrupted", "c0", error("the worker died"))
    harness.report("c0", message(1, [0.5, 0.6]), message(2, [0.7, 0.8], done=True))
    assert len(harness.history()) == 4
    assert "cohort c0 (2 trials)" in harness.out.getvalue() and "the worker died" in harness.out.getvalue()


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


def test_the_checkpoint_of_a_whole_goes_when_it_is_halved_and_those_of_its_parts_with_their_results(
    harness: Harness,
) -> None:
    files, source = harness.store.files, harness.source
    assert source.next() is not None
    parts = source.halve(COHORTS[0])
    paths = [checkpoint_path("grid", cohort.id) for cohort in (COHORTS[0], *parts)]
    for path in paths:
        files.write(path, b"standing")
    harness.notify("split", "c0", parts, error("out of memory"))
    assert [files.read(path) is not None for path in paths] == [False, True, True]
    assert "begins anew in 2 halves: out of memory" in harness.out.getvalue()
    for part, left in zip(parts, ([False, False, True], [False] * 3), strict=True):
        harness.report(part.id, message(1, [0.5], done=True))
        assert [files.read(path) is not None for path in paths] == left
    assert set(harness.rows().index) == {"a0", "a1"}


def test_a_cohort_that_failed_has_rows_that_say_why(harness: Harness) -> None:
    harness.notify("started", "c0")
    harness.notify("failed", "c0", error("RuntimeError: out of luck"))
    rows = harness.rows()
    assert set(rows["status"]) == {"failed"} and set(rows["error"]) == {"RuntimeError: out of luck"}
    assert set(rows["epochs_run"]) == {0} and rows["auroc"].isna().all()
    assert harness.progress.done == 0 and "out of luck" in harness.out.getvalue()


def test_a_cohort_that_failed_before_it_started_has_rows_too(harness: Harness) -> None:
    harness.notify("failed", "c0", error("no room in the cluster"))
    assert set(harness.rows()["status"]) == {"failed"} and harness.rows()["started"].notna().all()


def test_a_later_success_replaces_a_failure(harness: Harness) -> None:
    harness.notify("started", "c0")
    harness.notify("failed", "c0", error("lost"))
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


def test_followers_are_notified_of_rows_that_are_in_the_store(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    notified: list[tuple[str, dict[str, str]]] = []
    with pytest.MonkeyPatch.context() as patched:
        for event in ("ended", "recorded"):
            patched.setattr(
                harness.progress, event, lambda *_, event=event: notified.append((event, statuses(harness)))
            )
        harness.report("c0", message(2, [0.7, 0.8], done=True))
    assert notified == [("ended", {}), ("recorded", {"a0": "finished", "a1": "finished"})]


def statuses(harness: Harness) -> dict[str, str]:
    return StoreReader(harness.store.files).statuses("grid")


def test_a_cohort_that_is_cut_off_or_fails_keeps_its_checkpoint(harness: Harness) -> None:
    path = checkpoint_path("grid", "c0")
    harness.store.files.write(path, b"state")
    harness.report("c0", message(1, [0.5, 0.6]))
    harness.notify("interrupted", "c0", error("killed"))
    assert harness.store.files.read(path) == b"state"
    harness.notify("failed", "c0", error("killed"))
    assert harness.store.files.read(path) == b"state"


def test_cohorts_that_overlap_in_time_do_not_mix(harness: Harness) -> None:
    harness.notify("started", "c0")
    harness.notify("started", "c1")
    for cohort, report in [
        ("c0", message(1, [0.1, 0.2])),
        ("c1", message(1, [0.9])),
        ("c1", message(2, [0.95], done=True)),
        ("c0", message(2, [0.3, 0.4], done=True)),
    ]:
        harness.notify("reported", cohort, report)
    assert harness.rows()["auroc"].to_dict() == {"a0": 0.3, "a1": 0.4, "b0": 0.95}
    assert len(harness.history()) == 6


def test_why_steps_are_not_compiled_is_said_once(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    uncompiled = replace(message(1, [0.5, 0.6]), about_steps="steps are not compiled: there is no compiler")
    for cohort in COHORTS:
        harness.report(cohort.id, replace(uncompiled, report=message(1, [0.5] * len(cohort.trials)).report))
    assert harness.out.getvalue().count("steps are not compiled: there is no compiler") == 1


PICTURES = ({"samples.png": b"a"}, {"samples.png": b"b", "reconstructions.png": b"c"})
GRIDS = {"a0/samples.png": b"a", "a1/samples.png": b"b", "a1/reconstructions.png": b"c"}


def with_pictures(reported: CohortReport) -> CohortReport:
    members = zip(reported.report.members, PICTURES, strict=True)
    members_with_pictures = tuple(replace(member, pictures=pictures) for member, pictures in members)
    return replace(reported, report=replace(reported.report, members=members_with_pictures))


def grids(folder: Path) -> dict[str, bytes]:
    root = folder / "sheets/grid"
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*.png")}


def test_each_picture_is_a_file_in_the_folder_of_its_trial(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    harness.report("c0", message(1, [0.5, 0.6]), with_pictures(message(2, [0.7, 0.8], done=True)))
    assert grids(tmp_path) == GRIDS


def test_a_killed_driver_leaves_no_row_without_its_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the changes to the store up to the row, the last is the row's, and the same report afterwards completes it."""

    class Kill(BaseException):
        """Stands for SIGKILL: no handler runs after it."""

    def kill(*arguments: object) -> None:
        raise Kill

    last = with_pictures(message(1, [0.7, 0.8], done=True))
    with monkeypatch.context() as patch:
        patch.setattr(Store, "write", kill)
        with pytest.raises(Kill):
            Harness(tmp_path).report("c0", last)
    restarted = Harness(tmp_path)
    assert restarted.store.statuses("grid") == {} and grids(tmp_path) == GRIDS
    restarted.report("c0", last)
    assert set(restarted.rows()["status"]) == {"finished"} and grids(tmp_path) == GRIDS


def test_pictures_that_cannot_be_written_keep_their_trials_from_having_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise OSError("the disk is full")

    harness = Harness(tmp_path)
    monkeypatch.setattr(Store, "write_sample_grids", fail)
    with pytest.raises(OSError, match="the disk is full"):
        harness.report("c0", with_pictures(message(1, [0.7, 0.8], done=True)))
    assert harness.store.statuses("grid") == {}


def test_members_without_pictures_have_no_folder(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    harness.report("c0", diverged(message(1, [0.7, 0.8], done=True), member=1, epoch=1))
    assert harness.store.files.list("sheets") == []


ENVIRONMENT = Environment("3.11.9", "2.15.0+cu130", "13.0", "550.54.15")
QUARTER = DeviceShare(0.25, 8.0, "H100")
PAID = Origin("NVIDIA H100", "node1", 1, datetime(2026, 1, 1, tzinfo=UTC), ENVIRONMENT, QUARTER)


def paid_row(seconds: float, price: NodePrice | None, origin: Origin | None = PAID) -> Mapping[str, object]:
    """The row of a trial that took so many seconds of its cohort."""
    member = Member("finished", 1, {}, seconds=seconds)
    (row,) = RowFormat(COLUMNS, "0.1.0", price).rows(COHORTS[1], [member], origin, STARTED, STARTED)
    return row


def test_a_quarter_of_one_of_eight_gpus_costs_its_part_of_the_node() -> None:
    """An hour on a quarter of a GPU is 900 device seconds, 1/32 of a node that costs 96 an hour."""
    row = paid_row(3600.0, NodePrice({"": 1.0, "H100": 96.0}))
    assert row["device_seconds"] == 900.0 and row["cost"] == pytest.approx(3.0)


def test_a_kind_without_a_price_of_its_own_has_that_of_the_others_or_none() -> None:
    assert paid_row(32.0, NodePrice({"": 3600.0, "T4": 1.0}))["cost"] == pytest.approx(1.0)
    assert paid_row(32.0, NodePrice({"T4": 1.0}))["cost"] is None and paid_row(32.0, None)["cost"] is None


def test_every_column_is_one_in_which_two_runs_may_differ() -> None:
    row = paid_row(1.0, None)
    assert row["driver"] == "550.54.15" and row["torch"] == "2.15.0+cu130"
    assert row["compiled"] is False and paid_row(1.0, None, replace(PAID, compiled=True))["compiled"] is True
    of_trial = {"trial_id", "nu", "status", "error", "epochs_run", "cohort", "cohort_size"}
    assert row.keys() - of_trial == set(PROVENANCE)


def test_a_cohort_without_a_process_has_no_device_and_no_cost() -> None:
    assert not {"device", "host", "device_seconds", "cost"} & paid_row(1.0, NodePrice({"": 1.0}), None).keys()
