"""Cohorts of a search that are halved while rungs compare them, and continued by a later run."""

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from sweeper.execution.retries import RetryQueue
from sweeper.plan.cohorts import Cohort, halves
from sweeper.pruning.rung_events import CohortSplit
from sweeper.search.study_run import RecordedTrial
from sweeper.spec.schedulers import Halving, Population
from tests.sweeper.search.toy_waves import Rungs, next_cohort, recorded, rows, study, study_run, waves


def numbers(cohort: Cohort) -> tuple[int, ...]:
    return tuple(int(str(trial.facts["number"])) for trial in cohort.trials)


def test_the_rungs_get_the_halves_of_a_cohort() -> None:
    definition, rungs = study(pruner=Halving(1)), Rungs()
    source = waves(study_run(definition), rungs=rungs)
    whole = source.next()
    assert whole is not None and len(whole.trials) == 2
    first, second = source.halve(whole)
    assert first.trials + second.trials == whole.trials and {first.id, second.id} <= set(source.cohorts)
    assert rungs[-1] == CohortSplit(whole.id, {first.id: 1, second.id: 1})


@pytest.mark.parametrize("done", [(), (0,), (1,), (0, 2), (2, 3)])
def test_a_continued_search_resumes_the_parts_of_its_cohorts(done: Sequence[int]) -> None:
    definition, rungs, halved = study(pruner=Halving(1), wave=10), Rungs(), list[str]()
    source = waves(study_run(definition), rungs=rungs, record=halved.append)
    whole = next_cohort(source)
    first, second = source.halve(whole)
    parts = (first, *source.halve(second), *iter(source.next, None))
    assert halved == [whole.id, second.id] and len(parts) > 3
    later = Rungs()
    trained = [trial for index in done for trial in parts[index].trials]
    after = waves(study_run(definition, recorded(trained, definition)), rungs=later, halved=halved)
    left = [part for index, part in enumerate(parts) if index not in done]
    assert list(iter(after.next, None)) == left and later.standing == rungs.standing
    assert all(after.ancestors(part.id) == source.ancestors(part.id) for part in left)
    assert later.parts == {part.id: numbers(part) for part in left}
    for part in left:
        if len(part.trials) > 1:
            after.halve(part)
    assert later.standing == rungs.standing, "parts keep the position of their whole"


@pytest.mark.parametrize(("done", "sizes"), [(1, [1, 2]), (2, [2])])
def test_halves_are_those_of_the_whole_without_trials_that_have_a_result(done: int, sizes: list[int]) -> None:
    definition, rungs = study(pruner=Halving(1), wave=10), Rungs()
    whole = next_cohort(waves(study_run(definition)))
    source = waves(study_run(definition, recorded(whole.trials[:done], definition)), rungs=rungs)
    rest = next_cohort(source)
    assert (rest.id, rest.trials) == (whole.id, whole.trials[done:])
    before = rungs.standing
    parts = source.halve(rest)
    assert [len(part.trials) for part in parts] == sizes and sum((part.trials for part in parts), ()) == rest.trials
    split = rungs[-1]
    assert isinstance(split, CohortSplit) and set(split.parts) == {part.id for part in parts}
    assert {part.id for part in parts} <= {half.id for half in halves(whole)}
    assert rungs.standing == before and numbers(whole) in before
    assert {part.id: numbers(part) for part in parts}.items() <= rungs.parts.items()


def test_every_trial_of_a_search_ends_and_only_poisoned_ones_fail_whatever_is_halved_or_killed() -> None:
    """No cohort of several trials fails twice: only trials that stand alone do."""
    drawn = random.Random(5)
    for _ in range(50):
        definition, halved, failures = study(pruner=Halving(1), wave=drawn.randint(4, 10)), list[str](), Counter[str]()
        poisoned, results = set(drawn.sample(range(10), drawn.randint(1, 3))), dict[int, RecordedTrial]()
        while not (all(number in results for number in range(10)) and drawn.random() < 0.5):
            rungs = Rungs()
            source = waves(study_run(definition, results), size=8, rungs=rungs, halved=halved, record=halved.append)
            attempts = RetryQueue(source, 0)
            while (attempt := attempts.next()) and drawn.random() < 0.8:
                cohort = attempt.cohort
                status = "failed" if poisoned.intersection(numbers(cohort)) else "finished"
                if status == "failed" and attempts.lost(cohort.id, "error").kind == "smaller":
                    failures[cohort.id] += 1
                    continue
                attempts.reported(cohort.id, 1, True)
                source.completed(
                    cohort.id, rows(cohort, status), [(trial.id, 1, "auroc", 0.5) for trial in cohort.trials]
                )
                results |= recorded(cohort.trials, definition, status)
            assert rungs.standing
        assert {number for number, trial in results.items() if trial.result.status == "failed"} == poisoned
        assert failures == Counter(halved) == Counter(set(halved))


def test_a_population_is_not_halved() -> None:
    source = waves(study_run(study(population=Population(1), wave=8, trials=8, axes={})))
    whole = source.next()
    assert whole is not None and list(source.halve(whole)) == []
