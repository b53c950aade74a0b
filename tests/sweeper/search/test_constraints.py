"""Samplers are told which proposals are infeasible, and avoid their like; a continued study tells them the same."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sweeper.definition.constraint import Constraint
from sweeper.definition.space import CONSTRAINED, Study
from sweeper.option_values import WarmStartRequest
from sweeper.search.ask_tell import AskTellStudy, TrialResult
from sweeper.search.study_run import WarmStart, mean_result, read_warm_start, result, warm_start_from_rows
from sweeper.storage.files import Files
from sweeper.storage.rows import Columns
from sweeper.storage.store import Store
from tests.cases import for_each
from tests.sweeper.search import toy_waves
from tests.sweeper.search.toys import AUROC, SQUARE, WAVE, study, waves

BOUNDS = Constraint("cost", "<=", 0.5), Constraint("val_knn_z", ">=", 0.8)
SAMPLERS = [pytest.param(name, marks=pytest.mark.slow) if name == "gp" else name for name in CONSTRAINED]


def constrained(sampler: str, seed: int = 0, constraints: tuple[Constraint, ...] = BOUNDS[:1]) -> Study:
    return study(sampler, SQUARE, metric=AUROC, constraints=constraints, seed=seed)


def outcome(trial: Any) -> TrialResult:
    """The objective grows towards x = y = 1, but a proposal beyond x + y = 0.5 is infeasible."""
    number, total = trial.number, trial.params["x"] + trial.params["y"]
    if number % 9 == 7:
        return TrialResult(number, "diverged", (math.nan,))
    return TrialResult(number, "finished", (total,), constrained=(total if number % 5 else None,))


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_continued_study_equals_the_undisturbed_one(sampler: str) -> None:
    whole = waves(AskTellStudy(constrained(sampler)), 4, outcome)
    known = {number: whole[number].params for number in (*range(2 * WAVE), 13, 16)}
    assert waves(AskTellStudy(constrained(sampler)), 4, outcome, known) == whole


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_infeasible_regions_are_avoided(sampler: str) -> None:
    """Without the constraint the same search ends near x = y = 1."""

    def free(trial: Any) -> TrialResult:
        return replace(outcome(trial), constrained=())

    def feasible(seed: int, constraints: tuple[Constraint, ...]) -> int:
        engine = AskTellStudy(constrained(sampler, seed, constraints))
        trials = waves(engine, 5, outcome if constraints else free)
        return sum(trial.params["x"] + trial.params["y"] <= 0.5 for trial in trials[3 * WAVE :])

    seeds = (0,) if sampler == "gp" else (0, 1)  # its proposals take long
    bounded, unbounded = (sum(feasible(seed, constraints) for seed in seeds) for constraints in (BOUNDS[:1], ()))
    assert bounded > 2 * unbounded


def test_what_is_not_known_counts_as_the_worst_so_far() -> None:
    engine = AskTellStudy(constrained("tpe", constraints=BOUNDS))
    engine.ask(6)
    engine.tell(
        [
            TrialResult(0, "finished", (1.0,), constrained=(0.25, 0.8)),
            TrialResult(1, "finished", (1.0,), constrained=(2.5, None)),
            TrialResult(2, "finished", (1.0,), constrained=(None, 0.4)),
            TrialResult(3, "diverged", (None,)),
            TrialResult(4, "pruned", (None,), {1: 0.5}, constrained=(0.5, 0.6)),
            TrialResult(5, "failed", (None,)),
        ]
    )
    violations = [tuple(trial.constraints.values()) for trial in engine.optuna_study.trials]
    assert violations == [(-0.5, 0.0), (4.0, 1.0), (4.0, 0.5), (4.0, 1.0), (0.0, pytest.approx(0.25)), ()]


@for_each("status", ["finished", "pruned"])
def test_a_result_without_a_value_for_each_constraint_is_refused(status: Any) -> None:
    engine = AskTellStudy(constrained("tpe"))
    engine.ask(1)
    with pytest.raises(ValueError, match="a value for each of 1 constraints, but trial 0 has"):
        engine.tell([TrialResult(0, status, (1.0,))])


def test_the_values_come_from_rows_and_of_replicates_their_means() -> None:
    (definition,) = [toy_waves.study(sampler="tpe", constraints=BOUNDS)]
    rows: list[Any] = [
        {
            "trial_id": "a",
            "number": 0,
            "status": "finished",
            "epochs_run": 1,
            "auroc": 0.5,
            "cost": 1,
            "val_knn_z": 0.7,
        },
        {
            "trial_id": "b",
            "number": 0,
            "status": "finished",
            "epochs_run": 1,
            "auroc": 0.5,
            "cost": 2,
            "val_knn_z": None,
        },
    ]
    results = [result(definition, row, []) for row in rows]
    assert [own.constrained for own in results] == [(1.0, 0.7), (2.0, None)]
    assert mean_result(results, [{"seed": 0}, {"seed": 1}]).constrained == (1.5, None)


def test_a_warm_start_has_the_constrained_columns(tmp_path: Path) -> None:
    """A row without one of them is left out."""
    definition = toy_waves.study(sampler="tpe", constraints=(Constraint("val_knn_z", ">=", 0.8),))
    columns = Columns({"method": str, "x": float, "width": int}, ("auroc", "val_knn_z"))
    store = Store(tmp_path)
    store.prepare("earlier", columns)
    shared: dict[str, Any] = {"method": "vje", "status": "finished", "x": 0.5, "width": 1, "auroc": 0.9}
    rows = [{"trial_id": "a", **shared, "val_knn_z": 0.4}, {"trial_id": "b", **shared, "val_knn_z": None}]
    store.write("earlier", "c", rows, columns)
    warm = warm_start_from_rows(store, WarmStartRequest("earlier"), definition, {"method": "vje"}, {})
    assert warm == WarmStart("earlier", (({"x": 0.5, "width": 1}, (0.9, 0.4)),))
    warm.write(Files(tmp_path), "study.json", definition)
    assert read_warm_start(Files(tmp_path), "study.json", definition) == warm
    (trial,) = AskTellStudy(definition, warm.results).optuna_study.trials
    assert trial.values == [0.9] and trial.constraints == {"val_knn_z >= 0.8": 0.5}
