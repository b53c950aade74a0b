"""What must hold in every world, judged by the requests, the events and the files alone: nothing here calls what the
product decides by.

The rows of a run that nothing disturbed are what is expected.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from sweeper.execution.backend import Ended, Event, MessageReceived
from sweeper.request import Request
from tests.simulation import laws
from tests.simulation.accounts import Accounts
from tests.simulation.backend import Machines, poison_of
from tests.simulation.files import ROOT, Client, Memory, contents
from tests.simulation.stored import (
    ANALYSES,
    BEST,
    HALVED,
    HISTORY,
    MODELS,
    REQUESTS,
    TRIALS,
    UNWRITTEN,
    Expected,
    History,
    Row,
    best_rows,
    comparable,
    history_in,
    is_function,
    lacking_models,
    listed_in,
    merged,
    model_path,
    request_path,
    rows_archived,
    rows_in,
    trial_of,
    trials_labelled,
    unwritten_of_searches,
)
from tests.simulation.sweeps import Kind
from tests.simulation.tracker import SAID, Run
from trainables.worker.messages import CohortReport, CohortTask

LEFT_BEHIND = ("checkpoints/", ".drivers/", ".write-check-", "_damaged/", UNWRITTEN)
"""What a sweep that has ended leaves nothing of."""
OF_SWEEP = (TRIALS, HISTORY, MODELS, REQUESTS, "checkpoints/", "cuts/", "sheets/simulated/", "tables/simulated/")
"""Where the files of the sweep are."""
LOSSES = 50
"""As the guide says: times that a cohort may lose its machine without reaching a further epoch."""
Key = tuple[Any, ...]


def _key(config: Mapping[str, Any]) -> Key:
    """What distinguishes a trial from others, in its config and in its row."""
    return tuple(
        config.get(name)
        for name in ("lr", "seed", "epochs", "width", "examples", "weight_decay", "ema", "patience", "method")
    )


@dataclass
class Auditor:
    """Watches a world, and notes what does not hold."""

    memory: Memory
    retries: int
    expected: Expected | None = None
    """None while the expectation itself is made."""
    brief: bool = True
    """Whether retries bridge all faults of the store, so that no driver ends because of them."""
    sure: bool = True
    """Whether the store answers and drivers are awake, so that drivers know of each other and of all rows."""
    excused: bool = False
    """Whether all that happens to workers is the loss of their machines, which fails no trial."""
    problems: list[str] = field(default_factory=list)
    seen: dict[str, str] = field(default_factory=dict)
    """Trial -> status of the row that was seen last."""
    listed: bool = False
    """Whether listings are never stale, and a trial with a row lacks nothing."""
    asleep: bool = False
    """Whether machines sleep: where a trial failed in one of two drivers, models and what trackers have may lack
    something."""
    divided: bool = False
    """Whether a driver that slept may go on with a search that another has taken over, while trials fail: what the two
    propose and prune differs then."""
    tracked: dict[str, Run] | None = None
    """What the tracker has; None in a world without one."""
    failed: bool = False
    """Whether a trial failed for good in a driver. Its row need not say so where another driver has its result."""
    deleted_late: bool = False
    """Whether rows were deleted late: as the guide says, the same command trains them again."""
    missing: int = 0
    """How many models could not be written and are missing, by the last lines of the driver that ended last."""

    def __post_init__(self) -> None:
        self.accounts = Accounts(self.note)
        self._files: dict[str, tuple[Row, ...]] = {}
        """Path of each file of rows -> its rows."""
        self._results: dict[Key, str] = {}
        """Key of each trial that has a result -> its id."""
        self._moments: list[frozenset[tuple[str, str]]] = [frozenset()]
        """Trials and statuses of the rows that there were, one after the other."""
        self._archived: frozenset[str] = frozenset()
        self._functions: dict[Key, Client] = {}
        """Key of each function that has a row, also of a failure -> the driver that has written one last."""
        self._training: dict[tuple[Client, str], set[Key]] = {}
        self._cohorts: dict[str, set[Key]] = {}
        self._given: dict[Client, set[Key]] = defaultdict(set)
        """Driver -> the trials that it has begun."""
        self._reached: dict[tuple[Client, str], int] = {}
        self._losses: Counter[tuple[Client, str]] = Counter()
        self._failures: Counter[tuple[Client, str]] = Counter()
        self._cut_off = False
        """Whether a driver has died, or ended before its time."""
        self._given_up: dict[Client, set[str]] = defaultdict(set)
        """Driver -> trials of which it has written failures; its progress lacks that others have trained them since."""
        self._hopeless: set[str] = set()
        """Cohorts that did not fit into memory or made no step, which are tried less often."""
        self._put_back: set[str] = set()
        """Cohorts whose history was written late: as the guide says, what others wrote before may be gone."""
        self._deleters: dict[str, str] = {}
        """Trial -> preset of the driver that has deleted its model last."""
        self._statuses: dict[str, int | None] = {}
        """Preset -> exit status of its driver that ended last."""
        self._ended: set[tuple[Client, str]] = set()
        self._asked: set[str] = set()
        """Names of the requests that drivers were asked for."""
        self._begun_requests: set[str] = set()
        self._drivers: set[Client] = set()
        """Drivers that have begun and not ended."""
        self._removed: set[str] = set()
        """Trials whose rows `rm` has removed."""
        self._begun: set[tuple[Client, str]] = set()
        """Driver and cohort of which a step was made."""
        self._claims: dict[Client, frozenset[str]] = defaultdict(frozenset)
        self._trained: dict[Client, set[Key]] = defaultdict(set)
        """Driver -> trials that had a result when it claimed them."""

    def note(self, problem: str) -> None:
        if problem not in self.problems:
            self.memory.time.say(f"PROBLEM: {problem}")
            self.problems.append(problem)

    @property
    def moment(self) -> int:
        """The number of times that the rows have changed."""
        return len(self._moments) - 1

    # Between any two operations

    def watch(self, client: Client, verb: str, path: str) -> None:
        """Called after each operation that has changed a file."""
        if client.command and path.startswith(OF_SWEEP):
            if self.sure and (others := [each.name for each in self._drivers if not each.dead]):
                self.note(f"{client.name} changes {path}, though {others} run")
            if verb == "delete" and path.startswith(REQUESTS):
                self._begun_requests.discard(path.removeprefix(REQUESTS).removesuffix(".parquet"))
        own = not (client.fresh or client.command)
        if path.startswith("checkpoints/") and verb == "delete" and path.endswith(".pt") and own:
            cohort = path.rpartition("/")[2].removesuffix(".pt")
            left = self._cohorts.get(cohort, set()) - self._results.keys() - self._functions.keys()
            if left and self.memory.get(f"{ROOT}/{HALVED}{cohort}") is None:
                self.note(f"{path} is deleted before {len(left)} of its trials have a result")
        if path.startswith(".drivers/") and verb == "write":
            self._claim(client, frozenset(json.loads(self.memory.get(f"{ROOT}/{path}") or b"")["claims"]))
        if path.startswith(HISTORY) and path in client.late:
            self._put_back.add(path.removeprefix(HISTORY).removesuffix(".parquet"))
        if path.startswith(MODELS) and verb == "delete":
            self._deleters[trial_of(path)] = client.preset
        if path.startswith(REQUESTS) and verb == "write" and self.expected:
            request = path.removeprefix(REQUESTS).removesuffix(".parquet")
            if wrong := laws.wrong_list(request, self.memory.get(f"{ROOT}/{path}") or b"", self.expected.rows):
                self.note(wrong)
        if not path.startswith(TRIALS) or not path.endswith(".parquet"):
            return
        if verb == "write" and client.preset and not self.memory.get(f"{ROOT}/{request_path(client.preset)}"):
            self.note(f"{path} is written before the list of {client.preset}")
        self.deleted_late = self.deleted_late or (verb == "delete" and path in client.late)
        data = self.memory.get(f"{ROOT}/{path}")
        try:
            new = rows_in(data) if data is not None else ()
        except (pa.ArrowException, OSError) as error:
            self.note(f"a file of rows is not whole after {verb} {path}: {error}")
            return
        self._files[path] = new
        self._functions |= {_key(row): client for row in new if is_function(row)}
        self._given_up[client] |= {row["trial_id"] for row in new if row["status"] == "failed"}
        rows = merged(self._files.values())
        self._judge_new(path, [row for row in new if self.seen.get(row["trial_id"]) != row["status"]])
        late = path in client.late  # as the guide says, a failure may then take the place of a result
        for trial, status in self.seen.items():
            found = rows.get(trial)
            if found is None and client.command == "rm":
                self._removed.add(trial)
            elif found is None and not self._is_archived(trial):
                self.note(f"the row of {trial} is lost after {verb} {path}")
            elif found and found["status"] == "failed" != status and not (late or self._is_archived(trial)):
                self.note(f"the result of {trial} is replaced by a failure after {verb} {path}")
        self.seen = {trial: row["status"] for trial, row in rows.items()}
        self._results = {_key(row): trial for trial, row in rows.items() if row["status"] != "failed"}
        self._moments.append(frozenset(self.seen.items()))
        self.failed = self.failed or "failed" in self.seen.values()

    def _claim(self, client: Client, claims: frozenset[str]) -> None:
        new = claims - self._claims[client]
        self._claims[client] = claims
        self._trained[client] |= {key for key, trial in self._results.items() if trial in new}

    def _is_archived(self, trial: str) -> bool:
        """Whether `--fresh` has archived a row of the trial."""
        if trial not in self._archived:
            self._archived = frozenset(rows_archived(contents(self.memory)))
        return trial in self._archived

    def _judge_new(self, path: str, rows: Sequence[Row]) -> None:
        """Judge rows that have just been written."""
        for row in rows:
            trial, cohort = row["trial_id"], row["cohort"]
            of_function = is_function(row)
            self.accounts.wrote(row)
            if (
                row["status"] == "finished"
                and not of_function
                and not self.memory.paths(f"{ROOT}/sheets/simulated/{trial}")
            ):
                self.note(f"{trial} has a row before its sample grids")
            if row["status"] == "failed" and self.excused and trial not in self.seen:
                self.note(f"{trial} has failed, though only machines were lost")
            if row["status"] != "failed" or cohort in self._hopeless or of_function:
                continue
            failures = max((count for (_, own), count in self._failures.items() if own == cohort), default=None)
            if failures is not None and failures <= self.retries and path.endswith(f"/{cohort}.parquet"):
                self.note(f"{trial} was given up after {failures} failures, not {self.retries + 1}")

    def loaded(self, rows: Sequence[tuple[str, str]], since: int) -> None:
        """Trials and statuses that a reader has loaded, that began at that moment."""
        counts = Counter(trial for trial, _ in rows)
        for trial, count in counts.items():
            if count > 1:
                self.note(f"a reader has {trial} {count} times")
        for trial, _ in self._moments[since]:
            if trial not in counts and not self._is_archived(trial) and trial not in self._removed:
                self.note(f"a reader misses {trial}")
        if (
            not self._archived
            and not self._removed
            and not self.divided
            and frozenset(rows) not in self._moments[since:]
        ):
            self.note("a reader has rows of several moments")

    # Events

    def asked(self, request: Request) -> None:
        """A driver is asked for a request."""
        preset = request.preset or ""
        self._asked |= {preset, *([f"{preset}, decided"] if request.decide is not None else ())}

    def began(self, client: Client, request: Request) -> None:
        """A driver has begun with a request."""
        self._begun_requests.add(request.preset or "")
        self._drivers.add(client)

    def command_ended(self, client: Client, status: int | None, archived: Mapping[str, Row]) -> None:
        """Judge a command that is no driver. `archived`: the rows that it was to bring back."""
        self._cut_off = self._cut_off or status is None
        alone = not any(not each.dead for each in self._drivers)
        left = [path for path in contents(self.memory) if path.startswith(OF_SWEEP)]
        if client.command == "rm" and status == 0 and alone and left:
            self.note(f"{client.name} has left {left}")
        lacking = [trial for trial, row in archived.items() if self.seen.get(trial) != row["status"]]
        if status == 0 and alone and lacking:
            self.note(f"{client.name} has not brought back {lacking}")

    def started(self, client: Client, machines: Machines, task: CohortTask, outstanding: Mapping[str, float]) -> None:
        for kind, taken in outstanding.items():
            devices = sum(each.count for each in machines.kinds if kind in ("", each.accelerator))
            if machines.address is None and taken > devices + 1e-6:
                self.note(f"cohorts that take {taken:g} devices {kind} are begun on {devices}")
        trials = {_key(config.complete()) for config in task.spec.configs()}
        for (other, _), training in self._training.items():
            if trials & training and (other is client or (self.sure and not other.dead)):
                self.note(f"{client.name} trains what {other.name} trains")
        # Of functions that train in turn it has rows before the cohort has ended, and tries the whole cohort again.
        own = {key for key in trials if self._functions.get(key) is client}
        if self.sure and (again := (trials & self._results.keys()) - own):
            self.note(f"{client.name} trains again what has a result: {[self._results[key] for key in again]}")
        if self.listed and not client.fresh and trials & self._trained[client]:
            self.note(f"{client.name} trains what had a result when it claimed it")
        for whole, others in self._cohorts.items():
            path = f"{HISTORY}{whole}.parquet"
            if (
                self.sure
                and trials < others
                and (client, whole) in self._ended
                and self.memory.get(f"{ROOT}/{path}")
                and self._functions.keys().isdisjoint(others)  # one has a row, and its history
            ):
                self.note(f"{path} stays, though its cohort was halved")
        self._training[client, task.cohort], self._cohorts[task.cohort] = trials, trials
        self._given[client] |= trials

    def stepped(self, client: Client, task: CohortTask, epoch: int) -> None:
        """A worker makes a step of an epoch, counted from 0."""
        if client.fresh and epoch and (client, task.cohort) not in self._begun:
            self.note(f"--fresh begins cohort {task.cohort} with epoch {epoch}")
        self._begun.add((client, task.cohort))

    def emitted(self, client: Client, task: CohortTask, event: Event) -> None:
        key = client, task.cohort
        match event:
            case MessageReceived(_, CohortReport(report)):
                if report.epoch > self._reached.get(key, -1):
                    self._reached[key] = report.epoch
                    self._losses[key] = self._failures[key] = 0
            case Ended(_, failure):
                self._training.pop(key, None)
                self._ended.add(key)
                cause = failure.cause if failure else "error"
                if why := self.memory.get(f"{ROOT}/{task.spec.checkpoint}.why"):
                    cause = json.loads(why.partition(b"\n")[2])["cause"]
                counts = self._losses if cause == "machine" else self._failures
                counts[key] += 1
                if cause in ("hung", "memory") or why:
                    self._hopeless.add(task.cohort)
                if self._losses[key] > LOSSES + 1 or self._failures[key] > self.retries + LOSSES + 2:
                    self.note(f"cohort {task.cohort} is tried again and again")

    def stopped(self, client: Client) -> None:
        """A driver ends its workers, and with that what it trains."""
        for key in [key for key in self._training if key[0] is client]:
            del self._training[key]

    def function_failed(self, task: CohortTask) -> None:
        """A function of a cohort fails for good, which its process says later, if it lives."""
        if task.comparison.rungs or task.comparison.population:
            self.failed = True  # what becomes of the others depends on it

    # At the end

    def ended(self, request: Request, client: Client, status: int | None) -> None:
        """Judge a driver that has ended: its last lines say what is true."""
        self._statuses[request.preset or ""] = status
        self._drivers.discard(client)
        output = client.output.getvalue()
        self.failed = self.failed or "failed for good" in output
        missing = re.search(r"^error: (\d+) models could not be written, and are missing", output, re.MULTILINE)
        self.missing = int(missing[1]) if missing else 0
        unanswered = re.search(r"^error: .* no answer for \d+ s$", output, re.MULTILINE)
        self._cut_off = self._cut_off or status not in (0, 1) or unanswered is not None
        said = SAID.search(output)
        stopped = re.search(r"^stopped: (\d+ of \d+ trials are in|what is in) .*", output, re.MULTILINE)
        if status in (0, 1) and not said and "error: " not in output:
            self.note(f"a driver that ended with status {status} does not say how many trials it has: {output[-300:]}")
        if status == 130 and not (stopped or said or request.hours or unanswered or "interrupted" in output):
            self.note(f"a driver that was interrupted does not say so: {output[-300:]}")
        if (
            self.brief
            and client.begun_at is not None
            and (error := re.search(r"^error: .*simulated.*", output, re.MULTILINE))
        ):
            self.note(f"faults of the store that retries bridge have ended a driver: {error[0]}")
        if status in (0, 1) and self.tracked is not None and self.sure and not client.refused:
            recorded = [trial for key, trial in self._results.items() if key in self._given[client]]
            lacking = [trial for trial in recorded if trial not in self.tracked or not self.tracked[trial].ended]
            if lacking and "has not taken everything yet" not in output:
                self.note(f"the tracker works, but {client.name} has not sent it the end of {lacking}")
        if status in (0, 1) and said and self.expected:
            counts = {name: int(count) for count, name in re.findall(r"(\d+) (\w+)", said[1])}
            # Of a run that --hours had stopped the store fell silent, or rows were deleted late.
            cut_short = (request.hours and unanswered) or self.deleted_late
            if (sum(counts.values()) != int(said[2]) and not cut_short) or (counts.get("failed") and status == 0):
                self.note(f"status {status} with {said[0]!r}")
            part = request.fixed or request.decide is not None
            if status == 0 and not part and counts != dict(Counter(self.seen.values())) and not self.failed:
                self.note(f"the last line says {said[0]!r}, but the rows are otherwise")
            shown = re.findall(r"^(\d+) of \d+ trials,", output, re.MULTILINE)
            elsewhere = sum(self.seen.get(trial) != "failed" for trial in self._given_up[client])
            late = sum(counts.values()) - counts.get("failed", 0) - int(shown[-1]) if shown else 0
            if self.sure and not request.fixed and not 0 <= late <= elsewhere:
                self.note(f"the last line of progress says {shown[-1]} trials, the last line {said[0]!r}")
            left = {key for key in self._results if not request.fixed or key[1] == 0} - self._given[client]
            if client.fresh and left:
                self.note(f"--fresh has left {len(left)} trials as they were")

    def judge(self, kind: Kind, status: int | None, poisons: frozenset[str]) -> None:
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
        if status != (1 if poisoned or self.missing else 0):
            self.note(f"the last driver has ended with status {status}")
        self._judge_history(history_in(files), poisoned)
        self._judge_tracker(files)
        self.accounts.judge(best_rows(files).values())
        for problem in laws.wrong_requests(frozenset(self._begun_requests), frozenset(self._asked), rows, files):
            self.note(problem)
        for path in self.expected.analyses.keys() | {path for path in files if path.startswith(ANALYSES)}:
            if files.get(path) != self.expected.analyses.get(path):
                self.note(f"{path} differs")
        if not (self.divided and self.failed):
            self._judge_models(files, poisoned, kind.preset)
            for problem in laws.broken(kind, rows, history_in(files), files, self.sure):
                self.note(problem)
        leases = [json.loads(data) for path, data in files.items() if path.startswith(".drivers/")]
        living = any(lease["host"] != "host" and not lease["ended"] for lease in leases)
        for path in files:
            lease = path.startswith(".drivers/") and living  # for a minute from the first read of it
            unknown = path.startswith("checkpoints/") and not poisoned.isdisjoint(trials_labelled(files[path]))
            unknown = unknown or (path.startswith(".write-check-") and self._cut_off)  # it goes an hour later
            unknown = unknown or (path.startswith(UNWRITTEN) and bool(lacking_models(files, files[path])))
            if path.startswith(LEFT_BEHIND) and not unknown and not lease:
                self.note(f"{path} is left behind")

    def judge_figures(self, preset: str) -> None:
        """Judge the figures of a request whose driver has just ended, which no other driver has disturbed."""
        files = contents(self.memory)
        trials, studies = listed_in(files[request_path(preset)])
        listed = {*trials, *studies}
        own = {trial: row for trial, row in best_rows(files).items() if {trial, row.get("study_id")} & listed}
        for problem in laws.wrong_figures(preset, own, files):
            self.note(problem)

    def _judge_models(self, files: Mapping[str, bytes], poisoned: set[str], preset: str) -> None:
        assert self.expected
        unwritten, wanted = unwritten_of_searches(files), self.expected.figures
        finished = {trial for trial, row in best_rows(files).items() if row["status"] == "finished"}
        lacking = {path for path in wanted if path.startswith(MODELS)} - files.keys()
        if not self.failed and not poisoned:
            if missed := sorted(path for path in lacking if trial_of(path) not in unwritten):
                self.note(f"models that are wanted are missing: {missed}")
            if self.missing != (count := len({trial_of(path) for path in lacking} & unwritten)):
                self.note(f"{count} models could not be written and are missing, not {self.missing}")
        for path, data in files.items():
            if path.startswith(BEST):
                listing = path.removeprefix(f"{BEST}simulated/").removesuffix(".json")
                trials = {trial for trial in json.loads(data) if model_path(trial) not in files} & finished
                if (self.asleep and self.failed) or (listing != preset and self._statuses.get(listing) != 0):
                    # Its list has what the request itself deletes of its cohorts until it has ended, or where the
                    # driver that slept ranks otherwise. What another request deletes is wrong even then.
                    trials = {trial for trial in trials if self._deleters.get(trial, listing) != listing}
                if trials - unwritten:
                    self.note(f"models that {path} lists are missing: {sorted(trials - unwritten)}")

    def _judge_history(self, history: History, poisoned: set[str]) -> None:
        assert self.expected
        if self.failed:
            return
        put_back = {self._results.get(key) for cohort in self._put_back for key in self._cohorts.get(cohort, ())}
        for key, value in self.expected.history.items():
            if key[0] not in poisoned and history.get(key, value if key[0] in put_back else math.inf) != value:
                self.note(f"the history of {key[0]} differs in {key[2]} at epoch {key[1]}")
        for key in history.keys() - self.expected.history.keys():
            if key[0] not in poisoned:
                self.note(f"the history has {key}, which nobody expects")

    def _judge_tracker(self, files: Mapping[str, bytes]) -> None:
        if self.tracked is None or (self.asleep and self.failed):
            return
        for trial, row in best_rows(files).items():
            run = self.tracked.get(trial, Run())
            if run.ended != f"{row['ended']:%Y-%m-%dT%H:%M:%S.%fZ}" and row["status"] != "failed":
                self.note(f"the tracker has the end of {trial} at {run.ended}, not at {row['ended']}")
        for (trial, epoch, metric), value in history_in(files).items():
            if trial in self._results.values() and value is not None:
                known = self.tracked.get(trial, Run()).reports.get(epoch, {}).get(metric)
                if known != value:
                    self.note(f"the tracker has {metric}={known} of {trial} at epoch {epoch}, not {value}")

    def _compare(self, trial: str, row: Row | None, poisoned: set[str]) -> None:
        assert self.expected
        expected = self.expected.rows.get(trial)
        if row and row["status"] == "failed" and trial not in poisoned:
            self.note(f"{trial} has failed, and is not trained again")
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
