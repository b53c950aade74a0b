"""Values of options: what they are, and how each is read from text as typed or from a value of Python.

A function that reads takes the option, such as `--retries`, and the value, and raises SpecError for a wrong one.
"""

import importlib.util
import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from importlib import metadata
from typing import Any, Literal, Self, cast, get_args

from sweeper.definition.space import Value
from sweeper.errors import SpecError
from sweeper.masking import remember
from sweeper.names import LAW, is_name
from trainables.validation import unknown

Reader = Callable[[str, Any], object]
"""Takes an option and its value, and returns the value of a field."""
DISTRIBUTION = "sweeper"
"""Name of this project among the installed packages."""
PACKAGES = {"tensorboard": "tensorboardX", "mlflow": "mlflow", "wandb": "wandb"}
"""Tracker -> the package that it needs."""
LARGEST_INTEGER = 2**63 - 1
"""Largest integer that an option takes, because the store's columns have 64 bits."""
LARGEST_AMOUNT = 1e9
"""Largest number of seconds or price that an option takes: 30 years, which the clocks of threads can still count."""
UNITS = {"MB": 10**6, "GB": 10**9, "MiB": 2**20, "GiB": 2**30}
"""Units of memory -> bytes."""
OTHERS = ""
"""Key of the price of all nodes that have no price of their own."""
KeptTrials = Literal["best", "all", "none"]
OrderKind = Literal["given", "coarse", "shuffled"]
DeviceChoice = Literal["gpu", "cpu"]
"""Devices to train on."""


class Text(str):
    """The value of a hyperparameter as it was typed. A plan makes it a value of its key's type; values from Python have
    one already, which is only checked."""


@dataclass(frozen=True)
class Keep:
    """`--keep`: which trained models stay in the store."""

    trials: KeptTrials = "best"
    """Of which trials: the best of each cell, all, or none."""
    best_epoch: bool = False
    """Whether a trial's model is that of its best epoch, and not of its last one."""

    @classmethod
    def read(cls, option: str, value: object) -> Self:
        """Those of which trials, and of which epoch of these, in any order: `all,best-epoch`."""
        words = [str(word).strip() for word in (value.split(",") if isinstance(value, str) else [value])]
        if any(word.startswith("every=") for word in words):
            raise SpecError(
                f"{option} every=N is gone, but got {value}; sweeper.load_model(..., epoch=N) trains a trial again up "
                "to an epoch"
            )
        words = [one_of(option, word, (*get_args(KeptTrials), "best-epoch")) for word in words]
        trials = [word for word in words if word != "best-epoch"]
        best_epochs = len(words) - len(trials)
        if len(trials) > 1 or best_epochs > 1:
            raise SpecError(f"{option} takes best, all or none, and best-epoch, each at most once, but got {value}")
        if best_epochs and trials == ["none"]:
            raise SpecError(f"{option} none keeps the models of no trials, so it takes no best-epoch, but got {value}")
        return cls(cast(KeptTrials, trials[0]) if trials else cls.trials, bool(best_epochs))


@dataclass(frozen=True)
class Order:
    """`--order`: which cohorts of a grid start first."""

    kind: OrderKind = "given"
    """`given`: as the grid has them. `coarse`: every other value of each numeric axis first. `shuffled`: at random."""
    seed: int = 0
    """Of `shuffled`: what determines the order."""

    @classmethod
    def read(cls, option: str, value: object) -> Self:
        """`given`, `coarse` or `shuffled`, the last with a seed after a colon."""
        kind, colon, seed = value.partition(":") if isinstance(value, str) else (value, "", "")
        one_of(option, kind, get_args(OrderKind))
        if not colon:
            return cls(cast(OrderKind, kind))
        if kind != "shuffled":
            raise SpecError(f"only {option} shuffled has a seed, but got {value}")
        return cls("shuffled", whole(f"the seed of {option} shuffled:SEED", seed, 0))


