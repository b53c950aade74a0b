"""The interface of tasks: the sections of their trials, their data as batches, and their evaluators.

Shapes: K members of a cohort, B examples of a batch.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from trainables.contract import Batch, Method, Shapes
from trainables.learners.data_parallel import Peers
from trainables.metrics.evaluator import Evaluator
from trainables.sections import TrialConfig, Value

Methods = Mapping[str, type[Method]]
"""Name of a method -> the method."""


class Stream(ABC):
    """The training data of members with equal data and seed, in the order that the seed determines."""

    key: tuple[object, ...]
    """Key from which all random numbers of these members derive."""
    steps: int
    """Steps per epoch."""
    batch_size: int
    """Examples per batch B, over all processes."""

    @abstractmethod
    def order(self, epoch: int) -> Tensor:
        """Indices `[steps, B]` of the examples of each step of an epoch."""

    @abstractmethod
    def batch(self, indices_B: Tensor, epoch: int, step: int) -> Batch:
        """This process's part of the batch with these examples."""

    @abstractmethod
    def examples(self) -> Iterator[Batch]:
        """All examples, one batch at a time, as `Method.observe` takes them; every process yields all examples."""

    def prefetch(self, order: Tensor, epoch: int, step: int) -> None:
        """Start loading the data of the next steps of an epoch's `order`, beginning at `step`. Does nothing by
        default."""
        return


class LoadedTask(NamedTuple):
    """The data of one cohort."""

    streams: Mapping[tuple[object, ...], Stream]
    """Key of a stream -> the stream."""
    evaluator: Evaluator
    shapes: Shapes
    """Shape of one example of each entry of a batch."""
    inputs: Mapping[str, Any] = MappingProxyType({})
    """Properties of the data that `Task.model` needs, as values that JSON can represent."""


class RandomBatch(NamedTuple):
    """A batch of random examples."""

    config: Any
    """The trial, reduced to this many training examples if their number is part of the configuration."""
    shapes: Shapes
    """Shape of one example of each entry."""
    batch: Batch


@dataclass(frozen=True)
class TrialSize:
    """Sizes of a trial's data, known before it trains."""

    steps: int
    """Steps per epoch; 0 if `known` is False."""
    classes: int
    """Number of classes; 0 for data without classes."""
    known: bool = True
    """Whether the number of examples is known. For image folders it is known only from the files."""
    held_out: int | None = None
    """Number of held-out normal images of a one-class trial; None for other trials, or if unknown."""
    note: str = ""
    """One line that warns the user about the data; empty if nothing is unusual."""


class Task(ABC):
    """The data of methods, and their evaluation."""

    Trial: ClassVar[type[TrialConfig]]
    """Dataclass of the task's trials, with a field for each config section."""

    fusible: ClassVar[frozenset[str]] = frozenset()
    """Keys of the task's sections that may differ between members of one cohort. They choose a member's data, so a
    population cannot adapt them."""

    class_keys: ClassVar[frozenset[str]] = frozenset()
    """Keys of the task's sections whose values are class indices. On the command line they may be class names."""

    step_sections: ClassVar[tuple[str, ...]] = ()
    """Names of the task's sections on which the code of a step depends, besides the method's own section."""

    @abstractmethod
    def check(self, config: Any, methods: Methods) -> None:
        """Raise ValueError, with a one-line message, if sections are incompatible with each other or the method."""

    def completed(self, values: Mapping[str, Value]) -> Mapping[str, Value]:
        """The keys and values of a trial, including those that are filled in from the user's files. Raises ValueError,
        with a one-line message, for a file that cannot be read."""
        return values

    @abstractmethod
    def networks(self, config: Any, initial: bool = False) -> Any:
        """The object from which methods build their networks (see `Method`). `initial`: load the initial weights from
        the trial's file, if it names one."""

    @abstractmethod
    def stream_key(self, config: Any) -> tuple[object, ...]:
        """The key of a trial's stream. Members with equal keys share examples, their order, noise and initial
        weights."""

    @abstractmethod
    def keep_data(self, config: Any, data: Path) -> None:
        """Load a trial's data from the folder `data` and cache them, because one process trains many cohorts on the
        same data."""

    @abstractmethod
    def load(
        self,
        configs: Sequence[Any],
        method: type[Method],
        data: Path,
        device: torch.device,
        peers: Peers,
        raise_if_stopped: Callable[[], None],
    ) -> LoadedTask:
        """Load the data of one cohort from the folder `data`. `raise_if_stopped` is called between evaluation batches.
        Raises DataError or ValueError if the data cannot be loaded or do not suit the configs."""

    def random_batch(self, config: Any, method: type[Method], examples: int) -> RandomBatch | None:
        """A batch of random examples with the entries that the method reads, on which the user's own methods are tried.
        None, the default, if the task has no such batch."""
        return None

    def own_network(self, config: Any) -> str:
        """Name of the user's own network in a trial; empty, the default, without one."""
        return ""

    def note(self, config: Any) -> str:
        """One line that tells the user what is unusual about a trial; empty, the default, if nothing is."""
        return ""

    def check_own_network(self, config: Any, examples: int) -> None:
        """Try the user's own network on this many random examples. Raises ValueError, with one line, if it cannot be
        used."""
        return

    @abstractmethod
    def preflight(self, configs: Sequence[Any], data: Path | None) -> list[TrialSize]:
        """The size of each trial from its data in the folder `data`, or from declarations if `data` is None. Raises
        DataError or ValueError, with a one-line message, for the first trial that does not fit its data."""

    @abstractmethod
    def metric_names(self, config: Any, method: type[Method], classes: int, last: bool) -> tuple[str, ...]:
        """Names of all metrics, except losses, in the reports of a trial on data with `classes` classes; `last=False`
        leaves out metrics that only the last report contains."""

    def model(
        self,
        config: Any,
        method: Method,
        inputs: Mapping[str, Any],
        arrays: Mapping[str, Tensor] = MappingProxyType({}),
    ) -> nn.Module:
        """A trained method for users, which takes raw examples instead of batches; by default the method itself.
        `inputs` combines those of `LoadedTask` and `KeptResults`; `arrays` are those of `KeptResults`."""
        return method

    def evaluator(self, config: Any, model: nn.Module, data: Path, device: torch.device) -> tuple[Method, Evaluator]:
        """The method of a trained `model` from `model()`, and an evaluator for it on the data of `config` in the folder
        `data`. Raises DataError or ValueError, with one line, if the data cannot be loaded or do not suit the model."""
        raise ValueError(f"{config.method} learns from generated pairs, so it cannot be evaluated on other data")

    @abstractmethod
    def full_evaluations(self, method: type[Method]) -> Sequence[Mapping[str, Value]]:
        """Values of keys with which trials of a method together report every metric that it supports."""
