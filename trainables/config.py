"""Convert flat keys and values to one frozen dataclass per section and back, for every method, and describe each key.

Every key is a field of exactly one section: a section of the method's task, the training section, or the method's own
`Config`.
"""

import dataclasses
import functools
import re
import typing
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainables.catalog import (
    METHODS,
    TASKS,
    import_method,
    is_function,
    known_methods,
    method_of,
    sections_of,
    task_of,
)
from trainables.own_code import import_named
from trainables.sections import GradientTraining, TrialConfig, Value
from trainables.validation import bounds, field_docs, unknown

FUSIBLE = frozenset({"seed", "patience"})
"""Keys that are fusible for every method."""
GRADIENT_FUSIBLE = frozenset({"lr", "weight_decay", "clip_grad_norm", "lr_gamma"})
"""Keys that are also fusible for every method trained by gradients."""
OF_THE_LOOP = frozenset({"seed", "patience", "lr_gamma"})
"""Fusible keys that are not part of a stack, so a population cannot adapt them."""


def resolve(values: Mapping[str, Value]) -> TrialConfig:
    """Build the complete configuration from keys and values; missing keys get their defaults. Raises ValueError, with a
    one-line message, for an unknown key (the message names its nearest match) or an illegal value."""
    method = values.get("method")
    if method is None:
        raise ValueError(f"a trial needs a method; there are: {', '.join(METHODS)}")
    known, values = keys(str(method)), task_of(str(method)).completed(values)
    for key in values:
        if key not in known:
            raise ValueError(unknown("key", key, sorted(known), f"--describe {method} lists its keys"))
    for section in sections(str(method)).values():
        for field in dataclasses.fields(section):
            if field.default is dataclasses.MISSING and field.name not in values:
                raise ValueError(
                    f"{method} needs a value of {field.name}, which has no default; set {field.name}=VALUE"
                )
    built = {
        name: _section(
            section, **{key: _typed(key, values[key], kind) for key, kind in _fields(section).items() if key in values}
        )
        for name, section in sections(str(method)).items()
    }
    config = task_of(str(method)).Trial(method=str(method), **built)
    _check(config)
    return config


def resolve_sent(values: Mapping[str, Value]) -> TrialConfig:
    """As `resolve`, for values sent by the process that started this one. It also imports the user's own method, data
    set, encoder and views, because that process got their names from the user. Never call it with values from a
    store."""
    import_method(str(values["method"]))
    import_named(values)
    return resolve(values)


def _check(config: TrialConfig) -> None:
    """Check the rules that span several sections. Raises ValueError with a one-line message."""
    name, method, training = config.method, method_of(config.method), config.training
    if not method.trains() and training.epochs:
        raise ValueError(f"{name} does not train, so epochs must be 0, but got epochs={training.epochs}")
    if late := [epoch for epoch in method.phases(config.options) if 0 < training.epochs <= epoch]:
        raise ValueError(
            f"a phase of {name} begins after {late[0]} epochs, so epochs must be above {late[0]}, but got "
            f"epochs={training.epochs}"
        )
    if training.processes > 1 and not method.per_example:
        same_task = {other_name: other for other_name, other in known_methods().items() if other.task == method.task}
        per_example = [other_name for other_name, other in same_task.items() if other.per_example]
        raise ValueError(
            f"{name} compares the examples of a batch, so workers must be 1, but got workers={training.processes}; "
            f"a batch can be split for: {', '.join(per_example)}"
        )
    if (
        isinstance(training, GradientTraining)
        and training.warmup_epochs
        and config.optimiser.lr_schedule == "one_cycle"
    ):
        raise ValueError(
            f"one_cycle includes a warm-up, so warmup_epochs must be 0, but got warmup_epochs={training.warmup_epochs}"
        )
    task_of(name).check(config, known_methods())


def keys(method: str) -> dict[str, type]:
    """All keys of a method's trials and their types: bool, int, float or str. `int | None` counts as int."""
    types_by_key: dict[str, type] = {"method": str}
    for section in sections(method).values():
        types_by_key |= _fields(section)
    return types_by_key


