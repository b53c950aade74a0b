"""AUROC of all members at once, compared with scikit-learn's for each.

AUROC, AUPR and FPR95 of all members at once, compared with scikit-learn's for each.

Metrics of anomaly scores equal scikit-learn's.
"""

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from tests.cases import for_each
from tests.trainables.metrics.evaluated import eval_config, last_metrics, scores_of, untrained
from tests.trainables.small import HERE
from trainables.data.datasets.catalog import load
from trainables.methods.variational.vje import VJE
from trainables.metrics.scores import auroc, fpr95, one_class_metrics, outlier_metrics

K, N = 5, 40


@pytest.fixture
def outlier_KN() -> np.ndarray:
    """Each member has its own class, and so its own outliers."""
    return np.random.default_rng(0).random((K, N)) < np.linspace(0.2, 0.9, K)[:, None]


@pytest.mark.parametrize("ties", [1, 3, 1000])
def test_auroc_is_that_of_scikit_learn(outlier_KN: np.ndarray, ties: int) -> None:
    score_KN = np.random.default_rng(1).integers(0, ties, size=(K, N)).astype(float)
    expected = [roc_auc_score(outlier, score) for outlier, score in zip(outlier_KN, score_KN, strict=True)]
    np.testing.assert_allclose(auroc(score_KN, outlier_KN), expected, rtol=1e-12)


def test_the_outlier_is_the_positive_label() -> None:
    outlier = np.array([[False, False, True]])
    assert auroc(np.array([[0.0, 1.0, 2.0]]), outlier) == 1 and auroc(np.array([[1.0, 2.0, 0.0]]), outlier) == 0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_score_that_is_not_finite_affects_only_its_own_member(outlier_KN: np.ndarray, bad: float) -> None:
    score_KN = np.random.default_rng(1).random((K, N))
    clean = auroc(score_KN, outlier_KN)
    score_KN[2, 7] = bad
    actual = auroc(score_KN, outlier_KN)
    assert np.isnan(actual[2])
    np.testing.assert_array_equal(np.delete(actual, 2), np.delete(clean, 2))


@pytest.mark.filterwarnings("error")
def test_auroc_is_undefined_without_inliers_or_outliers(outlier_KN: np.ndarray) -> None:
    outlier_KN[0], outlier_KN[1] = True, False
    actual = auroc(np.random.default_rng(1).random((K, N)), outlier_KN)
    assert np.isnan(actual[:2]).all() and np.isfinite(actual[2:]).all()


def test_evaluate_names_each_score_and_mean(outlier_KN: np.ndarray) -> None:
    scores = {name: np.random.default_rng(i).random((K, N)) for i, name in enumerate(("joint", "entropy"))}
    metrics = one_class_metrics(scores, outlier_KN, {"posterior_entropy": "entropy"})
    assert list(metrics) == ["auroc_joint", "auroc_entropy", "posterior_entropy"]
    np.testing.assert_array_equal(metrics["auroc_entropy"], auroc(scores["entropy"], outlier_KN))
    np.testing.assert_allclose(metrics["posterior_entropy"], scores["entropy"].mean(1))


# --- Sets of outliers ---

INLIERS, OUTLIERS = 100, 37
Sets = tuple[np.ndarray, np.ndarray]


def scores(ties: int, seed: int = 0) -> Sets:
    """Scores with about `ties` different values. Outliers score higher, by more from member to member."""
    source = np.random.default_rng(seed)
    inlier_KN, outlier_KM = (
        source.normal(size=(K, INLIERS)),
        source.normal(size=(K, OUTLIERS)) + np.arange(K)[:, None] / 2,
    )
    return np.round(inlier_KN * ties) / ties, np.round(outlier_KM * ties) / ties


def measured(inlier_KN: np.ndarray, outlier_KM: np.ndarray) -> dict[str, np.ndarray]:
    return outlier_metrics({"s": inlier_KN}, {"s": outlier_KM})


