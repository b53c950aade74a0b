"""What a task promises: the sections of its trials, its data as batches, and its evaluators.

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
    """The training data of members with equal data and seed, in the order of that seed."""

    key: tuple[object, ...]
    """What all random numbers of these members derive from."""
    steps: int
    """Steps of an epoch."""
    batch_size: int
    """Examples of a batch B, over all processes."""

    @abstractmethod
    def order(self, epoch: int) -> Tensor:
        """Indices `[steps, B]` of the examples of each step of an epoch."""

    @abstractmethod
    def batch(self, indices_B: Tensor, epoch: int, step: int) -> Batch:
        """This process's part of the batch of these examples."""

    @abstractmethod
    def examples(self) -> Iterator[Batch]:
        """All examples, a batch at a time, as `Method.observe` takes them; in every process all of them."""

    def prefetch(self, order: Tensor, epoch: int, step: int) -> None:
        """Start to load what the next steps of an epoch's `order` need, from `step` on. Does nothing by default."""
        return


class LoadedTask(NamedTuple):
    """The data of one cohort."""

    streams: Mapping[tuple[object, ...], Stream]
    """Key of a stream -> the stream."""
    evaluator: Evaluator
    shapes: Shapes
    """Shape of one example of each entry of a batch."""
    inputs: Mapping[str, Any] = MappingProxyType({})
    """What `Task.model` needs to know of the data, as values that JSON can represent."""


class RandomBatch(NamedTuple):
    """A batch of random examples."""

    config: Any
    """The trial with as few training examples, where their number is part of its configuration."""
    shapes: Shapes
    """Shape of one example of each entry."""
    batch: Batch


@dataclass(frozen=True)
class TrialSize:
    """What the data say of a trial before it trains."""

    steps: int
    """Steps an epoch; 0 where `known` is False."""
    classes: int
    """Number of classes; 0 for data without classes."""
    known: bool = True
    """Whether the number of examples is known. For a data set of image folders only the files tell."""
    held_out: int | None = None
    """Number of held-out normal images of a trial on one class; None for other trials, or where it is not known."""
    note: str = ""
    """One line for the user on what is odd about these data; empty if nothing is."""


class Task(ABC):
    """What a method learns from, and how it is judged."""

    Trial: ClassVar[type[TrialConfig]]
    """Dataclass of its trials, with a field for each of its config sections."""

    fusible: ClassVar[frozenset[str]] = frozenset()
    """Keys of its sections in which the members of one cohort may differ. They choose the data that a member reads, so
    a population cannot adapt them."""

    class_keys: ClassVar[frozenset[str]] = frozenset()
    """Keys of its sections whose values are indices of classes. On the command line they can be names of classes."""

    step_sections: ClassVar[tuple[str, ...]] = ()
    """Names of its sections on which the code of a step depends, beside the method's own."""

    @abstractmethod
    def check(self, config: Any, methods: Methods) -> None:
        """Raise ValueError, with a one-line message, if sections do not suit each other or the method."""

    def completed(self, values: Mapping[str, Value]) -> Mapping[str, Value]:
        """The keys and values of a trial with those that files of the user fill in. Raises ValueError, with a one-line
        message, for a file that cannot be read."""
        return values

    @abstractmethod
    def networks(self, config: Any, initial: bool = False) -> Any:
        """What methods build their networks from (see `Method`). `initial`: with the weights that training starts from,
        where the trial names a file of these."""

    @abstractmethod
    def stream_key(self, config: Any) -> tuple[object, ...]:
        """The key of a trial's stream. Members with equal keys share examples, their order, noise and initial
        weights."""

    @abstractmethod
    def keep_data(self, config: Any, data: Path) -> None:
        """Load a trial's data from the folder `data` and keep them: one process trains many cohorts on the same
        data."""

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
        """Load the data of one cohort from the folder `data`. `raise_if_stopped` is called between the batches of an
        evaluation. Raises DataError or ValueError if the data cannot be loaded or do not suit the configs."""

    def random_batch(self, config: Any, method: type[Method], examples: int) -> RandomBatch | None:
        """A batch of random examples with the entries that the method reads, without any data; methods of the user are
        tried on it. None, the default, if the task has none."""
        return None

    def own_network(self, config: Any) -> str:
        """Name of the user's own network that a trial's method is built with; empty, the default, if there is none."""
        return ""

    def note(self, config: Any) -> str:
        """One line for the user on what is not as usual in a trial; empty, the default, if nothing is."""
        return ""

    def check_own_network(self, config: Any, examples: int) -> None:
        """Try the user's own network on so many random examples. Raises ValueError, with one line, if it cannot be
        used."""
        return

    @abstractmethod
    def preflight(self, configs: Sequence[Any], data: Path | None) -> list[TrialSize]:
        """The size of each trial by its data in the folder `data`, or with None by what is declared without files.
        Raises DataError or ValueError, with a one-line message, for the first trial that the data cannot serve."""

    @abstractmethod
    def metric_names(self, config: Any, method: type[Method], classes: int, last: bool) -> tuple[str, ...]:
        """Names of all metrics but losses that the reports of a trial can hold, on data of `classes` classes; with
        `last=False` of those before the last report."""

    def model(
        self,
        config: Any,
        method: Method,
        inputs: Mapping[str, Any],
        arrays: Mapping[str, Tensor] = MappingProxyType({}),
    ) -> nn.Module:
        """A trained method for users, who have examples as they come and not as batches. `inputs` is that of
        `LoadedTask`, with that of `KeptResults`, which has the `arrays`. By default the method itself."""
        return method

    def evaluator(self, config: Any, model: nn.Module, data: Path, device: torch.device) -> tuple[Method, Evaluator]:
        """The method of a trained `model`, which `model()` returned, and an evaluator of it alone on the data of
        `config` in the folder `data`. Raises DataError or ValueError, with one line, if the data cannot be loaded or do
        not suit the model."""
        raise ValueError(f"{config.method} learns from pairs that are drawn, so there are no other data for it")

    @abstractmethod
    def full_evaluations(self, method: type[Method]) -> Sequence[Mapping[str, Value]]:
        """Values of keys with which trials of a method report, together, every metric that it can."""