def column_types(configs: Iterable[TrialConfig]) -> dict[str, type]:
    """The keys of the rows of these trials and their types, in the order of their sections. Raises ValueError, with a
    one-line message, for a key whose type differs between methods."""
    first: dict[str, tuple[type, str]] = {}
    for config in configs:
        known = keys(config.method)
        for key in config.complete():
            kind, method = first.setdefault(key, (known[key], config.method))
            if kind is not known[key]:
                raise ValueError(
                    f"a key must have one type in all methods of a sweep, but {key} is {kind.__name__} in {method} and "
                    f"{known[key].__name__} in {config.method}"
                )
    return {key: kind for key, (kind, _) in first.items()}


@functools.cache
def left_out_defaults(method: str) -> Mapping[str, Value]:
    """The defaults that are left out of the ids of a method's trials and of the rows of earlier versions."""
    return task_of(method).Trial.left_out(sections(method))


def left_out_of(method: str, recorded: Collection[str]) -> Mapping[str, Value]:
    """As `left_out_defaults`, for a method named by a store. The user's own method must not be imported for this. It
    gets the defaults that all image methods share if its `recorded` keys are those of an image method."""
    try:
        return left_out_defaults(method)
    except ValueError:
        shared = {"training": GradientTraining, **TASKS["images"].Trial.sections()}
        return TASKS["images"].Trial.left_out(shared) if {"batch_size", "encoder"} <= {*recorded} else {}


@functools.cache
def defaults(method: str) -> Mapping[str, Value]:
    """The defaults of a method's keys; keys without a default are left out."""
    fields = [field_ for section in sections(method).values() for field_ in dataclasses.fields(section)]
    with_default = {field_.name: field_.default for field_ in fields if field_.default is not dataclasses.MISSING}
    return {"method": method} | with_default


def fusible_keys(method: str) -> frozenset[str]:
    """The keys that may differ between members of one cohort."""
    cls = method_of(method)
    if is_function(method):
        return cls.fusible
    loop = FUSIBLE if cls.fitted() else FUSIBLE | GRADIENT_FUSIBLE
    return loop | task_of(method).fusible | cls.fusible


def adaptable_keys(method: str) -> frozenset[str]:
    """The fusible keys that a population can adapt: all except those that choose a member's data and `OF_THE_LOOP`."""
    adaptable = fusible_keys(method) - task_of(method).fusible - OF_THE_LOOP
    if not is_function(method):
        return adaptable
    types_by_key = keys(method)  # any key may differ in a cohort of functions
    return frozenset(key for key in adaptable if types_by_key[key] is float)


def stream_key(config: TrialConfig) -> tuple[object, ...]:
    """The key of a trial's stream. Members with equal keys share examples, their order, noise and initial weights."""
    return task_of(config.method).stream_key(config)


class NumberError(ValueError):
    """Text that is not a number of the key's type."""


def parse(key: str, text: str, classes: Sequence[str] = ()) -> Value:
    """Convert text from the command line to a value of the key's type. A key in `Task.class_keys` may be a name in
    `classes`, which becomes its index. Raises ValueError for an unknown key or an illegal value, and NumberError if the
    value must be a number."""
    kind, optional = _kind(key)
    if text.lower() in ("none", "null") and optional:
        return None
    if classes and _is_class(key):
        return _class_index(key, text, classes)
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError(f"{key} must be true or false, but got {key}={text}")
        return text.lower() == "true"
    noun = {int: "a whole number", float: "a number", str: "text"}[kind]
    if kind is not str and re.match(r"[-+]?0\d", text):  # part of a decimal comma: beta=0,05
        raise NumberError(f"{key} must be {noun} without leading zeros, but got {key}={text}")
    try:
        return kind(text)
    except ValueError:
        raise NumberError(f"{key} must be {noun}, but got {key}={text}") from None


def check(key: str, value: Value, classes: Sequence[str] = ()) -> Value:
    """Return a value that did not come as text from the command line; `resolve` checks its type. Raises ValueError for
    an unknown key, and for a class name that is not in `classes` (see `parse`)."""
    _kind(key)
    if not isinstance(value, Value):
        raise ValueError(f"{key} must be a single value, but got {key}={value!r}")
    return _class_index(key, value, classes) if classes and isinstance(value, str) and _is_class(key) else value