@dataclass(frozen=True)
class NodePrice:
    """Prices of nodes per hour, in any currency: one for all nodes, or one for each kind of GPU."""

    prices: Mapping[str, float]
    """Ray's name of a node's GPUs, e.g. `H100`, or `OTHERS` -> price."""

    @classmethod
    def read(cls, option: str, value: object) -> Self:
        """`2.5`, or `H100=9,T4=0.6` for kinds of GPUs."""
        if not isinstance(value, str):
            return cls({OTHERS: amount(option, value)})
        prices: dict[str, float] = {}
        for part in value.split(","):
            kind, equals, price = (word.strip() for word in part.rpartition("="))
            if equals and not kind:
                raise SpecError(f"{option} takes P or KIND=P, with commas between several, but got '{value}'")
            if kind in prices:
                raise SpecError(f"{option} must have one price per kind of GPU, but got '{value}'")
            prices[kind] = amount(option, price)
        return cls(prices)

    def of(self, kind: str) -> float | None:
        """Return the price of a node with GPUs of this kind (empty: without GPUs); None if it has none."""
        return self.prices.get(kind, self.prices.get(OTHERS))

    @property
    def plain(self) -> float | dict[str, float]:
        """The prices as JSON: a number if all nodes have the same, else kind -> price, with `OTHERS` as a kind."""
        return self.prices[OTHERS] if self.prices.keys() == {OTHERS} else dict(self.prices)

    @property
    def text(self) -> str:
        """The prices as the command line takes them, e.g. `2.5` or `2.5,H100=9`."""
        return ",".join(f"{kind}={price:g}" if kind else f"{price:g}" for kind, price in self.prices.items())


@dataclass(frozen=True)
class TrackRequest:
    """`--track TRACKER[=TARGET]`."""

    tracker: str
    target: str | None = field(default=None, repr=False)  # it may hold a password
    """TensorBoard: a folder. MLflow: the URI of a server. W&B: a project. None takes the default."""

    @classmethod
    def read(cls, option: str, value: object) -> Self:
        """A tracker whose package is installed, with a target if one is given: `mlflow=http://127.0.0.1:5000`."""
        tracker, equals, target = str(value).partition("=")
        if tracker not in PACKAGES:
            raise SpecError(unknown("tracker", tracker, list(PACKAGES)))
        if equals and not target.strip():
            raise SpecError(f"{option} {tracker}= must name a target, but got ''")
        if importlib.util.find_spec(PACKAGES[tracker]) is None:
            install = f"the extra track-{tracker} has it: pip install {' '.join(_requirements(tracker))}"
            raise SpecError(
                f"{option} {tracker} needs the package {PACKAGES[tracker]}, which is not installed; {install}"
            )
        remember(target)
        return cls(tracker, target or None)


def _requirements(tracker: str) -> list[str]:
    """What the extra of a tracker requires, as a shell takes it: no index of packages has this project by its name."""
    try:
        declared = [text.partition(";") for text in metadata.requires(DISTRIBUTION) or ()]
    except metadata.PackageNotFoundError:
        declared = []
    extra = f'extra == "track-{tracker}"'
    found = [shlex.quote(requirement.strip()) for requirement, _, marker in declared if extra in marker]
    return found or [PACKAGES[tracker]]


@dataclass(frozen=True)
class WarmStartRequest:
    """`--warm-start`: whose results in the store a search begins with."""

    sweep: str
    any_epochs: bool = False
    """Whether rows of other epochs count, whose objective is another."""

    @classmethod
    def read(cls, option: str, value: object) -> Self:
        """The sweep whose rows count, and which of them: `anomaly_grid,any-epochs`. The name becomes a folder of the
        store and must not lead out of it."""
        name, comma, which = (part.strip() for part in named(option, value, "a sweep").partition(","))
        if not is_name(name):
            raise SpecError(f"{option} must name a sweep, whose name {LAW}, but got '{name}'")
        if comma:
            one_of(option, which, ("any-epochs",), f"word after the sweep of {option}")
        return cls(name, any_epochs=bool(comma))

    def __str__(self) -> str:
        return f"{self.sweep},any-epochs" if self.any_epochs else self.sweep


def named(option: str, value: object, noun: str) -> str:
    """Text that names something, which the `noun` says. A blank name is refused: it is an unset shell variable, not the
    working folder."""
    if not isinstance(value, str) or not value.strip():
        raise SpecError(f"{option} must name {noun}, but got {str(value).strip()!r}")
    return value


def data_dir(option: str, value: object) -> str:
    """A folder of data sets. A `~` is the home folder, also where the shell leaves it: `--data=~/data`."""
    return os.path.expanduser(named(option, value, "a folder"))


def device(option: str, value: str) -> str:
    """A device of PyTorch: `cpu`, `cuda` or `cuda:1`."""
    if not re.fullmatch(r"cpu|cuda(:\d+)?", value):
        raise SpecError(f"{option} must be cpu, cuda or cuda:INDEX, but got {value!r}")
    return value


