"""Whatever is written, merged, damaged, archived and killed in a store: it holds what a dictionary would."""

import contextlib
import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sweeper.errors import StoreError
from sweeper.storage import parquet_files
from sweeper.storage.archive import TrialSelection, archive, restore
from sweeper.storage.files import Files
from sweeper.storage.load import load_history
from sweeper.storage.retry import NO_RETRIES
from sweeper.storage.store import Store, StoreReader
from tests.sweeper.storage.rows import COLUMNS, DAMAGES, flipped, row

MUTATIONS = ("write", "delete", "delete_if_unchanged", "move", "delete_folder")
"""Methods of `Files` that change a store."""
FILES = "sweep=grid/[!.]*.parquet"
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
trial_sets = st.sets(st.sampled_from("abcdef"), min_size=1)
moments = st.integers(0, 9)


class Killed(BaseException):
    """The process ends here, as with SIGKILL: no handler runs after it."""


@contextlib.contextmanager
def killed_at(moment: int) -> Iterator[list[bool]]:
    """Context that ends at its change of the store with this number, from 0, or later if there are fewer. The list that
    it yields then has an entry."""
    count, died = itertools.count(), list[bool]()

    def wrapped(plain: Callable[..., Any]) -> Callable[..., Any]:
        def change(*arguments: Any) -> Any:
            if next(count) >= moment:
                raise Killed
            return plain(*arguments)

        return change

    with pytest.MonkeyPatch.context() as patched:
        for name in MUTATIONS:
            patched.setattr(Files, name, wrapped(getattr(Files, name)))
        try:
            yield died
        except Killed:
            died.append(True)


def columns_in(path: Path, *names: str) -> list[list[Any]]:
    table = pq.ParquetFile(path).read(columns=list(names))
    return [table[name].to_pylist() for name in names]


def rows_in(folder: Path) -> Iterator[tuple[str, str, int]]:
    """Trial, status and number of the write of each row in the files below a folder."""
    for path in folder.glob(f"trials/{FILES}"):
        yield from zip(*columns_in(path, "trial_id", "status", "epochs_run"), strict=True)


