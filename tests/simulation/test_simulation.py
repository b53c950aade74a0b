"""Worlds of fixed seeds, and all in which something did not hold once. Fresh seeds are for the command."""

import pytest

from tests.simulation import world
from tests.simulation.__main__ import failed_once, shortened
from tests.simulation.scenario import FUNCTIONS_SINCE


@pytest.mark.slow
@pytest.mark.parametrize("seed", failed_once())
def test_what_did_not_hold_once_holds(seed: int) -> None:
    outcome = world.run(seed)
    assert not outcome.problems, shortened(outcome)


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, 1000, 1010, FUNCTIONS_SINCE, FUNCTIONS_SINCE + 10])
def test_worlds_hold(first: int) -> None:
    for seed in range(first, first + 10):
        outcome = world.run(seed)
        assert not outcome.problems, shortened(outcome)


def test_a_seed_is_a_world() -> None:
    first, again = world.run(7), world.run(7)
    assert first.history == again.history and not first.problems, shortened(first)
