"""The training pairs of a trial as batches.

Shapes: N training pairs, B examples of a batch, X = 1 inputs.
"""

from functools import lru_cache

import torch
from torch import Tensor

from trainables.contract import Batch
from trainables.data.pairs import Pairs, draw_pairs
from trainables.learners.data_parallel import Peers, seeded_generator
from trainables.tasks.pairs.config import PairsTrial
from trainables.tasks.task import Stream


def stream_key(config: PairsTrial) -> tuple[object, ...]:
    """The key of a trial's stream. Members with equal keys share pairs, their order, noise and initial weights."""
    return ("pairs", config.data.dataset, config.data.examples, config.training.seed)


def training_pairs(config: PairsTrial) -> Pairs:
    """The training pairs of a trial."""
    return _draw(config.data.dataset, config.data.examples, config.training.seed)


@lru_cache(maxsize=64)
def _draw(dataset: str, count: int, seed: int) -> Pairs:
    return draw_pairs(dataset, count, seeded_generator("training pairs", dataset, count, seed))


class TrainingStatistics:
    """What methods may know of the training pairs beforehand; see `PairStatistics`."""

    def __init__(self, config: PairsTrial) -> None:
        self._y_N = training_pairs(config).y_N
        self._steps = config.training.epochs * config.steps

    @property
    def count(self) -> int:
        return len(self._y_N)

    @property
    def steps(self) -> int:
        return self._steps

    def target_quantiles(self, levels: Tensor) -> Tensor:
        return torch.quantile(self._y_N, levels.to(self._y_N)).to(levels)


class PairsStream(Stream):
    """Batches with the entries x, `[B, X]`, and y, `[B]`."""

    def __init__(self, config: PairsTrial, device: torch.device, peers: Peers) -> None:
        self.key, self.batch_size, self.steps = stream_key(config), config.batch_size, config.steps
        pairs = training_pairs(config)
        self._x_NX, self._y_N = (as_input(values_N, device) for values_N in (pairs.x_N[:, None], pairs.y_N))
        self._peers = peers

    def order(self, epoch: int) -> Tensor:
        shuffled = torch.randperm(len(self._y_N), generator=seeded_generator("order", self.key, epoch))
        return shuffled[: self.steps * self.batch_size].view(self.steps, self.batch_size).to(self._y_N.device)

    def batch(self, indices_B: Tensor, epoch: int, step: int) -> Batch:
        part = indices_B[self._peers.slice_of(len(indices_B))]
        return {"x": self._x_NX[part], "y": self._y_N[part]}


def as_input(values: Tensor, device: torch.device) -> Tensor:
    """Values of the data in the precision of networks."""
    return values.to(device, torch.get_default_dtype())
