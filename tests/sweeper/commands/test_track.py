"""`sweeper track`: the trials of a store are sent to trackers, also while a driver runs."""

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sweeper.commands import track
from sweeper.record import trackers
from sweeper.storage.lease import Drivers
from sweeper.storage.store import Store
from tests.cases import for_each
from tests.sweeper.record.test_trackers import ENDS, FIRST, SECOND, WHOLE, Memory, add_reports, add_row, fill, points


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Memory:
    """What gets the trials in place of an MLflow."""
    memory = Memory()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    monkeypatch.setitem(trackers._CONNECT, "mlflow", lambda *_: lambda: memory)
    return memory


def command(store: Store, *arguments: str) -> list[str]:
    return [store.files.uri, "--to", "mlflow", *arguments]


def drivers(monkeypatch: pytest.MonkeyPatch, *looks: Callable[[], object]) -> None:
    """Let a driver live that does something before each read of its lease. After the last one it has ended."""
    monkeypatch.setattr(trackers, "SYNC_SECONDS", 0.0)
    monkeypatch.setattr(trackers, "REST", 0.0)
    left = list(looks)

    def living(self: Drivers) -> list[str]:
        left.pop(0)()
        return ["a driver"] * bool(left)

    monkeypatch.setattr(Drivers, "living", living)


def test_a_store_is_sent_once(store: Store, memory: Memory, capsys: pytest.CaptureFixture[str]) -> None:
    fill(store)
    assert [track.main(command(store)) for _ in range(2)] == [0, 0]
    assert points(memory) == WHOLE and memory.ends == ENDS and memory.closed == 2
    assert capsys.readouterr().out == "grid: 2 trials were sent to mlflow\ngrid: 0 trials were sent to mlflow\n"


def test_sweeps_that_are_not_wanted_are_left_out(
    store: Store, memory: Memory, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(store).write_history("other", "c0", [("c" * 16, 1, "loss", 1.0)])
    assert track.main(command(store, "--sweep", "grid")) == 0 and memory.ends == ENDS
    assert memory.trials.keys() == ENDS.keys()
    assert track.main(command(store)) == 0 and "c" * 16 in memory.trials
    assert "other: 0 trials were sent to mlflow" in capsys.readouterr().out


def test_a_sweep_that_runs_is_followed_until_it_has_ended(
    store: Store, memory: Memory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def first_report() -> None:
        add_reports(store, [1], FIRST)

    def first_row() -> None:
        assert len(memory.points) == 1
        add_reports(store, [2], FIRST)
        add_row(store, FIRST)

    def end() -> None:
        assert memory.ends.keys() == {FIRST.id}
        add_reports(store, (1, 2), SECOND)
        add_row(store, SECOND)

    drivers(monkeypatch, first_report, first_row, end)
    add_reports(store, [], FIRST)
    assert track.main(command(store)) == 0
    assert points(memory) == WHOLE and memory.ends == ENDS and not memory.replaced
    assert capsys.readouterr().out.splitlines() == [
        "grid runs now, and is followed until it has ended; Ctrl-C ends this",
        "grid: 2 trials were sent to mlflow",
    ]


def test_ctrl_c_closes_the_trackers(store: Store, memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    drivers(monkeypatch, lambda: None, interrupt)
    assert track.main(command(fill(store))) == 130
    assert memory.ends == ENDS and memory.closed == 1


def test_a_tracker_that_fails_is_a_line_and_status_1(
    store: Store, memory: Memory, capsys: pytest.CaptureFixture[str]
) -> None:
    memory.failures = 1
    assert track.main(command(fill(store))) == 1
    line, summary = capsys.readouterr().out.splitlines()
    assert line.startswith("grid: tracker mlflow failed; ") and line.endswith("OSError: no space left on the server")
    assert summary == "grid: 0 trials were sent to mlflow"
    assert track.main(command(store)) == 0 and points(memory) == WHOLE


def test_a_tracker_that_works_again_while_the_sweep_runs_has_everything(
    store: Store, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.failures = 1
    drivers(monkeypatch, lambda: None, lambda: None)
    assert track.main(command(fill(store))) == 0 and points(memory) == WHOLE


@pytest.fixture
def no_addresses(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("MLFLOW_TRACKING_URI", "WANDB_MODE", "WANDB_API_KEY", "NETRC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name if name != "wandb" else None)
    yield


@pytest.mark.usefixtures("no_addresses")
@for_each(
    ("arguments", "law"),
    [
        ([], "the following arguments are required: --to"),
        (["--to", "tensorboad"], "no tracker 'tensorboad' (did you mean 'tensorboard'?)"),
        (["--to", "tensorboard="], "--to tensorboard= must name a target, but got ''"),
        (["--to", "tensorboard", "--to", "tensorboard=x"], "--to must be given once per tracker, but got tensorboard"),
        (["--to", "mlflow"], "--to mlflow needs a server: --to mlflow=http://HOST:PORT, or set MLFLOW_TRACKING_URI"),
        (["--to", "wandb"], "--to wandb needs the package wandb, which is not installed; the extra track-wandb has it"),
        (["--to", "tensorboard", "--sweep", "gird"], "no sweep 'gird' (did you mean 'grid'?); there are: grid"),
    ],
)
def test_wrong_requests_are_refused(
    arguments: list[str], law: str, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    assert track.main([fill(store).files.uri, *arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert law in line, line


def test_a_folder_without_sweeps_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert track.main([str(tmp_path / "none"), "--to", "tensorboard"]) == 2
    assert "STORE must hold a sweep, but " in capsys.readouterr().err
