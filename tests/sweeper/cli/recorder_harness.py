"""A recorder on a store in a folder, and the messages that it gets."""

import io
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
from rich.console import Console

from sweeper.cli.progress.sweep_progress import Progress
from sweeper.cli.recorder import Recorder
from sweeper.plan.cohorts import Cohort, Trial
from sweeper.plan.sources import CohortQueue
from sweeper.storage.load import load, load_history
from sweeper.storage.rows import Columns
from sweeper.storage.store import Store
from tests.sweeper.cli.progress.examples import plan_of
from trainables.reports import Member, Report, Status
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


class Harness:
    """A `Recorder` on a store in a folder, with its printed output and a clock."""

    def __init__(self, folder: Path) -> None:
        self.store, self.out = Store(folder), io.StringIO()
        console = Console(file=self.out, highlight=False, width=200)
        self.progress = Progress(plan_of(3, metric="auroc"), console=console)
        self.store.prepare("grid", COLUMNS)
        self.source = CohortQueue(COHORTS)
        self.now = 0.0
        self.recorder = Recorder(
            self.store, "grid", COLUMNS, self.source, self.progress, "0.1.0+abc", clock=lambda: self.now
        )

    def report(self, cohort: str, *messages: CohortReport) -> None:
        self.recorder.started(cohort)
        for message in messages:
            self.recorder.reported(cohort, message)

    def rows(self) -> pd.DataFrame:
        return load("grid", self.store.files).set_index("trial_id").sort_index()

    def history(self) -> list[tuple[str, int, str, float]]:
        frame = load_history("grid", self.store.files)
        return list(frame[["trial_id", "epoch", "metric", "value"]].itertuples(index=False, name=None))

    def files(self) -> dict[str, bytes]:
        folder = self.store.files.local_folder
        assert folder is not None
        return {str(path): path.read_bytes() for path in folder.rglob("*.parquet")}
