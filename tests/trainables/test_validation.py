"""Every config declares the bounds of its fields, refuses what they exclude, and says them in its docstrings."""

import math
import re
from dataclasses import FrozenInstanceError, dataclass, fields
from typing import Annotated, Any, get_type_hints

import pytest

from tests.cases import for_each
from trainables.catalog import METHODS
from trainables.config import field_docs, sections
from trainables.training.population import PopulationRule
from trainables.validation import (
    LARGEST_INTEGER,
    Bound,
    Choices,
    Interval,
    above,
    at_least,
    at_most,
    below,
    between,
    bounds,
    checked,
    nearest,
    one_of,
)

SECTIONS = list(dict.fromkeys(section for method in METHODS for section in sections(method).values()))
"""The configs of all methods, and the sections of all tasks and trainings."""
BOUNDED = [(section, name) for section in SECTIONS for name, declared in bounds(section).items() if declared]
"""All fields with bounds, each with its section."""


@checked
class Example:
    rate: Annotated[float, between(0, 1, below=True)] = 0.5
    scale: Annotated[float, above(0, infinite=True)] = 1.0
    count: Annotated[int, at_least(1), at_most(9)] = 2
    label: Annotated[int | None, at_least(0)] = None
    kind: Annotated[str, one_of("linear", "cubic")] = "linear"
    fast: bool = False
    share: Annotated[float, below(1)] = 0.5

    def __post_init__(self) -> None:
        if self.label is not None and self.label >= self.count:
            raise ValueError("`label < count` must hold")


