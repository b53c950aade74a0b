"""Training without training: a cohort whose weights are numbers that follow from its trials and their epochs.

The loop around it, the checkpoints, the verdicts and the messages are the real ones of `trainables`. A member's weight
changes in each step by its hyperparameters, and its metrics are functions of its weight. So a step that is left out or
made twice, or a checkpoint of another trial, shows in every metric that follows.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import pickle
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from trainables.learners.data_parallel import SINGLE_PROCESS, Peers
from trainables.reports import CheckpointError, Move
from trainables.sections import TrialConfig
from trainables.training import checks
from trainables.training.checks import split_into_stacks, stack_width
from trainables.training.compiled_steps import StepCompiler
from trainables.training.model_file import TrainedModel
from trainables.worker.watchdog import StepWatchdog

STEPS = 2
"""Steps of an epoch."""
BITS = 50
DIVERGES = 0.04
"""Share of trials that diverge."""


def digest(*content: object) -> int:
    """A number of `BITS` bits that follows from the content."""
    data = json.dumps(content, sort_keys=True, default=str).encode()
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little") >> (64 - BITS)


def value(metric: str, weight: int) -> float:
    """The value of a metric of a member with this weight, in [0, 1)."""
    return digest(metric, weight) / 2**BITS


class _Pickler(pickle.Pickler):
    def reducer_override(self, content: object) -> Any:
        """A tensor is written by its values, and all else as ever."""
        if isinstance(content, torch.Tensor):
            return partial(torch.tensor, dtype=content.dtype), (content.tolist(),)
        return NotImplemented


def save(content: object, stream: io.BytesIO) -> None:
    """As `torch.save`, in a tenth of its time: the weights are a few numbers."""
    _Pickler(stream).dump(content)


def load(stream: io.BytesIO, **_: object) -> Any:
    """As `torch.load`, of what `save` has written."""
    return pickle.load(stream)


def diverges_in(config: Mapping[str, Any]) -> int | None:
    """The epoch, counted from 1, in which a trial diverges; None for most."""
    drawn = digest("diverges", config)
    return 1 + drawn % int(config["epochs"]) if drawn / 2**BITS < DIVERGES and config["epochs"] else None


class Watchdog(StepWatchdog):
    """The watchdog of a worker whose process is simulated."""

    process: Callable[[], Any]
    """Returns the process that runs."""

    def stop(self) -> bool:
        return self.asked

    @property
    def asked(self) -> bool:
        return bool(self.process().asked)


class CannedCohort:
    """What the training loop calls of a `trainables.training.cohort.Cohort`."""

    during_step: Callable[[int], float] = staticmethod(lambda epoch: 0.0)
    """Called in each step of an epoch: simulated time passes there, and things happen. Returns the seconds."""
    begun: Callable[[CannedCohort], None] = staticmethod(lambda cohort: None)
    """Called with each cohort that is made."""

    def __init__(
        self,
        configs: Sequence[TrialConfig],
        data: Path,
        device: torch.device,
        width: int | None,
        peers: Peers = SINGLE_PROCESS,
        raise_if_stopped: Callable[[], None] = lambda: None,
        compiler: StepCompiler | None = None,
    ) -> None:
        self._configs, self.members, self.compiled = configs, tuple(range(len(configs))), compiler is not None
        self._width = stack_width(configs, width)
        self._raise_if_stopped = raise_if_stopped
        self._flat: list[dict[str, Any]] = [dict(config.flat()) for config in configs]
        self._diverges = [diverges_in(flat) for flat in self._flat]
        self._weights = {index: digest("initial", flat) for index, flat in enumerate(self._flat)}
        (result, *_) = checks.check_trials(configs[:1], None)
        self._metrics = {True: result.metrics, False: result.metrics_during_training}
        self.steps, self.epochs = STEPS, configs[0].training.epochs
        self.pictures: Sequence[Mapping[str, bytes]] = ()
        self.seconds = dict.fromkeys(self.members, 0.0)
        """Each member's share of the seconds of its steps; empty if these are not known."""
        self.begun(self)

    def sums_to_save(self, sums: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return dict(sums)

    def about_divergence(self, row: int) -> str:
        return ""

    def epoch(
        self,
        number: int,
        first: int = 0,
        sums: Mapping[str, torch.Tensor] | None = None,
        after_step: Callable[[int, Mapping[str, torch.Tensor]], None] = lambda step, sums: None,
        stop_at_divergence: bool = False,
    ) -> dict[str, Any]:
        if first > self.steps:
            raise CheckpointError(f"an epoch has {self.steps} steps, but it has made {first}")
        for step in range(first, self.steps):
            seconds = self.during_step(number)
            for index in self.members:
                self.seconds[index] += seconds / len(self.members)
                self._weights[index] = digest(self._weights[index], self._flat[index], number, step)
            of_step = torch.tensor([self._value("loss", index, number) for index in self.members], dtype=torch.float64)
            sums = {"loss": of_step + sums["loss"] if sums else of_step}
            after_step(step + 1, sums)
        assert sums
        return {"loss": (sums["loss"] / self.steps).numpy()}

    def _value(self, metric: str, index: int, epoch: int) -> float:
        if metric == "loss" and self._diverges[index] == epoch + 1:
            return math.nan
        return value(metric, self._weights[index])

    def evaluate(self, last: bool, members: Sequence[int] | None = None) -> dict[str, Any]:
        self._raise_if_stopped()
        members = self.members if members is None else members
        self.pictures = [{"picture.png": b"a picture"} for _ in members] if last else ()
        names = (name for name in self._metrics[last] if name != "loss")
        return {name: np.array([self._value(name, index, -1) for index in members]) for name in names}

    def evaluate_to_keep(self, members: Sequence[int]) -> None: ...

    def tensors_of(self, member: int) -> dict[str, torch.Tensor]:
        return {"digest": torch.tensor([self._weights[member]])}

    def load_tensors(self, tensors: Mapping[int, Mapping[str, torch.Tensor]]) -> None:
        self._weights |= {index: int(own["digest"][0]) for index, own in tensors.items()}

    def begin_epoch(self, number: int, first: int = 0) -> None: ...

    def average_over_peers(self, sums: Mapping[str, torch.Tensor]) -> None: ...

    def keep(self, members: Collection[int]) -> None:
        self.members = tuple(index for index in self.members if index in members)

    def move(self, moves: Mapping[int, Move]) -> None:
        weights, flat = dict(self._weights), [dict(each) for each in self._flat]
        for index, move in moves.items():
            assert {index, move.source} <= set(self.members)
            self._weights[index] = weights[move.source]
            self._flat[index] = {**flat[index], **move.hyperparameters}

    def state(self) -> list[dict[str, Any]]:
        return [
            {
                "weights": {"digest": torch.tensor([self._weights[index] for index in stack])},
                "rates": {
                    name: torch.tensor([self._flat[index][name] for index in stack], dtype=torch.float64)
                    for name in ("lr", "weight_decay")
                },
                "seconds": torch.tensor([*self.seconds.values()], dtype=torch.float64),
            }
            for stack in self._members_by_stack()
        ]

    def load_state(self, state: Sequence[Mapping[str, Any]]) -> None:
        stacks = self._members_by_stack()
        if len(state) != len(stacks):
            raise CheckpointError(f"its state must be of {len(stacks)} stacks, but is another")
        self.seconds = dict(enumerate(state[0]["seconds"].tolist())) if state else {}
        for stack, saved in zip(stacks, state, strict=True):
            for slot, index in enumerate(stack):
                self._weights[index] = int(saved["weights"]["digest"][slot])
                self._flat[index] |= {name: float(rates[slot]) for name, rates in saved["rates"].items()}

    def trained_models(self, members: Iterable[int]) -> Iterator[tuple[int, TrainedModel]]:
        for index in members:
            yield index, TrainedModel(self._configs[index], self.tensors_of(index), {"x": (1,), "y": (1,)}, {})

    def _members_by_stack(self) -> list[tuple[int, ...]]:
        return split_into_stacks(self.members, self._width, self.compiled)
