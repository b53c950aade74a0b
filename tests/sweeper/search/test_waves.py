"""The cohorts of a search, wave by wave, and those that were halved."""

import random
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeper.execution.retries import RetryQueue
from sweeper.plan.cohorts import Cohort, halves
from sweeper.search.rungs import (
    CohortAnnounced,
    CohortEnded,
    CohortReported,
    CohortRestored,
    CohortSplit,
    CohortStarted,
    CohortStopped,
)
from sweeper.search.study_run import Recorded, StudyRun, WarmStart, result
from sweeper.spec import Halving, Population
from tests.cases import for_each
from tests.sweeper.search.toy_waves import (
    Rungs,
    asked_trials,
    next_cohort,
    recorded,
    rows,
    run,
    study,
    study_run,
    toy_config,
    waves,
)
from trainables.reports import Member, Report
from trainables.worker.messages import CohortReport, Origin

ORIGIN = Origin("cpu", "here", 1, datetime(2026, 1, 1, tzinfo=UTC))


def test_a_wave_follows_when_each_trial_of_the_one_before_has_a_result() -> None:
    source = waves(study_run(study()))
    first = [source.next(), source.next()]
    assert source.next() is None and not source.exhausted
    widths = [{trial.config["width"] for trial in cohort.trials} for cohort in first if cohort]
    assert sorted(map(len, widths)) == [1] * len([cohort for cohort in first if cohort])  # one shape a cohort
    for cohort in filter(None, first):
        assert source.next() is None
        source.completed(cohort.id, rows(cohort), [])
    assert source.next() is not None


def test_all_trials_are_asked_numbered_and_of_their_wave() -> None:
    source = waves(study_run(study()))
    trained = [trial for trials in run(source) for trial in trials]
    assert source.exhausted and len({trial.id for trial in trained}) == 10
    assert sorted(int(str(trial.facts["number"])) for trial in trained) == list(range(10))
    assert [trial.facts["wave"] for trial in asked_trials(source)] == [0] * 4 + [1] * 4 + [2] * 2
    assert all(trial.facts["study_id"] == "s0" for trial in trained)


@for_each("sampler", ["random", "tpe"])
@for_each("cohorts_trained", [0, 1, 2, 3])
def test_a_study_rebuilt_from_its_rows_continues_as_if_never_interrupted(sampler: str, cohorts_trained: int) -> None:
    definition = study(sampler=sampler)
    whole = waves(study_run(definition))
    run(whole)
    before = waves(study_run(definition))
    trained = [trial for trials in run(before, stop_after=cohorts_trained) for trial in trials]
    after = waves(study_run(definition, recorded(trained, definition)))
    assert not {trial.id for trials in run(after) for trial in trials} & {trial.id for trial in trained}
    assert asked_trials(after) == asked_trials(whole) and after.exhausted


def test_a_cohort_keeps_its_id_when_it_is_continued() -> None:
    definition = study(wave=8, trials=8)
    whole = waves(study_run(definition), size=2)
    run(whole, stop_after=1)
    first, *_ = whole.cohorts.values()
    after = waves(study_run(definition, recorded(first.trials[:1], definition)), size=2)
    again = after.next()
    assert again and again.id == first.id and again.trials == first.trials[1:]


def test_a_failed_trial_does_not_stall_a_search_and_is_tried_again_by_the_next() -> None:
    definition = study()
    source = waves(study_run(definition))
    trained = []
    while cohort := source.next():
        trained.append(cohort)
        source.completed(cohort.id, rows(cohort, "failed"), [])
    assert source.exhausted and len(asked_trials(source)) == 10
    failed = [trial for cohort in trained for trial in cohort.trials]
    later = study_run(definition, recorded(failed, definition, "failed"))
    assert [status for _, status in later.ahead] == ["failed"] * 6 and waves(later).next() is not None


def test_trials_with_a_result_are_known_though_a_failed_one_of_an_earlier_wave_is_tried_again_first() -> None:
    definition = study()
    source = waves(study_run(definition))
    while cohort := source.next():
        source.completed(cohort.id, rows(cohort), [])
    first, *others = asked_trials(source)
    known = recorded(others, definition) | {0: recorded([first], definition, "failed")[0]}
    later = study_run(definition, known)
    assert [trial for trial, _ in later.ahead] == list(asked_trials(source)[4:]) and len(later.trials) == 4


@pytest.mark.parametrize("status", ["diverged", "pruned"])
def test_diverged_and_pruned_trials_are_results(status: str) -> None:
    definition = study(sampler="tpe")
    source = waves(study_run(definition))
    while cohort := source.next():
        source.completed(cohort.id, [row | {"auroc": None} for row in rows(cohort, status)], [])
    assert source.exhausted and study_run(definition, recorded(asked_trials(source), definition, status)).ended


