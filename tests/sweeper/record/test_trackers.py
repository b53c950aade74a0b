"""Trackers get what the store has, and may fail, hang or be slow; what `--track` may say."""

import importlib.util
import json
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sweeper.commands import run
from sweeper.errors import SpecError
from sweeper.option_values import TrackRequest
from sweeper.planning.cohorts import Cohort, Trial
from sweeper.record import trackers
from sweeper.record.listener import Row
from sweeper.record.tracker import Reports, TrackedTrial, Tracker, end_of
from sweeper.record.trackers import Destination, RunTrials, Tracking
from sweeper.storage.files import Files
from sweeper.storage.layout import trial_names_path
from sweeper.storage.rows import Columns
from sweeper.storage.store import Store
from tests.fake_executor import without_ray
from tests.sweeper.commands.refusals import command_line_of
from tests.sweeper.small_sweeps import rows, small_grid

pytestmark = pytest.mark.usefixtures("unreported")

FIRST = TrackedTrial("a" * 16, "beta=0.5, nu=inf", "digits", {"beta": 0.5, "nu": float("inf")})
SECOND = TrackedTrial("b" * 16, "beta=1.0, nu=1.0", "digits", {"beta": 1.0, "nu": 1.0, "normal_class": 3})
COLUMNS = Columns({"beta": float, "nu": float, "normal_class": int, "study": str}, ("auroc",))


def row_of(trial: TrackedTrial, day: int = 1, **more: object) -> dict[str, object]:
    """The row of a trial that has ended on a day of January."""
    facts = {"preset": "digits", "status": "finished", "error": None, "host": "here", "epochs_run": 2, "seconds": 1.5}
    ended = {"ended": datetime(2026, 1, day, 12, 0, 0, 1, tzinfo=UTC)}
    return {"trial_id": trial.id, **trial.hyperparameters, **facts, **ended, "auroc": 0.75, **more}


class Memory(Tracker):
    """Keeps what it gets, like a server that outlives the sweeps. Raises OSError as often as `failures` says, and
    always for the trial `poison`."""

    def __init__(self, failures: int = 0, poison: str = "") -> None:
        self.points: list[tuple[str, int, Mapping[str, float]]] = []
        self.trials: dict[str, TrackedTrial] = {}
        self.ends: dict[str, str] = {}
        self.rows: dict[str, Row] = {}
        self.replaced: list[str] = []
        self.failures, self.poison, self.closed = failures, poison, 0
        self.on_start: Callable[[], object] = lambda: None
        self.on_end: Callable[[], object] = lambda: None
        self.on_close: Callable[[], object] = lambda: None

    def _fail(self, trial: TrackedTrial) -> None:
        if self.failures or trial.id == self.poison:
            self.failures = max(0, self.failures - 1)
            raise OSError("no space left\non the server")

    def ended(self) -> Mapping[str, str]:
        return self.ends

    def start(self, trial: TrackedTrial, anew: bool) -> int:
        self.on_start()
        self._fail(trial)
        self.trials[trial.id] = trial
        if anew:
            self.replaced.append(trial.id)
            self.points = [point for point in self.points if point[0] != trial.id]
            self.ends.pop(trial.id, None)
        return max((epoch for trial_id, epoch, _ in self.points if trial_id == trial.id), default=-1)

    def report(self, trial: TrackedTrial, reports: Reports) -> None:
        for epoch, metrics in reports.items():
            self._fail(trial)
            self.points.append((trial.id, epoch, metrics))

    def end(self, trial: TrackedTrial, row: Row) -> None:
        self._fail(trial)
        self.trials[trial.id], self.rows[trial.id], self.ends[trial.id] = trial, row, end_of(row)
        self.on_end()

    def close(self) -> None:
        self.closed += 1
        self.on_close()


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def add_reports(store: Store, epochs: Iterable[int], *trials: TrackedTrial) -> None:
    """What the driver writes while the trials train."""
    for trial in trials:
        records = [(trial.id, epoch, "loss", 1 / epoch) for epoch in epochs]
        store.write_history("grid", trial.id, records, ended=False)


