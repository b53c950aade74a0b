"""Cohorts of a search that are halved while rungs compare them, and continued by a later run."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from sweeper.execution.retries import RetryQueue
from sweeper.plan.cohorts import halves
from sweeper.search.study_run import RecordedTrial
from sweeper.spec.schedulers import Halving, Population
from tests.sweeper.search.wave_feeds import Heard, given, recorded, rows, study, study_run, waves


def test_parts_of_a_cohort_that_is_judged_stand_between_it_and_the_next() -> None:
    of, ladder = study(pruner=Halving(1)), Heard()
    feed = waves(study_run(of), ladder=ladder)
    whole = feed.next()
    assert whole is not None and len(whole.trials) == 2
    first, second = feed.halve(whole)
    assert first.trials + second.trials == whole.trials and {first.id, second.id} <= set(feed.cohorts)
    (split,) = (said for said in ladder.said if said[0] == "split")
    assert ladder.said[0][1] < split[1] < ladder.said[1][1] and split[2] == 1


@pytest.mark.parametrize("done", [(), (0,), (1,), (0, 2), (2, 3)])
def test_a_continued_search_goes_on_with_the_parts_of_its_cohorts_where_they_stood(done: Sequence[int]) -> None:
    of, ladder, halved = study(pruner=Halving(1), wave=10), Heard(), list[str]()
    feed = waves(study_run(of), ladder=ladder, record=halved.append)
    whole = given(feed)
    first, second = feed.halve(whole)
    parts = (first, *feed.halve(second), *iter(feed.next, None))
    assert halved == [whole.id, second.id] and len(parts) > 3
    later = Heard()
    trained = [trial for index in done for trial in parts[index].trials]
    after = waves(study_run(of, recorded(trained, of)), ladder=later, halved=halved)
    left = [part for index, part in enumerate(parts) if index not in done]
    assert list(iter(after.next, None)) == left and later.standing == ladder.standing
    assert all(after.before(part.id) == feed.before(part.id) for part in left)
    more = [part for part in left if len(part.trials) > 1 and after.halve(part)]
    assert len(later.standing) == len(ladder.standing) + len(more)
    assert sum(later.standing, ()) == sum(ladder.standing, ())


@pytest.mark.parametrize(("done", "sizes"), [(1, [1, 2]), (2, [2])])
def test_halves_are_those_of_the_whole_without_who_has_a_result(done: int, sizes: list[int]) -> None:
    of, ladder = study(pruner=Halving(1), wave=10), Heard()
    whole = given(waves(study_run(of)))
    feed = waves(study_run(of, recorded(whole.trials[:done], of)), ladder=ladder)
    rest = given(feed)
    assert (rest.id, rest.trials) == (whole.id, whole.trials[done:])
    before = ladder.standing
    parts = feed.halve(rest)
    assert [len(part.trials) for part in parts] == sizes and sum((part.trials for part in parts), ()) == rest.trials
    assert {part.id for part in parts} <= {half.id for half in halves(whole)} & set(ladder.places)
    assert sum(ladder.standing, ()) == sum(before, ()) and len(ladder.standing) == len(before) + len(parts) - 1


def test_whatever_is_halved_and_killed_every_trial_of_a_search_ends_and_only_who_is_poisoned_fails() -> None:
    """No cohort of several trials fails twice: only trials that stand alone do."""
    drawn = random.Random(5)
    for _ in range(50):
        of, halved, failures = study(pruner=Halving(1), wave=drawn.randint(4, 10)), list[str](), Counter[str]()
        poisoned, results = set(drawn.sample(range(10), drawn.randint(1, 3))), dict[int, RecordedTrial]()
        while not (all(number in results for number in range(10)) and drawn.random() < 0.5):
            ladder = Heard()
            feed = waves(study_run(of, results), size=8, ladder=ladder, halved=halved, record=halved.append)
            attempts = RetryQueue(feed, 0)
            while (one := attempts.next()) and drawn.random() < 0.8:
                cohort, numbers = one.cohort, {int(str(trial.facts["number"])) for trial in one.cohort.trials}
                status = "failed" if numbers & poisoned else "finished"
                if status == "failed" and attempts.lost(cohort.id, "error").kind == "smaller":
                    failures[cohort.id] += 1
                    continue
                attempts.reported(cohort.id, 1, True)
                feed.told(cohort.id, rows(cohort, status), [(trial.id, 1, "auroc", 0.5) for trial in cohort.trials])
                results |= recorded(cohort.trials, of, status)
            assert ladder.standing
        assert {number for number, one in results.items() if one.told.status == "failed"} == poisoned
        assert failures == Counter(halved) == Counter(set(halved))


def test_a_population_is_not_halved() -> None:
    feed = waves(study_run(study(population=Population(1), wave=8, trials=8, axes={})))
    whole = feed.next()
    assert whole is not None and list(feed.halve(whole)) == []
