"""The same command continues a store: it trains trials again whose results were lost with damaged files, and none of a
store that an earlier version of the code wrote. Nothing is really trained.

`earlier_store/` has the rows and the history of the two presets of `SWEEP`, as version 0.1.0 wrote them. A trial that
gets another id here would be trained again in every store of that version: a key that is added later to a section keeps
the ids of trials that have its default (`trainables.sections.added`).
"""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from optuna.distributions import FloatDistribution

import sweeper.run as run
from sweeper.report import publish
from sweeper.spec import Grid, Metric, Search, Sweep, Table, registry
from sweeper.storage.files import Files
from sweeper.storage.load import load, load_history
from sweeper.storage.store import Store
from tests.sweeper.small_sweeps import FIXED
from tests.sweeper.storage.rows import flipped

SMALL = ["--axis", "beta=0.5,1", "--axis", "nu=0.5", "--axis", "normal_class=0", "--set", "epochs=2"]


class Command:
    """Runs `python -m sweeper.run` in this process. Training takes no time, and no pictures are drawn."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self._capsys, self.trained = folder, capsys, list[str]()
        self.store = Store(folder)
        self.meanwhile: Callable[[], object] = lambda: None
        monkeypatch.setattr(run._Run, "_train_all", lambda training, *_: self._train(training))
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


AUROC = Metric("val_auroc_joint", "maximize")
SWEEP = Sweep(
    about="a grid of two trials and a search of two waves",
    presets={
        "grid": Grid({**FIXED, "seed": 0}, {"beta": (0.5, 1.5)}),
        "search": Search(
            {"beta": FloatDistribution(0.1, 3.0, log=True)},
            {**FIXED, "optimiser": "adam"},
            trials=4,
            metric=AUROC,
            wave=2,
            sampler="random",
        ),
    },
    figures=(Table("auroc", ("beta",), (Metric("auroc_joint", "maximize"),)),),
    name="earlier",
)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(registry, "find", lambda name: SWEEP)
    monkeypatch.setattr(run, "connected", lambda *_, **__: pytest.fail("nothing must be trained"))
    shutil.copytree(Path(__file__).parent / "earlier_store", tmp_path / "store")
    return tmp_path / "store"


@pytest.mark.parametrize(("preset", "count"), [("grid", 2), ("search", 4)])
def test_an_earlier_store_is_read_and_continued(
    preset: str, count: int, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = load("earlier", store, preset=preset)
    assert run.main(["earlier", "--preset", preset, "--store", str(store)]) == 0
    out, err = capsys.readouterr()
    assert f"{count} finished of {count} trials" in out and "do not count" not in err
    (line,) = [line for line in out.splitlines() if line.startswith(f"request '{preset}': ")]
    rows = eval(line.partition(": ")[2], {"pd": pd})
    assert set(rows["trial_id"]) == set(before["trial_id"]) == set(load("earlier", store, preset=preset)["trial_id"])


@pytest.mark.parametrize("preset", ["grid", "search"])
def test_rows_of_an_earlier_definition_are_told_and_left_out(
    preset: str, store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    space = SWEEP.presets[preset]
    assert isinstance(space, Grid | Search)
    now = replace(SWEEP, presets={preset: replace(space, fixed={**space.fixed, "lr": 0.01, "width": 32})})
    monkeypatch.setattr(registry, "find", lambda name: now)
    assert run.main(["earlier", "--store", str(store), "--axis", "normal_class=0", "--plan"]) == 0
    out, err = capsys.readouterr()
    count = 2 if preset == "grid" else 4
    assert f"{count} to run" in out and f"note: {count} rows of '{preset}'" in err
    assert "lr was 0.02, is 0.01" in err and "width was 16, is 32" in err and err.count(" was ") == 2
    assert run.main(["earlier", "--store", str(store), "--set", "epochs=3", "--plan"]) == 0
    assert "do not count" not in capsys.readouterr().err, "another request"
