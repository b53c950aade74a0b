"""GMJE-GNG: Growing Neural Gas places the components of a mixture over pairs (x, y) (arXiv 2603.26799, section 4.5).

Growing Neural Gas is a graph whose nodes spread over the data (Fritzke 1995; GMJE, algorithm 1).

Shapes: B examples, M nodes, E dimensions of a pair.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainables.contract import Batch, Losses, Noise, Noises, PairStatistics, Shapes
from trainables.methods.pairs.joint_mixture import JointMixture, joined
from trainables.validation import at_least, between, checked

Floats = NDArray[np.float64]


@dataclass
class Graph:
    """Nodes and edges of a Growing Neural Gas. Its methods change them in place."""

    positions_ME: Floats
    """Infinite for nodes that do not exist."""
    errors_M: Floats
    """Accumulated squared distances; 0 for nodes that do not exist."""
    ages_MM: Floats
    """Age of the edge between two nodes; infinite without an edge."""
    step: int = 0
    """Number of pairs seen."""

    @classmethod
    def started(cls, pair_2E: Floats, nodes: int) -> Self:
        """A graph of two nodes without an edge that can grow to `nodes` nodes."""
        positions_ME = np.full((nodes, pair_2E.shape[1]), np.inf)
        positions_ME[:2] = pair_2E
        return cls(positions_ME, np.zeros(nodes), np.full((nodes, nodes), np.inf))

    @property
    def exists_M(self) -> NDArray[np.bool_]:
        exists_M: NDArray[np.bool_] = np.isfinite(self.positions_ME[:, 0])
        return exists_M

    def adapt(self, pair_E: Floats, eps_b: float, eps_n: float, max_age: int) -> None:
        """Move the nearest node and its neighbours towards a pair, and connect the nearest node with the second
        nearest."""
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
        """Remove the edges from a node to these neighbours, and then neighbours without any edge."""
        self.ages_MM[node, neighbours] = np.inf
        self.ages_MM[neighbours, node] = np.inf
        for neighbour in neighbours:
            if not (self.ages_MM[neighbour] < np.inf).any():
                self.positions_ME[neighbour], self.errors_M[neighbour] = np.inf, 0.0

    def insert(self, alpha: float) -> None:
        """If there is room, insert a node between the node with the largest error and its neighbour with the largest
        error."""
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
        """Weights, means and covariances of a mixture, computed for each node from the pairs nearest to it. A node
        without pairs has weight 0, mean 0 and covariance I."""
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


@checked
class GNGConfig:
    nodes: Annotated[int, at_least(2)] = 30
    """Maximum number M of nodes."""
    steps: Annotated[int, at_least(1)] = 20_000
    """Number of pairs per epoch, drawn with replacement."""
    max_age: Annotated[int, at_least(1)] = 50
    """Age above which an edge is removed."""
    insert_every: Annotated[int, at_least(1)] = 100
    """Steps between two insertions of a node (lambda)."""
    eps_b: Annotated[float, between(0, 1)] = 0.1
    """Share of its distance by which the nearest node moves towards a pair."""
    eps_n: Annotated[float, between(0, 1)] = 0.005
    """Share of their distance by which the nearest node's neighbours move towards a pair."""
    alpha: Annotated[float, between(0, 1)] = 0.5
    """Share of their errors that the neighbours of a new node keep."""
    beta: Annotated[float, between(0, 1)] = 0.995
    """Share of its error that a node keeps per step."""
    jitter: Annotated[float, at_least(0)] = 1e-5
    """Added to the diagonals of covariances."""


class GNG(JointMixture):
    """Fusible: `eps_b`, `eps_n`, `alpha`, `beta`, `jitter`. A component is the Gaussian of the training pairs nearest
    to a node. Using the node itself as the mean lowers the log density of held-out pairs by 0.02 to 0.1 nats, because
    nodes keep moving by `eps_b`."""

    Config = GNGConfig
    fusible = frozenset({"eps_b", "eps_n", "alpha", "beta", "jitter"})

    jitter: Tensor
    positions_ME: Tensor
    errors_M: Tensor
    ages_MM: Tensor
    """Age of the edge between two nodes; -1 without an edge, so that buffers are finite."""
    step: Tensor

    def __init__(self, config: GNGConfig, networks: PairStatistics, shapes: Shapes) -> None:
        super().__init__(config, networks, shapes, config.nodes)
        count = config.nodes
        self.register_buffer("positions_ME", torch.zeros_like(self.means_ME))
        self.register_buffer("errors_M", torch.zeros(count))
        self.register_buffer("ages_MM", torch.full((count, count), -1.0))
        self.register_buffer("step", torch.zeros(()))

    def noise(self, batch: int) -> Noises:
        return {"examples": Noise((self.config.steps + 2,), kind="uniform")}

    def fit(self, data: Batch, noise: Mapping[str, Tensor]) -> Losses:
        """The loss is the negative log density of a pair."""
        pairs_BE = joined(data)
        losses = Losses(self.nll(pairs_BE), {})
        points_BE = pairs_BE.double().cpu().numpy()
        drawn = (noise["examples"].double().cpu().numpy() * len(points_BE)).astype(np.int64)
        graph = self._graph() if self.step else Graph.started(points_BE[drawn[:2]], self.config.nodes)
        eps_b, eps_n, alpha, beta = (getattr(self, name).item() for name in ("eps_b", "eps_n", "alpha", "beta"))
        for index in drawn[2:]:
            graph.adapt(points_BE[index], eps_b, eps_n, self.config.max_age)
            if graph.step % self.config.insert_every == 0:
                graph.insert(alpha)
            graph.errors_M *= beta
        self._keep(graph)
        self.set_mixture(*map(torch.from_numpy, graph.mixture(points_BE, self.jitter.item())))
        return losses

    def _graph(self) -> Graph:
        """The graph stored in the buffers."""
        buffers = (self.positions_ME, self.errors_M, self.ages_MM)
        positions_ME, errors_M, ages_MM = (buffer.double().cpu().numpy() for buffer in buffers)
        connected_M: NDArray[np.bool_] = np.max(ages_MM, axis=1) >= 0  # every node is, after the first step
        positions_ME = np.where(connected_M[:, None], positions_ME, np.inf)
        return Graph(positions_ME, errors_M, np.where(ages_MM < 0, np.inf, ages_MM), int(self.step))

    def _keep(self, graph: Graph) -> None:
        """Write the graph into the buffers."""
        self.positions_ME.copy_(torch.from_numpy(np.where(graph.exists_M[:, None], graph.positions_ME, 0.0)))
        self.errors_M.copy_(torch.from_numpy(graph.errors_M))
        self.ages_MM.copy_(torch.from_numpy(np.where(np.isfinite(graph.ages_MM), graph.ages_MM, -1.0)))
        self.step.fill_(graph.step)
