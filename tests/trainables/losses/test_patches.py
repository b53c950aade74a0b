"""Memory banks of patches: the coreset and the distances against scikit-learn, in float64.

Shapes: N vectors of D features, M entries of the bank.
"""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.metrics import pairwise_distances
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

from tests.cases import for_each
from trainables.losses import patches
from trainables.losses.patches import greedy_coreset, nearest_distances, neighbourhood_weight


def vectors(count: int, size: int, seed: int = 0) -> Tensor:
    """In clusters of very different widths, as patches of plain ground and of edges are."""
    source = torch.Generator().manual_seed(seed)
    width_N1 = 10.0 ** torch.randint(-3, 2, (count, 1), generator=source)
    return width_N1 * torch.randn(count, size, generator=source, dtype=torch.float64)


def farthest_first(x_ND: NDArray[np.float64], count: int, first: int) -> list[int]:
    """From the matrix of all distances."""
    distance_NN, chosen = pairwise_distances(x_ND), [first]
    while len(chosen) < count:
        chosen.append(int(distance_NN[:, chosen].min(1).argmax()))
    return chosen


@for_each(("count", "size", "chosen"), [(300, 3, 40), (50, 20, 50), (200, 1, 7), (5, 2, 1)])
def test_each_entry_is_the_vector_that_is_farthest_from_all_before_it(count: int, size: int, chosen: int) -> None:
    x_ND = vectors(count, size)
    for first in (0, count - 1):
        assert greedy_coreset(x_ND, chosen, torch.tensor(first)).tolist() == farthest_first(x_ND.numpy(), chosen, first)


def test_of_fewer_vectors_than_entries_every_one_is_chosen() -> None:
    x_ND = torch.cat([vectors(6, 4).float(), vectors(6, 4).float()])
    assert {*greedy_coreset(x_ND, 20, torch.tensor(2)).tolist()} == {*range(6)}


def test_distances_are_those_to_the_nearest_entry_whatever_fits_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that are far below the rounding of a matrix product in float32."""
    x_ND, bank_MD = vectors(200, 6, seed=1).float(), vectors(80, 6).float()
    bank_MD[3] = x_ND[7] + 1e-5
    expected_N1, expected_index_N1 = NearestNeighbors(n_neighbors=1).fit(bank_MD.double()).kneighbors(x_ND.double())
    for chunk in (patches.CHUNK, 500, 1):
        monkeypatch.setattr(patches, "CHUNK", chunk)
        distance_N, index_N = nearest_distances(x_ND, bank_MD)
        np.testing.assert_allclose(distance_N, expected_N1[:, 0], rtol=1e-5)
        assert (index_N.numpy() == expected_index_N1[:, 0]).mean() > 0.98  # nearly equal ones may change places
    assert index_N[7] == 3


@for_each("neighbours", [2, 9, 80, 200])
def test_the_weight_is_one_minus_the_softmax_of_the_distances_around_the_nearest_entry(neighbours: int) -> None:
    x_BD, bank_MD = vectors(30, 6, seed=1), vectors(80, 6)
    nearest_B = torch.from_numpy(pairwise_distances(x_BD, bank_MD).argmin(1))
    weights = []
    for x_D, nearest in zip(x_BD.numpy(), nearest_B.tolist(), strict=True):
        around = np.argsort(pairwise_distances(bank_MD[nearest][None], bank_MD)[0], kind="stable")[:neighbours]
        distance_K = pairwise_distances(x_D[None], bank_MD[around])[0]
        assert around[0] == nearest
        weights.append(1 - 1 / np.exp(distance_K - distance_K[0]).sum())
    found_B = neighbourhood_weight(x_BD, nearest_B, bank_MD, neighbours)
    np.testing.assert_allclose(found_B, weights, rtol=1e-9, atol=1e-12)
