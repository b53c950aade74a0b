"""A preset of a grid and a search: planned, run, continued, reported and archived as one."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from optuna.distributions import FloatDistribution

from sweeper.commands.arguments import parse
from sweeper.commands.run import main
from sweeper.definition import Grid, Halving, Heatmap, Metric, Pruner, Search, Sweep, Value, registry
from sweeper.planning.prepare import prepare
from sweeper.report.figures import figures_of
from sweeper.results.best_trials import rankings_of
from sweeper.storage.load import load
from sweeper.storage.models import trials_with_models
from sweeper.storage.requests import read_request
from sweeper.storage.store import Store
from tests.fake_executor import without_ray

pytestmark = pytest.mark.usefixtures("undrawn")

SMALL: dict[str, Value] = {
    "dataset": "digits", "encoder": "relu_mlp", "hidden": "16", "features": 4, "batch_size": 256, "epochs": 2,
    "report_every": 1, "knn": 5, "projector_width": 16, "projection": 8,
}  # fmt: skip
KNN = Metric("knn_z", "maximize")
GRID = Grid({**SMALL, "method": "simclr"}, {"tau": (0.1, 0.5), "lr": (0.01, 0.02), "seed": (0, 1)})
SEARCH = Search(
    {"lr": FloatDistribution(0.001, 0.1, log=True)},
    {**SMALL, "method": "byol", "predictor_width": 16},
    6,
    KNN,
    wave=3,
    pruner=Halving(1, 2),
)
MIXED = Sweep("a grid beside a search", {"digits": (GRID, SEARCH)}, (Heatmap(KNN, "tau", "lr"),), over="seeds")


@pytest.fixture(autouse=True)
def sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "find", lambda name: replace(MIXED, name="mixed"))


def command(store: Path, *words: str) -> list[str]:
    return ["mixed", "--store", str(store), "--cohort", "4", *words]


@pytest.mark.slow
def test_it_runs_and_reports_both_and_continues(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command(tmp_path, "--plan", "--json")) == 0
    outline = json.loads(capsys.readouterr().out)
    assert (outline["trials"], outline["to run"], outline["groups"]) == (14, 14, 1)
    assert outline["studies"]["byol"]["trials"] == 6 and outline["objectives"] == {"knn_z": "maximize"}
    assert main(command(tmp_path, "--plan")) == 0
    text = capsys.readouterr().out
    assert "  cohorts    2 of 4 trials" in text and "  study      byol: 6 trials in waves of 3" in text

    with without_ray(tmp_path):
        assert main(command(tmp_path, "--set", "method=simclr")) == 0
        text = capsys.readouterr().out
        assert "8 finished of 8 trials" in text and "best knn_z" in text
        assert main(command(tmp_path)) == 0
    text = capsys.readouterr().out
    assert "6 of 14 trials to run" in text and " of 14 trials\n" in text
    assert "6 trials: " in (tmp_path / "tables/mixed/digits/end.txt").read_text()
    (line,) = (line for line in text.splitlines() if line.startswith("rows: "))
    rows = eval(line.removeprefix("rows: "), {"pd": pd})
    assert len(rows) == 14 and rows["study_id"].notna().sum() == 6
    assert list(load("mixed", str(tmp_path))["trial_id"].sort_values()) == list(rows["trial_id"].sort_values())
    assert (tmp_path / "heatmaps/mixed/digits/knn_z.parquet").exists() and (tmp_path / "studies/mixed/digits").exists()
    listed = read_request(Store(tmp_path).files, "mixed", "digits")
    assert listed and (len(listed.trials), len(listed.studies)) == (8, 1)
    best = set(trials_with_models(Store(tmp_path).files, "mixed"))
    finished = rows[(rows["status"] == "finished") & rows["study_id"].notna()]
    assert finished.loc[finished["knn_z"].idxmax(), "trial_id"] in best and len(best) < 14

    assert main(command(tmp_path, "--plan")) == 0
    text = capsys.readouterr().out
    assert "14: " in text and "0 to run" in text
    assert_rows_of_parts_that_stand_alone(load("mixed", str(tmp_path)), tmp_path)
    capsys.readouterr()
    with without_ray(tmp_path):
        assert main(command(tmp_path, "--fresh", "--trials", "3")) == 0
    text = capsys.readouterr().out
    assert " of 11 trials\n" in text and "archived: " in text


def assert_rows_of_parts_that_stand_alone(mixed: pd.DataFrame, folder: Path) -> None:
    """Assert that the rows are those of the grid and the search, each the only part of a preset. Only the name of the
    study tells its method, too."""
    columns = ["trial_id", "status", "epochs_run", "lr", "tau", "seed", "knn_z", "loss", "number", "wave", "study_id"]
    parts = []
    for name, part in (("grid", GRID), ("search", SEARCH)):
        alone = replace(MIXED, presets={"digits": part}, name="mixed")
        with pytest.MonkeyPatch.context() as patch, without_ray(folder):
            patch.setattr(registry, "find", lambda _, alone=alone: alone)
            assert main(command(folder / name)) == 0
        parts.append(load("mixed", str(folder / name)).reindex(columns=columns))
    expected = pd.concat(parts).set_index("trial_id").sort_index()
    actual = mixed.reindex(columns=columns).set_index("trial_id").sort_index()
    pd.testing.assert_frame_equal(actual, expected, check_dtype=False)


def test_its_headline_is_the_views_and_else_the_objective(tmp_path: Path) -> None:
    assert MIXED.headline("digits") == KNN and MIXED.naming("digits") == ("tau", "lr")
    other = replace(MIXED, figures=(Heatmap(Metric("loss", "minimize"), "tau", "lr"),))
    assert other.headline("digits").name == "loss" and figures_of(other, "digits").ranks
    assert replace(MIXED, figures=()).headline("digits") == KNN
    plan, _ = prepare(parse(command(tmp_path)), Store(tmp_path))
    settings, *others = rankings_of(plan)
    assert {"method", "tau", "lr"} <= set(settings.columns) and "seed" not in settings.columns and settings.of_grids
    assert [(ranking.columns, ranking.of_grids) for ranking in others] == [
        (("study_id",), False),
        (("tau", "lr"), False),
    ]


def test_an_option_of_searches_changes_the_search_alone(tmp_path: Path) -> None:
    whole, _ = prepare(parse(command(tmp_path)), Store(tmp_path))
    plan, _ = prepare(parse(command(tmp_path, "--sampler", "random")), Store(tmp_path))
    assert [trial.id for trial in plan.grid_trials] == [trial.id for trial in whole.grid_trials]
    (study,), (asked,) = whole.study_runs, plan.study_runs
    assert (study.study.search.sampler, asked.study.search.sampler) == ("tpe", "random") and study.id != asked.id


class Median(Pruner):
    """A pruner of a user's own: the better half goes on at each report."""

    def keep(self, epoch: int, values: Sequence[float]) -> int:
        return (len(values) + 1) // 2


@pytest.mark.slow
def test_a_pruner_of_ones_own_prunes_and_its_study_is_rebuilt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = replace(MIXED, name="mixed", presets={"digits": replace(SEARCH, pruner=Median())}, figures=())
    monkeypatch.setattr(registry, "find", lambda name: own)
    assert main(command(tmp_path, "--plan")) == 0
    assert "tpe, Median()" in capsys.readouterr().out
    with without_ray(tmp_path):
        assert main(command(tmp_path)) == 0
    rows = load("mixed", str(tmp_path))
    pruned = rows[rows["status"] == "pruned"]
    assert len(rows) == 6 and (pruned["epochs_run"] == 1).all() and 1 <= len(pruned) < 6
    assert pruned["error"].str.contains("was not among the best").all()
    capsys.readouterr()
    assert main(command(tmp_path, "--plan")) == 0
    assert "0 to run" in capsys.readouterr().out
