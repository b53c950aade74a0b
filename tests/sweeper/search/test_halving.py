"""Successive halving: who is pruned, whatever the timing of cohorts."""

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from sweeper.definition.metric import Direction
from sweeper.definition.pruners import Halving, assign_brackets
from sweeper.search.rungs import Rungs
from tests.cases import for_each


def test_the_best_share_continues_and_the_others_get_a_reason() -> None:
    rungs = Rungs("maximize", Halving(1, 3), [(6,)])
    rungs.announce((0,), [0] * 12)
    rungs.announce((1,), [0] * 4)
    rungs.post((0,), 6, {index: 0.90 + 0.001 * index for index in range(12)})
    rungs.post((1,), 6, {0: 0.83, 1: 0.95, 2: None, 3: 0.9085})
    assert rungs.verdict((1,), 6) == {
        0: "0.83 at epoch 6 was not among the best 5 of 15 (0.9085 or better)",
        2: "no value at epoch 6 was not among the best 5 of 15 (0.9085 or better)",
    }


def test_the_first_of_equals_continues() -> None:
    rungs = Rungs("minimize", Halving(1, 2), [(1,)])
    for index in range(2):
        rungs.announce((index,), [0, 0])
        rungs.post((index,), 1, {0: 0.5, 1: 0.5})
    assert set(rungs.verdict((0,), 1)) == {1}
    assert rungs.verdict((1,), 1) == {
        index: "0.5 at epoch 1 was not among the best 2 of 4 (0.5, first of equals)" for index in range(2)
    }


def test_if_no_member_has_a_value_one_of_a_cohort_continues() -> None:
    rungs = Rungs("maximize", Halving(1, 2), [(1,)])
    rungs.announce((0,), [0, 0])
    rungs.post((0,), 1, {0: math.nan, 1: None})
    assert rungs.verdict((0,), 1) == {1: "no value at epoch 1, where nobody had one and the first went on"}


def test_an_infinite_value_counts_as_missing() -> None:
    rungs = Rungs("maximize", Halving(1, 2), [(1,)])
    rungs.announce((0,), [0, 0])
    rungs.post((0,), 1, {0: math.inf, 1: -3.0})
    assert set(rungs.verdict((0,), 1)) == {0}


def test_of_values_posted_twice_the_first_count() -> None:
    rungs = Rungs("maximize", Halving(1, 2), [(1,)])
    rungs.announce((0,), [0, 0])
    rungs.post((0,), 1, {0: 1.0, 1: 2.0})
    rungs.post((0,), 1, {0: 5.0, 1: 0.0})
    assert set(rungs.verdict((0,), 1)) == {0}


def test_a_verdict_never_changes() -> None:
    rungs = Rungs("maximize", Halving(1, 2), [(1, 2)])
    for index, values in enumerate(({0: 1.0, 1: 2.0}, {0: 0.1}, {0: 1.5, 1: 1.6, 2: 1.7})):
        rungs.announce((index,), [0] * len(values))
        rungs.post((index,), 1, values)
    assert [set(rungs.verdict((index,), 1)) for index in range(3)] == [{0}, {0}, {0}]
    rungs.post((0,), 2, {1: 0.3})
    rungs.post((2,), 2, {1: 0.2, 2: 0.1})
    first = rungs.verdict((2,), 2)
    rungs.post((1,), 2, {0: -9.0})  # of a pruned member: with four values, two could stay
    assert rungs.verdict((2,), 2) == first and set(first) == {1, 2}
    first.clear()
    assert rungs.verdict((2,), 2)


def test_an_earlier_cohort_is_waited_for_until_it_reports_or_ends() -> None:
    rungs = Rungs("maximize", Halving(1, 2), [(1, 2), (2,)])
    for index, brackets in enumerate(([0], [0], [1], [0])):
        rungs.announce((index,), brackets)
    rungs.post((3,), 1, {0: 1.0})
    assert not rungs.ready((3,), 1)
    rungs.post((0,), 1, {0: 2.0})
    assert not rungs.ready((3,), 1)
    rungs.end((1,))
    assert rungs.ready((3,), 1), "a cohort whose bracket has no such rung is not waited for"
    assert rungs.ready((0,), 1), "a higher one is not waited for"
    assert not rungs.ready((3,), 2), "it has not reported there itself"
    with pytest.raises(ValueError, match=r"position \(3,\) at epoch 2 is not ready"):
        rungs.verdict((3,), 2)


