"""A trial's configuration: flat names and values outside, one frozen dataclass a subject inside.

Every key is a field of exactly one of `Data`, `Encoder`, `Training`, `Views` or the method's own `Config`.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainables.catalog import METHODS
from trainables.checks import choices, nearest, positive, truth, whole
from trainables.data.datasets import DATASETS
from trainables.data.views import Views
from trainables.networks.encoders import ENCODERS

Value = bool | int | float | str | None

PRECISIONS = ("float32", "bfloat16")


@dataclass(frozen=True)
class Data:
    dataset: str = "digits"
    """Name of the data set."""
    normal_class: int | None = None
    """The one class that is trained on, the others being outliers; None trains on all."""

    def __post_init__(self) -> None:
        choices("dataset", self.dataset, sorted(DATASETS))
        if self.normal_class is not None:
            whole("normal_class", self.normal_class, 0)


@dataclass(frozen=True)
class Encoder:
    encoder: str = "mlp"
    """Name of the encoder."""
    width: int = 128
    """Hidden units of the `mlp`; other encoders have their published widths."""
    features: int = 64
    """Size D of the representation of the `mlp`; other encoders have their published sizes."""
    small_stem: bool = True
    """ResNets: the stem for 32x32 images, a first convolution 3x3 of stride 1 and no max-pool."""

    def __post_init__(self) -> None:
        choices("encoder", self.encoder, ENCODERS)
        whole("width", self.width, 1)
        whole("features", self.features, 1)
        truth("small_stem", self.small_stem)


@dataclass(frozen=True)
class Training:
    seed: int = 0
    """Initial weights, the order of images, their augmentation and all noise derive from it and the data's name."""
    epochs: int = 100
    """Passes over the training images; the last, incomplete batch of each is left out."""
    batch_size: int = 64
    """Images a step."""
    lr: float = 0.05
    """Peak learning rate of SGD, `lr > 0`; it falls to 0 on a half cosine over all steps after the warm-up."""
    momentum: float = 0.9
    """SGD's momentum, in [0, 1)."""
    weight_decay: float = 0.0
    """L2 penalty on every parameter, norms and biases included."""
    warmup_epochs: int = 0
    """Epochs over which the learning rate first rises linearly from 0."""
    precision: str = "float32"
    """Arithmetic of the networks: `float32`, or `bfloat16` by autocast. Likelihoods and weights are float32 always."""
    channels_last: bool = False
    """Keep images with their channels last, which CUDA's convolutions prefer in bfloat16."""
    report_every: int = 1
    """Epochs between reports, each with an evaluation; the last epoch always reports."""

    def __post_init__(self) -> None:
        whole("seed", self.seed, 0)
        whole("epochs", self.epochs, 1)
        whole("batch_size", self.batch_size, 2)
        positive("lr", self.lr)
        positive("momentum", self.momentum, zero=True)
        if self.momentum >= 1:
            raise ValueError(f"`momentum < 1` must hold, but got momentum={self.momentum}")
        positive("weight_decay", self.weight_decay, zero=True)
        whole("warmup_epochs", self.warmup_epochs, 0)
        if self.warmup_epochs >= self.epochs:
            raise ValueError(
                f"`warmup_epochs < epochs` must hold, but got warmup_epochs={self.warmup_epochs}, epochs={self.epochs}"
            )
        choices("precision", self.precision, PRECISIONS)
        truth("channels_last", self.channels_last)
        whole("report_every", self.report_every, 1)


SECTIONS = {"data": Data, "encoder": Encoder, "training": Training, "views": Views}
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
    options: Any
    """The method's own `Config`."""

    def flat(self) -> dict[str, Value]:
        """Every key and its value, defaults included; `resolve` takes it back."""
        parts = (self.data, self.encoder, self.training, self.views, self.options)
        return {"method": self.method} | {
            key: value for part in parts for key, value in dataclasses.asdict(part).items()
        }


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
        name: section(
            **{
                f.name: _typed(f.name, given[f.name], known[f.name])
                for f in dataclasses.fields(section)
                if f.name in given
            }
        )
        for name, section in _sections(str(method)).items()
    }
    return TrialConfig(method=str(method), **parts)


def keys(method: str) -> dict[str, type]:
    """Every key of a method's trials and its type: bool, int, float or str (None apart)."""
    found: dict[str, type] = {"method": str}
    for section in _sections(method).values():
        hints = typing.get_type_hints(section)
        found |= {field.name: _plain_type(hints[field.name]) for field in dataclasses.fields(section)}
    return found


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
        return float(value)
    if kind is str and not isinstance(value, str):
        raise ValueError(f"{key} must be text, but got {key}={value!r}")
    return value
