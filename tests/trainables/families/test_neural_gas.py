"""Growing Neural Gas: steps by hand, and the mixture of its nodes. Shapes: B examples, M nodes, E dimensions."""

import numpy as np
import pytest

from trainables.methods.pairs.gmje_gng import Graph

INF = np.inf


def _graph() -> Graph:
    """Four nodes: 0 and 1 are connected, and so are 0 and 2; 3 does not exist."""
    graph = Graph.started(np.array([[0.0, 0.0], [1.0, 0.0]]), 4)
    graph.positions_ME[2] = (0.0, 2.0)
    for first, second, age in ((0, 1, 3.0), (0, 2, 5.0)):
        graph.ages_MM[first, second] = graph.ages_MM[second, first] = age
    graph.errors_M[:] = (1.0, 0.5, 4.0, 0.0)
    return graph


def test_a_step_by_hand() -> None:
    """The pair (0.4, 0) is nearest to node 0, then to node 1. Node 0 moves by a tenth of 0.4, and both neighbours by a
    hundredth of their distances. The edge to node 1 is renewed; that to node 2 becomes 6 epochs old and stays."""
    graph = _graph()
    graph.adapt(np.array([0.4, 0.0]), eps_b=0.1, eps_n=0.01, max_age=6)
    assert graph.errors_M == pytest.approx([1.16, 0.5, 4.0, 0.0])
    assert graph.positions_ME[:3] == pytest.approx(np.array([[0.04, 0.0], [0.994, 0.0], [0.004, 1.98]]))
    expected = np.full((4, 4), INF)
    expected[0, 1] = expected[1, 0] = 0
    expected[0, 2] = expected[2, 0] = 6
    assert np.array_equal(graph.ages_MM, expected) and graph.step == 1
    assert graph.exists_M.tolist() == [True, True, True, False]


def test_an_edge_too_old_is_removed_with_the_node_that_it_leaves_alone() -> None:
    graph = _graph()
    graph.adapt(np.array([0.4, 0.0]), eps_b=0.1, eps_n=0.01, max_age=5)
    assert graph.exists_M.tolist() == [True, True, False, False] and graph.errors_M[2] == 0
    assert np.isinf(graph.ages_MM[2]).all() and np.isinf(graph.ages_MM[:, 2]).all()


def test_an_edge_between_the_two_nearest_is_made() -> None:
    graph = _graph()
    graph.adapt(np.array([0.6, 1.1]), eps_b=0.0, eps_n=0.0, max_age=50)
    assert graph.ages_MM[2, 1] == graph.ages_MM[1, 2] == 0 and graph.ages_MM[0, 2] == 6


def test_a_node_is_inserted_between_the_worst_and_its_worst_neighbour() -> None:
    graph = _graph()
    graph.insert(alpha=0.5)
    assert graph.positions_ME[3].tolist() == [0.0, 1.0]
    assert graph.errors_M.tolist() == [0.5, 0.5, 2.0, 2.0]
    connected = {(a, b) for a, b in zip(*np.nonzero(np.isfinite(graph.ages_MM)), strict=True) if a < b}
    assert connected == {(0, 1), (2, 3), (0, 3)} and graph.ages_MM[3, 0] == graph.ages_MM[2, 3] == 0
    graph.insert(alpha=0.5)  # there is room for four
    assert graph.errors_M.tolist() == [0.5, 0.5, 2.0, 2.0]


def test_components_are_the_gaussians_of_the_pairs_nearest_to_each_node() -> None:
    pairs_BE = np.array([[0.0, 0.1], [0.0, -0.1], [0.2, 0.0], [1.0, 0.0]])
    weights_M, means_ME, covariances_MEE = _graph().mixture(pairs_BE, jitter=0.01)
    assert weights_M.tolist() == [0.75, 0.25, 0.0, 0.0]
    assert means_ME[0] == pytest.approx(pairs_BE[:3].mean(0)) and means_ME[1].tolist() == [1.0, 0.0]
    assert covariances_MEE[0] == pytest.approx(np.cov(pairs_BE[:3].T, bias=True) + 0.01 * np.eye(2))
    assert covariances_MEE[1] == pytest.approx(0.01 * np.eye(2)) and np.array_equal(covariances_MEE[3], np.eye(2))
