"""Worlds with fresh seeds, and all in which something did not hold once."""

import time

import pytest

from tests.simulation import world
from tests.simulation.__main__ import failed_once, shortened

FIRST = int(time.time()) * 1000
"""The first of the fresh seeds, of which a failure names the one."""


@pytest.mark.parametrize("seed", failed_once())
def test_what_did_not_hold_once_holds(seed: int) -> None:
    outcome = world.run(seed)
    assert not outcome.problems, shortened(outcome)


@pytest.mark.parametrize("worlds", [8, pytest.param(492, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])])
def test_fresh_worlds_hold(worlds: int) -> None:
    for seed in range(FIRST, FIRST + worlds):
        outcome = world.run(seed)
        assert not outcome.problems, shortened(outcome)


def test_a_seed_is_a_world() -> None:
    first, again = world.run(7), world.run(7)
    assert first.history == again.history
