"""Before it trains, a request says which rows its definition no longer has, and exactly which keys have changed."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from sweeper.commands.arguments import parse
from sweeper.definition import Constraint, Grid, Halving, Heatmap, Metric, Search, Sweep, Value
from sweeper.definition.space import Population, Space, When
from sweeper.planning.plan import Plan
from sweeper.planning.prepare import prepare
from sweeper.storage.requests import write_request
from sweeper.storage.rows import Columns
from sweeper.storage.store import Store
from tests.cases import for_each

FIXED: dict[str, Value] = {
    "method": "vje", "dataset": "digits", "normal_class": 0, "validation": 0.2, "epochs": 4, "report_every": 1,
    "encoder": "mlp", "width": 16, "batch_size": 30,
}  # fmt: skip
AUROC = Metric("auroc_joint", "maximize")
SPACE = {"lr": FloatDistribution(0.001, 0.1, log=True), "beta": CategoricalDistribution((0.5, 1.0))}
SEARCH = Search(SPACE, FIXED, 6, AUROC, wave=3)
GRID = Grid(FIXED, {"beta": (0.5, 1.0), "seed": (0, 1)})


def planned(folder: Path, space: Space, *words: str) -> Plan:
    sweep = Sweep("", {"digits": space}, (Heatmap(Metric("loss", "minimize"), "seed", "lr"),), name="own")
    request = parse(["own", "--store", str(folder), "--plan", *words])
    return prepare(dataclasses.replace(request, sweep=sweep), Store(folder))[0]


def store_rows(folder: Path, space: Space, *words: str) -> None:
    """Write rows of the trials that a request knows, as a run does."""
    plan, store = planned(folder, space, *words), Store(folder)
    facts = {"study": str, "study_id": str, "number": int, "wave": int} if plan.study_runs else {}
    keys = {key: type(value) for trial in plan.trials for key, value in trial.config.items() if value is not None}
    columns = Columns({**keys, **facts}, ("auroc_joint",))
    store.prepare("own", columns)
    run = {"cohort": "c", "cohort_size": 1, "status": "finished", "auroc_joint": 0.5}
    store.write(
        "own", "c", [{**run, "trial_id": each.id, **each.config, **each.facts} for each in plan.trials], columns
    )
    write_request(store.files, "own", plan.request_rows)
    for study_run in plan.study_runs:
        study_run.write_definition(store.files, "own")


def searching(**changes: Any) -> Search:
    return dataclasses.replace(SEARCH, **changes)


def space(**changes: Any) -> Search:
    return searching(space={**SPACE, **changes})


BETA = "beta was one of 0.5, 1.0, is "
CHANGED: list[tuple[Space, str]] = [
    (space(beta=CategoricalDistribution((1.0, 0.5))), f"{BETA}one of 1.0, 0.5"),
    (space(beta=CategoricalDistribution((0.5, 1.0, 2.0))), f"{BETA}one of 0.5, 1.0, 2.0"),
    (space(beta=FloatDistribution(0.5, 1.0, step=0.5)), f"{BETA}0.5 to 1.0, in steps of 0.5"),
    (space(lr=FloatDistribution(0.001, 0.2, log=True)), "lr was 0.001 to 0.1, log, is 0.001 to 0.2, log"),
    (space(lr=FloatDistribution(0.001, 0.1)), "lr was 0.001 to 0.1, log, is 0.001 to 0.1"),
    (space(features=IntDistribution(8, 16)), "features was absent, is 8 to 16"),
    (searching(space={"lr": SPACE["lr"]}), f"{BETA}absent"),
    (searching(space={"lr": SPACE["lr"]}, fixed={**FIXED, "beta": 1.0}), f"{BETA}1"),
    (searching(fixed={**FIXED, "width": 32}), "width was 16, is 32"),
    (searching(sampler="random", seed=1), "sampler was tpe, is random; search-seed was 0, is 1"),
    (searching(wave=2), "wave was 3, is 2"),
    (searching(pruner=Halving(1, 2)), "pruner was none, is Halving(first=1, factor=2, brackets=1)"),
    (searching(constraints=(Constraint("seconds", "<=", 60),)), "constraints was none, is seconds <= 60"),
    (searching(metric=Metric("loss", "minimize")), "objective was maximize auroc_joint, is minimize loss"),
    (searching(replicates={"seed": (0, 1)}), "seed was absent, is each of 0,1"),
    (
        searching(conditions=(When("beta", 1.0, {"features": IntDistribution(8, 16)}),)),
        "features was absent, is 8 to 16 if beta is 1",
    ),
    (GRID, "preset was a search, is a grid"),
]


@for_each(("changed", "differences"), CHANGED)
def test_a_changed_search_says_which_of_its_trials_do_not_count(
    tmp_path: Path, changed: Space, differences: str
) -> None:
    store_rows(tmp_path, SEARCH)
    assert planned(tmp_path, SEARCH).notes == () and planned(tmp_path, searching(trials=9)).notes == ()
    (note,) = planned(tmp_path, changed).notes
    assert note == (
        f"3 rows of 'digits' in {tmp_path} (study all: trials 0..2) do not count, because its definition has changed "
        f"since: {differences}"
    )


def test_so_does_one_of_a_population_and_one_that_a_request_changes(tmp_path: Path) -> None:
    adaptable = {"lr": SPACE["lr"], "beta": FloatDistribution(0.5, 1.0)}
    options: Mapping[str, Any] = {"space": adaptable, "sampler": "random", "population": Population(1)}
    store_rows(tmp_path / "population", searching(**options))
    (note,) = planned(tmp_path / "population", searching(**{**options, "population": Population(2)})).notes
    was, now = (f"Population(every={every}, share=0.25, factor=1.25)" for every in (1, 2))
    assert note.endswith(f" since: population was {was}, is {now}")
    store_rows(tmp_path / "request", SEARCH, "--set", "epochs=3")
    changed = space(lr=FloatDistribution(0.001, 0.2, log=True))
    (note,) = planned(tmp_path / "request", changed, "--set", "epochs=3").notes
    assert "3 rows of 'digits, epochs=3'" in note and note.endswith("lr was 0.001 to 0.1, log, is 0.001 to 0.2, log")
    assert planned(tmp_path / "request", changed).notes == (), "another request"


@for_each(
    ("changed", "differences"),
    [
        (Grid(FIXED, {"beta": (0.5,), "seed": (0, 1)}), "beta was 1, is 0.5"),
        (Grid({**FIXED, "width": 32}, GRID.axes), "width was 16, is 32"),
        (Grid({**FIXED, "optimiser": "adam"}, GRID.axes), "optimiser was sgd, is adam"),
        (Grid({**FIXED, "method": "simclr", "tau": 0.5}, {"seed": (0, 1)}), "method was vje, is simclr"),
        (SEARCH, "preset was a grid, is a search"),
    ],
)
def test_a_changed_grid_says_in_which_keys_its_rows_differ(tmp_path: Path, changed: Space, differences: str) -> None:
    store_rows(tmp_path, GRID)
    (note,) = planned(tmp_path, changed).notes
    assert note.endswith(f" do not count, because its definition has changed since: {differences}")
