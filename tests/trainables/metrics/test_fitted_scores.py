"""Fitted anomaly scores compared with scikit-learn's models in float64, at their limits, and for any chunk size."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.spatial import distance
from scipy.special import logsumexp
from scipy.stats import kendalltau
from sklearn.covariance import LedoitWolf
from sklearn.ensemble import IsolationForest
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.neighbors import KernelDensity, NearestNeighbors
from sklearn.svm import OneClassSVM
from torch import Tensor

from tests.cases import for_each
from trainables.learners.data_parallel import numpy_seed
from trainables.metrics import fitted_scores
from trainables.metrics.fitted_scores import BANDWIDTHS, FITS, FittedScores

K, N, M, D = 3, 60, 25, 4
NAMES = tuple(FITS)
DISTANCES = tuple(name for name in NAMES if not name.startswith(("ocsvm", "forest")))
"""Scores that depend on the vectors' distances alone, so that no turn changes them."""
Array = NDArray[np.float64]


def vectors(*shape: int, seed: int = 0) -> Tensor:
    """Overlapping clouds away from 0, of another scale in each dimension, float64."""
    source = torch.Generator().manual_seed(seed)
    return 3 + torch.randn(*shape, generator=source, dtype=torch.float64) * torch.arange(1, shape[-1] + 1)


@pytest.fixture
def train_KND() -> Tensor:
    return vectors(K, N, D)


@pytest.fixture
def x_KMD() -> Tensor:
    return 1.5 * vectors(K, M, D, seed=1)


def scored(train_ND: Tensor, x_MD: Tensor, *names: str) -> dict[str, Array]:
    """Scores of one member."""
    scores = FittedScores(names or NAMES, train_ND[None], [7])(x_MD[None])
    return {name: values_KM[0].numpy() for name, values_KM in scores.items()}


def scikit_learn(name: str, train_ND: Array, x_MD: Array) -> Array:
    """The score by other code, and for kde by its definition."""
    if FITS[name].unit:
        train_ND, x_MD = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in (train_ND, x_MD))
    size, scale = train_ND.shape[1], 1 / (train_ND.var() * train_ND.shape[1])
    if name[-1].isdecimal():
        distances, _ = NearestNeighbors(n_neighbors=int(name[-1]), algorithm="brute").fit(train_ND).kneighbors(x_MD)
        return np.asarray(distances.mean(1))
    if name == "cosine_norm":
        cosines_MN = 1 - distance.cdist(x_MD, train_ND, "cosine")
        return np.asarray(-np.linalg.norm(x_MD, axis=1) * cosines_MN.max(1))
    if name == "kde":
        gamma = 10 / (train_ND.var() * size)
        return np.asarray(-logsumexp(2 * gamma * x_MD @ train_ND.T, axis=1) / gamma)
    if name == "kde_raw":
        widths = {"bandwidth": [width * train_ND.std() for width in BANDWIDTHS]}
        search = GridSearchCV(KernelDensity(rtol=1e-12), widths, cv=KFold(5)).fit(train_ND)
        return np.asarray(-search.score_samples(x_MD))
    if name == "gaussian":
        return np.asarray(np.sqrt(LedoitWolf().fit(train_ND).mahalanobis(x_MD)))
    if name == "forest":
        forest = IsolationForest(random_state=numpy_seed("isolation forest", 7)).fit(train_ND - train_ND.mean(0))
        return np.asarray(-forest.score_samples(x_MD - train_ND.mean(0)))
    gamma, nu = (10 * scale, 0.5) if name == "ocsvm" else ("scale", 0.1)
    return np.asarray(-OneClassSVM(gamma=gamma, nu=nu, tol=1e-6).fit(train_ND).decision_function(x_MD))


