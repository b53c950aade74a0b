"""What a sweep tells is passed on to a tracker, which may fail, hang or be slow; what `--track` may say."""

import importlib.util
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

import sweeper.run as run
from sweeper.errors import SpecError
from sweeper.record import trackers
from sweeper.record.listener import Row
from sweeper.record.tracker import Reports, TrackedTrial, Tracker, end_of
from sweeper.record.trackers import Recorded, Tracking
from sweeper.request import TrackRequest
from sweeper.storage.files import Files
from sweeper.storage.store import Store
from tests.fake_executor import without_ray
from tests.sweeper.cli.refusals import command_line_of
from tests.sweeper.small_sweeps import rows, small_grid

pytestmark = pytest.mark.usefixtures("unreported")

FIRST = TrackedTrial("a" * 16, "beta=0.5, nu=inf", "digits", {"beta": 0.5, "nu": float("inf"), "normal_class": None})
SECOND = TrackedTrial("b" * 16, "beta=1.0, nu=1.0", "digits", {"beta": 1.0, "nu": 1.0, "normal_class": 3})


def row_of(trial: TrackedTrial, day: int = 1, **more: object) -> dict[str, object]:
    """The row of a trial that has ended on a day of January."""
    facts = {"status": "finished", "error": None, "host": "here", "epochs_run": 2, "seconds": 1.5}
    ended = {"ended": datetime(2026, 1, day, 12, 0, 0, 1, tzinfo=UTC)}
    return {"trial_id": trial.id, **trial.hyperparameters, **facts, **ended, "auroc": 0.75, **more}


class Memory(Tracker):
    """Keeps what it gets, like a server that outlives the sweeps. Raises OSError as often as `failures` says."""

    def __init__(self, failures: int = 0) -> None:
        self.points: list[tuple[str, int, Mapping[str, float]]] = []
        self.ends: dict[str, str] = {}
        self.replaced: list[str] = []
        self.failures, self.closed = failures, 0

    def _fail(self) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError("no space left\non the server")

    def ended(self) -> Mapping[str, str]:
        return self.ends

    def start(self, trial: TrackedTrial, anew: bool) -> int:
        self._fail()
        if anew:
            self.replaced.append(trial.id)
            self.points = [point for point in self.points if point[0] != trial.id]
            self.ends.pop(trial.id, None)
        return max((epoch for trial_id, epoch, _ in self.points if trial_id == trial.id), default=-1)

    def report(self, trial: TrackedTrial, reports: Reports) -> None:
        for epoch, metrics in reports.items():
            self._fail()
            self.points.append((trial.id, epoch, metrics))

    def end(self, trial: TrackedTrial, row: Row) -> None:
        self._fail()
        self.ends[trial.id] = end_of(row)

    def close(self) -> None:
        self.closed += 1


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trackers, "RETRY_SECONDS", 0.01)


@pytest.fixture
def said() -> list[str]:
    return []


def report_both(tracking: Tracking) -> None:
    tracking.started([FIRST, SECOND])
    for epoch in (1, 2):
        for trial in (FIRST, SECOND):
            tracking.reported(trial, epoch, {"loss": 1 / epoch})
    for trial in (FIRST, SECOND):
        tracking.ended(trial, row_of(trial))


WHOLE = {(trial.id, epoch, 1 / epoch) for trial in (FIRST, SECOND) for epoch in (1, 2)}


def points(memory: Memory) -> list[tuple[str, int, float]]:
    return [(trial_id, epoch, metrics["loss"]) for trial_id, epoch, metrics in memory.points]


def test_every_report_and_end_arrives_once(said: list[str]) -> None:
    memory = Memory()
    with Tracking("memory", lambda: memory, said.append) as tracking:
        report_both(tracking)
        tracking.reported(FIRST, 1, {"loss": 9.0})
    assert sorted(points(memory)) == sorted(WHOLE) and set(memory.ends) == {FIRST.id, SECOND.id}
    assert memory.closed == 1 and not said


@pytest.mark.parametrize("failures", [1, 3, 8])
def test_a_tracker_that_fails_for_a_while_gets_everything_once_and_one_line_says_so(
    failures: int, said: list[str]
) -> None:
    memory = Memory(failures)
    with Tracking("memory", lambda: memory, said.append) as tracking:
        report_both(tracking)
        tracking._thread.join(0.3)  # so that it may fail before the end, after which it is tried only once more
    assert sorted(points(memory)) == sorted(WHOLE) and set(memory.ends) == {FIRST.id, SECOND.id}
    (line,) = said
    assert line.startswith("tracker memory failed, and the sweep goes on") and line.endswith("left on the server")


def test_a_tracker_that_never_connects_costs_one_line(said: list[str]) -> None:
    def connect() -> Tracker:
        raise ConnectionError("refused")

    with Tracking("memory", connect, said.append) as tracking:
        report_both(tracking)
    (line,) = said
    assert line.endswith("ConnectionError: refused")


