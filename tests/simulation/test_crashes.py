"""Crashes at operations of small sweeps, drawn anew each time; `python -m tests.simulation.crashes` runs all."""

from random import Random

import pytest

from tests.simulation import crashes

SHARE = 0.02
"""Share of the crashes that a test draws."""


@pytest.mark.slow
@pytest.mark.parametrize("small", range(len(crashes.SMALL)), ids=[small.name for small in crashes.SMALL])
def test_a_sweep_that_crashed_anywhere_is_continued(small: int) -> None:
    every = crashes.every(small)
    for crash in Random().sample(every, round(SHARE * len(every))):
        _, _, problems, history = crashes.run(crash)
        assert not problems, "\n".join([*history, str(crash), *problems])
