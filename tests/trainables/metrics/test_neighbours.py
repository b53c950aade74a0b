"""k-NN by cosine and by distance compared with scikit-learn's, at their limits, and for any chunk size."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import norm
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor

from tests.cases import for_each
from trainables.metrics import neighbours
from trainables.metrics.neighbours import accuracies, accuracies_by_k

N, M, D, C, K, TEMPERATURE = 300, 90, 6, 4, 12, 0.07
Sets = tuple[Tensor, Tensor, Tensor, Tensor]


@pytest.fixture
def sets() -> Sets:
    """Overlapping classes, so that the two votes differ from each other and between values of k."""
    source = torch.Generator().manual_seed(0)
    centres_CD = torch.randn(C, D, generator=source)
    bank_labels_N, test_labels_M = (torch.randint(C, (count,), generator=source) for count in (N, M))
    bank_ND, test_MD = (
        centres_CD[labels] + torch.randn(len(labels), D, generator=source) for labels in (bank_labels_N, test_labels_M)
    )
    return bank_ND, bank_labels_N, test_MD, test_labels_M


def scikit_learn(sets: Sets, k: int, temperature: float) -> tuple[float, float]:
    bank_ND, bank_labels_N, test_MD, test_labels_M = (tensor.numpy() for tensor in sets)

    def score(weights: object) -> float:
        voter = KNeighborsClassifier(k, weights=weights, metric="cosine", algorithm="brute")
        accuracy: float = voter.fit(bank_ND.astype(float), bank_labels_N).score(test_MD.astype(float), test_labels_M)
        return accuracy

    return score("uniform"), score(lambda distance: np.exp((1 - distance) / temperature))


@for_each("k", [1, 2, 12, 60, N])
@for_each("temperature", [0.02, 1.0])
def test_both_votes_equal_scikit_learns(sets: Sets, k: int, temperature: float) -> None:
    assert accuracies(*sets, C, k, temperature) == pytest.approx(scikit_learn(sets, k, temperature), abs=1e-12)


def test_real_digits_as_scikit_learn_votes_on_them() -> None:
    images, labels = (torch.from_numpy(array) for array in load_digits(return_X_y=True))
    sets = (images[:1200].float(), labels[:1200], images[1200:].float(), labels[1200:])
    actual = accuracies(*sets, 10, 30, TEMPERATURE)
    assert actual == pytest.approx(scikit_learn(sets, 30, TEMPERATURE), abs=1e-12) and min(actual) > 0.9


@pytest.mark.parametrize(("labels", "elected"), [([3, 1], 1), ([1, 3], 1), ([2, 0], 0), ([3, 3], 3)])
def test_the_lowest_of_classes_with_equally_many_votes_wins(labels: list[int], elected: int) -> None:
    bank_ND, test_1D = torch.tensor([[1.0, 0.0], [1.0, 1.0]]), torch.tensor([[1.0, 0.2]])
    actual = [
        accuracies(bank_ND, torch.tensor(labels), test_1D, torch.tensor([label]), 4, 2, 1.0).majority
        for label in range(4)
    ]
    assert actual.index(1.0) == elected and sum(actual) == 1
    weighted = accuracies(bank_ND, torch.tensor(labels), test_1D, torch.tensor([labels[0]]), 4, 2, 1.0).weighted
    assert weighted == 1, "the nearer one has the larger vote"


def test_the_temperatures_limits_are_the_nearest_neighbour_and_the_majority(sets: Sets) -> None:
    nearest, warm = accuracies(*sets, C, 1, 1.0).majority, accuracies(*sets, C, K, math.inf)
    assert accuracies(*sets, C, K, 1e-9).weighted == nearest
    assert warm.weighted == warm.majority != nearest


@pytest.mark.parametrize("rows", [0, 1, 7, 64, 1000])
def test_any_chunk_gives_the_same_and_stays_in_its_budget(
    sets: Sets, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, elect, sizes = accuracies(*sets, C, K, TEMPERATURE), neighbours._elect, []

    def counted(labels_Bk: Tensor, votes_Bk: Tensor, classes: int) -> Tensor:
        sizes.append(len(labels_Bk))
        return elect(labels_Bk, votes_Bk, classes)

    monkeypatch.setattr(neighbours, "_elect", counted)
    monkeypatch.setattr(neighbours, "CHUNK_BYTES", rows * N * 4 + 3)
    assert accuracies(*sets, C, K, TEMPERATURE) == expected
    assert sum(sizes) == 2 * M and max(sizes) - min(sizes) <= 1
    assert max(sizes) <= max(rows, 1) and len(sizes) == 2 * math.ceil(M / max(rows, 1)), "as few as the budget allows"


def test_only_directions_count_not_lengths_rotations_or_the_order(sets: Sets) -> None:
    bank_ND, bank_labels_N, test_MD, test_labels_M = sets
    expected = accuracies(*sets, C, K, TEMPERATURE)
    lengths_N1 = torch.logspace(-30, 30, N)[:, None]
    assert (
        accuracies(bank_ND * lengths_N1, bank_labels_N, test_MD * 1e-25, test_labels_M, C, K, TEMPERATURE) == expected
    )
    turned_DD = torch.linalg.qr(torch.randn(D, D, generator=torch.Generator().manual_seed(1))).Q
    turned = accuracies(bank_ND @ turned_DD, bank_labels_N, test_MD @ turned_DD, test_labels_M, C, K, TEMPERATURE)
    assert turned == expected
    order_N = torch.randperm(N, generator=torch.Generator().manual_seed(2))
    assert accuracies(bank_ND[order_N], bank_labels_N[order_N], test_MD, test_labels_M, C, K, TEMPERATURE) == expected


def test_zero_features_are_counted_and_affect_no_others(sets: Sets) -> None:
    bank_ND, bank_labels_N, test_MD, test_labels_M = sets
    share = accuracies(bank_ND, bank_labels_N, test_MD[1:], test_labels_M[1:], C, 1, 1.0).majority
    zeroed_MD = torch.cat([torch.zeros(1, D), test_MD[1:]])
    actual = accuracies(bank_ND, bank_labels_N, zeroed_MD, test_labels_M, C, 1, 1.0)
    assert round(actual.majority * M) - round(share * (M - 1)) in (0, 1) and actual.weighted == actual.majority
    far_ND = torch.cat([bank_ND.abs(), torch.zeros(50, D)])
    labels_N = torch.cat([bank_labels_N, torch.full((50,), C)])
    assert accuracies(far_ND, labels_N, test_MD.abs(), torch.full((M,), C), C + 1, 1, 1.0) == (0, 0)


@for_each("bad", [math.nan, math.inf, -math.inf])
@for_each("where", [0, 2])
def test_a_feature_that_is_not_finite_gives_nan(sets: Sets, where: int, bad: float) -> None:
    sets[where][3, 2] = bad
    assert all(math.isnan(accuracy) for accuracy in accuracies(*sets, C, K, TEMPERATURE))


@pytest.mark.parametrize(("k", "law"), [(0, "`k >= 1` must hold"), (N + 1, "must not exceed the 300 images")])
def test_errors_state_the_law(sets: Sets, k: int, law: str) -> None:
    with pytest.raises(ValueError, match=f"{law}.* but got k={k}"):
        accuracies(*sets, C, k, TEMPERATURE)
    with pytest.raises(ValueError, match="`temperature > 0` must hold"):
        accuracies(*sets, C, K, 0.0)


def distances_of_scikit_learn(sets: Sets, most: int) -> list[float]:
    bank_ND, bank_labels_N, test_MD, test_labels_M = (tensor.numpy() for tensor in sets)
    voters = (KNeighborsClassifier(k).fit(bank_ND.astype(float), bank_labels_N) for k in range(1, most + 1))
    return [voter.score(test_MD.astype(float), test_labels_M) for voter in voters]


@pytest.mark.parametrize("shift", [0.0, 1000.0])
def test_distances_vote_for_each_k_as_scikit_learns(sets: Sets, shift: float) -> None:
    """In float32 the shift would leave distances four digits."""
    bank_ND, bank_labels_N, test_MD, test_labels_M = sets
    shifted = (bank_ND + shift, bank_labels_N, test_MD + shift, test_labels_M)
    actual = accuracies_by_k(*shifted, C, 15)
    assert actual.tolist() == pytest.approx(distances_of_scikit_learn(shifted, 15), abs=1e-12)
    assert len(set(actual)) > 5 and actual.dtype == np.float64


def test_distances_between_components_of_real_digits_as_scikit_learn_votes_on_them() -> None:
    """Components and not pixels, because whole numbers have equal distances, of which either may come first."""
    images, labels = load_digits(return_X_y=True)
    features = torch.from_numpy(PCA(10).fit_transform(images)).float()
    labels_N = torch.from_numpy(labels)
    sets = (features[:1200], labels_N[:1200], features[1200:], labels_N[1200:])
    actual = accuracies_by_k(*sets, 10, 15)
    assert actual.tolist() == pytest.approx(distances_of_scikit_learn(sets, 15), abs=1e-12) and actual.min() > 0.9


def test_distances_count_lengths_that_the_cosine_does_not() -> None:
    bank_ND, test_1D = torch.tensor([[9.0, 0.0], [1.0, 1.0]]), torch.tensor([[1.0, 0.1]])
    labels_N, label_1 = torch.tensor([0, 1]), torch.tensor([1])
    assert accuracies_by_k(bank_ND, labels_N, test_1D, label_1, 2, 1) == [1.0]
    assert accuracies(bank_ND, labels_N, test_1D, label_1, 2, 1, 1.0).majority == 0


def test_of_two_neighbours_with_one_vote_each_the_lower_class_wins_at_any_distance() -> None:
    bank_ND, test_1D = torch.tensor([[0.0], [3.0], [9.0]]), torch.tensor([[1.0]])
    by_class = [accuracies_by_k(bank_ND, torch.tensor([2, 1, 2]), test_1D, torch.tensor([c]), 3, 3) for c in range(3)]
    assert np.stack(by_class, axis=1).tolist() == [[0, 0, 1], [0, 1, 0], [0, 0, 1]]


@pytest.mark.parametrize("rows", [0, 1, 7, 64])
def test_any_chunk_gives_the_same_votes_on_distances(sets: Sets, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = accuracies_by_k(*sets, C, K)
    monkeypatch.setattr(neighbours, "CHUNK_BYTES", rows * N * 8 + 3)
    np.testing.assert_array_equal(accuracies_by_k(*sets, C, K), expected)


@pytest.mark.parametrize("where", [0, 2])
def test_a_feature_that_is_not_finite_gives_nan_for_each_k(sets: Sets, where: int) -> None:
    sets[where][3, 2] = math.inf
    actual = accuracies_by_k(*sets, C, K)
    assert actual.shape == (K,) and np.isnan(actual).all()


def test_more_neighbours_than_images_are_refused(sets: Sets) -> None:
    with pytest.raises(ValueError, match="most must not exceed the 300 images of the bank, but got most=301"):
        accuracies_by_k(*sets, C, N + 1)
    with pytest.raises(ValueError, match="`most >= 1` must hold, but got most=0"):
        accuracies_by_k(*sets, C, 0)


def test_errors_are_predicted_by_the_entropy_as_scikit_learns_curve_says() -> None:
    """Of the majority vote. Undefined where all are right."""
    source = torch.Generator().manual_seed(0)
    var_MD = torch.rand(40, 3, generator=source) + 0.1
    correct_2M = torch.stack([torch.rand(40, generator=source) < 0.7, torch.ones(40) > 0])
    entropy_M = norm.entropy(scale=var_MD.sqrt().numpy()).sum(1)
    expected = roc_auc_score(~correct_2M[0].numpy(), entropy_M)
    assert neighbours.error_auroc(var_MD, correct_2M) == pytest.approx(expected)
    assert math.isnan(neighbours.error_auroc(var_MD, correct_2M[[1, 0]]))
    assert math.isnan(neighbours.error_auroc(var_MD, None))
