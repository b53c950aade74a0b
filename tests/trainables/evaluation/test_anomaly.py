"""AUROC of all members at once, compared with scikit-learn's for each."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from trainables.metrics.scores import auroc, one_class_metrics

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