@dataclass
class Content:
    """What a store, or a folder below `_replaced`, should hold."""

    rows: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Trial -> status, and number of the write that it comes from."""
    reported: set[str] = field(default_factory=set)
    """Trials with a history."""

    @staticmethod
    def of(folder: Path) -> "Content":
        """What it does hold, of files that are intact."""
        content = Content()
        for trial, status, number in sorted(rows_in(folder), key=lambda row: row[2]):
            content.rows[trial] = status, number
        for path in folder.glob(f"history/{FILES}"):
            content.reported |= set(columns_in(path, "trial_id")[0])
        return content

    def take(self, trials: set[str]) -> "Content":
        """Remove what there is of these trials, and return it."""
        taken = Content({trial: self.rows.pop(trial) for trial in trials & self.rows.keys()}, trials & self.reported)
        self.reported -= trials
        return taken

    def add(self, other: "Content") -> None:
        self.rows |= other.rows
        self.reported |= other.reported

    @property
    def trials(self) -> set[str]:
        return self.rows.keys() | self.reported

    def swap(self, back: "Content") -> "Content":
        """Put in what comes back, and return what it replaces: of trials that come back without a row, the history."""
        replaced = self.take({*back.rows})
        replaced.reported |= back.reported & self.reported
        self.add(back)
        return replaced


class StoreStates(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.patched = pytest.MonkeyPatch()
        self.patched.setattr(parquet_files, "MANY", 3)
        self.patched.setattr(os, "fsync", lambda _: None)
        self.folder = Path(tempfile.mkdtemp())
        self.lines: list[str] = []
        self.number, self.damaged_history = 0, False
        self.stored, self.archived = Content(), dict[str, Content]()
        """What should be in the store, and in each folder of `_replaced` by its name."""
        self.reopen()

    def teardown(self) -> None:
        self.patched.undo()
        shutil.rmtree(self.folder)

    @rule()
    def reopen(self) -> None:
        """As a new driver does."""
        self.store = Store(Files(self.folder, NO_RETRIES, self.lines.append))
        assert self.store.prepare("grid", COLUMNS) == COLUMNS

    @rule(cohort=st.integers(0, 3), trials=trial_sets, status=st.sampled_from(["finished", "diverged", "failed"]))
    def train(self, cohort: int, trials: set[str], status: str) -> None:
        self.write(cohort, trials, status)
        self.written(trials, status)

    def write(self, cohort: int, trials: set[str], status: str) -> None:
        """Write history and rows as a driver does, once a cohort has ended. Values depend on the trial alone."""
        self.number += 1
        value = None if status == "failed" else 0.5
        if value is not None:
            self.store.write_history("grid", f"c{cohort}", [(trial, 1, "auroc", value) for trial in trials])
        ended = BEGIN + timedelta(days=self.number)
        rows = [row(trial, status, auroc=value, epochs_run=self.number, ended=ended) for trial in trials]
        self.store.write("grid", f"c{cohort}", rows, COLUMNS)

    def written(self, trials: set[str], status: str) -> None:
        for trial in trials:
            if status != "failed" or self.stored.rows.get(trial, ("failed", 0))[0] == "failed":
                self.stored.rows[trial] = status, self.number
        self.stored.reported |= trials if status != "failed" else set()

    @rule(cohort=st.integers(0, 3), trials=trial_sets, moment=moments)
    def train_and_be_killed(self, cohort: int, trials: set[str], moment: int) -> None:
        before = Content(dict(self.stored.rows), set(self.stored.reported))
        with killed_at(moment):
            self.write(cohort, trials, "finished")
        self.written(trials, "finished")
        self.reopen()
        now = Content.of(self.folder)
        for trial in trials:
            assert now.rows.get(trial) in (before.rows.get(trial), self.stored.rows[trial]), trial
        assert before.reported <= now.reported <= self.stored.reported
        new = {trial for trial in trials if now.rows.get(trial) == self.stored.rows[trial]}
        assert new <= now.reported, "history is written before rows"
        self.stored = now

    @rule()
    def merge(self) -> None:
        merged = self.store.compact("grid")
        assert [path.name for path in self.files("trials")] == ([merged] if merged else [])

    @precondition(lambda self: self.stored.trials)
    @rule(data=st.data(), how=st.sampled_from(sorted(DAMAGES)))
    def damage(self, data: st.DataObject, how: str) -> None:
        kind = data.draw(st.sampled_from([kind for kind in ("trials", "history") if self.files(kind)]))
        path = data.draw(st.sampled_from(self.files(kind)))
        self.damaged_history |= kind == "history"
        content = flipped(self.store.files, str(path.relative_to(self.folder)), how)
        path.rename(path.with_suffix(".aside"))
        now = Content.of(self.folder)
        path.with_suffix(".aside").rename(path)
        self.stored = Content(now.rows, self.stored.reported) if kind == "trials" else now
        before, reader = self.bytes(), StoreReader(self.folder)
        assert reader.statuses("grid") == self.statuses() and self.bytes() == before, "a plan writes nothing"
        assert list(reader.damaged) == [str(path.relative_to(self.folder))]
        self.store = Store(Files(self.folder, NO_RETRIES, self.lines.append))
        self.store.quarantine(reader.damaged)
        self.store.prepare("grid", COLUMNS)
        assert "is damaged" in self.lines[-1] and content in self.bytes().values(), "nothing is deleted"

    @rule(trials=trial_sets)
    def archive_trials(self, trials: set[str]) -> None:
        moved, taken = self.archive(trials), self.stored.take(trials)
        assert (moved is None) == (not taken.trials)
        if moved:
            self.archived[moved] = taken
        self.reopen()

    def archive(self, trials: set[str]) -> str | None:
        moved = archive(self.store.files, "grid", TrialSelection(trials), COLUMNS)
        return moved.folder.removeprefix("_replaced/") if moved else None

    @rule(trials=trial_sets, moment=moments)
    def archive_and_be_killed(self, trials: set[str], moment: int) -> None:
        before = self.everything()
        with killed_at(moment):
            self.archive(trials)
        assert self.everything() >= before
        self.reopen()
        self.archive(trials)
        assert self.everything() >= before
        self.stored.take(trials)
        self.archived = self.archives()
        self.reopen()

    @precondition(lambda self: self.archived)
    @rule(data=st.data())
    def bring_back(self, data: st.DataObject) -> None:
        time = data.draw(st.sampled_from(sorted(self.archived)))
        restore(self.store.files, "grid", time)
        back = self.archived.pop(time)
        swapped = self.stored.swap(back)
        new = set(self.archives()) - self.archived.keys()
        assert len(new) == bool(swapped.trials)
        self.archived |= dict.fromkeys(new, swapped)
        self.reopen()

    @precondition(lambda self: self.archived)
    @rule(data=st.data(), moment=moments)
    def bring_back_and_be_killed(self, data: st.DataObject, moment: int) -> None:
        time = data.draw(st.sampled_from(sorted(self.archived)))
        before, back = self.everything(), self.archived[time]
        with killed_at(moment) as died:
            restore(self.store.files, "grid", time)
        assert self.everything() >= before
        if died:
            with contextlib.suppress(StoreError):  # all of it is back, and only the empty folder is left
                restore(self.store.files, "grid", time)
        assert self.everything() >= before and time not in self.archives()
        self.stored.swap(back)
        self.archived = self.archives()
        self.reopen()

    @invariant()
    def it_holds_what_it_should(self) -> None:
        assert Content.of(self.folder) == self.stored and self.archives() == self.archived
        assert StoreReader(self.folder).statuses("grid") == self.statuses()

    @invariant()
    def pandas_reads_each_row_and_record_once(self) -> None:
        """History that another cohort reports again is in two files until the next run."""
        if self.files("trials"):
            frame = pd.read_parquet(self.folder / "trials")
            assert frame["trial_id"].is_unique and set(frame["sweep"]) <= {"grid"}
        if self.files("history"):
            assert not load_history("grid", self.folder).duplicated(["trial_id", "epoch", "metric"]).any()

    def statuses(self) -> dict[str, str]:
        """Those that the next run should find: a result that has lost its history is trained again, if a history was
        ever damaged."""
        found = {trial: status for trial, (status, _) in self.stored.rows.items()}
        if not self.damaged_history:
            return found
        return {trial: status for trial, status in found.items() if status == "failed" or trial in self.stored.reported}

    def files(self, kind: str) -> list[Path]:
        return sorted(self.folder.glob(f"{kind}/{FILES}"))

    def bytes(self) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in self.folder.rglob("*") if path.is_file()}

    def archives(self) -> dict[str, Content]:
        contents = {path.name: Content.of(path) for path in self.folder.glob("_replaced/*")}
        return {time: content for time, content in contents.items() if content.trials}

    def everything(self) -> set[tuple[str, str, int]]:
        """Each row that is anywhere, with its trial."""
        return {row for folder in (self.folder, *self.folder.glob("_replaced/*")) for row in rows_in(folder)}


TestStoreStates = pytest.mark.slow(StoreStates.TestCase)
TestStoreStates.settings = settings(max_examples=14, stateful_step_count=15)
