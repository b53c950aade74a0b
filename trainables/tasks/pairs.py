"""Pairs (x, y): a method learns the density of y given x and is evaluated by its distance from the true density.

Shapes: N training pairs, B examples of a batch, X = 1 inputs.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated

import torch
from torch import Tensor

from trainables.contract import Batch, Method, Shapes
from trainables.data.pairs import BRANCHES, Pairs, draw_pairs
from trainables.learners.data_parallel import Peers, seeded_generator
from trainables.metrics.conditional_density import AT_END, DURING_TRAINING, ConditionalDensityEvaluator
from trainables.sections import GradientTraining, TrialConfig, Value
from trainables.tasks.task import LoadedTask, Methods, RandomBatch, Stream, Task, TrialSize
from trainables.validation import at_least, checked, one_of

SHAPES: Shapes = {"x": (1,), "y": ()}
"""Shape of one example of each entry of a batch."""


@checked
class PairsData:
    """The training pairs. Each seed draws its own pairs."""

    dataset: Annotated[str, one_of(*sorted(BRANCHES))] = "synthetic_a"
    """Name of the data set."""
    examples: Annotated[int, at_least(2)] = 3000
    """Number of training pairs."""


@checked
class PairsEvaluation:
    """What is kept of an evaluation besides its metrics."""

    sheets: bool = False
    """Keep the predicted density on a grid of x, from which the sweep's panels are drawn."""


@dataclass(frozen=True, kw_only=True)
class PairsTrial(TrialConfig):
    """Everything that one training run on pairs depends on."""

    data: PairsData
    evaluation: PairsEvaluation

    @property
    def batch_size(self) -> int:
        """Examples per step; all examples for a method that is fitted to all data at once."""
        return self.training.batch_size if isinstance(self.training, GradientTraining) else self.data.examples

    @property
    def steps(self) -> int:
        """Steps per epoch; 0 if a batch has more examples than the data set."""
        return self.data.examples // self.batch_size


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
    """Statistics of the training pairs that methods may use before training; see `PairStatistics`."""

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

    def examples(self) -> Iterator[Batch]:
        yield {"x": self._x_NX, "y": self._y_N}


def as_input(values: Tensor, device: torch.device) -> Tensor:
    """Values of the data in the precision of networks."""
    return values.to(device, torch.get_default_dtype())


class SyntheticPairs(Task):
    """Conditional densities of synthetic pairs. The data sets are generated, so they need no files."""

    Trial = PairsTrial
    fusible = frozenset({"dataset"})
    step_sections = ("data",)

    def check(self, config: PairsTrial, methods: Methods) -> None:
        if "predict" not in methods[config.method].capabilities:
            capable = [name for name, method in methods.items() if "predict" in method.capabilities]
            raise ValueError(
                f"trials on pairs need a method that predicts a conditional density, but got method={config.method}; "
                f"there are: {', '.join(capable)}"
            )
        if not config.steps:
            raise ValueError(
                f"batch_size must not exceed the {config.data.examples} training pairs, but got "
                f"batch_size={config.batch_size}"
            )

    def networks(self, config: PairsTrial, initial: bool = False) -> TrainingStatistics:
        return TrainingStatistics(config)

    def stream_key(self, config: PairsTrial) -> tuple[object, ...]:
        return stream_key(config)

    def keep_data(self, config: PairsTrial, data: Path) -> None:
        """Does nothing: pairs are drawn on demand."""

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
        datasets = [config.data.dataset for config in configs]
        shown = [training_pairs(config) if config.evaluation.sheets else None for config in configs]
        return LoadedTask(streams, ConditionalDensityEvaluator(datasets, shown, device), SHAPES)

    def random_batch(self, config: PairsTrial, method: type[Method], examples: int) -> RandomBatch:
        generator = torch.Generator().manual_seed(0)
        batch = {name: torch.rand((examples, *shape), generator=generator) for name, shape in SHAPES.items()}
        return RandomBatch(replace(config, data=replace(config.data, examples=examples)), SHAPES, batch)

    def preflight(self, configs: Sequence[PairsTrial], data: Path | None) -> list[TrialSize]:
        return [TrialSize(config.steps, classes=0) for config in configs]

    def metric_names(self, config: PairsTrial, method: type[Method], classes: int, last: bool) -> tuple[str, ...]:
        return AT_END if last else DURING_TRAINING

    def full_evaluations(self, method: type[Method]) -> Sequence[Mapping[str, Value]]:
        return [{"dataset": name} for name in BRANCHES]