@pytest.mark.parametrize("ties", [1, 3, 10**6])
def test_all_three_metrics_equal_scikit_learns(ties: int) -> None:
    inlier_KN, outlier_KM = scores(ties)
    actual = measured(inlier_KN, outlier_KM)
    assert list(actual) == ["auroc_s", "aupr_s", "fpr95_s"]
    outlier = np.repeat([False, True], [INLIERS, OUTLIERS])
    for k, score in enumerate(np.concatenate([inlier_KN, outlier_KM], axis=1)):
        false_positives, true_positives, _ = roc_curve(~outlier, -score, drop_intermediate=False)
        expected = (
            roc_auc_score(outlier, score),
            average_precision_score(outlier, score),
            false_positives[true_positives >= 0.95].min(),
        )
        np.testing.assert_allclose([values[k] for values in actual.values()], expected, rtol=1e-12)


def test_perfect_separation_and_its_opposite() -> None:
    low, high = np.random.default_rng(0).random((K, INLIERS)), 2 + np.random.default_rng(1).random((K, INLIERS))
    best, worst = measured(low, high), measured(high, low)
    for name, limit in (("auroc_s", 1), ("aupr_s", 1), ("fpr95_s", 0)):
        np.testing.assert_array_equal(best[name], np.full(K, limit))
    assert (worst["auroc_s"] == 0).all() and (worst["fpr95_s"] == 1).all()
    np.testing.assert_allclose(
        worst["aupr_s"], np.mean(np.arange(1, INLIERS + 1) / np.arange(INLIERS + 1, 2 * INLIERS + 1))
    )


def test_equal_distributions_are_told_apart_no_better_than_by_chance() -> None:
    """Both have the same scores: 95 of 100 outliers are accepted, and the precision is one half throughout."""
    inlier_KN, _ = scores(10**9)
    actual = measured(inlier_KN, inlier_KN)
    for name, chance in (("auroc_s", 0.5), ("aupr_s", 0.5), ("fpr95_s", 0.95)):
        np.testing.assert_allclose(actual[name], np.full(K, chance), rtol=1e-12)


def test_one_score_for_all_accepts_all() -> None:
    actual = measured(np.full((1, INLIERS), 7.0), np.full((1, OUTLIERS), 7.0))
    assert (
        actual["auroc_s"] == 0.5
        and actual["aupr_s"] == pytest.approx(OUTLIERS / (INLIERS + OUTLIERS))
        and actual["fpr95_s"] == 1
    )


@for_each(("inliers", "accepted"), [(1, 1), (19, 19), (20, 19), (21, 20), (100, 95), (10_000, 9500)])
def test_at_least_95_percent_of_the_inliers_are_accepted_and_no_more_than_needed(inliers: int, accepted: int) -> None:
    """There is an outlier in each gap between inliers; those below the last accepted inlier are accepted."""
    inlier_N = np.random.default_rng(0).permutation(inliers).astype(float)
    assert fpr95(inlier_N, np.arange(0.5, inliers)) == (accepted - 1) / inliers


def test_an_outlier_at_the_threshold_passes() -> None:
    inlier_N = np.arange(20.0)
    assert fpr95(inlier_N, np.array([18.0])) == 1 and fpr95(inlier_N, np.array([18.0 + 1e-9])) == 0


def test_swapping_the_sets_mirrors_the_auroc() -> None:
    inlier_KN, outlier_KM = scores(3)
    swapped = measured(outlier_KM, inlier_KN)["auroc_s"]
    np.testing.assert_allclose(measured(inlier_KN, outlier_KM)["auroc_s"], 1 - swapped, rtol=1e-12)
    mirrored = measured(-outlier_KM, -inlier_KN)["auroc_s"]
    np.testing.assert_allclose(measured(inlier_KN, outlier_KM)["auroc_s"], mirrored, rtol=1e-12)


