"""A trial's configuration: one frozen dataclass for each section. These are the sections that do not depend on the
task, the training and its optimiser; a task adds its own by inheritance from `TrialConfig`.
"""

import dataclasses
import functools
import math
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

from trainables.validation import above, added, added_keys, at_least, at_most, below, checked, one_of


@checked
class Training:
    """How long a trial trains. These are the only training keys of methods that are fitted without gradients."""

    seed: Annotated[int, at_least(0)] = 0
    """Random seed. Together with the data it determines initial weights, order of examples, augmentation and noise."""
    epochs: Annotated[int, at_least(0)] = 100
    """Passes over the training examples; the last, incomplete batch is dropped. 0 evaluates the untrained model."""
    report_every: Annotated[int, at_least(1)] = 1
    """Epochs between reports, each with an evaluation. The last epoch always reports."""
    patience: Annotated[int, at_least(0)] = added(0)
    """Epochs without a better `patience_metric` after which a trial ends early. The trial then counts as finished and
    reports all metrics of its last epoch. 0 trains all epochs."""
    patience_metric: str = added("")
    """Validation metric that `patience` monitors, such as `val_knn_z`. Defaults to the metric by which the sweep ranks
    trials."""

    @property
    def processes(self) -> int:
        """Number of processes that train the trial together."""
        return 1


@checked
class GradientTraining(Training):
    """The optimisation, and how it runs."""

    batch_size: Annotated[int, at_least(2)] = 64
    """Examples per step."""
    lr: Annotated[float, above(0)] = 0.05
    """Peak learning rate. By default it decays to 0 along half a cosine after the warm-up; see `lr_schedule`. The
    default suits VJE on CIFAR-10 with a ResNet-18 and is too high for VJE on `digits` with the default network: 37 of
    72 trials diverged at 0.05, none of 288 at 0.002 to 0.02. 0.002 was best."""
    momentum: Annotated[float, at_least(0), below(1)] = 0.9
    """Momentum of SGD, in [0, 1)."""
    weight_decay: Annotated[float, at_least(0)] = 0.0
    """L2 penalty on all parameters, including norms and biases."""
    warmup_epochs: Annotated[int, at_least(0)] = 0
    """Epochs of linear learning-rate warm-up from 0."""
    precision: Annotated[str, one_of("float32", "tf32", "bfloat16")] = "float32"
    """Precision of the networks: `float32`; `tf32`, for which GPUs round the factors of products and convolutions to 10
    bits, which is faster; or `bfloat16` with autocast. Likelihoods and weights are always float32."""
    channels_last: bool = False
    """Store images in channels-last order, which speeds up bfloat16 convolutions on CUDA."""
    workers: Annotated[int, at_least(1)] = 1
    """Processes that share each batch, each on its own device. BatchNorm sees only its own process's part of the
    batch."""
    clip_grad_norm: Annotated[float, above(0, infinite=True)] = added(math.inf)
    """Maximum norm of the gradient over all parameters; longer gradients are scaled down to it. `inf` disables
    clipping."""
    accumulate: Annotated[int, at_least(1)] = added(1)
    """Number of parts into which each batch is split for gradient accumulation: a step averages the parts' gradients
    and needs the memory of one part. BatchNorm, and methods that compare the examples of a batch, see one part at a
    time."""

    def __post_init__(self) -> None:
        if self.warmup_epochs and self.warmup_epochs >= self.epochs:
            raise ValueError(
                f"`warmup_epochs < epochs` must hold, but got warmup_epochs={self.warmup_epochs}, epochs={self.epochs}"
            )
        if self.batch_size % self.workers or self.batch_size < 2 * self.workers:
            raise ValueError(
                f"batch_size must be a multiple of workers, at least 2 for each, but got batch_size={self.batch_size}, "
                f"workers={self.workers}"
            )
        parts = self.workers * self.accumulate
        if self.accumulate > 1 and (self.batch_size % parts or self.batch_size < 2 * parts):
            raise ValueError(
                f"batch_size must be a multiple of workers * accumulate, at least 2 for each, but got "
                f"batch_size={self.batch_size}, workers={self.workers}, accumulate={self.accumulate}"
            )

    @property
    def processes(self) -> int:
        return self.workers


# Schedules: the learning rate at `step` of `steps`, as a share of its peak. It rises linearly from 0 over `warmup`
# steps, then follows the function. Some functions also read `gamma`, `per_epoch` (steps per epoch) and `drop` (steps
# between two drops).


def cosine(step: int, steps: int, warmup: int = 0, **_: float) -> float:
    """Half a cosine down to 0."""
    if step < warmup:
        return step / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / (steps - warmup)))


def constant(step: int, steps: int, warmup: int = 0, **_: float) -> float:
    """Stay at the peak."""
    return step / warmup if step < warmup else 1.0