@pytest.mark.parametrize("name", NAMES)
def test_each_score_is_that_of_other_code(name: str, train_KND: Tensor, x_KMD: Tensor) -> None:
    actual = scored(train_KND[0], x_KMD[0], name)[name]
    expected = scikit_learn(name, train_KND[0].numpy(), x_KMD[0].numpy())
    tolerance = 0.02 if name.startswith("ocsvm") else 1e-6  # its solver stops at a tolerance
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance)
    assert np.ptp(actual) > 0.05


@pytest.mark.slow
@settings(max_examples=20)
@given(
    members=st.integers(1, 4), count=st.integers(1, 30), rows=st.integers(1, 9), chunk=st.integers(1, 4000),
    together=st.integers(1, 40),
)  # fmt: skip
def test_a_stack_scores_each_member_as_alone_whatever_fits_in_memory(
    members: int, count: int, rows: int, chunk: int, together: int
) -> None:
    train_KND, x_KMD = vectors(members, count, D), vectors(members, rows, D, seed=1)
    names = (*DISTANCES, "ocsvm_raw")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitted_scores, "CHUNK_BYTES", chunk)
        patch.setattr(fitted_scores, "ROWS", together)
        stacked = FittedScores(names, train_KND, [7] * members)(x_KMD)
    for member in range(members):
        for name, alone_M in scored(train_KND[member], x_KMD[member], *names).items():
            np.testing.assert_allclose(stacked[name][member], alone_M, rtol=1e-6, atol=1e-6, err_msg=name)


def test_neither_a_turn_nor_the_order_of_training_vectors_counts(train_KND: Tensor, x_KMD: Tensor) -> None:
    turned_DD = torch.linalg.qr(vectors(D, D, seed=2)).Q
    by_distance = [name for name in DISTANCES if not name.startswith("kde")]  # its width is of the numbers
    expected, turned = (
        scored(train_KND[0] @ turn, x_KMD[0] @ turn, *by_distance) for turn in (torch.eye(D).double(), turned_DD)
    )
    reversed_by_name = scored(train_KND[0].flip(0), x_KMD[0], *by_distance, "kde")
    for name in by_distance:
        np.testing.assert_allclose(turned[name], expected[name], rtol=1e-9)
        np.testing.assert_allclose(reversed_by_name[name], expected[name], rtol=1e-9)
    np.testing.assert_allclose(reversed_by_name["kde"], scored(train_KND[0], x_KMD[0], "kde")["kde"], rtol=1e-9)


def test_standardised_vectors_have_neither_shift_nor_scale(train_KND: Tensor, x_KMD: Tensor) -> None:
    train_KND[..., 1], scale_D, shift_D = 5.0, torch.tensor([3.0, 2.0, 1e3, 1e-3]), torch.arange(D)
    scores, moved = (
        FittedScores(["knn1", "gaussian"], train_KND * scale + shift, [7] * K, standardize=True)(x_KMD * scale + shift)
        for scale, shift in ((1.0, 0.0), (torch.where(torch.arange(D) == 1, 1.0, scale_D), shift_D))
    )
    for name, values_KM in scores.items():
        torch.testing.assert_close(moved[name], values_KM)
    assert not torch.equal(scores["knn1"], FittedScores(["knn1"], train_KND, [7] * K)(x_KMD)["knn1"])


@for_each("name", NAMES)
@for_each("count", [1, 2, 30])
def test_equal_training_vectors_are_less_anomalous_than_others(name: str, count: int) -> None:
    train_ND = torch.tensor([1.0, 2.0, 2.0, 0.0]).expand(count, D)
    same_or_far_MD = torch.stack([train_ND[0], torch.tensor([-4.0, 2.0, 0.0, 1.0])])
    same, far = scored(train_ND, same_or_far_MD, name)[name]
    assert np.isfinite([same, far]).all() and (same < far or (name == "forest" and same == far))


