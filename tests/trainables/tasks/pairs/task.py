"""A task without images, to hold the contract to its word: predict a number y from a number x.

Shapes: K members, B examples of a batch, N held-out examples, X = 1 inputs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from trainables.config.training import GradientTraining
from trainables.config.trial_config import TrialConfig, Value
from trainables.contract import Batch, Method
from trainables.evaluation.anomaly import Floats
from trainables.learners.data_parallel import Peers
from trainables.learners.members import StackedMembers
from trainables.learners.noise import seeded_generator
from trainables.tasks.task import Evaluator, LoadedTask, Methods, Stream, Task, TrialSize
from trainables.validation import whole

FOLDS = 5


@dataclass(frozen=True)
class PairsData:
    """The examples of a noisy sine, and which of them are held out."""

    examples: int = 150
    """Number of examples, a multiple of 5."""
    fold: int = 0
    """Index of the fifth of the examples that is held out."""

    def __post_init__(self) -> None:
        whole("examples", self.examples, 2 * FOLDS)
        whole("fold", self.fold, 0)


@dataclass(frozen=True, kw_only=True)
class PairsTrial(TrialConfig):
    """Everything that one training run on pairs depends on."""

    data: PairsData


class Pair(NamedTuple):
    """Inputs and their targets."""

    x_BX: Tensor
    y_B: Tensor


def split(data: PairsData) -> tuple[Pair, Pair]:
    """The training examples and the held-out ones."""
    generator = seeded_generator("pairs", data.examples)
    x_BX = 4 * torch.rand(data.examples, 1, generator=generator) - 2
    spread_B = 0.1 + 0.2 * (x_BX[:, 0] > 0)
    y_B = torch.sin(2 * x_BX[:, 0]) + spread_B * torch.randn(data.examples, generator=generator)
    held_out_B = torch.arange(data.examples) % FOLDS == data.fold
    return Pair(x_BX[~held_out_B], y_B[~held_out_B]), Pair(x_BX[held_out_B], y_B[held_out_B])


def stream_key(config: PairsTrial) -> tuple[object, ...]:
    return ("pairs", config.data.examples, config.data.fold, config.training.seed)


def training_size(config: PairsTrial) -> int:
    return config.data.examples - config.data.examples // FOLDS


def batch_size(config: PairsTrial) -> int:
    """All training examples for a method that is fitted to them at once."""
    return config.training.batch_size if isinstance(config.training, GradientTraining) else training_size(config)


class PairsStream(Stream):
    """Batches with the entries x, `[B, X]`, and y, `[B]`."""

    def __init__(self, config: PairsTrial, device: torch.device, peers: Peers) -> None:
        self.key, self.batch_size = stream_key(config), batch_size(config)
        self.steps = training_size(config) // self.batch_size
        training, _ = split(config.data)
        self._x_NX, self._y_N, self._peers = training.x_BX.to(device), training.y_B.to(device), peers

    def order(self, epoch: int) -> Tensor:
        shuffled = torch.randperm(len(self._y_N), generator=seeded_generator("order", self.key, epoch))
        return shuffled[: self.steps * self.batch_size].view(self.steps, self.batch_size).to(self._y_N.device)

    def batch(self, indices_B: Tensor, epoch: int, step: int) -> Batch:
        part = indices_B[self._peers.slice_of(len(indices_B))]
        return {"x": self._x_NX[part], "y": self._y_N[part]}


class HeldOutDensity(Evaluator):
    """`nll`, the negative log density of the held-out targets, and at the end `rmse`, the error of the means. Members
    are evaluated on their own held-out examples."""

    def __init__(self, configs: Sequence[PairsTrial], device: torch.device) -> None:
        held_out = [split(config.data)[1] for config in configs]
        self._x_KNX = torch.stack([pair.x_BX for pair in held_out]).to(device)
        self._y_KN = torch.stack([pair.y_B for pair in held_out]).double().numpy()

    def metrics(self, stacks: Sequence[StackedMembers], members: Sequence[int], last: bool) -> dict[str, Floats]:
        x_by_stack = self._x_KNX[list(members)].split([stack.size for stack in stacks])
        predicted = [stack.evaluate_each("predict", x_KNX) for stack, x_KNX in zip(stacks, x_by_stack, strict=True)]
        mean_KN, variance_KN = (
            torch.cat([density[name] for density in predicted]).double().cpu().numpy() for name in ("mean", "variance")
        )
        squared_KN = np.square(self._y_KN[list(members)] - mean_KN)
        nll_KN = 0.5 * (np.log(2 * np.pi * variance_KN) + squared_KN / variance_KN)
        return {"nll": nll_KN.mean(1)} | ({"rmse": np.sqrt(squared_KN.mean(1))} if last else {})


class Pairs(Task):
    """Regression of y on x."""

    Trial = PairsTrial
    fusible = frozenset({"fold"})

    def check(self, config: PairsTrial, methods: Methods) -> None:
        if config.data.fold >= FOLDS:
            raise ValueError(f"`fold < {FOLDS}` must hold, but got fold={config.data.fold}")
        if batch_size(config) > training_size(config):
            raise ValueError(f"batch_size must not exceed the {training_size(config)} training examples")

    def networks(self, config: PairsTrial) -> None:
        return None

    def stream_key(self, config: PairsTrial) -> tuple[object, ...]:
        return stream_key(config)

    def keep_data(self, config: PairsTrial, data: Path) -> None:
        """They are made anew each time."""

    def load(
        self,
        configs: Sequence[PairsTrial],
        method: type[Method],
        data: Path,
        device: torch.device,
        peers: Peers,
        raise_if_stopped: Callable[[], None],
    ) -> LoadedTask:
        streams = {stream_key(config): PairsStream(config, device, peers) for config in configs}
        return LoadedTask(streams, HeldOutDensity(configs, device), {"x": (1,), "y": ()})

    def preflight(self, configs: Sequence[PairsTrial], data: Path | None) -> list[TrialSize]:
        return [TrialSize(training_size(config) // batch_size(config), classes=0) for config in configs]

    def metric_names(self, config: PairsTrial, method: type[Method], classes: int, last: bool) -> tuple[str, ...]:
        return ("nll", "rmse") if last else ("nll",)

    def full_evaluations(self, method: type[Method]) -> Sequence[Mapping[str, Value]]:
        return [{}]
