"""Growing Neural Gas: a graph whose nodes spread over the data that it is shown (Fritzke 1995; GMJE, algorithm 1).

Shapes: B examples, M nodes, E dimensions.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass
class Graph:
    """Nodes and edges of a Growing Neural Gas, which its methods change in place."""

    positions_ME: Floats
    """Infinite for nodes that do not exist."""
    errors_M: Floats
    """Accumulated squared distances; 0 for nodes that do not exist."""
    ages_MM: Floats
    """Age of the edge between two nodes; infinite where there is none."""
    step: int = 0
    """Number of pairs seen."""

    @classmethod
    def started(cls, pair_2E: Floats, nodes: int) -> Self:
        """Two nodes, without an edge, of at most `nodes`."""
        positions_ME = np.full((nodes, pair_2E.shape[1]), np.inf)
        positions_ME[:2] = pair_2E
        return cls(positions_ME, np.zeros(nodes), np.full((nodes, nodes), np.inf))

    @property
    def exists_M(self) -> NDArray[np.bool_]:
        exists_M: NDArray[np.bool_] = np.isfinite(self.positions_ME[:, 0])
        return exists_M

    def adapt(self, pair_E: Floats, eps_b: float, eps_n: float, max_age: int) -> None:
        """Move the nearest node and its neighbours to a pair, and connect it with the second nearest."""
        distances_M = np.square(self.positions_ME - pair_E).sum(1)
        nearest = int(distances_M.argmin())
        self.errors_M[nearest] += distances_M[nearest]
        distances_M[nearest] = np.inf
        second = int(distances_M.argmin())
        ages_M = self.ages_MM[nearest]
        neighbours = np.flatnonzero(ages_M < np.inf)
        self.positions_ME[nearest] += eps_b * (pair_E - self.positions_ME[nearest])
        self.positions_ME[neighbours] += eps_n * (pair_E - self.positions_ME[neighbours])
        ages_M[neighbours] += 1
        ages_M[second] = 0
        self._drop(nearest, neighbours[ages_M[neighbours] > max_age])
        self.ages_MM[:, nearest] = ages_M
        self.step += 1

    def _drop(self, node: int, neighbours: NDArray[np.int64]) -> None:
        """Remove the edges from a node to these neighbours, and neighbours that have no other edge."""
        self.ages_MM[node, neighbours] = np.inf
        self.ages_MM[neighbours, node] = np.inf
        for neighbour in neighbours:
            if not (self.ages_MM[neighbour] < np.inf).any():
                self.positions_ME[neighbour], self.errors_M[neighbour] = np.inf, 0.0

    def insert(self, alpha: float) -> None:
        """Insert a node between the node of the largest error and its neighbour of the largest error, if there is room
        for one."""
        free = np.flatnonzero(~self.exists_M)
        worst = int(self.errors_M.argmax())
        neighbours = np.flatnonzero(self.ages_MM[worst] < np.inf)
        if not len(free) or not len(neighbours):
            return
        new, other = free[0], neighbours[self.errors_M[neighbours].argmax()]
        self.positions_ME[new] = (self.positions_ME[worst] + self.positions_ME[other]) / 2
        self.ages_MM[worst, other] = self.ages_MM[other, worst] = np.inf
        for node in (worst, other):
            self.ages_MM[new, node] = self.ages_MM[node, new] = 0
            self.errors_M[node] *= alpha
        self.errors_M[new] = self.errors_M[worst]

    def mixture(self, pairs_BE: Floats, jitter: float) -> tuple[Floats, Floats, Floats]:
        """Weights, means and covariances of a mixture: for each node, those of the pairs nearest to it. A node without
        pairs has weight 0, mean 0 and covariance I."""
        nodes, size = self.positions_ME.shape
        nearest_B = np.square(pairs_BE[:, None] - self.positions_ME).sum(2).argmin(1)
        weights_M = np.bincount(nearest_B, minlength=nodes) / len(pairs_BE)
        means_ME, covariances_MEE = np.zeros((nodes, size)), np.tile(np.eye(size), (nodes, 1, 1))
        for node in np.flatnonzero(weights_M):
            own_BE = pairs_BE[nearest_B == node]
            means_ME[node] = own_BE.mean(0)
            deviations_BE = own_BE - means_ME[node]
            covariances_MEE[node] = deviations_BE.T @ deviations_BE / len(own_BE) + jitter * np.eye(size)
        return weights_M, means_ME, covariances_MEE
