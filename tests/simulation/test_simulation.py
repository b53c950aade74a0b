"""Worlds with fresh seeds, and all in which something did not hold once."""

import time

import pytest

from tests.simulation import world
from tests.simulation.__main__ import failed_once, shortened

FRESH = 20
"""Worlds with fresh seeds."""
FIRST = int(time.time()) * 1000


@pytest.mark.parametrize("seed", failed_once())
def test_what_did_not_hold_once_holds(seed: int) -> None:
    outcome = world.run(seed)
    assert not outcome.problems, shortened(outcome)


def test_fresh_worlds_hold() -> None:
    for seed in range(FIRST, FIRST + FRESH):
        outcome = world.run(seed)
        assert not outcome.problems, shortened(outcome)


def test_a_seed_is_a_world() -> None:
    first, again = world.run(7), world.run(7)
    assert first.history == again.history
