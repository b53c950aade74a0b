"""The members of one cohort and what they read: trained an epoch at a time, stacked or in turn, and evaluated.

Shapes: K members that are still there, B images a step.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from trainables.catalog import METHODS
from trainables.config.trial import TrialConfig
from trainables.contract import CheckpointError, Move
from trainables.data.datasets import Dataset, load
from trainables.evaluation.anomaly import Floats
from trainables.learners.data_parallel import ALONE, Peers
from trainables.learners.lr_schedule import cosine
from trainables.learners.stack import Stack
from trainables.learners.streams import Stream, models, splits, stream_key
from trainables.training.evaluators import Evaluator


class Cohort:
    """K members that agree on everything that is not fusible."""

    def __init__(
        self,
        configs: Sequence[TrialConfig],
        data: Path,
        device: torch.device,
        width: int | None,
        peers: Peers = ALONE,
        ask: Callable[[], None] = lambda: None,
    ) -> None:
        """`width` members are stacked at a time, None for all; `peers` train the same cohort, each on its part of every
        batch. `ask` is called between the batches of an evaluation, which it ends where it raises. DataError or
        ValueError if the data do not serve."""
        self.method = METHODS[configs[0].method]
        self._training = configs[0].training
        self._peers, self._device = peers, device
        dataset = dataset_of(configs[0].data.dataset, data)
        by_stream = {stream_key(config): config for config in configs}
        parts = {key: splits(dataset, config.data) for key, config in by_stream.items()}
        streams = {key: Stream(config, parts[key].test, device, peers) for key, config in by_stream.items()}
        self._streams = list(streams.values())
        if len({stream.steps for stream in self._streams}) > 1:
            raise ValueError("the members of a cohort must have equally many steps an epoch, but these differ")
        self._read_by = [streams[stream_key(config)] for config in configs]
        self._evaluator = Evaluator(
            configs, [parts[stream_key(config)] for config in configs], dataset, data, device, peers, ask
        )
        _, channels, height, across = dataset.train_images.shape
        initial = models(configs, (channels, height, across))
        self._width = width or len(configs)
        self.members = tuple(range(len(configs)))
        """Indices of the configs whose members are still there, ascending; what is returned is in this order."""
        self._stacks = [
            Stack(
                [initial[index] for index in part],
                streams=self._stream_indices(part),
                lr=[configs[index].training.lr for index in part],
                weight_decay=[configs[index].training.weight_decay for index in part],
                momentum=self._training.momentum,
                autocast=torch.bfloat16 if self._training.precision == "bfloat16" else None,
                device=device,
                peers=peers,
            )
            for part in self._parts()
        ]

    @property
    def steps(self) -> int:
        """Of an epoch."""
        return self._streams[0].steps

    @property
    def epochs(self) -> int:
        """Of the whole training."""
        return self._training.epochs

    def epoch(
        self,
        number: int,
        first: int = 0,
        sums: Mapping[str, torch.Tensor] | None = None,
        after: Callable[[int, Mapping[str, torch.Tensor]], None] = lambda step, sums: None,
    ) -> dict[str, Floats]:
        """Train one epoch, the first being 0. Returns each loss `[K]`, averaged over the epoch's steps.

        `first` steps are done, and their losses have these sums. `after` is told of each step how many then are done,
        and the sums; where it raises, the epoch ends there. CheckpointError, at the first step, where the sums are not
        of this method's losses.
        """
        orders, steps = self.orders(number), self.steps
        if first > steps:
            raise CheckpointError(f"an epoch has {steps} steps, but it has made {first}")
        sums = {name: sum_K.to(self._device) for name, sum_K in (sums or {}).items()}
        for step in range(first, steps):
            rate = cosine(number * steps + step, self._training.epochs * steps, self._training.warmup_epochs * steps)
            losses = self.step(number, step, orders, rate)
            if step and set(sums) != set(losses):
                raise CheckpointError(f"its sums must be of {', '.join(losses)}, but are of {', '.join(sums)}")
            sums = {name: sums[name] + loss_K if step else loss_K for name, loss_K in losses.items()}
            after(step + 1, sums)
        self.settle(sums)
        return {name: (sum_K / steps).double().cpu().numpy() for name, sum_K in sums.items()}

    def settle(self, sums: Mapping[str, torch.Tensor]) -> None:
        """Make what each process has of its own, these sums among it, the mean over all, in place."""
        self._peers.average(list(sums.values()))
        for stack in self._stacks:
            stack.settle()

    def orders(self, epoch: int) -> list[torch.Tensor]:
        """Indices `[steps, B]` of the training images of each step, one tensor a stream."""
        return [stream.order(epoch) for stream in self._streams]

    def step(self, epoch: int, step: int, orders: Sequence[torch.Tensor], rate: float) -> dict[str, torch.Tensor]:
        """One step of every member at `rate` times its learning rate. Returns each loss before the step, `[K]`."""
        count, noise_shape = self.method.view_count, self._stacks[0].noise_shape(self._training.batch_size)
        views = []
        for stream, order in zip(self._streams, orders, strict=True):
            views.append(stream.views(order[step], epoch, step, count))
            stream.expect(order, epoch, step + 1, count)
        noise = [stream.noise(noise_shape, epoch, step) for stream in self._streams]
        losses = [stack.step(views, noise, rate) for stack in self._stacks]
        total = {"loss": torch.cat([loss.total for loss in losses])}
        return total | {f"loss_{part}": torch.cat([loss.parts[part] for loss in losses]) for part in losses[0].parts}

    def evaluate(self, last: bool) -> dict[str, Floats]:
        """Metrics `[K]`; `last` adds those of the end of a training. NaN where undefined."""
        return self._evaluator.metrics(self._stacks, self.members, last)

    def scores(self) -> dict[str, Floats]:
        """Anomaly scores `[K, N]` of the test images by name."""
        return self._evaluator.scores(self._stacks)

    def keep(self, members: Collection[int]) -> None:
        """All others leave. Those that stay close ranks in as few stacks as there can be, and what none of them reads
        is drawn no longer."""
        if set(members) == set(self.members):
            return
        places = self._places()
        self.members = tuple(index for index in self.members if index in members)
        self._streams = list(dict.fromkeys(self._read_by[index] for index in self.members))
        self._stacks = [
            Stack.of([places[index] for index in part], self._stream_indices(part)) for part in self._parts()
        ]

    def move(self, moves: Mapping[int, Move]) -> None:
        """Each of these members takes over what its source is now, before any of the moves. ValueError where one of the
        two is not there, or has no such hyperparameter."""
        places = self._places()
        for index, move in moves.items():
            if not {index, move.source} <= set(self.members):
                there = ", ".join(map(str, self.members))
                raise ValueError(f"a member moves to another that runs, but got {index} to {move.source} of {there}")
        taken = {}
        for source in {move.source for move in moves.values()}:
            stack, place = places[source]
            taken[source] = stack.take(place)
        for index, move in moves.items():
            stack, place = places[index]
            stack.give(place, taken[move.source], move.hyperparameters)

    def state(self) -> list[dict[str, Any]]:
        """Everything that training changes, on the CPU."""
        return [stack.state() for stack in self._stacks]

    def load_state(self, state: Sequence[Mapping[str, Any]]) -> None:
        """Take up what `state` returned in a cohort of the same configs, width and members. CheckpointError where it
        differs in any name, shape or type."""
        if not isinstance(state, list) or len(state) != len(self._stacks):
            raise CheckpointError(f"its state must be of {len(self._stacks)} stacks, but is another")
        for stack, saved in zip(self._stacks, state, strict=True):
            stack.load_state(saved)

    def _parts(self) -> list[tuple[int, ...]]:
        """The members of each stack."""
        return [self.members[start : start + self._width] for start in range(0, len(self.members), self._width)]

    def _places(self) -> dict[int, tuple[Stack, int]]:
        """Where each member is."""
        return {
            index: (stack, place)
            for stack, part in zip(self._stacks, self._parts(), strict=True)
            for place, index in enumerate(part)
        }

    def _stream_indices(self, members: Sequence[int]) -> list[int]:
        return [self._streams.index(self._read_by[index]) for index in members]


@lru_cache(maxsize=1)
def dataset_of(name: str, data: Path) -> Dataset:
    """One worker trains many cohorts of one data set, and reads it once."""
    return load(name, data)