def test_a_cohort_whose_members_were_all_pruned_is_not_waited_for() -> None:
    rungs = Rungs("maximize", Halving(1, 2), [(1, 2)])
    for index, value in enumerate((2.0, 1.0, 3.0)):
        rungs.announce((index,), [0])
        rungs.post((index,), 1, {0: value})
    rungs.post((0,), 2, {0: 2.0})
    rungs.post((2,), 2, {0: 3.0})
    assert not rungs.ready((2,), 2)
    assert set(rungs.verdict((1,), 1)) == {0}
    assert rungs.ready((2,), 2)


def test_an_epoch_that_is_no_rung_of_a_members_bracket_prunes_nothing() -> None:
    rungs = Rungs("maximize", Halving(1, 2), [(1, 2), (2,)])
    rungs.announce((0,), [0, 1, 0, 1])
    values = {index: float(index) for index in range(4)}
    for epoch, pruned in ((1, {0}), (2, {1}), (3, set())):
        rungs.post((0,), epoch, {index: value for index, value in values.items() if epoch == 1 or index})
        assert set(rungs.verdict((0,), epoch)) == pruned


def test_values_posted_after_the_end_do_not_count() -> None:
    rungs = Rungs("maximize", Halving(1, 2), [(1,)])
    rungs.announce((0,), [0])
    rungs.announce((1,), [0])
    rungs.end((0,))
    rungs.post((0,), 1, {0: 9.0})
    rungs.post((1,), 1, {0: 1.0})
    assert rungs.verdict((1,), 1) == {}


def test_replicates_go_on_or_are_pruned_together_by_their_mean() -> None:
    """Members 0 and 1 are proposal 7, members 2 and 3 are proposal 8, which has the best and the worst value."""
    rungs = Rungs("maximize", Halving(1, 2), [(1,)])
    rungs.announce((0,), [0] * 4, numbers=[7, 7, 8, 8])
    rungs.post((0,), 1, {0: 0.5, 1: 0.75, 2: 0.875, 3: 0.0})
    reason = "0.4375 (mean of 2) at epoch 1 was not among the best 1 of 2 (0.625 or better)"
    assert rungs.verdict((0,), 1) == {2: reason, 3: reason}


def test_a_replicate_that_diverged_ends_its_proposal_and_one_that_failed_does_not() -> None:
    for failed, pruned in ((False, {1}), (True, {2, 3})):
        rungs = Rungs("maximize", Halving(1, 2), [(1,)])
        rungs.announce((0,), [0] * 4, numbers=[7, 7, 8, 8])
        if failed:
            rungs.end((0,), [0])
        rungs.post((0,), 1, {1: 0.9, 2: 0.1, 3: 0.2})
        assert set(rungs.verdict((0,), 1)) == pruned


def test_a_replicate_that_is_tried_again_follows_the_others_of_its_proposal() -> None:
    """Proposal 7 went on without member 0, which had failed, and proposal 8 was pruned without member 2."""
    rungs = Rungs("maximize", Halving(1, 2), [(1, 2)])
    rungs.announce((0,), [0] * 4, {1: {1: 0.5, 2: 0.5, 3: 0.5}, 3: {1: 0.4}}, numbers=[7, 7, 8, 8])
    rungs.post((0,), 1, {0: -9.0, 2: 9.0}, [0, 2])
    assert rungs.verdict((0,), 1, [0, 2]) == {2: "its replicates were pruned at epoch 1"}
    rungs.post((0,), 2, {0: -9.0}, [0, 2])
    assert rungs.verdict((0,), 2, [0, 2]) == {}


