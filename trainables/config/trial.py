"""A trial's configuration: flat keys and values outside, one frozen dataclass for each section inside.

Every key is a field of exactly one section: of `trainables.config.sections`, `Views`, or the method's own `Config`.
"""

import dataclasses
import functools
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainables.catalog import METHODS
from trainables.config.sections import Data, Encoder, Evaluation, Training
from trainables.contract import Method
from trainables.data.augmentation.views import Views
from trainables.validation import choices, nearest

Value = bool | int | float | str | None

SECTIONS = {"data": Data, "encoder": Encoder, "training": Training, "views": Views, "evaluation": Evaluation}
LOOP_FUSIBLE = frozenset({"lr", "weight_decay", "seed", "normal_class"})
"""Keys that are fusible for every method; `normal_class` only if the classes give equally many steps an epoch."""


@dataclass(frozen=True)
class TrialConfig:
    """Everything that one training run depends on."""

    method: str
    data: Data
    encoder: Encoder
    training: Training
    views: Views
    evaluation: Evaluation
    options: Any
    """The method's own `Config`."""

    def __post_init__(self) -> None:
        """Check what concerns several sections. Raises ValueError with a one-line message."""
        method, training, evaluation = METHODS[self.method], self.training, self.evaluation
        if method.losses is Method.losses and training.epochs:
            raise ValueError(f"{self.method} does not train, so epochs must be 0, but got epochs={training.epochs}")
        if training.workers > 1 and not method.per_image:
            per_image = [name for name, other in METHODS.items() if other.per_image]
            raise ValueError(
                f"{self.method} compares the images of a batch, so workers must be 1, but got workers="
                f"{training.workers}; a batch can be split for: {', '.join(per_image)}"
            )
        if self.data.normal_class is not None:
            for name, value, off in (
                ("knn", evaluation.knn, 0),
                ("probe_epochs", evaluation.probe_epochs, 0),
                ("outliers", evaluation.outliers, ""),
                ("held_out", self.data.held_out, ""),
            ):
                if value != off:
                    raise ValueError(f"{name} needs trials on all classes, but got {name}={value} with a normal_class")
        if evaluation.outliers and not method.scores:
            scoring = [name for name, other in METHODS.items() if other.scores]
            raise ValueError(
                f"{self.method} has no anomaly scores for outliers; those that have them are: {', '.join(scoring)}"
            )
        if "held_out" in evaluation.outlier_sets and not self.data.held_out:
            raise ValueError("outliers=held_out needs classes that are held out, but got held_out=''")

    def flat(self) -> dict[str, Value]:
        """All keys and their values, including defaults. `resolve` is the inverse."""
        sections = (self.data, self.encoder, self.training, self.views, self.evaluation, self.options)
        return {"method": self.method} | {key: value for section in sections for key, value in vars(section).items()}


def resolve(values: Mapping[str, Value]) -> TrialConfig:
    """Build the complete configuration from keys and values; missing keys get their defaults. Raises ValueError, with a
    one-line message, for an unknown key, whose nearest match it names, or an illegal value."""
    method = values.get("method")
    if method is None:
        raise ValueError(f"a trial needs a method; there are: {', '.join(METHODS)}")
    choices("method", method, METHODS)
    known = keys(str(method))
    for key in values:
        if key not in known:
            raise ValueError(f"no key '{key}'{nearest(key, known)}; {method} has: {', '.join(sorted(known))}")
    sections = {
        name: _section(
            section, **{key: _typed(key, values[key], kind) for key, kind in _fields(section).items() if key in values}
        )
        for name, section in _sections(str(method)).items()
    }
    return TrialConfig(method=str(method), **sections)


def keys(method: str) -> dict[str, type]:
    """All keys of a method's trials and their types: bool, int, float or str. `int | None` counts as int."""
    types_by_key: dict[str, type] = {"method": str}
    for section in _sections(method).values():
        types_by_key |= _fields(section)
    return types_by_key


@functools.cache
def defaults(method: str) -> Mapping[str, Value]:
    """The defaults of all keys of a method's trials that have one."""
    fields = [field_ for section in _sections(method).values() for field_ in dataclasses.fields(section)]
    with_default = {field_.name: field_.default for field_ in fields if field_.default is not dataclasses.MISSING}
    return {"method": method} | with_default


def fusible_keys(method: str) -> frozenset[str]:
    """The keys in which the members of one cohort may differ."""
    return LOOP_FUSIBLE | METHODS[method].fusible


def parse(key: str, text: str) -> Value:
    """Convert text from the command line to a value of the key's type. Raises ValueError for an unknown key or for text
    that is no such value."""
    known: dict[str, type] = {}
    for method in METHODS:
        known |= keys(method)
    if key not in known:
        raise ValueError(f"no key '{key}'{nearest(key, known)}; there are: {', '.join(sorted(known))}")
    kind = known[key]
    if text.lower() in ("none", "null") and key == "normal_class":
        return None
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError(f"{key} must be true or false, but got {key}={text}")
        return text.lower() == "true"
    try:
        return kind(text)
    except ValueError:
        noun = {int: "a whole number", float: "a number"}[kind]
        raise ValueError(f"{key} must be {noun}, but got {key}={text}") from None


@functools.cache
def _fields(section: type) -> Mapping[str, type]:
    """A section's keys and their types."""
    hints = typing.get_type_hints(section)
    return {field_.name: _plain_type(hints[field_.name]) for field_ in dataclasses.fields(section)}


@functools.lru_cache(maxsize=4096, typed=True)
def _section(section: type, **values: Value) -> Any:
    """The section object with these values. Trials that agree in it share the object, because its checks take time."""
    return section(**values)


def _sections(method: str) -> dict[str, type]:
    """Name of each section of a method's trials -> its dataclass."""
    return {**SECTIONS, "options": METHODS[method].Config}


def _plain_type(hint: Any) -> type:
    """`int | None` -> int."""
    return next((kind for kind in typing.get_args(hint) if kind is not type(None)), hint)


def _typed(key: str, value: Value, kind: type) -> Value:
    """Convert an int to a float where the key is a float, so that `1` and `1.0` are one trial. The sections check the
    rest."""
    if not isinstance(value, Value):
        raise ValueError(f"{key} must be a single value, but got {key}={value!r}")
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if kind is float and value == 0:
        return 0.0  # -0.0 becomes 0.0, so that they are one trial
    if kind is str and not isinstance(value, str):
        raise ValueError(f"{key} must be text, but got {key}={value!r}")
    return value