def add_row(store: Store, trial: TrackedTrial, day: int = 1, **more: object) -> None:
    store.write("grid", trial.id, [row_of(trial, day, **more)], COLUMNS)


def fill(store: Store) -> Store:
    """Write both trials, with reports at two epochs and their rows."""
    for trial in (FIRST, SECOND):
        add_reports(store, (1, 2), trial)
        add_row(store, trial)
    return store


def destination(
    store: Store, tracker: Tracker | Callable[[], Tracker], said: list[str], trials: RunTrials | None = None
) -> Destination:
    connect = (lambda: tracker) if isinstance(tracker, Tracker) else tracker
    return Destination("memory", connect, store.files, "grid", said.append, trials)


WHOLE = [(trial.id, epoch, 1 / epoch) for trial in (FIRST, SECOND) for epoch in (1, 2)]
ENDS = {trial.id: end_of(row_of(trial)) for trial in (FIRST, SECOND)}


def points(memory: Memory) -> list[tuple[str, int, float]]:
    return sorted((trial_id, epoch, metrics["loss"]) for trial_id, epoch, metrics in memory.points)


# ---- What is sent


def test_a_tracker_gets_the_trials_of_a_store_once(store: Store, said: list[str]) -> None:
    memory, own = Memory(), fill(store)
    own.files.write(trial_names_path("grid"), json.dumps({FIRST.id: {"preset": "digits", "beta": 0.5}}).encode())
    first = destination(own, memory, said)
    for sender in (first, first, destination(own, memory, said)):
        sender.sync()
    assert points(memory) == WHOLE and memory.ends == ENDS and not memory.replaced
    trial, row = memory.trials[FIRST.id], memory.rows[FIRST.id]
    assert (trial.name, trial.group, trial.hyperparameters) == ("beta=0.5", "digits", FIRST.hyperparameters)
    assert memory.trials[SECOND.id].name == SECOND.id, "of a trial that nobody named"
    numbers, texts = trial.outcome(row)
    assert numbers == {"auroc": 0.75, "epochs_run": 2.0, "seconds": 1.5} and texts["status"] == "finished"
    assert first.count == 2


def test_a_trial_that_trains_is_sent_as_far_as_the_store_has_it(store: Store, said: list[str]) -> None:
    named = {"preset": "digits", "changes": "epochs=5", "beta": 0.5, "nu": float("inf"), "view": None}
    store.files.write(trial_names_path("grid"), json.dumps({FIRST.id: named}).encode())
    memory = Memory()
    sender = destination(store, memory, said)
    sender.sync()
    assert not memory.trials
    for epoch in (1, 2, 3):
        add_reports(store, [epoch], FIRST)
        sender.sync()
        assert [point for _, point, _ in memory.points] == [*range(1, epoch + 1)] and not memory.ends
    trial = memory.trials[FIRST.id]
    assert (trial.name, trial.group) == ("beta=0.5, nu=inf", "digits, epochs=5")
    assert trial.hyperparameters == {"beta": 0.5, "nu": float("inf")}
    add_row(store, FIRST)
    sender.sync()
    assert memory.ends.keys() == {FIRST.id} and len(memory.points) == 3


def test_a_run_that_was_cut_off_is_continued(store: Store, said: list[str]) -> None:
    memory = Memory()
    memory.points = [(FIRST.id, 1, {"loss": 1.0})]
    destination(fill(store), memory, said).sync()
    assert points(memory) == WHOLE and memory.ends == ENDS and not memory.replaced


def test_a_trial_that_was_trained_again_replaces_its_run(store: Store, said: list[str]) -> None:
    memory = Memory()
    first = destination(fill(store), memory, said)
    first.sync()
    for day, sender in ((2, first), (3, destination(store, memory, said))):
        add_row(store, FIRST, day)
        sender.sync()
        assert memory.ends[FIRST.id].startswith(f"2026-01-0{day}") and points(memory) == WHOLE
    assert memory.replaced == [FIRST.id, FIRST.id]


# ---- What a run sends


