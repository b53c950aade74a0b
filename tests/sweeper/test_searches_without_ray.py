"""Searches without Ray: begun with another sweep's rows, and populations."""

import json
from pathlib import Path

import pytest

from search_spaces.vje_search import POPULATION
from sweeper.run import main
from sweeper.storage.load import load
from sweeper.storage.rows import Columns
from sweeper.storage.store import Store
from tests.fake_executor import without_ray

NAME = "vje_search"


def test_a_search_can_begin_with_the_rows_of_a_grid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys = {"method": str, "dataset": str, "normal_class": int, "beta": float, "nu": float, "lr": float}
    columns = Columns(
        {**keys, "weight_decay": float, "held_out": str, "outliers": str, "validation": float}, ("val_auroc_joint",)
    )
    common = {"status": "finished", "method": "vje", "dataset": "digits", "normal_class": 1, "nu": 1.0, "lr": 0.01}
    common |= {"weight_decay": 1e-4, "held_out": "", "outliers": "", "validation": 0.2, "val_auroc_joint": 0.9}
    betas = (0.1, 1.0, 2.0, 5.0)
    grid = [common | {"trial_id": f"t{i}", "beta": beta} for i, beta in enumerate(betas)]
    unmatched = [grid[0] | {"trial_id": "u0", "status": "failed"}, grid[0] | {"trial_id": "u1", "normal_class": 2}]
    unmatched += [grid[0] | {"trial_id": "u2", "validation": 0.1}]
    Store(tmp_path).write("a_grid", "c", [*grid, *unmatched], columns)
    arguments = ["--trials", "4", "--wave", "4", "--set", "epochs=2", "--set", "width=128", "--pruner", "none"]
    command = [NAME, "--preset", "digits", "--store", str(tmp_path), *arguments]
    with without_ray(tmp_path):
        assert main([*command, "--warm-start", "a_grid"]) == 0
    assert "7 trials (3 earlier): 7 complete" in capsys.readouterr().out
    (definition,) = (tmp_path / f"studies/{NAME}").glob("*.json")
    assert [params["beta"] for params, _ in json.loads(definition.read_text())["results"]] == [0.1, 1.0, 2.0]
    assert main([*command, "--plan"]) == 0
    assert "4 to run" in capsys.readouterr().out, "a study without a warm start is another one"


def test_a_population_keeps_the_whole_schedule_of_each_member(tmp_path: Path) -> None:
    arguments = ["--trials", "8", "--wave", "8", "--set", "epochs=20"]
    with without_ray(tmp_path):
        assert main([NAME, "--preset", "digits_population", "--store", str(tmp_path), *arguments]) == 0
    frame = load(NAME, str(tmp_path)).set_index("number")
    assert set(frame["status"]) <= {"finished", "diverged"} and frame["cohort"].nunique() == 1
    assert POPULATION.population
    moved = frame["schedule"].dropna().map(json.loads)
    assert len(moved) >= 1
    for number, entries in moved.items():
        for entry in entries:
            assert (
                entry["epoch"] % POPULATION.population.every == 0
                and entry["from"] != number
                and set(entry) >= {"beta", "nu", "lr", "weight_decay"}
            )
