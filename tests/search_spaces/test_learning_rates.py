"""No sweep that ships and no example relies on the default learning rate, at which VJE can diverge."""

import re
from pathlib import Path

import pytest

from sweeper.cli.describe import describe
from sweeper.plan.cohorts import content_hash
from sweeper.spec import registry
from sweeper.spec.space import parts_of
from trainables.config import keys, resolve

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", registry.names())
def test_every_preset_sets_or_searches_the_learning_rate(name: str) -> None:
    for space in registry.find(name).presets.values():
        for part in parts_of(space):
            if "lr" in keys(str(part.fixed["method"])):
                assert "lr" in {*part.fixed, *part.axes, *part.space}


@pytest.mark.parametrize("file", ["README.md", "sweeper/README.md", "CONTRIBUTING.md"])
def test_every_sweep_in_the_documentation_sets_it(file: str) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / file).read_text(), re.DOTALL)
    sweeps = [block for block in blocks if "Sweep(" in block]
    assert sweeps and all('"lr": ' in block for block in sweeps)


@pytest.mark.parametrize("name", ["lr", "vje"])
def test_its_description_says_where_the_default_is_too_high(name: str) -> None:
    assert "On the digits with the default network it is too high for VJE" in " ".join(describe(name).split())


def test_another_default_would_change_the_ids_of_trials() -> None:
    """A trial has the defaults in its id, so those that rely on this one would all be trained again."""
    by_default, as_it_is, lower = (
        content_hash(resolve({"method": "vje", **changes}).flat()) for changes in ({}, {"lr": 0.05}, {"lr": 0.002})
    )
    assert by_default == as_it_is != lower
