"""Which settings are not told apart from the best one, and what is said of it."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from sweeper.definition import Metric, registry
from sweeper.results.best import BestSetting, best_settings
from sweeper.results.sentences import chosen, detection_sentences, sentence
from tests.cases import for_each

KNN = Metric("knn_z", "maximize")
SEEDS = 5


def best_of(
    values: dict[str, list[float]], metric: Metric = KNN, seeds: dict[str, list[Any]] | None = None
) -> BestSetting:
    rows = [
        {"trial_id": f"{method}{index}", "method": method, "seed": seed, metric.name: value}
        for method, of_method in values.items()
        for index, (seed, value) in enumerate(
            zip((seeds or {}).get(method, range(len(of_method))), of_method, strict=True)
        )
    ]
    (best,) = best_settings(rows, metric, ("method", "seed"))
    return best


def names(best: BestSetting) -> set[str]:
    return {trial[0] for other in best.alike for trial in other.trials}


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_two_settings_with_the_same_seeds_are_told_apart_by_the_paired_t_test(direction: Any) -> None:
    """Shared seeds: what all settings have in common of a seed cancels out."""
    rng, sign = np.random.default_rng(0), 1 if direction == "maximize" else -1
    significant = 0
    for shift in np.linspace(0, 0.3, 12):
        shared = rng.normal(0, 1.0, SEEDS)
        values = {"a": shared + rng.normal(0, 0.1, SEEDS), "b": shared + rng.normal(-sign * shift, 0.1, SEEDS)}
        best = best_of({name: column.tolist() for name, column in values.items()}, Metric("score", direction))
        (other,) = {"a", "b"} - {str(best.at["method"])}
        side = "less" if direction == "maximize" else "greater"
        p = stats.ttest_rel(values[other], values[str(best.at["method"])], alternative=side).pvalue
        assert names(best) == ({other} if p >= 0.05 else set())
        significant += p < 0.05
    assert 0 < significant < 12


def test_a_method_without_a_seed_is_a_number() -> None:
    seeds: dict[str, list[Any]] = {"p": [None]}
    assert names(best_of({"a": [0.9, 0.91, 0.92], "p": [0.905]}, seeds=seeds)) == {"p"}
    assert names(best_of({"a": [0.9, 0.91, 0.92], "p": [0.85]}, seeds=seeds)) == set()


def test_nothing_is_said_of_errors_that_are_not_known() -> None:
    best = best_of({"a": [0.9], "b": [0.9]})
    assert names(best) == set() and "told apart" not in sentence(best)
    two = best_of({"a": [0.9, 0.8], "b": [0.9, 0.8], "c": [0.8, 0.6]})
    assert names(two) == set() and sentence(two).startswith("best knn_z: 0.850 (mean over 2 seeds) at method=a;")
    equal = {"a": [0.9, 0.8, 0.7], "b": [0.9, 0.8, 0.7], "c": [0.8, 0.7, 0.6]}
    assert names(best_of(equal)) == {"b", "c"}, "equal differences do not show their spread"


@for_each("name", registry.names())
@for_each("validation", [False, True])
def test_every_sweep_says_on_what_its_best_settings_were_chosen(name: str, validation: bool) -> None:
    """By the data that the metric of each figure and preset declares."""
    sweep = registry.find(name)
    ranked = [metric for figure in sweep.figures for metric in figure.shown if metric.direction]
    ranked += [sweep.headline(preset) for preset in sweep.presets]
    for metric in {metric.name: metric for metric in ranked}.values():
        plain = metric.name.removeprefix("val_")
        values = {plain: 0.5} | ({f"val_{plain}": 0.4} if validation or plain != metric.name else {})
        rows = [{"trial_id": f"{seed}", "method": "vje", "seed": seed, **values} for seed in range(2)]
        (best,) = best_settings(rows, metric, ("method", "seed"))
        data = Metric(best.criterion).measured_on
        assert best.criterion == (f"val_{plain}" if len(values) > 1 else plain)
        assert f"; chosen on {data}" in sentence(best) and chosen(best).startswith(f"chosen on {data}")
        if len(values) == 1:
            assert data in ("test images", "generated images", "test pairs", "training data")


def chosen_of(values: dict[str, list[float]], seeds: int, margin: float) -> BestSetting:
    """Trials whose score is chosen on validation images, of each method by one seed after the other: the first chooses
    `knn1_z`, the others `kde_z`."""
    rows = [
        {"trial_id": f"{method}{seed}", "method": method, "seed": seed, "auroc_chosen": value, "auroc_margin": margin}
        | {"val_auroc_joint": 0.1, "val_auroc_chosen": 0.9, "val_auroc_best_on_test": 0.9}
        | {"val_auroc_knn1_z": 0.9 if seed == 0 else 0.8, "val_auroc_kde_z": 0.8 if seed == 0 else 0.9}
        for method, of_method in values.items()
        for seed, value in enumerate(of_method[:seeds])
    ]
    (best,) = best_settings(rows, Metric("auroc_chosen", "maximize"), ("method", "seed"))
    return best


def test_the_sentence_names_the_scores_that_were_chosen() -> None:
    values = {"a": [0.90, 0.91, 0.92], "b": [0.89, 0.92, 0.91], "c": [0.5, 0.52, 0.52]}
    several = chosen_of(values, 3, 0.05)
    assert several.scores == {"kde_z": 2, "knn1_z": 1}
    assert sentence(several) == (
        "best auroc_chosen: 0.910 [0.882, 0.933] (mean [95 % interval] over 3 seeds, the choice among 3 counted) at "
        "method=a, scores kde_z (2), knn1_z (1); chosen on validation images (val_auroc_chosen 0.900); 1 of 2 others "
        "not told apart from it: method=b; better than method=b with a probability of 0.56 [0.04, 0.98]"
    )
    worse = chosen_of({name: values[name] for name in "ac"}, 3, 0.05)
    assert sentence(worse).endswith(
        "; the other is told apart from it; better than method=c with a probability of 1.00"
    )


ENDS = ("low", "high")
CHOSEN = Metric("auroc_chosen", "maximize")


def test_what_the_best_trial_flags_is_said_by_class() -> None:
    """Of the trial whose model is kept, the first by the criterion; brackets are intervals."""
    flags: dict[str, object] = {
        "detected_0.01": 0.5,
        "detected_0.01_1": 1.0,
        "detected_0.01_2": 0.0,
        "detected_0.01_3": None,
    }
    flags |= {"false_alarms_0.01": 0.025, "alarm_bound_0.01": 0.0362, "alarm_bound_0.001": None}
    bounds = {"detected_0.01": (0.3, 0.7), "detected_0.01_1": (0.782, 1.0), "detected_0.01_2": (0.0, 0.218)}
    bounds |= {"false_alarms_0.01": (0.0006, 0.1316)}
    flags |= {f"{name}_{end}": value for name, both in bounds.items() for end, value in zip(ENDS, both, strict=True)}
    other: dict[str, object] = dict.fromkeys(flags, 0.9)
    rows = [
        {"trial_id": f"t{seed}", "method": "vje", "seed": seed, "auroc_chosen": 0.9 + seed / 100, **values}
        for seed, values in enumerate([other, flags])
    ]
    (best,) = best_settings(rows, CHOSEN, ("method", "seed"))
    names: dict[object, str] = {1: "missing head", 2: "scratch"}
    assert detection_sentences(best, lambda key, value: names[value]) == [
        "at a false-alarm rate of 0.1 % nothing is known of trial t1: that needs at least 999 held-out normal images",
        "at a false-alarm rate of 1 % (at most 3.6 %) trial t1 flags 100 % [78, 100] of missing head and 0 % [0, 22] "
        "of scratch; of normal test images 2.5 % [0.06, 13] (95 % intervals over images)",
    ]
    (plain,) = best_settings([row | dict.fromkeys(flags) for row in rows], CHOSEN, ())
    assert detection_sentences(plain)[0].startswith("at a false-alarm rate of 0.1 % nothing is known")


def of_classes(values: dict[str, dict[int, list[float]]]) -> BestSetting:
    rows = [
        {"trial_id": f"{method}{label}{seed}", "method": method, "normal_class": label, "seed": seed}
        | {"auroc_chosen": value, "val_auroc_chosen": value}
        for method, classes in values.items()
        for label, runs in classes.items()
        for seed, value in enumerate(runs)
    ]
    (best,) = best_settings(rows, Metric("auroc_chosen", "maximize"), ("method", "normal_class", "seed"))
    return best


def test_a_replicate_is_a_seed_with_the_mean_over_its_classes() -> None:
    a = {0: [0.9, 0.8, 0.85], 1: [0.7, 0.6, 0.7], 2: [0.8, 0.8, 0.9]}
    b = {0: [0.6, 0.5, 0.5], 1: [0.4, 0.3, 0.4], 2: [0.5, 0.5, 0.6]}
    best = of_classes({"a": a, "b": b})
    seeds = np.mean([*a.values()], axis=0)
    assert best.sample.values == pytest.approx(seeds) and best.mean == pytest.approx(seeds.mean())
    low, high = best.interval
    half = stats.t.ppf(0.975, 2) * stats.sem(seeds) / (seeds.mean() * (1 - seeds.mean()))
    centre = np.log(seeds.mean() / (1 - seeds.mean()))
    plain = 1 / (1 + np.exp(-(centre + np.array([-half, half]))))
    assert low <= plain[0] + 1e-9 and high >= plain[1] - 1e-9, "never shorter than that of the setting alone"
    assert "over 3 seeds, each the mean of 3 classes, the choice among 2 counted) at method=a" in sentence(best)
    assert sentence(best).endswith("the other is told apart from it; better than method=b with a probability of 1.00")


def test_few_seeds_have_the_deviation_over_classes_and_are_compared_over_classes() -> None:
    """As a sample of means over seeds; the probability is over runs of the same class."""
    values = {
        "a": {0: [0.9, 0.8], 1: [0.7, 0.6], 2: [0.8, 0.8]},
        "b": {0: [0.85, 0.75], 1: [0.68, 0.5], 2: [0.5, 0.5]},
    }
    best, deviation = of_classes(values), np.std([0.85, 0.65, 0.8], ddof=1)
    assert np.isnan(best.interval).all() and best.compared_over == "fixed"
    assert sentence(best).startswith(
        f"best auroc_chosen: 0.767 ± {deviation:.3f} (mean ± standard deviation over 3 classes, each the mean of 2 "
        "seeds) at method=a"
    )
    won = np.mean([[a > b for a in values["a"][label] for b in values["b"][label]] for label in range(3)])
    assert sentence(best).endswith(f"; better than method=b with a probability of {won:.2f}")


def test_with_one_seed_the_sentence_says_in_how_many_classes_the_best_is_ahead() -> None:
    values = {"a": (0.9, 0.7, 0.8, 0.6), "b": (0.8, 0.75, 0.5, 0.5)}
    rows = [
        {"trial_id": f"{method}{label}", "method": method, "normal_class": label, "seed": 0, "knn_z": value}
        for method, of_method in values.items()
        for label, value in enumerate(of_method)
    ]
    (best,) = best_settings(rows, KNN, ("method", "normal_class", "seed"))
    assert sentence(best) == (
        f"best knn_z: 0.750 ± {np.std(values['a'], ddof=1):.3f} (mean ± standard deviation over 4 classes) at "
        "method=a; chosen on test images; 1 of 1 others not told apart from it over classes: method=b; better than "
        "method=b in 3 of 4 classes"
    )


def test_of_single_trials_the_error_is_that_over_test_images() -> None:
    """Two methods are told apart by the square-and-add of their intervals, as of two independent samples of images."""
    values = {"a": [0.9], "b": [0.86], "c": [0.7]}
    best = chosen_of(values, 1, 0.05)
    assert names(best) == {"b"}
    half = 0.05 / (0.9 * 0.1)
    low, high = 1 / (1 + np.exp(-(np.log(9) + np.array([-half, half]))))
    assert sentence(best) == (
        f"best auroc_chosen: 0.900 [{low:.3f}, {high:.3f}] (one trial, [95 % interval] over test images) at method=a, "
        "score knn1_z; chosen on validation images (val_auroc_chosen 0.900); 1 of 2 others not told apart from it: "
        "method=b"
    )
    assert sentence(chosen_of(values, 1, 0.005)).endswith("; all 2 others are told apart from it")


def test_of_a_grid_beside_a_study_the_sentence_says_which_is_meant() -> None:
    rows = [
        {"trial_id": f"{study}{seed}", "study": study, "number": None, "lr": 0.1, "seed": seed, "knn_z": 0.9}
        for study in (None, "byol")
        for seed in range(2)
    ]
    grid, searched = best_settings(rows, KNN, ("lr", "seed"))
    assert sentence(grid).startswith("best knn_z for the grid: 0.9")
    assert sentence(searched).startswith("best knn_z for study byol: 0.9")