def cohort_of(*trials: TrackedTrial) -> Cohort:
    return Cohort("c0", tuple(Trial(trial.id, trial.hyperparameters) for trial in trials), len(trials))


def test_a_run_leaves_the_trials_of_another_driver_to_it(store: Store, said: list[str]) -> None:
    memory, trials = Memory(), RunTrials({FIRST.id})
    sender = destination(fill(store), memory, said, trials)
    sender.sync()
    assert memory.ends.keys() == {FIRST.id}
    trials.started(cohort_of(SECOND))
    sender.sync()
    assert memory.ends == ENDS and points(memory) == WHOLE


def test_a_trial_that_is_trained_again_as_it_failed_has_its_curve_before_it_ends(store: Store, said: list[str]) -> None:
    add_row(store, FIRST, status="failed")
    memory, trials = Memory(), RunTrials(set(), {FIRST.id})
    destination(store, memory, said).sync()
    sender = destination(store, memory, said, trials)
    trials.started(cohort_of(FIRST))
    add_reports(store, [1], FIRST)
    sender.sync()
    assert len(memory.points) == 1 and not memory.ends and memory.replaced == [FIRST.id]
    add_row(store, FIRST, 2, status="failed")
    trials.recorded(cohort_of(FIRST), [row_of(FIRST, 2)])
    sender.sync()
    assert memory.rows[FIRST.id]["status"] == "failed" and memory.ends[FIRST.id].startswith("2026-01-02")
    assert memory.replaced == [FIRST.id] and len(memory.points) == 1


def test_a_fresh_run_begins_its_runs_anew(store: Store, said: list[str]) -> None:
    memory, trials = Memory(), RunTrials(fresh=True)
    memory.points = [(FIRST.id, 7, {"loss": 9.0})]  # of a training that was cut off
    trials.started(cohort_of(FIRST, SECOND))
    sender = destination(fill(store), memory, said, trials)
    sender.sync()
    sender.sync()
    assert sorted(memory.replaced) == [FIRST.id, SECOND.id] and points(memory) == WHOLE


# ---- Trackers that fail


def test_a_tracker_that_fails_for_a_while_gets_everything_once_and_one_line_says_so(
    store: Store, said: list[str]
) -> None:
    failures = 8
    memory = Memory(failures)
    sender = destination(fill(store), memory, said)
    assert [sender.try_sync() for _ in range(failures + 1)] == [False] * failures + [True]
    assert points(memory) == WHOLE and memory.ends == ENDS
    (line,) = said
    assert line.startswith("tracker memory failed; what it lacks is sent") and line.endswith("left on the server")


def test_a_trial_that_the_tracker_refuses_does_not_keep_others_from_it(store: Store, said: list[str]) -> None:
    memory = Memory(poison=FIRST.id)
    sender = destination(fill(store), memory, said)
    for _ in range(2):
        assert not sender.try_sync()
    assert memory.ends.keys() == {SECOND.id} and len(said) == 1


def test_a_store_that_cannot_be_read_is_a_line(store: Store, said: list[str]) -> None:
    fill(store).files.write("trials/sweep=grid/odd.parquet", b"no table")
    for trial in (FIRST, SECOND):
        store.files.delete(f"trials/sweep=grid/{trial.id}.parquet")
    assert not destination(store, Memory(), said).try_sync()
    assert "'trials/sweep=grid/odd.parquet' is damaged" in said[0]


# ---- The thread of a run


def test_a_tracker_is_synchronised_at_once_and_at_the_end(store: Store, said: list[str]) -> None:
    memory, first = Memory(), threading.Event()
    add_reports(store, (1, 2), FIRST, SECOND)

    def connect() -> Tracker:
        first.set()
        return memory

    with Tracking(destination(store, connect, said)):
        assert first.wait(60)
        fill(store)
    assert points(memory) == WHOLE and memory.ends == ENDS and memory.closed == 1 and not said


def test_it_is_synchronised_again_and_again_while_the_sweep_runs(
    store: Store, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trackers, "SYNC_SECONDS", 0.0)
    monkeypatch.setattr(trackers, "REST", 0.0)
    memory, ended = Memory(), threading.Event()
    memory.on_end = ended.set
    with Tracking(destination(store, memory, said)):
        fill(store)
        assert ended.wait(60)
    assert points(memory) == WHOLE and memory.ends == ENDS and not said


