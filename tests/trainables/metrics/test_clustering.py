"""Clusters against every matching of a few classes, random labels, and mixtures whose components are known."""

import math
from collections.abc import Callable
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch
from sklearn import mixture
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from sklearn.mixture import GaussianMixture
from torch import Tensor

from trainables.metrics.clustering import METRICS, Labels, batch_mean, cluster_scores, matched_share, mixture_clusters

Sets = tuple[Tensor, Tensor, Tensor]
MEASURES: dict[str, Callable[[Labels, Labels], float]] = {
    "gmm_accuracy": matched_share, "nmi": normalized_mutual_info_score, "ari": adjusted_rand_score,
}  # fmt: skip
HOW: dict[str, Any] = {"n_init": 2, "random_state": 10}


@pytest.fixture
def sets() -> Sets:
    """Bank, test images and labels of four classes that lie far apart."""
    source = torch.Generator().manual_seed(0)
    labels_N, labels_M = (torch.randint(4, (count,), generator=source) for count in (400, 200))
    centres = 20 * torch.eye(4)
    bank_ND, test_MD = (
        centres[labels] + torch.randn(len(labels), 4, generator=source) for labels in (labels_N, labels_M)
    )
    return bank_ND, test_MD, labels_M


def random_labels(classes: int, count: int, seed: int) -> Labels:
    return np.random.default_rng(seed).integers(classes, size=count)


@pytest.mark.parametrize("name", MEASURES)
def test_renamed_labels_score_1(name: str) -> None:
    labels_M = random_labels(10, 300, 0)
    renamed_M = np.random.default_rng(1).permutation(10)[labels_M]
    assert MEASURES[name](labels_M, renamed_M) == batch_mean(MEASURES[name], labels_M, renamed_M) == 1


@pytest.mark.parametrize(("classes", "clusters"), [(2, 2), (4, 4), (5, 3), (3, 5)])
def test_the_matching_is_the_best_of_all(classes: int, clusters: int) -> None:
    """Clusters beyond the classes stay unmatched."""
    labels_M, clusters_M = random_labels(classes, 60, 2), random_labels(clusters, 60, 3)
    names = range(max(classes, clusters))
    best = max(np.mean(np.array(renamed)[clusters_M] == labels_M) for renamed in permutations(names))
    assert matched_share(labels_M, clusters_M) == pytest.approx(best) and 0 < best < 1


@pytest.mark.slow
def test_random_clusters_reach_a_high_accuracy_and_nmi_on_batches_but_no_ari() -> None:
    """The figures that the specification gives for ten classes."""
    pair = random_labels(10, 10_000, 4), random_labels(10, 10_000, 5)
    assert [MEASURES[name](*pair) for name in MEASURES] == pytest.approx([0.11, 0.002, 0], abs=0.01)
    assert [batch_mean(MEASURES[name], *pair) for name in MEASURES] == pytest.approx([0.29, 0.31, 0], abs=0.01)


def test_batches_do_not_follow_the_order_of_the_files() -> None:
    """Of images listed by class, whole batches would be of one class, which any cluster suits."""
    labels_M = np.repeat(np.arange(10), 640)
    clusters_M = random_labels(10, 6400, 6)
    assert batch_mean(matched_share, labels_M, clusters_M) == pytest.approx(0.29, abs=0.01)


def test_images_that_fill_no_batch_are_left_out_unless_there_is_no_other() -> None:
    sizes = []

    def score(labels: Labels, clusters: Labels) -> float:
        sizes.append(len(labels))
        return float(len(labels))

    assert batch_mean(score, np.zeros(130, int), np.zeros(130, int)) == 64 and sizes == [64, 64]
    assert batch_mean(score, np.zeros(13, int), np.zeros(13, int)) == 13


def test_components_that_lie_apart_are_the_classes(sets: Sets) -> None:
    scores = cluster_scores(*sets, 4, **HOW)
    assert {*scores} == {*METRICS} and all(score == pytest.approx(1) for score in scores.values())


def test_components_are_those_of_scikit_learn_in_float64_fitted_to_the_bank() -> None:
    images, labels = load_digits(return_X_y=True)
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(64, 8)))[0]
    features = (images @ rotation).astype(np.float32)
    bank, test = torch.from_numpy(features[:1200]), torch.from_numpy(features[1200:])
    mixture = GaussianMixture(10, n_init=2, random_state=10).fit(features[:1200].astype(float))
    expected = mixture.predict(features[1200:].astype(float))
    np.testing.assert_array_equal(mixture_clusters(bank, test, 10, **HOW), expected)
    scores = cluster_scores(bank, test, torch.from_numpy(labels[1200:]), 10, **HOW)
    assert scores["ari"] == pytest.approx(adjusted_rand_score(labels[1200:], expected))
    assert 0.3 < scores["ari"] < scores["gmm_accuracy"] < 0.9


def test_images_without_a_label_are_left_out(sets: Sets) -> None:
    bank_ND, test_MD, labels_M = sets
    labels_M = labels_M.clone()
    labels_M[::3] = -1
    labelled_M = labels_M >= 0
    blurred_MD = test_MD + 12 * torch.randn(test_MD.shape, generator=torch.Generator().manual_seed(1))
    actual = cluster_scores(bank_ND, blurred_MD, labels_M, 4, **HOW)
    assert (
        actual == cluster_scores(bank_ND, blurred_MD[labelled_M], labels_M[labelled_M], 4, **HOW)
        and actual["nmi"] < 0.9
    )
    assert all(map(math.isnan, cluster_scores(bank_ND, test_MD, torch.full_like(labels_M, -1), 4, **HOW).values()))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "spoil",
    [
        lambda bank_ND: bank_ND[:] * 0 + 0.3,
        lambda bank_ND: bank_ND[:3].repeat(50, 1),
        lambda bank_ND: torch.where(bank_ND == bank_ND[7, 2], math.nan, bank_ND),
        lambda bank_ND: torch.where(bank_ND == bank_ND[7, 2], math.inf, bank_ND),
        lambda bank_ND: 1e18 * bank_ND[:, :1].expand(-1, 4),
    ],
    ids=["constant", "fewer images than classes", "nan", "infinite", "singular"],
)
def test_where_no_mixture_fits_all_is_nan(sets: Sets, spoil: Callable[[Tensor], Tensor]) -> None:
    bank_ND, test_MD, labels_M = sets
    scores = cluster_scores(spoil(bank_ND), test_MD, labels_M, 4, **HOW)
    assert {*scores} == {*METRICS} and all(map(math.isnan, scores.values()))


def test_a_test_feature_that_is_not_finite_gives_nan(sets: Sets) -> None:
    sets[1][0, 0] = math.nan
    assert all(map(math.isnan, cluster_scores(*sets, 4, **HOW).values()))


@pytest.mark.filterwarnings("error")
def test_a_fit_that_has_not_converged_counts(sets: Sets, monkeypatch: pytest.MonkeyPatch) -> None:
    brief = partial(GaussianMixture, max_iter=1)
    with pytest.warns(ConvergenceWarning):
        brief(4, random_state=10).fit(sets[0].numpy())
    monkeypatch.setattr(mixture, "GaussianMixture", brief)
    assert cluster_scores(*sets, 4, **HOW)["nmi"] > 0.5


@pytest.mark.parametrize("name", ["n_init", "classes"])
def test_errors_state_the_law(sets: Sets, name: str) -> None:
    numbers: dict[str, Any] = {"classes": 4, **HOW, name: 0}
    with pytest.raises(ValueError, match=f"`{name} >= 1` must hold, but got {name}=0"):
        cluster_scores(*sets, **numbers)
