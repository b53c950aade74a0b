"""The same command continues a store: it trains trials again whose results were lost with damaged files, and none of a
store that an earlier version of the code wrote.

`earlier_stores/COMMIT.tar.xz` is a store as that commit wrote it, without pictures and pages: of `SWEEP` the half of
the grid with seed 0, one model of it where models were kept, and the first of the two waves of the search. A trial that
gets another id here would be trained again in every store of that version: a key that is added later to a section keeps
the ids of trials that have its default (`trainables.sections.added`).
"""

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from optuna.distributions import FloatDistribution

import sweeper
from sweeper.commands import run
from sweeper.commands.sweep_run import SweepRun
from sweeper.definition import Grid, Halving, Heatmap, Metric, Search, Sweep, Table, Value, registry
from sweeper.models import load_model
from sweeper.report import publish
from sweeper.storage.files import Files
from sweeper.storage.load import load, load_history
from sweeper.storage.store import Store
from tests.fake_executor import without_ray
from tests.sweeper.storage.rows import flipped

SMALL = ["--axis", "beta=0.5,1", "--axis", "nu=0.5", "--axis", "normal_class=0", "--set", "epochs=2"]


class Command:
    """Runs `python -m sweeper.run` in this process. Training takes no time, and no pictures are drawn."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self._capsys, self.trained = folder, capsys, list[str]()
        self.store = Store(folder)
        self.meanwhile: Callable[[], object] = lambda: None
        monkeypatch.setattr(SweepRun, "_train_all", lambda training, *_: self._train(training))
        monkeypatch.setattr(publish, "write", self._write)

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        """Return the exit status, stdout and stderr. `trained` lists the trials that were trained."""
        self.trained.clear()
        status = run.main(["anomaly_grid", "--preset", "digits", "--store", str(self.folder), *SMALL, *arguments])
        return (status, *self._capsys.readouterr())

    def _train(self, training: SweepRun) -> None:
        plan, store = training.plan, training.store
        for trial in plan.trials:
            if plan.statuses.get(trial.id, "failed") == "failed":
                self.trained.append(trial.id)
                store.write_history(plan.name, f"c{trial.id}", [(trial.id, 2, "auroc_joint", 0.5)])
                fixed = {"trial_id": trial.id, "status": "finished", "auroc_joint": 0.5}
                store.write(plan.name, f"c{trial.id}", [{**trial.config, **fixed}], training.columns)
        self.meanwhile()

    def _write(self, files: Files, subject: publish.Subject, *_: object, **__: object) -> str:
        return f"{len(load_history(subject.name, files))} reports"


@pytest.fixture
def command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    return Command(tmp_path, capsys, monkeypatch)


@pytest.mark.slow
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


@pytest.mark.slow
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


AUROC = Metric("auroc_joint", "maximize")
FIXED: dict[str, Value] = {
    "method": "vje", "dataset": "digits", "normal_class": 0, "epochs": 2, "batch_size": 30,
    "encoder": "mlp", "width": 16, "features": 8, "bottleneck": 8, "lr": 0.02,
}  # fmt: skip
SWEEP = Sweep(
    about="a grid of four trials and a pruned search of two waves",
    presets={
        "grid": Grid(FIXED, {"beta": (0.5, 1.5), "seed": (0, 1)}),
        "search": Search(
            {"beta": FloatDistribution(0.1, 3.0, log=True)},
            *(FIXED, 8, AUROC),
            wave=4,
            sampler="random",
            pruner=Halving(first=1, factor=2),
        ),
    },
    figures=(Heatmap(AUROC, "beta", "seed"), Table("auroc", ("beta",), (AUROC,))),
    name="earlier",
)
STORES = Path(__file__).parent / "earlier_stores"
FIRST, UNNAMED, NOW = "8bd578b4", "7b884bff", "1118f6bf"
"""Versions of which the trials had other ids, the second with searches; and the last one that is kept."""
CONTINUED = ["13455a02", "cc5bb066", "c3d014a3", "69c3d639", NOW]
RELEASES = {"0.1.0": {FIRST, UNNAMED, *CONTINUED} - {NOW}, "0.2.0": {NOW}}
"""Number of each release -> the versions of it that are kept."""
WITH_MODELS = CONTINUED[1:]


def at(version: str, folder: Path) -> Path:
    shutil.unpack_archive(STORES / f"{version}.tar.xz", folder / version, filter="data")
    return folder / version


def release_of(version: str) -> str:
    return next(release for release, versions in RELEASES.items() if version in versions)


def begin(preset: str, store: Path, *arguments: str) -> int:
    with without_ray(store):
        return run.main(["earlier", "--preset", preset, "--store", str(store), *arguments])


@pytest.fixture(autouse=True)
def sweep(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if "command" not in request.fixturenames:
        monkeypatch.setattr(registry, "find", lambda name: SWEEP)


def results(rows: pd.DataFrame) -> dict[str, tuple[object, ...]]:
    columns = rows[["trial_id", "status", "auroc_joint", "ended", "code_version"]]
    return {values[0]: values for values in columns.itertuples(index=False, name=None)}


def test_every_kept_version_is_tested_and_a_store_of_every_release_is_kept() -> None:
    assert {path.name.removesuffix(".tar.xz") for path in STORES.iterdir()} == {FIRST, UNNAMED, *CONTINUED}
    released = re.findall(r"^## (\d\S+)", (Path(__file__).parents[2] / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert {*released} == RELEASES.keys() and released[0] == sweeper.__version__


@pytest.mark.slow
@pytest.mark.parametrize("version", [UNNAMED, *CONTINUED])
def test_a_search_of_an_earlier_version_goes_on(
    version: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = at(version, tmp_path)
    before = load("earlier", store)
    before = before[before["number"].notna()]
    assert len(before) == 4 and set(before["code_version"]) == {f"{release_of(version)}+{version}"}
    assert begin("search", store) == 0
    out, err = capsys.readouterr()
    assert "4 of 8 trials to run" in out and "5 finished, 3 pruned of 8 trials" in out and err == ""
    rows = load("earlier", store, preset="search")
    assert sorted(rows["number"]) == list(range(8)) and results(rows).items() >= results(before).items()
    assert (store / "reports/earlier.html").stat().st_size > 100_000
    assert "0 to run" in plan("search", store, capsys)[0]


def plan(preset: str, store: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[str, str]:
    assert begin(preset, store, "--plan", *arguments) == 0
    return capsys.readouterr()


@pytest.mark.slow
@pytest.mark.parametrize("version", CONTINUED)
def test_a_grid_of_an_earlier_version_is_continued_and_its_rows_stay(
    version: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = at(version, tmp_path)
    before = load("earlier", store)
    before = before[before["number"].isna()]
    assert begin("grid", store) == 0
    out, err = capsys.readouterr()
    assert "2 of 4 trials to run" in out and "4 finished of 4 trials" in out and err == ""
    (line,) = [line for line in out.splitlines() if line.startswith("rows: ")]
    selected, rows = eval(line.partition(": ")[2], {"pd": pd}), load("earlier", store, preset="grid")
    assert len(selected) == 4 and results(rows) == results(selected)
    assert results(rows).items() >= results(before).items() and rows["seed"].tolist() == [0, 1, 0, 1]
    if version in WITH_MODELS:
        (path,) = (path for path in (store / "models/sweep=earlier").iterdir() if path.stem in set(before["trial_id"]))
        assert load_model(store, path.stem).config.flat()["beta"] in (0.5, 1.5)


@pytest.mark.slow
@pytest.mark.parametrize("version", [FIRST, UNNAMED])
def test_trials_that_had_other_ids_are_reported_and_trained_again(
    version: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = at(version, tmp_path)
    before = load("earlier", store)
    out, err = plan("grid", store, capsys)
    assert "0 finished" in out and "4 to run" in out and len(err.splitlines()) == 1
    assert err.startswith(f"note: 2 rows of 'grid' in {store} do not count, because its definition has changed since: ")
    assert "validation was none, is 0" in err
    assert begin("grid", store) == 0 and "4 finished of 4 trials" in capsys.readouterr().out
    assert len(load("earlier", store, preset="grid")) == 4
    assert results(load("earlier", store)).items() >= results(before).items(), "no row is lost"
    assert "note: 2 rows" in plan("grid", store, capsys)[1] and "note" not in plan("search", store, capsys)[1]


@pytest.mark.parametrize("preset", ["grid", "search"])
def test_rows_of_an_earlier_definition_are_reported_and_left_out(
    preset: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, space = at(NOW, tmp_path), SWEEP.presets[preset]
    assert isinstance(space, Grid | Search)
    now = replace(SWEEP, presets={preset: replace(space, fixed={**space.fixed, "lr": 0.01, "width": 32})})
    monkeypatch.setattr(registry, "find", lambda name: now)
    out, err = plan(preset, store, capsys, "--axis", "normal_class=0")
    count = 2 if preset == "grid" else 4
    assert f"{2 * count} to run" in out and f"note: {count} rows of '{preset}'" in err
    assert "lr was 0.02, is 0.01" in err and "width was 16, is 32" in err and err.count(" was ") == 2
    assert "do not count" not in plan(preset, store, capsys, "--set", "epochs=3")[1], "another request"
