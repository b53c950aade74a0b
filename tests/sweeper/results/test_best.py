"""The rule that chooses the best setting, and its sentence."""

import itertools
import math
from typing import Any

import pytest

from sweeper.definition import Constraint, Metric
from sweeper.results.best import Settings, best_settings
from sweeper.results.best_trials import CellRanking
from sweeper.results.sentences import over, sentence, sentences
from tests.cases import for_each

AUROC = Metric("auroc_joint", "maximize")
KEYS = ("beta", "nu", "normal_class", "seed", "dataset")


def row(trial: str, beta: float, normal_class: int, value: float | None, **more: Any) -> dict[str, Any]:
    values = {"beta": beta, "normal_class": normal_class, "seed": 0, "dataset": "digits", "auroc_joint": value}
    return {"trial_id": trial, "status": "finished", **values, **more}


def test_the_mean_over_classes_decides_whatever_the_order_of_the_rows() -> None:
    """The best single trial is that of the easiest class, at a setting that is worse on average."""
    rows = [row("a", 0.5, 0, 0.9), row("b", 0.5, 1, 0.8), row("c", 1.0, 0, 1.0), row("d", 1.0, 1, 0.6)]
    for order in itertools.permutations(rows):
        (best,) = best_settings(order, AUROC, KEYS)
        assert list(best.values) == ["a", "b"] and best.mean == 0.8500000000000001
        assert sentence(best, spread="deviation") == (
            "best auroc_joint: 0.850 ± 0.071 (mean ± standard deviation over 2 classes) at beta=0.5; "
            "chosen on test images"
        )


def test_validation_chooses_and_test_images_are_shown() -> None:
    rows = [row("a", 0.5, 0, 0.9, val_auroc_joint=0.1), row("b", 1.0, 0, 0.2, val_auroc_joint=0.3)]
    (best,) = best_settings(rows, AUROC, KEYS)
    assert sentence(best) == (
        "best auroc_joint: 0.200 (one trial) at beta=1; chosen on validation images (val_auroc_joint 0.300)"
    )
    (same,) = best_settings(rows, Metric("val_auroc_joint", "maximize"), KEYS)
    assert (same.metric, same.criterion, same.values) == (best.metric, best.criterion, best.values)


def test_a_setting_cannot_win_by_replicates_that_it_lacks() -> None:
    for lost in ({"status": "diverged"}, {"status": "failed"}, {"status": "pruned"}, {"auroc_joint": math.nan}):
        rows = [row("a", 0.5, 0, 0.9), row("b", 0.5, 1, 0.2) | lost, row("c", 1.0, 0, 0.8), row("d", 1.0, 1, 0.3)]
        (best,) = best_settings(rows, AUROC, KEYS)
        assert best.at == {"beta": 1.0} and (best.compared, best.settings) == (1, 2)
        assert sentence(best, so_far=True).startswith("best auroc_joint so far: 0.550")
        assert sentence(best).endswith("; 1 of 2 settings lack results and are not compared")


@for_each("value", [1e308, -1e308, 10**400, math.inf, math.nan])
def test_a_value_whose_sum_would_overflow_is_no_finite_number(value: float) -> None:
    rows = [row("a", 0.5, 0, value), row("b", 0.5, 1, value), row("c", 1.0, 0, 0.2), row("d", 1.0, 1, 0.4)]
    (best,) = best_settings(rows, AUROC, KEYS)
    assert list(best.values) == ["d", "c"] and not best_settings(rows[:2], AUROC, KEYS)
    ranks = map(CellRanking(AUROC, ("beta",)).rank, rows)
    assert [rank is None for rank in ranks] == [True, True, False, False]


def test_each_data_set_has_its_own_best_setting() -> None:
    rows = [row("a", 0.5, 0, 0.9), row("b", 1.0, 0, 0.3, dataset="mnist"), row("c", 0.5, 0, 0.2, dataset="mnist")]
    first, second = best_settings(rows, AUROC, KEYS)
    assert first.question == {"dataset": "digits"} and list(second.values) == ["b"]
    assert sentence(second).startswith("best auroc_joint for dataset=mnist: 0.300 (one trial) at beta=1;")


def test_percent_is_the_unit_of_the_whole_sentence() -> None:
    rows = [row(str(seed), 0.5, 0, None, knn_z=value, seed=seed) for seed, value in enumerate((0.951, 0.949, 0.950))]
    (best,) = best_settings(rows, Metric("knn_z", "maximize", percent=True), KEYS)
    assert "best knn_z (%): 95.0 [94.7, 95.2] (mean [95 % interval] over 3 seeds); chosen on" in sentence(best)


def test_trials_with_the_same_values_are_all_in_the_mean() -> None:
    """Rows may differ in what no column says, for example in an option of a search."""
    rows = [row("a", 0.5, 0, 0.9), row("b", 0.5, 0, 0.7), row("c", 1.0, 0, 0.5), row("d", 1.0, 0, 0.8)]
    for order in itertools.permutations(rows):
        (best,) = best_settings(order, AUROC, KEYS)
        assert list(best.values) == ["a", "b"] and over(best) == "2 trials" and best.compared == 2


