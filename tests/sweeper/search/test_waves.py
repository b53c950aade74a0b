"""The cohorts of a search, wave by wave, and those that were halved."""

import random
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeper.definition import Halving, Population
from sweeper.execution.retries import RetryQueue
from sweeper.planning.cohorts import Cohort, halves
from sweeper.search.study_run import Recorded, StudyRun, WarmStart, result
from sweeper.search.waves import Waves
from tests.cases import for_each
from tests.sweeper.search.toy_waves import (
    asked_trials,
    next_cohort,
    placed,
    recorded,
    rows,
    run,
    standing,
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


def test_every_cohort_has_a_place_and_trials_of_earlier_runs_have_theirs_with_their_values() -> None:
    definition = study(pruner=Halving(1))
    source = waves(study_run(definition))
    run(source)
    assert sorted(sum(standing(source), ())) == list(range(10)), "each trial has one place"
    first_wave = study_run(definition).waves[0]
    later = waves(study_run(definition, recorded(first_wave, definition)))
    assert standing(later)[0] == (0, 1, 2, 3)
    place = later.place(next_cohort(later).id)
    assert place and place.position > (0,)
    assert place.rungs.ready((0,), 1) and place.rungs._positions[0,].values[1] == dict.fromkeys(range(4), 0.5)


def _reported(source: Waves, cohort: Cohort, epoch: int, *members: Member, waits: bool = False) -> None:
    source.reported(cohort.id, CohortReport(Report(epoch, members, 1.0, done=False), ORIGIN, waits))


def test_the_rungs_get_the_values_of_a_report() -> None:
    """Of those that were running at its epoch, also of those that were pruned there."""
    source = waves(study_run(study(pruner=Halving(1), wave=10, axes={})), size=4)
    cohort = max(iter(source.next, None), key=lambda each: len(each.trials))
    members = (
        Member("running", 3, {"auroc": 0.9}),
        Member("pruned", 3, {"auroc": 0.65}),
        Member("pruned", 1, {"auroc": 0.1}),
        Member("diverged", 3, {}),
    )
    _reported(source, cohort, 3, *members)
    place = source.place(cohort.id)
    assert place and place.rungs._positions[place.position].values[3] == {0: 0.9, 1: 0.65}


def test_a_cohort_at_a_rung_waits_for_those_before_it_and_then_ends_or_goes_on() -> None:
    source = waves(study_run(study(pruner=Halving(1, 2), wave=10)), size=2)
    first, second, third = (next_cohort(source) for _ in range(3))
    _reported(source, second, 1, *[Member("running", 1, {"auroc": 0.5})] * 2, waits=True)
    assert source.waits(second.id) and source.last_report(second.id) is None
    _reported(source, first, 1, *[Member("running", 1, {"auroc": 0.9})] * 2, waits=True)
    assert not source.waits(first.id) and source.last_report(first.id) is None, "one of two goes on"
    assert not source.waits(second.id)
    last = source.last_report(second.id)
    assert last and last.report.done and not last.waits
    reason = "0.5 at epoch 1 was not among the best 2 of 4 (0.9 or better)"
    assert [(member.status, member.error) for member in last.report.members] == [("pruned", reason)] * 2
    _reported(source, third, 1, Member("running", 1, {"auroc": 0.95}), Member("diverged", 1, {}), waits=True)
    assert not source.waits(third.id) and source.last_report(third.id) is None


def test_a_study_without_a_pruner_has_no_places() -> None:
    source = waves(study_run(study()))
    cohort = next_cohort(source)
    assert source.place(cohort.id) is None and not source.waits(cohort.id) and source.last_report(cohort.id) is None


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


def test_the_halves_of_a_cohort_share_its_position() -> None:
    source = waves(study_run(study(pruner=Halving(1))))
    whole = source.next()
    assert whole is not None and len(whole.trials) == 2
    before = standing(source)
    first, second = source.halve(whole)
    assert first.trials + second.trials == whole.trials and {first.id, second.id} <= set(source.cohorts)
    assert [placed(source, part) for part in (first, second)] == [numbers(first), numbers(second)]
    assert standing(source) == before


@pytest.mark.parametrize("done", [(), (0,), (1,), (0, 2), (2, 3)])
def test_a_continued_search_resumes_the_parts_of_its_cohorts(done: Sequence[int]) -> None:
    definition, halved = study(pruner=Halving(1), wave=10), list[str]()
    source = waves(study_run(definition), record=halved.append)
    whole = next_cohort(source)
    first, second = source.halve(whole)
    parts = (first, *source.halve(second), *iter(source.next, None))
    assert halved == [whole.id, second.id] and len(parts) > 3
    trained = [trial for index in done for trial in parts[index].trials]
    after = waves(study_run(definition, recorded(trained, definition)), halved=halved)
    left = [part for index, part in enumerate(parts) if index not in done]
    assert list(iter(after.next, None)) == left and standing(after) == standing(source)
    assert [placed(after, part) for part in left] == [numbers(part) for part in left]
    for part in left:
        if len(part.trials) > 1:
            after.halve(part)
    assert standing(after) == standing(source), "parts keep the position of their whole"


@pytest.mark.parametrize(("done", "sizes"), [(1, [1, 2]), (2, [2])])
def test_halves_are_those_of_the_whole_without_trials_that_have_a_result(done: int, sizes: list[int]) -> None:
    definition = study(pruner=Halving(1), wave=10)
    whole = next_cohort(waves(study_run(definition)))
    source = waves(study_run(definition, recorded(whole.trials[:done], definition)))
    rest = next_cohort(source)
    assert (rest.id, rest.trials) == (whole.id, whole.trials[done:])
    before = standing(source)
    parts = source.halve(rest)
    assert [len(part.trials) for part in parts] == sizes and sum((part.trials for part in parts), ()) == rest.trials
    assert {part.id for part in parts} <= {half.id for half in halves(whole)}
    assert standing(source) == before and numbers(whole) in before
    assert [placed(source, part) for part in parts] == [numbers(part) for part in parts]


@pytest.mark.slow
def test_every_trial_of_a_search_ends_and_only_poisoned_ones_fail_whatever_is_halved_or_killed() -> None:
    """No cohort of several trials fails twice: only trials that stand alone do."""
    drawn = random.Random(5)
    for _ in range(50):
        definition, halved, failures = study(pruner=Halving(1), wave=drawn.randint(4, 10)), list[str](), Counter[str]()
        poisoned, results = set(drawn.sample(range(10), drawn.randint(1, 3))), dict[int, Recorded]()
        while not (all(number in results for number in range(10)) and drawn.random() < 0.5):
            source = waves(study_run(definition, results), size=8, halved=halved, record=halved.append)
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
            assert standing(source)
        assert {number for number, trial in results.items() if trial.results[()].status == "failed"} == poisoned
        assert failures == Counter(halved) == Counter(set(halved))


def test_a_population_is_not_halved() -> None:
    source = waves(study_run(study(population=Population(1), wave=8, trials=8, axes={})))
    whole = source.next()
    assert whole is not None and list(source.halve(whole)) == []
