"""The same command trains trials again whose results were lost with damaged files. Nothing is really trained."""

from collections.abc import Callable
from pathlib import Path

import pytest

import sweeper.run as run
from sweeper.report import publish
from sweeper.storage.files import Files
from sweeper.storage.load import load_history
from sweeper.storage.store import Store
from tests.sweeper.storage.damage import flipped

SMALL = ["--axis", "beta=0.5,1", "--axis", "nu=0.5", "--axis", "normal_class=0", "--set", "epochs=2"]


class Command:
    """Runs `python -m sweeper.run` in this process. Training takes no time, and no pictures are drawn."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self._capsys, self.trained = folder, capsys, list[str]()
        self.store = Store(folder)
        self.meanwhile: Callable[[], object] = lambda: None
        monkeypatch.setattr(run._Run, "_train", lambda training, _: self._train(training))
        monkeypatch.setattr(publish, "write", self._write)

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        """Return the exit status, stdout and stderr. `trained` lists the trials that were trained."""
        self.trained.clear()
        status = run.main(["anomaly_grid", "--preset", "digits", "--store", str(self.folder), *SMALL, *arguments])
        return (status, *self._capsys.readouterr())

    def _train(self, training: run._Run) -> None:
        plan, store = training.plan, training.store
        for trial in plan.trials:
            if plan.statuses.get(trial.id, "failed") == "failed":
                self.trained.append(trial.id)
                store.write_history(plan.name, f"c{trial.id}", [(trial.id, 2, "auroc_joint", 0.5)])
                fixed = {"trial_id": trial.id, "status": "finished", "auroc_joint": 0.5}
                store.write(plan.name, f"c{trial.id}", [{**trial.config, **fixed}], training.columns)
        self.meanwhile()

    def _write(self, files: Files, name: str, *_: object, **__: object) -> str:
        return f"{len(load_history(name, files))} reports"


@pytest.fixture
def command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    return Command(tmp_path, capsys, monkeypatch)


def test_the_same_command_repairs_damaged_files(command: Command) -> None:
    assert command()[0] == 0 and len(command.trained) == 2
    first, second = command.trained
    paths = f"trials/sweep=anomaly_grid/c{first}.parquet", f"history/sweep=anomaly_grid/c{second}.parquet"
    for path in paths:
        flipped(command.store.files, path, "truncated")
    status, out, err = command("--plan")
    assert status == 0 and "2 to run" in out and [line.split("'")[1] for line in err.splitlines()] == list(paths)
    assert not (command.folder / "_damaged").exists()
    status, out, err = command()
    assert status == 0 and command.trained == [first, second] and err == ""
    assert all(f"'{path}' is damaged" in out for path in paths) and "2 reports" in out
    assert command()[0] == 0 and command.trained == []


def test_a_history_that_is_damaged_meanwhile_is_trained_again_by_the_next_run(command: Command) -> None:
    def damage() -> None:
        flipped(command.store.files, f"history/sweep=anomaly_grid/c{command.trained[0]}.parquet")

    command.meanwhile = damage
    status, out, err = command()
    damaged_trials = command.trained[:1]
    assert status == 1 and "1 reports" in out and err == ""
    assert "1 trials have lost their history with a damaged file; the same command trains them again" in out
    command.meanwhile = lambda: None
    assert command()[0] == 0 and command.trained == damaged_trials
