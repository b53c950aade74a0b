"""A trial's configuration: flat names and values outside, one frozen dataclass a subject inside.

Every key is a field of exactly one of `trainables.config.sections`, of `Views`, or of the method's own `Config`.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trainables.catalog import METHODS
from trainables.config.sections import Data, Encoder, Evaluation, Training
from trainables.contract import Method
from trainables.data.views import Views
from trainables.validation import choices, nearest

Value = bool | int | float | str | None

SECTIONS = {"data": Data, "encoder": Encoder, "training": Training, "views": Views, "evaluation": Evaluation}
LOOP_FUSIBLE = frozenset({"lr", "weight_decay", "seed", "normal_class"})
"""Fusible for every method; `normal_class` where the classes give equally many steps an epoch."""


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
        """What single sections cannot know. ValueError, one line."""
        method, training, evaluation = METHODS[self.method], self.training, self.evaluation
        if method.losses is Method.losses and training.epochs:
            raise ValueError(f"{self.method} does not train, so epochs must be 0, but got epochs={training.epochs}")
        if training.workers > 1 and not method.per_image:
            able = [name for name, one in METHODS.items() if one.per_image]
            raise ValueError(
                f"{self.method} compares the images of a batch, so workers must be 1, but got workers="
                f"{training.workers}; a batch can be split for: {', '.join(able)}"
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
            able = [name for name, one in METHODS.items() if one.scores]
            raise ValueError(f"{self.method} has no anomaly scores for outliers; those with are: {', '.join(able)}")
        if "held_out" in evaluation.outlier_sets and not self.data.held_out:
            raise ValueError("outliers=held_out needs classes that are held out, but got held_out=''")

    def flat(self) -> dict[str, Value]:
        """Every key and its value, defaults included; `resolve` takes it back."""
        parts = (self.data, self.encoder, self.training, self.views, self.evaluation, self.options)
        return {"method": self.method} | {key: value for part in parts for key, value in vars(part).items()}


def resolve(given: Mapping[str, Value]) -> TrialConfig:
    """The complete configuration. ValueError, one line, for an unknown key (with the nearest) or an illegal value."""
    method = given.get("method")
    if method is None:
        raise ValueError(f"a trial needs a method; there are: {', '.join(METHODS)}")
    choices("method", method, METHODS)
    known = keys(str(method))
    for key in given:
        if key not in known:
            raise ValueError(f"no key '{key}'{nearest(key, known)}; {method} has: {', '.join(sorted(known))}")
    parts = {
        name: _section(
            section,
            {key: _typed(key, given[key], kind) for key, kind in _fields(section).items() if key in given},
        )
        for name, section in _sections(str(method)).items()
    }
    return TrialConfig(method=str(method), **parts)


def keys(method: str) -> dict[str, type]:
    """Every key of a method's trials and its type: bool, int, float or str (None apart)."""
    found: dict[str, type] = {"method": str}
    for section in _sections(method).values():
        found |= _fields(section)
    return found


@functools.cache
def defaults(method: str) -> Mapping[str, Value]:
    """Every key of a method's trials that has a default, and that default."""
    fields = [one for section in _sections(method).values() for one in dataclasses.fields(section)]
    return {"method": method} | {one.name: one.default for one in fields if one.default is not dataclasses.MISSING}


def fusible(method: str) -> frozenset[str]:
    """The keys in which the members of one cohort may differ."""
    return LOOP_FUSIBLE | METHODS[method].fusible


def parse(key: str, text: str) -> Value:
    """A value as typed on a command line. ValueError for an unknown key or text that is no value of the key's type."""
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
    return {one.name: _plain_type(hints[one.name]) for one in dataclasses.fields(section)}


@dataclass(frozen=True)
class _Said:
    section: type
    text: str
    """Of the values: it tells 1 from 1.0 and from True."""
    values: Mapping[str, Value] = field(compare=False)


def _section(section: type, values: Mapping[str, Value]) -> Any:
    """One object for all trials that agree in it: they are many, and its checks cost time."""
    return _made(_Said(section, repr(values), values))


@functools.lru_cache(maxsize=4096)
def _made(said: _Said) -> Any:
    return said.section(**said.values)


def _sections(method: str) -> dict[str, type]:
    return {**SECTIONS, "options": METHODS[method].Config}


def _plain_type(hint: Any) -> type:
    """`int | None` -> int."""
    if isinstance(hint, types.UnionType):
        hint = next(kind for kind in typing.get_args(hint) if kind is not type(None))
    return typing.cast(type, hint)


def _typed(key: str, value: Value, kind: type) -> Value:
    """An int where a float is due becomes one, so that `1` and `1.0` are one trial. The sections check the rest."""
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if kind is float and value == 0:
        return 0.0  # as -0.0, so that they are one trial
    if kind is str and not isinstance(value, str):
        raise ValueError(f"{key} must be text, but got {key}={value!r}")
    return value
