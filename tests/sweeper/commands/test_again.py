"""`sweeper best NAME --again seed=1..5`: the best settings of a request are trained with fresh seeds, and compared."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from scipy import stats

import sweeper
from sweeper.commands import best, table
from sweeper.commands.again import Again, _axes_of_table, _Setting, asked_again
from sweeper.commands.run import main as run
from sweeper.definition import Grid, Heatmap, Metric, Sweep, Value
from sweeper.errors import SpecError
from sweeper.option_values import Keep, Text
from sweeper.planning.cohorts import trial_id
from sweeper.report.figures import figures_of
from sweeper.report.kinds import write_figures
from sweeper.request import Request
from sweeper.storage.load import load
from sweeper.storage.requests import RequestRows, write_request
from sweeper.storage.rows import Columns
from sweeper.storage.store import Store
from tests.cases import for_each
from tests.user_files import user_folder
from trainables.config import resolve

__all__ = ["user_folder"]

FUNCTIONS = """
import random

from optuna.distributions import FloatDistribution

from sweeper import Metric, Search, Sweep, Table


def measured(best, lr, seed):
    draws = random.Random(f"{best} {lr} {seed}")
    values = [0.8 - (lr - best) ** 2 + draws.gauss(0, 0.02) for _ in range(2)]
    return {"val_accuracy": values[0], "accuracy": values[1]}


def ours(lr: float, seed: int = 0):
    return measured(0.3, lr, seed)


def theirs(lr: float, seed: int = 0):
    return measured(0.6, lr, seed)


def tuned(name):
    space, accuracy = {"lr": FloatDistribution(0.0, 1.0)}, Metric("accuracy", "maximize")
    return Search(space, {"method": f"my_tuned:{name}"}, trials=6, wave=3, metric=accuracy, sampler="random")


