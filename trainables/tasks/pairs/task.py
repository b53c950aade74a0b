"""Pairs (x, y): a method learns the density of y given x, and is judged by its distance from the true one."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from trainables.contract import Method, Shapes
from trainables.data.pairs import BRANCHES
from trainables.learners.data_parallel import Peers
from trainables.sections import Value
from trainables.tasks.pairs.config import PairsTrial
from trainables.tasks.pairs.evaluator import AT_END, DURING_TRAINING, ConditionalDensityEvaluator
from trainables.tasks.pairs.stream import PairsStream, TrainingStatistics, stream_key
from trainables.tasks.task import LoadedTask, Methods, RandomBatch, Task, TrialSize

SHAPES: Shapes = {"x": (1,), "y": ()}
"""Shape of one example of each entry of a batch."""


class SyntheticPairs(Task):
    """Conditional densities of synthetic pairs. The data sets are drawn, so they need no files."""

    Trial = PairsTrial
    fusible = frozenset({"dataset"})
    step_sections = ("data",)

    def check(self, config: PairsTrial, methods: Methods) -> None:
        if "predict" not in methods[config.method].capabilities:
            capable = [name for name, method in methods.items() if "predict" in method.capabilities]
            raise ValueError(
                f"{config.method} predicts no conditional density, which trials on pairs are judged by; those that do "
                f"are: {', '.join(capable)}"
            )
        if not config.steps:
            raise ValueError(
                f"batch_size must not exceed the {config.data.examples} training pairs, but got "
                f"batch_size={config.batch_size}"
            )

    def networks(self, config: PairsTrial) -> TrainingStatistics:
        return TrainingStatistics(config)

    def stream_key(self, config: PairsTrial) -> tuple[object, ...]:
        return stream_key(config)

    def keep_data(self, config: PairsTrial, data: Path) -> None:
        """They are drawn where they are needed."""

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
        return LoadedTask(streams, ConditionalDensityEvaluator(configs, device), SHAPES)

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