def _kind(key: str) -> tuple[type, bool]:
    """The type of a key of any method, and whether it may be None. Raises ValueError for an unknown key."""
    known, optional = dict[str, type](), set[str]()
    for method in known_methods():
        known |= keys(method)
        optional |= optional_keys(method)
    if key not in known:
        raise ValueError(unknown("key", key, sorted(known), "--describe keys lists all"))
    return known[key], key in optional


def _is_class(key: str) -> bool:
    return any(key in task.class_keys for task in TASKS.values())


def _class_index(key: str, text: str, classes: Sequence[str]) -> int:
    """The index of the class with this name. A number counts as an index only if no class name is a number."""
    if text in classes:
        return classes.index(text)
    if text.isdecimal() and not any(map(str.isdecimal, classes)):
        return int(text)
    raise ValueError(unknown(key, text, classes))


@functools.cache
def _fields(section: type) -> Mapping[str, type]:
    """A section's keys and their types."""
    hints = typing.get_type_hints(section)
    return {field_.name: _plain_type(hints[field_.name]) for field_ in dataclasses.fields(section)}


@functools.cache
def optional_keys(method: str) -> frozenset[str]:
    """The keys of a method's trials that may be None."""
    return frozenset().union(*map(_optional, sections(method).values()))


def _optional(section: type) -> frozenset[str]:
    """A section's keys that may be None."""
    hints = typing.get_type_hints(section)
    return frozenset(key for key, hint in hints.items() if type(None) in typing.get_args(hint))


@functools.lru_cache(maxsize=4096, typed=True)
def _section(section: type, **values: Value) -> Any:
    """The section object with these values. Trials with equal values share it, because its checks take time."""
    return section(**values)


@functools.cache
def sections(method: str) -> Mapping[str, type]:
    """Name of each section of a method's trials -> its dataclass."""
    return sections_of(method_of(method))


def _plain_type(hint: Any) -> type:
    """`int | None` -> int."""
    return next((kind for kind in typing.get_args(hint) if kind is not type(None)), hint)


def _typed(key: str, value: Value, kind: type) -> Value:
    """Convert an int to a float if the key is a float, so that `1` and `1.0` give the same trial. The sections check
    the rest."""
    if not isinstance(value, Value):
        raise ValueError(f"{key} must be a single value, but got {key}={value!r}")
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if kind is float and value == 0:
        return 0.0  # -0.0 becomes 0.0, so that both give the same trial
    if kind is str and not isinstance(value, str):
        raise ValueError(f"{key} must be text, but got {key}={value!r}")
    return value


# Descriptions of keys, read from the source code: docstrings, ranges and defaults. Nothing is trained or loaded.


@dataclass(frozen=True)
class KeyDoc:
    """A hyperparameter of a method's trials."""

    name: str
    section: str
    """Name of the config section that contains the key; `options` for the method's own keys."""
    default: Value
    doc: str
    """The docstring of the field, in one line."""
    law: str
    """The declared bounds, such as `nu > 0`; empty if only the docstring states the legal values."""
    fusible: bool
    """Whether the key may differ between members of one cohort."""


def describe_keys(method: str) -> tuple[KeyDoc, ...]:
    """All keys of a method's trials except `method`, its own keys first. Raises ValueError for an unknown method."""
    own_first = {"options": method_of(method).Config, **sections(method)}
    return tuple(key for section, cls in own_first.items() for key in _keys(section, cls, fusible_keys(method)))


def _keys(section: str, cls: type, fusible: Collection[str]) -> Iterator[KeyDoc]:
    docs, declared = field_docs(cls), bounds(cls)
    for each in dataclasses.fields(cls):
        law = ", ".join(bound.law(each.name) for bound in declared[each.name])
        default: Any = each.default
        if default is dataclasses.MISSING:
            law, default = ", ".join(filter(None, ["required", law])), None
        yield KeyDoc(each.name, section, default, docs[each.name], law, each.name in fusible)