def test_the_reason_of_a_replicate_that_is_trained_after_the_others_is_theirs() -> None:
    """Only where the values of all replicates say otherwise, it follows the others without a reason of its own."""
    for known in (None, {0: {1: 0.5, 2: 0.5}, 1: {1: 0.75, 2: 0.5}, 3: {1: 0.0}}):
        rungs = Rungs("maximize", Halving(1, 2), [(1, 2)])
        rungs.announce((0,), [0] * 4, known, numbers=[7, 7, 8, 8])
        rungs.post((0,), 1, {0: 0.5, 1: 0.75, 2: 0.875, 3: 0.0})
        reason = "0.4375 (mean of 2) at epoch 1 was not among the best 1 of 2 (0.625 or better)"
        assert rungs.verdict((0,), 1, [2]) == {2: reason}


def test_invalid_calls_are_refused() -> None:
    rungs = Rungs("maximize", Halving(1, 2), [(1,)])
    rungs.announce((3,), [0, 0])
    rungs.announce((3,), [0, 0])
    with pytest.raises(ValueError, match=r"position \(3,\) is announced again with others"):
        rungs.announce((3,), [0])
    with pytest.raises(ValueError, match=r"positions must be announced in order, but got position \(2,\) after \(3,\)"):
        rungs.announce((2,), [0])
    with pytest.raises(ValueError, match="`0 <= bracket < 1` must hold, but got bracket=1"):
        rungs.announce((4,), [1])
    with pytest.raises(ValueError, match=r"of the cohort at position \(3,\) must be one of 0, 1, but got member=2"):
        rungs.post((3,), 1, {2: 0.5})
    with pytest.raises(ValueError, match=r"no cohort is announced at position \(5,\); positions are: \(3,\)"):
        rungs.post((5,), 1, {0: 0.5})


def test_halving_finds_the_best_of_noisy_curves_at_a_fraction_of_the_epochs() -> None:
    """54 trials in cohorts of 6: noise shrinks as they train, and the best should be trained to the end."""
    successes, trained = 0, 0
    for seed in range(40):
        rng = random.Random(seed)
        true = [rng.gauss(0, 1) for _ in range(54)]
        curves = [{epoch: value + rng.gauss(0, 0.3) / math.sqrt(epoch) for epoch in range(1, 28)} for value in true]
        cohorts = [curves[begin : begin + 6] for begin in range(0, 54, 6)]
        rungs = Rungs("maximize", Halving(1, 3), [(1, 3, 9)])
        survivors = []
        for number, cohort in enumerate(cohorts):
            rungs.announce((number,), [0] * 6)
            running = list(range(6))
            for epoch in range(1, 28):
                trained += len(running)
                if epoch in (1, 3, 9):
                    rungs.post((number,), epoch, {index: cohort[index][epoch] for index in running})
                    verdict = rungs.verdict((number,), epoch)
                    running = [index for index in running if index not in verdict]
            survivors += [6 * number + index for index in running]
        successes += max(range(54), key=true.__getitem__) in survivors
    assert successes >= 34 and trained < 0.25 * 40 * 54 * 27, (successes, trained)


@for_each(("brackets", "factor", "rungs"), [(1, 3, 4), (2, 2, 2), (3, 3, 3), (4, 3, 4), (3, 4, 5), (2, 3, 5)])
def test_brackets_train_for_equally_many_epochs(brackets: int, factor: int, rungs: int) -> None:
    """Simulated: of the trials of a bracket, 1 / factor go on at each rung; the last ones train all epochs."""
    counts = Counter(assign_brackets(range(3000), brackets, factor, rungs))
    assert sorted(counts) == list(range(brackets))
    budgets = []
    for bracket in range(brackets):
        trials, before, epochs = float(counts[bracket]), 0, 0.0
        for rung in range(bracket, rungs + 1):
            epochs += trials * (factor**rung - before)
            trials, before = trials / factor, factor**rung
        budgets.append(epochs)
    assert max(budgets) < 1.03 * min(budgets)


