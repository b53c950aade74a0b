"""What must hold in every world, judged by the requests, the events and the files alone: nothing here calls what the
product decides by.

The rows of a run that nothing disturbed are what is expected.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sweeper.execution.backend import Ended, Event, Told
from sweeper.storage.rows import PROVENANCE
from tests.simulation.backend import Machines, poison_of
from tests.simulation.files import Client, Memory, contents
from trainables.worker.messages import CohortReport, CohortTask

TRIALS, HISTORY = "trials/sweep=simulated/", "history/sweep=simulated/"
LEFT_BEHIND = ("checkpoints/", ".drivers/", ".probe-", "_damaged/", "models/unwritten/")
"""What a sweep that has ended leaves nothing of."""
LOSSES = 50
"""As the guide says: times that a cohort may lose its machine without reaching a further epoch."""
CUT = ("cohort", "cohort_size")
"""Columns that say in which cohort a trial was trained, which depends on whether cohorts were halved."""
Row = Mapping[str, Any]


@functools.lru_cache(maxsize=4096)
def rows_in(data: bytes) -> tuple[Row, ...]:
    """The rows of a Parquet file. Raises an exception of Arrow if it is not whole."""
    return tuple(pq.ParquetFile(pa.BufferReader(data)).read(use_threads=False).to_pylist())


def comparable(row: Row) -> Row:
    """A row without what may differ between equal runs."""
    own = {name: value for name, value in row.items() if name not in (*PROVENANCE, *CUT) and value is not None}
    return {name: None if isinstance(value, float) and math.isnan(value) else value for name, value in own.items()}


def best_rows(files: Mapping[str, bytes]) -> dict[str, Row]:
    """Trial -> its row, of all files of rows: one that did not fail, if there is one."""
    found: dict[str, Row] = {}
    for path, data in files.items():
        if path.startswith(TRIALS) and path.endswith(".parquet"):
            for row in rows_in(data):
                if found.get(row["trial_id"], {}).get("status", "failed") == "failed":
                    found[row["trial_id"]] = row
    return found


def trials_set_aside(files: Mapping[str, bytes]) -> frozenset[str]:
    """The trials of which `--fresh` has set a row aside."""
    paths = (path for path in files if path.startswith("_replaced/") and f"/{TRIALS}" in path)
    return frozenset(row["trial_id"] for path in paths for row in rows_in(files[path]))


def history_in(files: Mapping[str, bytes]) -> dict[tuple[str, int, str], float | None]:
    """Trial, epoch and metric -> value."""
    return {
        (record["trial_id"], record["epoch"], record["metric"]): record["value"]
        for path, data in files.items()
        if path.startswith(HISTORY)
        for record in rows_in(data)
    }


@dataclass(frozen=True)
class Expected:
    """What a run that nothing disturbs leaves."""

    rows: Mapping[str, Row]
    history: Mapping[tuple[str, int, str], float | None]
    figures: frozenset[str]
    """Paths of the files besides rows and history, without those that are named at random."""

    @classmethod
    def of(cls, memory: Memory) -> Expected:
        files = contents(memory)
        rows = {trial: comparable(row) for trial, row in best_rows(files).items()}
        shown = (path for path in files if path.startswith(("tables/", "studies/", "reports/", "requests/", "models/")))
        return cls(rows, history_in(files), frozenset(shown))


@dataclass
class Auditor:
    """Watches a world, and notes what does not hold."""

    memory: Memory
    machines: Machines
    retries: int
    expected: Expected | None = None
    """None while the expectation itself is made."""
    problems: list[str] = field(default_factory=list)
    seen: dict[str, str] = field(default_factory=dict)
    """Trial -> status of the row that was seen last."""
    failed: set[str] = field(default_factory=set)
    """Trials that had a row that says that they failed."""

    died_elsewhere: bool = False
    """Whether a driver died on another machine. Its lease counts for a minute from the first look at it."""

    def __post_init__(self) -> None:
        self._training: dict[tuple[Client, str], str] = {}
        self._reached: dict[tuple[Client, str], int] = {}
        self._losses: Counter[tuple[Client, str]] = Counter()
        self._failures: Counter[tuple[Client, str]] = Counter()

    def note(self, problem: str) -> None:
        if problem not in self.problems:
            self.memory.time.say(f"PROBLEM: {problem}")
            self.problems.append(problem)

    # Between any two operations

    def watch(self, verb: str, path: str) -> None:
        """Called after each operation that has changed a file."""
        if not path.startswith(TRIALS) or not path.endswith(".parquet"):
            return
        try:
            rows = best_rows(contents(self.memory))
        except (pa.ArrowException, OSError) as error:
            self.note(f"a file of rows is not whole after {verb} {path}: {error}")
            return
        aside: frozenset[str] = frozenset()
        for trial, status in self.seen.items():
            found = rows.get(trial)
            if found is None and trial not in (aside := aside or trials_set_aside(contents(self.memory))):
                self.note(f"the row of {trial} is lost after {verb} {path}")
            elif (
                found
                and found["status"] == "failed" != status
                and trial not in (aside := aside or trials_set_aside(contents(self.memory)))
            ):
                self.note(f"the result of {trial} is replaced by a failure after {verb} {path}")
        self.seen = {trial: row["status"] for trial, row in rows.items()}
        self.failed |= {trial for trial, status in self.seen.items() if status == "failed"}

    def loaded(self, rows: Sequence[Row], seen_before: Mapping[str, str]) -> None:
        """What a reader has loaded, that began when these rows were seen."""
        counts = Counter(row["trial_id"] for row in rows)
        for trial, count in counts.items():
            if count > 1:
                self.note(f"a reader has {trial} {count} times")
        for trial in seen_before.keys() - counts.keys():
            if trial not in trials_set_aside(contents(self.memory)):
                self.note(f"a reader misses {trial}")

    # Events

    def started(self, client: Client, task: CohortTask, outstanding: float) -> None:
        devices = sum(kind.count for kind in self.machines.kinds)
        if self.machines.address is None and outstanding > devices + 1e-6:
            self.note(f"cohorts that take {outstanding:g} devices are begun on {devices}")
        for key, trials in self._training.items():
            if key[0] is client and (both := set(trials.split()) & self._trials(task)):
                self.note(f"{client.name} trains {', '.join(both)} in two cohorts at once")
        self._training[client, task.cohort] = " ".join(self._trials(task))

    def told(self, client: Client, task: CohortTask, event: Event) -> None:
        key = client, task.cohort
        match event:
            case Told(_, CohortReport(report)):
                if report.epoch > self._reached.get(key, -1):
                    self._reached[key] = report.epoch
                    self._losses[key] = self._failures[key] = 0
            case Ended(_, failure):
                self._training.pop(key, None)
                if failure:
                    counts = self._losses if failure.cause == "machine" else self._failures
                    counts[key] += 1
                    if self._losses[key] > LOSSES + 1 or self._failures[key] > self.retries + LOSSES + 2:
                        self.note(f"cohort {task.cohort} is tried again and again")

    @staticmethod
    def _trials(task: CohortTask) -> set[str]:
        return {json.dumps(config.flat(), sort_keys=True).replace(" ", "") for config in task.spec.configs()}

    # At the end

    def ended(self, status: int | None, output: str) -> None:
        """Judge a driver that has ended: its last lines say what is true."""
        said = re.search(r"^((?:\d+ \w+(?:, )?)+) of (\d+) trials$", output, re.MULTILINE)
        stopped = re.search(r"^stopped: (\d+ of \d+ trials are in|what is in) .*", output, re.MULTILINE)
        rows = best_rows(contents(self.memory))
        if status in (0, 1) and not said and "error: " not in output:
            self.note(f"a driver that ended with status {status} does not say how many trials it has: {output[-300:]}")
        if status == 130 and not stopped and "interrupted" not in output:
            self.note(f"a driver that was interrupted does not say so: {output[-300:]}")
        if status == 0 and said and said[1].split()[1::2] and self.expected:
            counts = {name: int(count) for count, name in re.findall(r"(\d+) (\w+)", said[1])}
            if sum(counts.values()) != int(said[2]) or counts.get("failed"):
                self.note(f"status 0 with {said[0]!r}")
            if counts != dict(Counter(row["status"] for row in rows.values())) and not self.failed:
                self.note(f"the last line says {said[0]!r}, but the rows are otherwise")

    def judge(self, status: int | None, poisons: frozenset[str]) -> None:
        """Judge the store at the end of all. `poisons` are those of the trials that cannot be trained."""
        assert self.expected
        files = contents(self.memory)
        rows = {trial: comparable(row) for trial, row in best_rows(files).items()}
        counts = Counter(
            row["trial_id"] for path, data in files.items() if path.startswith(TRIALS) for row in rows_in(data)
        )
        for trial, count in counts.items():
            if count > 1:
                self.note(f"{trial} has {count} rows at the end")
        poisoned = {trial for trial, row in self.expected.rows.items() if poison_of(row) in poisons}
        for trial in self.expected.rows.keys() | rows.keys():
            self._compare(trial, rows.get(trial), poisoned)
        if status != (1 if poisoned else 0):
            self.note(f"the last driver has ended with status {status}")
        self._judge_history(history_in(files), poisoned)
        for path in files:
            lease = path.startswith(".drivers/") and self.died_elsewhere
            if path.startswith(LEFT_BEHIND) and not (poisoned and path.startswith("checkpoints/")) and not lease:
                self.note(f"{path} is left behind")

    def _judge_history(self, history: Mapping[tuple[str, int, str], float | None], poisoned: set[str]) -> None:
        assert self.expected
        if self.failed:
            return
        for key, value in self.expected.history.items():
            if key[0] not in poisoned and (key not in history or history[key] != value):
                self.note(f"the history of {key[0]} differs in {key[2]} at epoch {key[1]}")
        for key in history.keys() - self.expected.history.keys():
            if key[0] not in poisoned:
                self.note(f"the history has {key}, which nobody expects")

    def _compare(self, trial: str, row: Row | None, poisoned: set[str]) -> None:
        assert self.expected
        expected = self.expected.rows.get(trial)
        if self.failed and (expected is None or row is None or "study" in expected or "study" in row):
            return  # what a search proposes, and whom it prunes, depends on whether a trial failed for a while
        if expected is None:
            self.note(f"{trial} has a row that nobody expects")
        elif row is None:
            self.note(f"{trial} has no row")
        elif trial in poisoned:
            if row["status"] != "failed":
                self.note(f"{trial} cannot be trained, but is {row['status']}")
        elif row != expected:
            names = sorted(name for name in row.keys() | expected.keys() if row.get(name) != expected.get(name))
            differing = ", ".join(f"{name}={row.get(name)!r} for {expected.get(name)!r}" for name in names[:3])
            self.note(f"the row of {trial} differs: {differing}")