def test_a_trial_that_ran_again_does_not_become_a_class_of_its_own() -> None:
    rows = [
        row(f"{beta}{seed}", beta, 0, 0.5 + 0.1 * beta + 0.01 * seed**2 * beta, seed=seed)
        for beta in (0.5, 1.0)
        for seed in (0, 1, 2)
    ]
    (once,) = best_settings(rows, AUROC, KEYS)
    (twice,) = best_settings([*rows, *({**own, "trial_id": f"again{own['trial_id']}"} for own in rows)], AUROC, KEYS)
    assert twice.sample.values == pytest.approx(once.sample.values) and twice.sample.values.shape == (3,)
    assert twice.interval == pytest.approx(once.interval)


def test_a_method_without_a_seed_is_compared_with_the_means_of_others() -> None:
    keys = (*KEYS, "method")
    values = enumerate((0.9, 0.7, 0.8))
    pixels = [row(f"p{label}", 0.5, label, value, seed=None, method="pixels") for label, value in values]
    others = [
        row(f"v{label}{seed}", 0.5, label, 0.6 + 0.01 * seed**2, seed=seed, method="vae")
        for label in (0, 1, 2)
        for seed in (0, 1, 2)
    ]
    (best,) = best_settings([*others, *pixels], AUROC, keys)
    assert sentence(best) == (
        "best auroc_joint: 0.800 ± 0.100 (mean ± standard deviation over 3 classes) at method=pixels; "
        "chosen on test images; the other is told apart from it"
    )
    (best,) = best_settings([*others, pixels[0]], AUROC, keys)
    assert best.at == {"method": "vae"} and best.compared == 1, "a class is still to come"


def test_a_proposal_of_a_study_is_one_setting_whatever_its_trials_differ_in() -> None:
    """`beta` is replicated. The best trial is of proposal 1, the best mean is that of proposal 0."""
    keys = (*KEYS, "lr")
    values = {0: (0.7, 0.8), 1: (0.9, 0.1)}
    rows = [
        row(f"{number}.{beta}", beta, 0, value, study="all", number=number, lr=0.1 * (number + 1))
        for number, pair in values.items()
        for beta, value in zip((0.5, 1.0), pair, strict=True)
    ]
    (best,) = best_settings(rows, AUROC, keys, named=("lr",))
    assert best.number == 0 and list(best.values) == ["0.1.0", "0.0.5"] and (best.compared, best.settings) == (2, 2)
    assert best.mean == 0.75 and best.at == {"lr": 0.1}


BOUNDS = Constraint("seconds", "<=", 60), Constraint("knn_z", ">=", 0.5)


def proposal(trial: str, number: int | None, value: float, seconds: float, knn: float | None = 0.9) -> dict[str, Any]:
    beta = 0.0 if number is None else float(number)
    return row(
        trial, beta, 0, value, number=number, study=None if number is None else "all", seconds=seconds, knn_z=knn
    )


def test_an_infeasible_proposal_is_never_best_and_the_sentence_counts_it() -> None:
    """Nor one without a value. Trials of grids have no constraints."""
    rows = [
        proposal("a", 0, 0.9, 61),
        proposal("b", 1, 0.8, 10, None),
        proposal("c", 2, 0.7, 60),
        proposal("d", 3, 0.6, 10),
    ]
    (best,) = best_settings(rows, AUROC, KEYS, named=("beta",), constraints=BOUNDS)
    assert (best.number, best.infeasible, best.compared) == (2, 2, 2)
    assert sentence(best) == (
        "best auroc_joint: 0.700 at beta=2 (trial 2); chosen on test images; 2 of 4 settings are infeasible "
        "(seconds <= 60, knn_z >= 0.5)"
    )
    of_grid = proposal("g", None, 0.95, 900)
    assert [list(best.values) for best in best_settings([*rows, of_grid], AUROC, KEYS, constraints=BOUNDS)] == [
        ["c"],
        ["g"],
    ]


def test_the_mean_of_a_proposal_meets_its_constraints() -> None:
    rows = [
        proposal(f"{number}{seed}", number, 0.9 - number / 10, seconds) | {"seed": seed}
        for number, both in enumerate(((50, 80), (50, 65)))
        for seed, seconds in enumerate(both)
    ]
    (best,) = best_settings(rows, AUROC, KEYS, constraints=BOUNDS)
    assert list(best.values) == ["10", "11"] and best.infeasible == 1
    settings = Settings(KEYS, constraints=BOUNDS)
    settings.add(rows)
    assert settings.infeasible == {"00", "01"} and not settings.none_feasible(AUROC)


def test_if_all_are_infeasible_none_is_best() -> None:
    settings = Settings(KEYS, constraints=BOUNDS)
    settings.add([proposal("a", 0, 0.9, 61), proposal("b", 1, 0.8, 90)])
    assert settings.best(AUROC) == []
    assert sentences([], 3, so_far=True, none_feasible=settings.none_feasible(AUROC)) == [
        "no best auroc_joint so far: all 2 settings with a value are infeasible (seconds <= 60, knn_z >= 0.5)"
    ]