def test_brackets_get_about_as_many_trials_as_in_hyperband() -> None:
    """Algorithm 1 with R = 81 and factor 3: 81, 34, 15 and 8 trials with 4, 3, 2 and 1 rungs (and 5 with none)."""
    counts = Counter(assign_brackets(range(1380), 4, 3))
    for bracket, paper in enumerate((81, 34, 15, 8)):
        assert 0.8 < counts[bracket] / 10 / paper < 1.2


@pytest.mark.parametrize("wave", [8, 32])
def test_every_wave_has_its_share_of_each_bracket(wave: int) -> None:
    whole = assign_brackets(range(320), 3, 3)
    share = [count / 320 for _, count in sorted(Counter(whole).items())]
    for begin in range(0, 320, wave):
        numbers = range(begin, begin + wave)
        assert assign_brackets(numbers, 3, 3) == whole[begin : begin + wave], (
            "a trial's bracket depends on its number alone"
        )
        counts = Counter(assign_brackets(numbers, 3, 3))
        assert all(abs(counts[bracket] - wave * share[bracket]) < 2.5 for bracket in range(3))


def test_more_brackets_than_rungs_are_refused() -> None:
    with pytest.raises(ValueError, match="`1 <= brackets <= rungs` must hold, but got brackets=3, rungs=2"):
        assign_brackets([0], 3, 3, rungs=2)


def test_parts_of_a_cohort_wait_for_each_other_and_are_judged_as_the_whole() -> None:
    whole, split = (Rungs("maximize", Halving(1, 2), [(1, 2)]) for _ in range(2))
    for rungs in (whole, split):
        for index, values in enumerate(({0: 1.0, 1: 5.0, 2: 2.0, 3: 4.0}, {0: 3.0, 1: 4.5})):
            rungs.announce((index,), [0] * len(values))
            rungs.post((index,), 1, values)
        assert set(rungs.verdict((0,), 1)) == {0, 2}
    first, second = {0, 1}, {2, 3}
    assert set(split.verdict((0,), 1, first)) == {0} and set(split.verdict((0,), 1, second)) == {2}
    split.post((0,), 2, {1: 3.0}, first)
    assert split.awaited((0,), 2, first) == {(0,): {3}}
    split.post((0,), 2, {3: 6.0}, second)
    whole.post((0,), 2, {1: 3.0, 3: 6.0})
    assert split.verdict((0,), 2, first) | split.verdict((0,), 2, second) == whole.verdict((0,), 2)
    assert set(whole.verdict((0,), 2)) == {1}


def test_a_verdict_of_a_later_epoch_does_not_hide_a_member_from_an_earlier_rung() -> None:
    """A cohort that continues from a checkpoint may be judged before its earlier reports are known."""
    rungs = Rungs("maximize", Halving(1, 2), [(1, 2)])
    for index in range(3):
        rungs.announce((index,), [0])
    rungs.post((0,), 2, {0: 9.0})
    rungs.post((1,), 2, {0: 1.0})
    assert set(rungs.verdict((1,), 2)) == {0}
    rungs.post((0,), 1, {0: 3.0})
    rungs.post((2,), 1, {0: 2.0})
    assert rungs.awaited((2,), 1) == {(1,): {0}}
    rungs.post((1,), 1, {0: 1.0})
    assert set(rungs.verdict((2,), 1)) == {0}


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
    rng, rungs = random.Random(seed), Rungs(direction, Halving(1, factor), LADDERS)
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
@settings(max_examples=10)
@given(seed=some.integers(0, 9))
def test_decisions_do_not_depend_on_the_order_of_arrival(direction: Direction, factor: int, seed: int) -> None:
    study = random_study(seed)
    expected = one_after_the_other(study, direction, factor)
    assert sum(map(len, expected.values())) > 5
    for order in range(8):
        assert at_once(study, direction, factor, order) == expected


@settings(max_examples=5)
@given(seed=some.integers(0, 4))
def test_restored_cohorts_count_as_if_they_had_just_run(seed: int) -> None:
    study = random_study(seed)
    expected = one_after_the_other(study, "maximize", 3)
    for running in range(len(study)):
        rungs = Rungs("maximize", Halving(1, 3), LADDERS)
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