def test_a_tracker_that_fails_to_the_end_costs_one_line_and_is_closed(store: Store, said: list[str]) -> None:
    memory = Memory(failures=10**6)
    with Tracking(destination(fill(store), memory, said)):
        pass
    assert len(said) == 1 and memory.closed == 1


def test_a_tracker_that_never_connects_costs_one_line(store: Store, said: list[str]) -> None:
    def connect() -> Tracker:
        raise ConnectionError("refused")

    with Tracking(destination(fill(store), connect, said)):
        pass
    (line,) = said
    assert line.endswith("ConnectionError: refused")


def test_a_tracker_that_hangs_delays_neither_the_sweep_nor_its_end(store: Store, said: list[str]) -> None:
    """The end waits as long as the limit of the run allows. What is left is then not sent."""
    begun, free, closed, memory, asked = *(threading.Event() for _ in range(3)), Memory(), list[float]()
    memory.on_close = closed.set

    def hang() -> None:
        begun.set()
        free.wait()

    memory.on_start = hang

    def longest_wait(seconds: float) -> float:
        asked.append(seconds)
        return 0.05

    with Tracking(destination(fill(store), memory, said), longest_wait):
        assert begun.wait(60)
    assert said == ["tracker memory has not taken everything yet; the same command sends it the rest"]
    assert asked == [trackers.CLOSE_SECONDS]
    free.set()
    assert closed.wait(60) and memory.ends.keys() == {FIRST.id}


# ---- Sweeps of the command line, in this process


@pytest.mark.slow
def test_a_tracker_that_fails_changes_no_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def connect() -> Tracker:
        raise ConnectionError("the server is gone")

    with without_ray(tmp_path):
        assert run.main(small_grid(tmp_path / "plain")) == 0
        monkeypatch.setitem(trackers._CONNECT, "mlflow", lambda *_: connect)
        assert run.main([*small_grid(tmp_path / "tracked"), "--track", "mlflow"]) == 0
    assert capsys.readouterr().out.count("the server is gone") == 1
    assert rows(tmp_path / "tracked", "anomaly_grid").equals(rows(tmp_path / "plain", "anomaly_grid"))


@pytest.mark.parametrize(
    ("arguments", "law"),
    [
        (
            ["tensorboad"],
            "no tracker 'tensorboad' (did you mean 'tensorboard'?); there are: tensorboard, mlflow, wandb",
        ),
        (["tensorboard="], "--track tensorboard= must name a target, but got ''"),
        (["tensorboard", "tensorboard=x"], "--track must be given once per tracker, but got tensorboard twice"),
        (["mlflow"], "--track mlflow needs a server: --track mlflow=http://HOST:PORT, or set MLFLOW_TRACKING_URI"),
        (["wandb"], "--track wandb needs a key"),
    ],
)
def test_wrong_requests_are_refused(
    arguments: list[str],
    law: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("MLFLOW_TRACKING_URI", "WANDB_MODE", "WANDB_API_KEY", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    command_line = command_line_of(tmp_path, capsys, monkeypatch)
    assert law in command_line.refuse(*(word for text in arguments for word in ("--track", text))).error


def test_a_missing_package_is_refused_with_how_to_install_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    refused = command_line_of(tmp_path, capsys, monkeypatch).refuse("--track", "mlflow=http://127.0.0.1:5000")
    law = "--track mlflow needs the package mlflow, which is not installed; the extra track-mlflow has it: pip install "
    assert refused.error.startswith(f"{law}'mlflow-skinny>=") or refused.error == f"{law}mlflow", "not installed"


def test_a_store_that_is_no_folder_needs_one_for_tensorboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Files, "local_folder", None)
    with pytest.raises(SpecError, match="the store is none: --track tensorboard=DIR"):
        trackers.connections([TrackRequest("tensorboard")], "anomaly_grid", Files(tmp_path))