def drops(step: int, steps: int, warmup: int = 0, *, gamma: float = 0.1, drop: int = 1, **_: float) -> float:
    """Multiply by `gamma` every `drop` steps."""
    return step / warmup if step < warmup else gamma ** ((step - warmup) // drop)


def exponential(step: int, steps: int, warmup: int = 0, *, gamma: float = 0.1, per_epoch: int = 1, **_: float) -> float:
    """Multiply by `gamma` every epoch."""
    return drops(step, steps, warmup, gamma=gamma, drop=per_epoch)


CYCLE_RISES, CYCLE_BEGINS, CYCLE_ENDS = 0.3, 1 / 25, 1 / 25 / 1e4
"""PyTorch's values for `one_cycle`: the share of steps on which it rises, and its first and last rate as shares of the
peak."""


def one_cycle(step: int, steps: int, warmup: int = 0, **_: float) -> float:
    """Half a cosine up from `CYCLE_BEGINS`, then half a cosine down to `CYCLE_ENDS`, without any other warm-up."""
    top, last = max(CYCLE_RISES * steps - 1, 0.0), steps - 1
    if step <= top:
        start, end, share = CYCLE_BEGINS, 1.0, step / top if top else 1.0
    else:
        start, end, share = 1.0, CYCLE_ENDS, (step - top) / (last - top)
    return end + (start - end) / 2 * (1 + math.cos(math.pi * share))


SCHEDULES: Mapping[str, Callable[..., float]] = {
    "cosine": cosine,
    "constant": constant,
    "step": drops,
    "exponential": exponential,
    "one_cycle": one_cycle,
}
"""Name of a schedule -> the share of the peak learning rate at a step."""


@checked
class Optimiser:
    """The optimiser and its schedule of learning rates."""

    optimiser: Annotated[str, one_of("sgd", "adam", "adamw", "lars")] = "sgd"
    """`sgd`; `adam` (betas 0.9 and 0.999); `adamw` (Adam with decoupled weight decay); or `lars`: SGD in which the step
    of each weight tensor has 0.001 times the tensor's norm at learning rate 1, without scaling or decay of biases and
    norms. `adam` and `adamw` ignore `momentum`."""
    lr_schedule: Annotated[str, one_of(*SCHEDULES)] = "cosine"
    """Learning rate after the warm-up: `cosine` (decay to 0 along half a cosine); `constant`; `step` (multiply by
    `lr_gamma` every `lr_drop_every` epochs); `exponential` (multiply by `lr_gamma` every epoch); or `one_cycle`
    (PyTorch's OneCycleLR, rising for 0.3 of the steps), which needs `warmup_epochs=0`."""
    adam_epsilon: Annotated[float, above(0)] = 1e-8
    """Term that Adam adds to the root of the mean squared gradient."""
    lr_gamma: Annotated[float, above(0), at_most(1)] = added(0.1)
    """Factor by which `step` and `exponential` multiply the learning rate."""
    lr_drop_every: Annotated[int, at_least(1)] = added(30)
    """Epochs between two drops of the schedule `step`."""


KEY_TYPES = (bool, int, float, str)
"""Types of hyperparameters; each may also be None."""
Value = bool | int | float | str | None


@dataclass(frozen=True, kw_only=True)
class TrialConfig:
    """Everything that one training run depends on."""

    optional: ClassVar[frozenset[str]] = frozenset({"optimiser"})
    """Sections whose keys are part of a trial only if one of them differs from its default. A section that is added
    later must be optional, so that the ids of earlier trials do not change; a key is added to a section by `added`."""
    silent: ClassVar[frozenset[str]] = frozenset()
    """Optional sections whose keys are left out of a trial's row while they are at their defaults."""

    method: str
    training: Training
    optimiser: Optimiser = field(default_factory=Optimiser)
    options: Any
    """The method's own `Config`."""

    @property
    def gradient(self) -> GradientTraining:
        """The training section of a method that is trained by gradients."""
        assert isinstance(self.training, GradientTraining)
        return self.training

    @classmethod
    def sections(cls) -> Mapping[str, type]:
        """Name -> dataclass of the sections that all trials of a task share, without `training` and `options`."""
        hints = typing.get_type_hints(cls)
        names = [field.name for field in dataclasses.fields(cls)]
        return {name: hints[name] for name in names if name not in ("method", "training", "options")}

    def flat(self) -> dict[str, Value]:
        """The keys and values that identify the trial: all keys except those of optional sections, and `added` keys,
        that are at their defaults."""
        return self._values(complete=False)

    def complete(self) -> dict[str, Value]:
        """All keys and values of the trial's row: those of `flat` and the defaults that it leaves out, except in
        `silent` sections."""
        return self._values(complete=True)

    def _values(self, complete: bool) -> dict[str, Value]:
        values: dict[str, Value] = {"method": self.method}
        for name, section in vars(self).items():
            if name == "method":
                continue
            if complete and not self._is_silent(name):
                values |= vars(section)
            elif name not in self.optional or section != _default(section.__class__):
                later = added_keys(section.__class__)
                values |= {
                    key: value for key, value in vars(section).items() if key not in later or value != later[key]
                }
        return values

    def _is_silent(self, section: str) -> bool:
        without_gradients = section == "optimiser" and not isinstance(self.training, GradientTraining)
        return section in self.silent or without_gradients

    @classmethod
    def left_out(cls, sections: Mapping[str, type]) -> dict[str, Value]:
        """The defaults in these sections (name -> dataclass) that `complete` includes and `flat` may leave out."""
        values: dict[str, Value] = {}
        for name, section in sections.items():
            if name not in cls.silent:
                values |= vars(_default(section)) if name in cls.optional else added_keys(section)
        return values


@functools.cache
def _default(section: type) -> Any:
    """The section with all keys at their defaults, cached because its checks take time."""
    return section()