def test_a_tracker_that_fails_to_the_end_is_closed(said: list[str]) -> None:
    memory = Memory(failures=10**6)
    with Tracking("memory", lambda: memory, said.append) as tracking:
        report_both(tracking)
    assert len(said) == 1 and memory.closed == 1


def test_a_tracker_that_hangs_delays_neither_the_sweep_nor_its_end(
    said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trackers, "CLOSE_SECONDS", 0.05)
    forever = threading.Event()

    def connect() -> Tracker:
        forever.wait()
        return Memory()

    with Tracking("memory", connect, said.append) as tracking:
        report_both(tracking)
    assert said == ["tracker memory has not taken everything yet; the same command sends it the rest"]
    forever.set()


def test_a_run_with_a_limit_waits_for_a_tracker_as_long_as_the_limit_allows(said: list[str]) -> None:
    forever, asked = threading.Event(), list[float]()

    def connect() -> Tracker:
        forever.wait()
        return Memory()

    def longest_wait(seconds: float) -> float:
        asked.append(seconds)
        return 0.05

    with Tracking("memory", connect, said.append, longest_wait=longest_wait) as tracking:
        report_both(tracking)
    assert said == ["tracker memory has not taken everything yet; the same command sends it the rest"]
    assert asked == [trackers.CLOSE_SECONDS]
    forever.set()


def test_a_tracker_that_is_far_behind_is_left_out(said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trackers, "MOST_VALUES", 2)
    forever, memory = threading.Event(), Memory()

    def connect() -> Tracker:
        forever.wait()
        return memory

    with Tracking("memory", connect, said.append) as tracking:
        report_both(tracking)
        forever.set()
    assert said == ["tracker memory is too slow and is left out; the same command sends it the rest"]
    assert memory.closed == 1


def test_what_was_sent_does_not_count_as_waiting(said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trackers, "MOST_VALUES", 2)
    memory = Memory()
    with Tracking("memory", lambda: memory, said.append) as tracking:
        for epoch in range(1, 7):
            tracking.reported(FIRST, epoch, {"loss": 1 / epoch})
            deadline = time.monotonic() + 5
            while tracking._values and time.monotonic() < deadline:
                time.sleep(0.001)
        tracking.reported(FIRST, 1, {"loss": 1.0})
    assert len(points(memory)) == 6 and not said and tracking._values == 0


def recorded(history: Mapping[str, Reports], *rows: Row) -> Recorded:
    trials = {FIRST.id: FIRST, SECOND.id: SECOND}
    by_id = {str(row["trial_id"]): row for row in rows}
    return Recorded(by_id, lambda complete: {key: history[key] for key in history if key not in complete}, trials)


HISTORY = {trial.id: {epoch: {"loss": 1 / epoch} for epoch in (1, 2)} for trial in (FIRST, SECOND)}


def test_a_continued_sweep_continues_its_runs_and_sends_what_the_store_has_in_addition(said: list[str]) -> None:
    """The first trial was cut off after its first report; the second has a row that the tracker does not know."""
    memory = Memory()
    memory.points = [(FIRST.id, 1, {"loss": 1.0})]
    with Tracking("memory", lambda: memory, said.append, recorded(HISTORY, row_of(SECOND))) as tracking:
        tracking.started([FIRST])
        tracking.reported(FIRST, 1, {"loss": 1.0})
        tracking.reported(FIRST, 2, {"loss": 0.5})
        tracking.ended(FIRST, row_of(FIRST))
    assert sorted(points(memory)) == sorted(WHOLE) and set(memory.ends) == {FIRST.id, SECOND.id}
    assert not memory.replaced and not said


def test_runs_that_the_tracker_has_are_not_sent_again(said: list[str]) -> None:
    memory = Memory()
    for _ in range(2):
        with Tracking("memory", lambda: memory, said.append, recorded(HISTORY, row_of(FIRST), row_of(SECOND))):
            pass
    assert sorted(points(memory)) == sorted(WHOLE) and not memory.replaced


def test_a_trial_that_was_trained_again_without_the_tracker_replaces_its_run(said: list[str]) -> None:
    memory = Memory()
    for day in (1, 2):
        with Tracking("memory", lambda: memory, said.append, recorded(HISTORY, row_of(FIRST, day))):
            pass
    assert memory.replaced == [FIRST.id] and memory.ends[FIRST.id].startswith("2026-01-02")
    assert len(points(memory)) == 2


def test_a_fresh_sweep_begins_its_runs_anew(said: list[str]) -> None:
    memory = Memory()
    for anew in (False, True):
        with Tracking("memory", lambda: memory, said.append, anew=anew) as tracking:
            report_both(tracking)
    assert sorted(memory.replaced) == [FIRST.id, SECOND.id] and sorted(points(memory)) == sorted(WHOLE)


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
        trackers.connections([TrackRequest("tensorboard")], "anomaly_grid", Store(tmp_path))
