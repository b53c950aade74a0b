"""Docstrings, ranges and defaults of keys are read from the source completely and correctly."""

from dataclasses import dataclass, fields

import pytest

from trainables import config
from trainables.catalog import METHODS
from trainables.config import describe_keys, field_docs


@pytest.mark.parametrize("method", METHODS)
def test_every_key_is_there_with_its_default_and_a_docstring(method: str) -> None:
    keys = {key.name: key for key in describe_keys(method)}
    assert {"method": method, **{name: key.default for name, key in keys.items()}} == config.defaults(method)
    assert set(keys) | {"method"} == set(config.keys(method)) and len(keys) == len(describe_keys(method))
    assert not [key.name for key in keys.values() if not key.doc]
    assert {key.name for key in keys.values() if key.fusible} == config.fusible_keys(method) & set(keys)


def test_ranges_are_those_that_are_checked() -> None:
    laws = {key.name: key.law for key in describe_keys("vje")}
    assert (laws["nu"], laws["beta"], laws["bottleneck"]) == ("nu > 0", "beta >= 0", "bottleneck >= 1")
    assert (laws["flip"], laws["crop_scale"]) == ("0 <= flip <= 1", "0 < crop_scale <= 1")
    assert laws["momentum"] == "momentum >= 0, momentum < 1"
    assert laws["precision"] == "one of float32, bfloat16" and laws["terms"] == laws["small_stem"] == ""


@dataclass(frozen=True)
class Example:
    rate: float = 0.5
    """Of two
    lines."""
    count: int = 2
    kind: str = "a"
    """One of two kinds."""


def test_docstrings_of_fields_are_one_line_and_may_be_absent() -> None:
    assert field_docs(Example) == {"rate": "Of two lines.", "count": "", "kind": "One of two kinds."}
    assert list(field_docs(Example)) == [field.name for field in fields(Example)]


@dataclass(frozen=True)
class Longer(Example):
    count: int = 3
    """How many."""
    share: float = 0.5
    """Of the whole."""


def test_docstrings_of_inherited_fields_are_those_of_the_section_that_has_them() -> None:
    docs = {"rate": "Of two lines.", "count": "How many.", "kind": "One of two kinds.", "share": "Of the whole."}
    assert field_docs(Longer) == docs and list(field_docs(Longer)) == [field.name for field in fields(Longer)]