def test_ties_among_neighbours_and_copies_of_training_vectors_have_their_exact_distance() -> None:
    """In float32, far from 0, where squares of distances have lost all digits."""
    train_ND = torch.tensor([[4096.0, 0.0], [4097.0, 0.0], [4097.0, 0.0], [4096.0, 4.0]])
    scores = scored(train_ND, torch.tensor([[4097.0, 0.0], [4096.5, 0.0]]), "knn1", "knn2", "knn5")
    assert scores["knn1"].tolist() == [0, 0.5] and scores["knn2"].tolist() == [0, 0.5]
    distances = [0, 0, 1, math.sqrt(17)], [0.5, 0.5, 0.5, math.sqrt(16.25)]
    np.testing.assert_allclose(scores["knn5"], np.mean(distances, axis=1), rtol=1e-6)  # of all four


@pytest.mark.slow
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_vector_that_is_not_finite_gives_nan_to_its_member_alone(
    bad: float, train_KND: Tensor, x_KMD: Tensor
) -> None:
    expected = FittedScores(NAMES, train_KND, [7] * K)(x_KMD)
    train_KND[0, 3, 2] = x_KMD[1, 5, 0] = bad
    for name, values_KM in FittedScores(NAMES, train_KND, [7] * K)(x_KMD).items():
        assert values_KM[0].isnan().all() and values_KM[1].isnan().nonzero().tolist() == [[5]]
        torch.testing.assert_close(values_KM[2], expected[name][2])
        torch.testing.assert_close(values_KM[1].nan_to_num(), torch.where(values_KM[1].isnan(), 0, expected[name][1]))


@pytest.mark.slow
def test_float32_ranks_as_float64(train_KND: Tensor, x_KMD: Tensor) -> None:
    exact, rounded = (
        FittedScores(NAMES, train_KND.to(kind), [7] * K)(x_KMD.to(kind)) for kind in (torch.float64, torch.float32)
    )
    for name, values_KM in exact.items():
        assert rounded[name].dtype == torch.float32
        assert kendalltau(values_KM.flatten(), rounded[name].flatten()).statistic > 0.99, name


def test_the_likeliest_bandwidth_is_that_of_clusters_and_never_the_widest() -> None:
    clusters_ND = 100 * vectors(4, D).repeat(20, 1) + torch.randn(80, D, generator=torch.Generator().manual_seed(1))
    cloud_ND = torch.randn(500, 8, generator=torch.Generator().manual_seed(2)).double()
    widths = [
        float(fitted_scores._likeliest_bandwidth(fitted_scores.TrainingVectors(each_ND[None], [0]))) / each_ND.std()
        for each_ND in (clusters_ND, cloud_ND)
    ]
    assert widths[0] < 2**-4 and 0.3 < widths[1] < 1


def test_support_vectors_are_chosen_among_a_bounded_number_that_the_seed_draws(
    train_KND: Tensor, x_KMD: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fitted_scores, "OCSVM_VECTORS", N // 2)
    same_KND, same_KMD = train_KND[:1].expand(K, N, D), x_KMD[:1].expand(K, M, D)
    first_M, second_M, third_M = FittedScores(["ocsvm_raw"], same_KND, [1, 1, 2])(same_KMD)["ocsvm_raw"]
    assert torch.equal(first_M, second_M) and not torch.allclose(first_M, third_M)
    monkeypatch.setattr(fitted_scores, "OCSVM_VECTORS", N)
    whole = FittedScores(["ocsvm_raw"], same_KND, [1, 1, 2])(same_KMD)["ocsvm_raw"]
    assert torch.equal(whole[0], whole[2]) and not torch.allclose(whole[0], first_M)


def test_errors_state_the_law(train_KND: Tensor) -> None:
    with pytest.raises(ValueError, match=r"no score 'knn3' \(did you mean 'knn.'\?\); there are: knn1, knn2, "):
        FittedScores(["knn3"], train_KND, [0] * K)
    with pytest.raises(ValueError, match="at least one training vector, but got none"):
        FittedScores(["knn1"], train_KND[:, :0], [0] * K)
