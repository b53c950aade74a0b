"""Decisions of cohorts that run at random speeds, compared with cohorts that are trained one after the other."""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest

from sweeper.pruning.halving import Rungs
from sweeper.spec.metric import Direction

LADDERS = ((1, 3, 9), (3, 9), (9,))
LAST = 12
Curve = Mapping[int, float | None]
"""Epoch -> value."""
Decisions = dict[tuple[int, int], set[int]]
"""(number of the cohort, epoch) -> indices of the members that are pruned there."""


@dataclass(frozen=True)
class SimulatedCohort:
    """One cohort of a made-up study."""

    brackets: tuple[int, ...]
    curves: tuple[Curve, ...]
    fails: int
    """Epoch in which the cohort fails for good; above `LAST` if it never does."""


def random_study(seed: int, count: int = 9) -> list[SimulatedCohort]:
    """Cohorts of several sizes; values with many ties, some missing."""
    rng = random.Random(seed)

    def value() -> float | None:
        return rng.choice([None, math.nan, *(float(rng.randrange(6)) for _ in range(8))])

    cohorts = []
    for _ in range(count):
        size = rng.randrange(1, 6)
        curves = tuple({epoch: value() for epoch in range(1, LAST + 1)} for _ in range(size))
        fails = rng.choice([rng.randrange(1, LAST), *[LAST + 1] * 4])
        cohorts.append(SimulatedCohort(tuple(rng.randrange(3) for _ in range(size)), curves, fails))
    return cohorts


def one_after_the_other(study: Sequence[SimulatedCohort], direction: Direction, factor: int) -> Decisions:
    """Return the decisions if every cohort trains to its end before the next begins.

    A member is pruned if too many members rank before it.
    """
    earlier_values: dict[tuple[int, int], list[float]] = {}
    decisions: Decisions = {}
    for number, cohort in enumerate(study):
        running = set(range(len(cohort.curves)))
        for epoch in sorted({epoch for ladder in LADDERS for epoch in ladder}):
            if epoch >= cohort.fails or not running:
                break
            leave = set[int]()
            for bracket, ladder in enumerate(LADDERS):
                present = [index for index in sorted(running) if cohort.brackets[index] == bracket]
                if epoch not in ladder:
                    continue
                earlier = earlier_values.setdefault((epoch, bracket), [])
                own = [(index, cohort.curves[index][epoch]) for index in present]
                good = [(index, value) for index, value in own if value is not None and not math.isnan(value)]
                count = len(earlier) + len(good)
                stays = max(1, count // factor)
                for index in present:
                    mine = next((value for other, value in good if other == index), None)
                    if mine is None:
                        if count or index != present[0]:
                            leave.add(index)
                        continue
                    better = [value > mine if direction == "maximize" else value < mine for value in earlier]
                    before = sum(better) + sum(value == mine for value in earlier)
                    for other, value in good:
                        ahead = value > mine if direction == "maximize" else value < mine
                        before += ahead or (value == mine and other < index)
                    if before >= stays:
                        leave.add(index)
                earlier += [value for _, value in good]
            if any(epoch in LADDERS[bracket] for bracket in cohort.brackets):
                decisions[number, epoch] = leave
            running -= leave
    return decisions


class Running:
    """A cohort that asks at rungs, and that sometimes dies and continues from an earlier epoch."""

    def __init__(self, number: int, cohort: SimulatedCohort, rungs: Rungs) -> None:
        self.number, self.cohort, self.rungs = number, cohort, rungs
        self.epoch, self.ended = 1, False
        self.asks = sorted({epoch for bracket in cohort.brackets for epoch in LADDERS[bracket]})
        self.decisions: Decisions = {}
        rungs.announce((number,), cohort.brackets)

    @property
    def members(self) -> set[int]:
        """Indices of the members that are running at this epoch."""
        left_out = {index for (_, epoch), pruned in self.decisions.items() if epoch < self.epoch for index in pruned}
        return set(range(len(self.cohort.curves))) - left_out

    def go_on(self, rng: random.Random) -> bool:
        """Train one epoch; return False if the cohort has to wait."""
        if rng.random() < 0.1:
            self.epoch = rng.randrange(1, self.epoch + 1)
        if self.epoch >= min(self.cohort.fails, LAST + 1) or not self.members:
            self.rungs.end((self.number,))
            self.ended = True
            return True
        if self.epoch in self.asks:
            values = {index: self.cohort.curves[index][self.epoch] for index in self.members}
            self.rungs.post((self.number,), self.epoch, values)
            if not self.rungs.ready((self.number,), self.epoch):
                return False
            pruned = set(self.rungs.verdict((self.number,), self.epoch))
            assert self.decisions.setdefault((self.number, self.epoch), pruned) == pruned
        self.epoch += 1
        return True


def at_once(study: Sequence[SimulatedCohort], direction: Direction, factor: int, seed: int) -> Decisions:
    """Return the decisions if cohorts start in order and run at random speeds.

    Raises AssertionError if all wait for each other.
    """
    rng, rungs = random.Random(seed), Rungs(direction, factor, LADDERS)
    started: list[Running] = []
    idle = 0
    while len(started) < len(study) or not all(cohort.ended for cohort in started):
        able = [cohort for cohort in started if not cohort.ended]
        if len(started) < len(study) and (not able or rng.random() < 0.2):
            started.append(Running(len(started), study[len(started)], rungs))
        elif able:
            idle = 0 if rng.choice(able).go_on(rng) else idle + 1
            assert idle < 2000, "all wait for each other"
    return {key: pruned for cohort in started for key, pruned in cohort.decisions.items()}


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
@pytest.mark.parametrize("factor", [2, 3])
@pytest.mark.parametrize("seed", range(10))
def test_decisions_do_not_depend_on_the_order_of_arrival(direction: Direction, factor: int, seed: int) -> None:
    study = random_study(seed)
    expected = one_after_the_other(study, direction, factor)
    assert sum(map(len, expected.values())) > 5
    for order in range(8):
        assert at_once(study, direction, factor, order) == expected


@pytest.mark.parametrize("seed", range(5))
def test_restored_cohorts_count_as_if_they_had_just_run(seed: int) -> None:
    study = random_study(seed)
    expected = one_after_the_other(study, "maximize", 3)
    for running in range(len(study)):
        rungs = Rungs("maximize", 3, LADDERS)
        for number in range(running):
            pruned_at = {index: epoch for (at, epoch), pruned in expected.items() if at == number for index in pruned}
            simulated = study[number]
            reached = [  # as the store has it: what was reported, without what is missing
                {
                    epoch: value
                    for epoch in range(1, min(simulated.fails, pruned_at.get(index, LAST) + 1, LAST + 1))
                    if (value := curve[epoch]) is not None
                }
                for index, curve in enumerate(simulated.curves)
            ]
            rungs.announce((number,), simulated.brackets, dict(enumerate(reached)))
            rungs.announce((number,), simulated.brackets, dict(enumerate(reached)))
        cohort, rng = Running(running, study[running], rungs), random.Random(0)
        while not cohort.ended:
            assert cohort.go_on(rng), "a restored cohort is not waited for"
        assert cohort.decisions == {key: pruned for key, pruned in expected.items() if key[0] == running}