@pytest.mark.parametrize("ties", [3, 10**6])
def test_only_the_order_of_scores_counts_not_that_of_images(ties: int) -> None:
    inlier_KN, outlier_KM = scores(ties)
    source = np.random.default_rng(3)
    shuffled = source.permuted(inlier_KN, axis=1), source.permuted(outlier_KM, axis=1)
    expected = measured(inlier_KN, outlier_KM)
    for actual in (measured(*shuffled), measured(np.exp(inlier_KN), np.exp(outlier_KM))):
        for name, values_K in actual.items():
            np.testing.assert_allclose(values_K, expected[name], rtol=1e-12)


@for_each("bad", [np.nan, np.inf, -np.inf])
@for_each("where", [0, 1])
def test_a_score_that_is_not_finite_in_either_set_affects_only_its_own_member(where: int, bad: float) -> None:
    clean, sets = measured(*scores(3)), scores(3)
    sets[where][2, 7] = bad
    for name, values_K in measured(*sets).items():
        assert np.isnan(values_K[2])
        np.testing.assert_array_equal(np.delete(values_K, 2), np.delete(clean[name], 2))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("empty", [0, 1])
def test_without_inliers_or_outliers_nothing_is_defined(empty: int) -> None:
    sets = list(scores(3))
    sets[empty] = np.zeros((K, 0))
    assert all(np.isnan(values_K).all() for values_K in measured(*sets).values())


def test_both_sets_must_have_the_same_scores_of_the_same_members() -> None:
    inlier_KN, outlier_KM = scores(3)
    with pytest.raises(ValueError, match=r"must have the same scores, but got \['joint'\] and \['dir'\]"):
        outlier_metrics({"joint": inlier_KN}, {"dir": outlier_KM})
    with pytest.raises(ValueError):
        measured(inlier_KN, outlier_KM[1:])


@torch.no_grad()
def test_outlier_metrics_equal_scikit_learns() -> None:
    config = eval_config(epochs=0, held_out="3", outliers="held_out+inverted", encoder="convnet", width=4)
    metrics, model, digits = last_metrics(config), untrained(config), load("digits", HERE)
    images, threes = digits.test_images, digits.test_labels == 3
    inside = scores_of(model, images[~threes])
    for name, outside in (("held_out", images[threes]), ("inverted", 16 - images[~threes])):
        outer = scores_of(model, outside)
        for score in VJE.scores:
            values = torch.cat([inside[score], outer[score]]).double().numpy()
            truth = np.arange(len(values)) >= len(inside[score])
            assert metrics[f"auroc_{score}_{name}"] == pytest.approx(roc_auc_score(truth, values), abs=1e-4)
            assert metrics[f"aupr_{score}_{name}"] == pytest.approx(average_precision_score(truth, values), abs=1e-3)
            fpr, tpr, _ = roc_curve(~truth, -values, drop_intermediate=False)
            assert metrics[f"fpr95_{score}_{name}"] == pytest.approx(fpr[tpr >= 0.95].min(), abs=0.01)


@torch.no_grad()
@pytest.mark.parametrize("normal_class", [0, 7])
def test_all_other_classes_are_the_outliers_of_a_trial_on_one_class(normal_class: int) -> None:
    config = eval_config(epochs=0, normal_class=normal_class)
    metrics, digits = last_metrics(config), load("digits", HERE)
    scores = scores_of(untrained(config), digits.test_images[:])
    truth = (digits.test_labels != normal_class).numpy()
    assert set(metrics) == {f"auroc_{name}" for name in VJE.scores} | set(VJE.score_means)
    for name, values in scores.items():
        assert metrics[f"auroc_{name}"] == pytest.approx(roc_auc_score(truth, values.numpy()), abs=1e-4)
    for name, score in VJE.score_means.items():
        assert metrics[name] == pytest.approx(scores[score].mean().item(), rel=1e-4)