def command_words(option: str, value: object) -> tuple[str, ...]:
    """A program and its arguments, in words as a shell would split them."""
    try:
        words = shlex.split(named(option, value, "a command"))
    except ValueError as error:
        raise SpecError(f"{option} must be a command and its arguments, but got {value!r} ({error})") from None
    return tuple(words)


def class_name(option: str, value: object) -> Value:
    """A class: an index, or a name as typed."""
    return value if isinstance(value, int) else Text(named(option, value, "a class"))


def one_of(option: str, value: object, choices: Sequence[str], noun: str = "") -> str:
    """One of the choices. An error calls another one no `noun`, by default no value of the option."""
    if value not in choices:
        raise SpecError(unknown(noun or f"value of {option}", str(value), list(choices)))
    return str(value)


def whole(option: str, value: object, least: int) -> int:
    """Whole number from `least` to `LARGEST_INTEGER`."""
    number = value if isinstance(value, int) and not isinstance(value, bool) else None
    if isinstance(value, str) and value.removeprefix("-").isdecimal():
        try:
            number = int(value)
        except ValueError:  # Python refuses to read a number of several thousand digits
            number = LARGEST_INTEGER + 1
    if number is None or number < least:
        raise SpecError(f"{option} must be a whole number of at least {least}, but got {_shown(value)}")
    if number > LARGEST_INTEGER:
        raise SpecError(f"{option} must be at most {LARGEST_INTEGER}, but got {value}")
    return number


def whole_or_auto(option: str, value: object) -> int | None:
    """Whole number of at least 1, or None for `auto`."""
    return None if value == "auto" else whole(option, value, 1)


def amount(option: str, value: object, positive: bool = False) -> float:
    """Number from 0 to `LARGEST_AMOUNT`; 0 itself is refused if `positive`."""
    number = _number(option, value)
    if not (number > 0 if positive else number >= 0):
        raise SpecError(f"`{option} {'>' if positive else '>='} 0` must hold, but got {value}")
    if number > LARGEST_AMOUNT:
        raise SpecError(f"`{option} <= {LARGEST_AMOUNT:g}` must hold, but got {value}")
    return number


def device_share(option: str, value: object) -> float | None:
    """Share of a device, from 0.0001 to 1, or None for `auto`."""
    if value == "auto":
        return None
    share = _share(option, value)
    if not 0.0001 <= share <= 1:  # Ray's finest resolution
        raise SpecError(f"`0.0001 <= {option.lstrip('-')} <= 1` must hold, but got {option} {value}")
    return share


def rate(option: str, value: object) -> float:
    """A rate in (0, 1), such as `0.01` or `1%`."""
    found = _share(option, value)
    if not 0 < found < 1:
        raise SpecError(f"`0 < {option.lstrip('-')} < 1` must hold, but got {option} {value}")
    return found


def memory(option: str, value: object) -> int:
    """A size of memory with its unit, such as `8GB` or `512 MiB`, in bytes."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([MG]i?B?)", str(value).strip(), re.IGNORECASE)
    units = {text.lower(): count for unit, count in UNITS.items() for text in (unit, unit.rstrip("B"))}
    size = int(float(match[1]) * units[match[2].lower()]) if match and len(match[1]) < 16 else 0
    if size < UNITS["MB"]:
        law = f"a size of at least 1MB with its unit ({', '.join(UNITS)}), such as 8GB"
        raise SpecError(f"{option} must be {law}, but got {_shown(value)}")
    return size


def memory_text(size: int) -> str:
    """Return a size of memory in bytes as `memory` reads it, such as `8GB`."""
    return f"{size / 1e9:.4g}GB"


def _share(option: str, value: object) -> float:
    """A number, or a percentage as text."""
    if isinstance(value, str) and value.endswith("%"):
        return float(Decimal(str(_number(option, value[:-1]))) / 100)  # 7% is 0.07
    return _number(option, value)


def _number(option: str, value: object) -> float:
    try:
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            return float(value)
    except (ValueError, OverflowError):
        pass
    raise SpecError(f"{option} must be a number, but got {_shown(value)}")


def _shown(value: object) -> str:
    """A value as it was typed, in quotes if it is blank."""
    return value if isinstance(value, str) and value.strip() else repr(value)
