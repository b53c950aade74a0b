"""What every method promises, whatever it learns from: how it is built, what it draws, how it learns.

Shapes: B examples of a batch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

Batch = Mapping[str, Any]
"""One batch: the name of an entry -> a tensor `[B, ...]`, or a tuple of such tensors. The task says which entries."""

Shapes = Mapping[str, tuple[int, ...]]
"""Name of an entry of a batch -> the shape of one example, without B."""

Capability = Literal["embed", "score", "decode", "density", "predict"]
"""What an evaluator needs of a method: representations, anomaly scores, images of representations, a density of
what the loss compares, or a conditional density."""


class Losses(NamedTuple):
    """A training loss: the `total` that is minimised, and its named parts for the history. All are scalars."""

    total: Tensor
    parts: dict[str, Tensor]


@dataclass(frozen=True)
class Noise:
    """Random numbers that a method takes as an argument."""

    shape: tuple[int, ...]
    """Their shape, including the dimension of the batch."""
    batch_dim: int | None = None
    """Index of the dimension of the batch; None if there is none."""
    kind: Literal["normal", "uniform"] = "normal"
    """Standard normal, or uniform in [0, 1)."""


Noises = Mapping[str, Noise]
"""Name -> the random numbers that a method takes under that name."""


class Method(nn.Module):
    """A way to learn from the data of one task.

    A method is built from its `Config`, what its task gives for networks, and the shapes of a batch. It does not know
    whether it trains alone or as one of many members with stacked weights (`trainables.learners.stack`). Three rules
    make that possible:

    1. A hyperparameter in `fusible` is a 0-dimensional buffer of the same name, and is read from there. Neither initial
       weights nor other buffers depend on it: members of one stream start from one model.
    2. A method draws no random numbers: noise is an argument, as `noise` and its like declare it.
    3. Moving averages, queues and the like are buffers, which `losses` and `after_step` update in place.

    A method that overrides neither `losses` nor `fit` does not train.
    """

    Config: ClassVar[type]
    """Frozen dataclass of this method's hyperparameters, which checks their ranges."""

    task: ClassVar[str] = "images"
    """Name of the task in TASKS that the method learns from."""

    capabilities: ClassVar[frozenset[Capability]] = frozenset()
    """What evaluators may ask of the method."""

    fusible: ClassVar[frozenset[str]] = frozenset()
    """Hyperparameters of `Config` in which members of one stack may differ: they change neither the shape of a tensor
    nor the control flow."""

    per_example: ClassVar[bool] = False
    """Whether a batch can be split over several devices. The loss must be the mean of losses of single examples, and
    no example may affect another one or a buffer, except through BatchNorm."""

    loss_parts: ClassVar[tuple[str, ...]] = ()
    """All names that `Losses.parts` can hold."""

    measures: ClassVar[frozenset[str]] = frozenset()
    """Names among `loss_parts` that are no part of the loss. They are reported under their own names, the others as
    `loss_NAME`."""

    def __init__(self, config: Any, networks: Any, shapes: Shapes) -> None:
        """`networks`: what the task gives to build networks from: for images a `NetworkBuilder`, for pairs their
        `PairStatistics`."""
        super().__init__()
        self.config = config
        for name in sorted(self.fusible):  # the same order in every process: peers average buffers by position
            self.register_buffer(name, torch.tensor(float(getattr(config, name))))

    @classmethod
    def trains(cls) -> bool:
        """Whether the method changes in training."""
        return cls.losses is not Method.losses or cls.fitted()

    @classmethod
    def fitted(cls) -> bool:
        """Whether the method is fitted to all training data at once, without gradients."""
        return cls.fit is not Method.fit

    @classmethod
    def metric_of_part(cls, part: str) -> str:
        """Name of the metric that reports a part."""
        return part if part in cls.measures else f"loss_{part}"

    def noise(self, batch: int) -> Noises:
        """The noise that `losses` or `fit` takes for `batch` examples."""
        return {}

    def losses(self, batch: Batch, noise: Mapping[str, Tensor]) -> Losses:
        """The training loss of one batch, averaged over its examples."""
        raise NotImplementedError

    def fit(self, data: Batch, noise: Mapping[str, Tensor]) -> Losses:
        """Fit the method further to all training data, in place: one epoch. Returns the losses before it. It is called
        outside vmap, for one member at a time."""
        raise NotImplementedError

    def after_step_noise(self) -> Noises:
        """The noise that `after_step` takes."""
        return {}

    def after_step(self, noise: Mapping[str, Tensor]) -> None:
        """Called after each optimiser step to update averaged weights, queues and the like. Does nothing by default."""