TABLE = Table("accuracy", ("method",), (Metric("accuracy", "maximize"),), labels={"my_tuned:ours": "Ours"})
SWEEP = Sweep("two functions", {"small": (tuned("ours"), tuned("theirs"))}, (TABLE,))
"""
"""A search of two methods, whose settings are chosen on validation data."""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_tuned.py").write_text(FUNCTIONS)
    return "my_tuned.py"


@pytest.mark.slow
@pytest.mark.usefixtures("user_folder")
def test_each_study_is_trained_with_fresh_seeds_and_its_mean_stands_in_a_table(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([file, "--debug"]) == 0
    search = load("my_tuned", preset="small")
    chosen = search.loc[search.groupby("method")["val_accuracy"].idxmax()].set_index("method")["lr"]
    again = [file, "--again", "seed=1..3", "--debug"]
    assert best.main([*again[:-1], "--plan"]) == 0 and "6 to run" in capsys.readouterr().out
    assert len(load("my_tuned")) == 12, "a plan trains nothing"
    assert best.main(again) == 0
    assert "[" in capsys.readouterr().out
    rows = load("my_tuned", preset="small, again")
    assert sorted(zip(rows["method"], rows["seed"], strict=True)) == [
        (f"my_tuned:{name}", seed) for name in ("ours", "theirs") for seed in (1, 2, 3)
    ]
    assert rows["lr"].tolist() == chosen[rows["method"]].tolist() and rows["study"].isna().all()
    configs = rows[["method", "lr", "seed"]].to_dict("records")
    assert [trial_id(resolve(config)) for config in configs] == rows["trial_id"].tolist()

    assert best.main([file, "--again", "seed=1..5", "--debug"]) == 0
    assert "4 of 10 trials to run" in capsys.readouterr().out, "those with seeds 1 to 3 are there"
    cells = pd.read_parquet("results/tables/my_tuned/small, again/methods.parquet").set_index("method")
    of_methods = load("my_tuned", preset="small, again").groupby("method")["accuracy"]
    assert cells["replicates"].tolist() == [5, 5] and cells["mean"].to_dict() == pytest.approx(
        of_methods.mean().to_dict()
    )
    for method, values in of_methods:
        p, t = values.mean(), stats.t.ppf(0.975, 4)
        low = stats.logistic.cdf(stats.logistic.ppf(p) - t * stats.sem(values) / (p * (1 - p)))
        assert cells["low"][method] == pytest.approx(low)
    assert best.main([file, "--again", "seed=1..5", "--debug"]) == 0
    assert "to run" not in capsys.readouterr().out and len(load("my_tuned")) == 22

    assert table.main(["my_tuned"]) == best.main(["my_tuned"]) == 0
    out = capsys.readouterr().out
    assert "mean [95 % interval] over 5 seeds" in out and "by trials with seed=0 that are not counted" in out
    assert "my_tuned (small, again): 10 of 10 trials have a result" in out
    assert "| Ours " in out, "the table has the labels of the sweep's own"
    assert best.main([file, "--preset", "small"]) == 0 and "study my_tuned:ours" in capsys.readouterr().out
    assert len(load("my_tuned", preset="small")) == 12, "the search has none of them"

    found = sweeper.run_best(file, again={"seed": "1..4"}, debug=True)
    assert found["seed"].tolist() == [1, 2, 3, 4] * 2 and set(found["preset"]) == {"small, again"}
    with pytest.raises(SpecError, match="no option of a run of best settings 'trials'"):
        sweeper.run_best(file, again={"seed": "5..6"}, trials=3)
    with pytest.raises(SpecError, match="again must map one key to its values"):
        sweeper.run_best(file, again={})


AUROC = Metric("auroc_joint", "maximize")
FIXED: Mapping[str, Value] = {"method": "vje", "dataset": "digits", "epochs": 5, "nu": 0.5, "validation": 0.2}
AXES = {"beta": (0.5, 1.0), "normal_class": (0, 1), "seed": (0, 1)}
SWEEP = Sweep("", {"digits": Grid(FIXED, AXES)}, figures=(Heatmap(AUROC, "beta", "method"),))
NAME = "anomaly_grid"


def tuned_store(folder: Path, axes: Mapping[str, tuple[Value, ...]] = AXES) -> str:
    """Write a store in which beta=1 is best."""
    rows: list[dict[str, Any]] = [
        {**resolve({**FIXED, **own}).complete(), "trial_id": trial_id(resolve({**FIXED, **own})), "status": "finished"}
        | {"cohort": "c", "cohort_size": 8, "preset": "digits", "changes": ""}
        | {"auroc_joint": 0.9 + 0.01 * index, "val_auroc_joint": float(str(own["beta"])) / 2 + 0.01 * index}
        for index, own in enumerate(Grid({}, axes).combinations())
    ]
    keys = {key: type(value) if value is not None else str for key, value in rows[0].items()}
    kept = {key: kind for key, kind in keys.items() if key in {**FIXED, **axes}}
    columns, store = Columns(kept, ("auroc_joint", "val_auroc_joint")), Store(folder)
    store.prepare(NAME, columns)
    wanted = {*kept, "trial_id", "status", "cohort", "cohort_size", "preset", "changes", *columns.metrics}
    store.write(NAME, "c", [{key: value for key, value in row.items() if key in wanted} for row in rows], columns)
    write_figures(store.files, NAME, figures_of(SWEEP, "digits"))
    write_request(store.files, NAME, RequestRows("digits", "digits", [row["trial_id"] for row in rows]))
    return str(folder)


def test_what_a_replicate_has_the_mean_over_stays_and_the_seeds_are_fresh(tmp_path: Path) -> None:
    asked = Request(NAME, store=tuned_store(tmp_path), keep=Keep("all"))
    request, said = asked_again(asked, Again("seed", (2, 3, 4)))
    assert request.sweep and (request.preset, request.keep) == ("digits, again", Keep("all"))
    (grid,) = request.sweep.grids("digits, again")
    assert {key: grid.axes[key] for key in grid.axes} == {"normal_class": (0, 1), "seed": (2, 3, 4)}
    assert {key: grid.fixed.get(key) for key in ("method", "beta", "epochs", "nu")} == {
        **{"method": "vje", "beta": 1.0, "epochs": 5, "nu": 0.5}
    }
    configs = [resolve(own).flat() for own in grid.combinations()]
    assert configs == [
        resolve({**FIXED, "beta": 1.0, "normal_class": normal, "seed": seed}).flat()
        for normal in (0, 1)
        for seed in (2, 3, 4)
    ]
    (text,), (methods,) = said, request.sweep.figures
    assert "at beta=1; chosen on validation images" in text and methods.shown[0].name == "auroc_joint"
    assert "seed=0,1 that are not counted" in methods.note  # type: ignore[attr-defined]


def test_classes_that_were_tuned_one_by_one_have_columns(tmp_path: Path) -> None:
    """No mean over them hides that their settings differ."""
    sweep = Sweep("", {"digits": Grid(FIXED, AXES)}, figures=(Heatmap(AUROC, "beta", "normal_class"),))
    assert sweep.repeats.fixed[0] == "normal_class"

    def setting(**keys: Value) -> _Setting:
        return _Setting(keys, {}, keys)

    of_classes = [
        setting(method=method, normal_class=number, lr=lr, dataset="digits")
        for lr, (method, number) in enumerate([("vje", 0), ("vje", 1), ("csi", 0), ("csi", 1)])
    ]
    assert _axes_of_table(of_classes, sweep.repeats) == (("method",), "normal_class")
    on_data = [setting(method="vje", dataset=name, lr=lr) for lr, name in enumerate(("digits", "svhn"))]
    assert _axes_of_table(on_data, sweep.repeats) == (("dataset",), None)
    assert _axes_of_table([*on_data, setting(method="csi", dataset="svhn", lr=7)], sweep.repeats) == (
        ("method",),
        "dataset",
    )
    alike = [setting(method="vje", dataset="digits", lr=0.1, width=width) for width in (8, 16)]
    assert _axes_of_table(alike, sweep.repeats) == (("width",), None)
    assert _axes_of_table(alike[:1], sweep.repeats) == (("method",), None)


@for_each(
    ("again", "line"),
    [
        (Again("seed", (1, 2)), r"no trial of 'digits' has, because they chose the setting: seed=0,1; seed=2\.\.3 has"),
        (Again("beta", (3.0,)), "no key of --again that repeats an experiment 'beta'; there are: seed"),
        (Again("seed", (Text("x"),)), "seed must be a whole number, but got seed=x"),
        (Again("seed", (3,), changes="lr=1"), "no request changes its preset by 'lr=1'; there are: ''"),
        (Again("seed", (3,), metric="auroc"), "no metric with a direction 'auroc'"),
    ],
)
def test_what_cannot_be_is_refused(again: Again, line: str, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=line):
        asked_again(Request(NAME, store=tuned_store(tmp_path / "store")), again)


@for_each(
    ("arguments", "line"),
    [
        (["own", "--again", "seed=1"], "--again trains trials, so it needs the file of the sweep, but got its name"),
        ([NAME, "--again", "seed"], "--again takes KEY=VALUE, but got 'seed'"),
        ([NAME, "--debug"], "--debug requires --again"),
        ([NAME, "--plan"], "--plan requires --again"),
        ([NAME, "--again", "seed=1", "--preset", "digits, again"], "--again needs the preset that was tuned, but"),
    ],
)
def test_wrong_use_is_one_line(arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert best.main(arguments) == 2
    (error,) = capsys.readouterr().err.splitlines()
    assert error.startswith("error: ") and line in error