@for_each(
    ("values", "message"),
    [
        ({"rate": 1.0}, "`0 <= rate < 1` must hold, but got rate=1.0"),
        ({"rate": math.nan}, "rate must be a number, but got rate=nan"),
        ({"rate": "1"}, "rate must be a number, but got rate='1'"),
        ({"rate": True}, "rate must be a number, but got rate=True"),
        ({"scale": 0.0}, "`scale > 0` must hold, but got scale=0.0"),
        ({"share": -math.inf}, "share must be finite, but got share=-inf"),
        ({"share": 1}, "`share < 1` must hold, but got share=1"),
        ({"count": 10}, "`count <= 9` must hold, but got count=10"),
        ({"count": 2.0}, "count must be a whole number, but got count=2.0"),
        ({"count": 2**63}, f"`count <= {LARGEST_INTEGER}` must hold, but got count={2**63}"),
        ({"label": -1}, "`label >= 0` must hold, but got label=-1"),
        ({"label": 2}, "`label < count` must hold"),
        ({"kind": "cubical"}, "no kind 'cubical' (did you mean 'cubic'?); there are: linear, cubic"),
        ({"kind": None}, "no kind None; there are: linear, cubic"),
        ({"fast": 1}, "fast must be true or false, but got fast=1"),
    ],
)
def test_errors_state_the_law_the_offender_and_the_choices(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as error:
        Example(**values)
    assert str(error.value) == message


def test_a_checked_class_is_a_frozen_dataclass() -> None:
    example = Example(rate=0, scale=math.inf, label=1)
    assert (example.rate, example.scale, example.label) == (0, math.inf, 1) and len(fields(example)) == 7
    with pytest.raises(FrozenInstanceError):
        example.rate = 0.1  # type: ignore[misc]


def test_bounds_are_inherited_with_what_concerns_several_fields() -> None:
    @checked
    class Longer(Example):
        more: Annotated[int, at_least(2)] = 2

    assert Longer(label=1).more == 2
    for values in ({"label": 2}, {"rate": 1.0}, {"more": 1}):
        with pytest.raises(ValueError, match="must hold"):
            Longer(**values)


def test_a_config_of_the_user_may_check_itself() -> None:
    @dataclass(frozen=True)
    class Own:
        rate: float = 0.5

        def __post_init__(self) -> None:
            at_least(0).check("rate", self.rate)

    assert bounds(Own) == {"rate": ()}
    with pytest.raises(ValueError, match="`rate >= 0` must hold, but got rate=-1"):
        Own(rate=-1)


def _values(bound: Bound, whole: bool) -> list[Any]:
    """Values on both sides of each end of the bound, on it, and far from it."""
    if isinstance(bound, Choices):
        return [*bound.options, *([-1, 0, 2**40] if whole else ["", "neither"])]
    ends = [end for end in (bound.low, bound.high) if math.isfinite(end)]
    if whole:
        return [int(end) + step for end in ends for step in (-1, 0, 1)] + [-(2**40), 2**40]
    near = [value for end in ends for value in (end, math.nextafter(end, -math.inf), math.nextafter(end, math.inf))]
    return [*map(float, near), -1e300, 0.0, 1e300, -math.inf, math.inf]


def _legal(bound: Bound, value: Any) -> bool:
    if isinstance(bound, Choices):
        return str(value) in map(str, bound.options)
    beyond_low = value > bound.low if bound.above else value >= bound.low
    return beyond_low and (value < bound.high if bound.below else value <= bound.high)


def test_every_field_refuses_what_its_bounds_exclude() -> None:
    for section, name in BOUNDED:
        declared = bounds(section)[name]
        whole = get_type_hints(section)[name] in (int, int | None)
        for value in (value for bound in declared for value in _values(bound, whole)):
            said = f"{section.__name__}({name}={value!r})"
            try:
                section(**{name: value})
                message = ""
            except ValueError as error:
                message = str(error)
            if value in (-math.inf, math.inf) and isinstance(declared[0], Interval) and not declared[0].infinite:
                assert message, said
            elif broken := [bound for bound in declared if not _legal(bound, value)]:
                law = f"`{broken[0].law(name)}` must hold, but got {name}={value}"
                expected = f"no {name} {str(value)!r}" if isinstance(broken[0], Choices) else law
                assert message.startswith(expected), (said, message)
            else:
                assert not any(bound.law(name) in message for bound in declared), (said, message)


NUMBER = r"(-?[\d.]*\d)"
SAID = {
    rf"(?:, | is |^)at least {NUMBER}": lambda low: ("low", low, False),
    rf"(?:, | is |^)above {NUMBER}": lambda low: ("low", low, True),
    rf"`\w+ >= {NUMBER}`": lambda low: ("low", low, False),
    rf"`\w+ > {NUMBER}`": lambda low: ("low", low, True),
    rf", in \[{NUMBER}, ": lambda low: ("low", low, False),
    rf", in \({NUMBER}, ": lambda low: ("low", low, True),
    rf", in [\[(]\S+, {NUMBER}\]": lambda high: ("high", high, False),
    rf", in [\[(]\S+, {NUMBER}\)": lambda high: ("high", high, True),
}
"""How a docstring says a bound -> the end of the interval, its value, and whether that itself is excluded."""


def test_docstrings_say_the_bounds_that_are_declared() -> None:
    documented = [
        (section, name, doc) for section in (*SECTIONS, PopulationRule) for name, doc in field_docs(section).items()
    ]
    for section, name, doc in documented:
        intervals = [bound for bound in bounds(section)[name] if isinstance(bound, Interval)]
        declared = {("low", each.low, each.above) for each in intervals}
        declared |= {("high", each.high, each.below) for each in intervals}
        for pattern, of in SAID.items():
            for text in re.findall(pattern, doc):
                end, value, open_end = of(text)
                assert (end, float(value), open_end) in declared, f"{section.__name__}.{name}: {doc}"


@for_each(
    ("name", "options", "meant"),
    [
        ("Batch-Size", ["batch_size", "batch_unit"], "batch_size"),
        ("CIFAR-10", ["cifar100", "cifar10"], "cifar10"),
        ("learning_rate", ["learned", "lr"], "lr"),
        ("learning_rate", ["learned"], "learned"),
        ("n_trials", ["trials", "tracker"], "trials"),
    ],
)
def test_the_nearest_is_another_spelling_then_a_synonym(name: str, options: list[str], meant: str) -> None:
    assert nearest(name, options) == f" (did you mean '{meant}'?)"


def test_every_number_has_a_bound() -> None:
    lacking = [
        (section.__name__, field.name)
        for section in SECTIONS
        for field in fields(section)
        if isinstance(field.default, int | float) and not isinstance(field.default, bool)
        if not bounds(section)[field.name]
    ]
    assert lacking == []


@for_each(("declared", "law"), [
    (Interval(0.0, above=True), "x > 0"), (Interval(0, 1.0), "0 <= x <= 1"), (Interval(high=0.5), "x <= 0.5"),
])  # fmt: skip
def test_a_law_reads_alike_for_whole_numbers_of_either_type(declared: Interval, law: str) -> None:
    """`Annotated[float, above(0)]` and `Annotated[float, above(0.0)]` are one object for `typing`."""
    assert declared.law("x") == law