def test_the_rungs_get_every_cohort_in_order_and_the_values_of_earlier_runs() -> None:
    definition, rungs = study(pruner=Halving(1)), Rungs()
    run(waves(study_run(definition), rungs=rungs))
    announced = [event for event in rungs if isinstance(event, CohortAnnounced)]
    positions = [event.position for event in announced]
    assert positions == sorted(set(positions))
    assert sorted(number for event in announced for number in event.numbers) == list(range(10))
    assert [event.cohort for event in rungs if isinstance(event, CohortEnded)] == [event.cohort for event in announced]
    later, first_wave = Rungs(), study_run(definition).waves[0]
    waves(study_run(definition, recorded(first_wave, definition)), rungs=later)
    assert later[0] == CohortRestored("s0", (0,), [0, 1, 2, 3], [{1: 0.5}] * 4)
    assert all(isinstance(event, CohortAnnounced) and event.position > (0,) for event in later[1:]) and later[1:]


def test_the_rungs_know_which_cohorts_have_a_worker() -> None:
    rungs = Rungs()
    source = waves(study_run(study(pruner=Halving(1))), rungs=rungs)
    cohort = next_cohort(source)
    source.started(cohort.id)
    source.stopped(cohort.id)
    assert rungs[-2:] == [CohortStarted(cohort.id), CohortStopped(cohort.id)]


@pytest.mark.parametrize("judged", [False, True])
def test_the_rungs_get_the_values_of_a_report_unless_a_judge_has_seen_it(judged: bool) -> None:
    rungs = Rungs()
    source = waves(study_run(study(pruner=Halving(1))), rungs=rungs)
    cohort, events_before = next_cohort(source), len(rungs)
    members = (
        Member("running", 2, {"auroc": 0.9}),
        Member("pruned", 2, {"auroc": 0.65}),
        Member("pruned", 1, {"auroc": 0.1}),
        Member("diverged", 2, {}),
    )
    source.reported(cohort.id, CohortReport(Report(2, members, 1.0, done=False), ORIGIN, judged))
    assert rungs[events_before:] == ([] if judged else [CohortReported(cohort.id, 2, {0: 0.9, 1: 0.65})])


def test_the_rungs_get_nothing_from_a_study_without_a_pruner() -> None:
    rungs = Rungs()
    run(waves(study_run(study()), rungs=rungs))
    assert not rungs


def test_a_population_stays_whole() -> None:
    definition = study(population=Population(1), wave=8, trials=8, axes={})
    source = waves(study_run(definition), size=1)
    assert max(len(cohort.trials) for cohort in (source.next(), source.next()) if cohort) > 1


@pytest.mark.slow
@given(st.integers(1, 9), st.integers(2, 4), st.integers(1, 12))
def test_the_replicates_of_a_proposal_are_in_one_cohort_as_far_as_it_can_hold_them(
    wave: int, seeds: int, size: int
) -> None:
    definition = study(trials=wave, wave=wave, replicates={"seed": tuple(range(seeds))})
    source = waves(study_run(definition), size=size)
    trained = run(source)
    assert sorted(len(trials) for trials in trained)[-1] <= size and sum(map(len, trained)) == wave * seeds
    members = [Counter(numbers(Cohort("", trials, 1))) for trials in trained]
    for number in range(wave):
        split = [count for counter in members for key, count in counter.items() if key == number]
        assert sum(split) == seeds and len(split) == -(-seeds // size), "as few cohorts as can hold it"


def test_several_studies_take_turns() -> None:
    first, second = study_run(study()), StudyRun(study(seed=1), "s1", WarmStart(None), {}, toy_config)
    source = waves(first, second)
    assert {trial.facts["study_id"] for trials in run(source) for trial in trials} == {"s0", "s1"} and source.exhausted


def test_a_value_that_is_not_finite_is_told_as_missing() -> None:
    row = {"trial_id": "t", "number": 3, "status": "finished", "auroc": float("nan")}
    assert result(study(), row, []).values == (None,)
    reports = [("t", 1, "auroc", 0.5), ("t", 2, "auroc", 0.6), ("t", 2, "loss", 9.0), ("u", 1, "auroc", 0.1)]
    assert result(study(), row | {"auroc": 0.6}, reports).reached == {1: 0.5, 2: 0.6}


def test_a_diverged_trial_was_not_compared_in_its_last_epoch() -> None:
    row = {"trial_id": "t", "number": 3, "status": "diverged", "epochs_run": 2, "auroc": None}
    assert result(study(), row, [("t", 1, "auroc", 0.5), ("t", 2, "auroc", 0.6)]).reached == {1: 0.5}


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


@pytest.mark.slow
def test_every_trial_of_a_search_ends_and_only_poisoned_ones_fail_whatever_is_halved_or_killed() -> None:
    """No cohort of several trials fails twice: only trials that stand alone do."""
    drawn = random.Random(5)
    for _ in range(50):
        definition, halved, failures = study(pruner=Halving(1), wave=drawn.randint(4, 10)), list[str](), Counter[str]()
        poisoned, results = set(drawn.sample(range(10), drawn.randint(1, 3))), dict[int, Recorded]()
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
        assert {number for number, trial in results.items() if trial.results[()].status == "failed"} == poisoned
        assert failures == Counter(halved) == Counter(set(halved))


def test_a_population_is_not_halved() -> None:
    source = waves(study_run(study(population=Population(1), wave=8, trials=8, axes={})))
    whole = source.next()
    assert whole is not None and list(source.halve(whole)) == []
