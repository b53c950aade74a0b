"""`Waves` as a source of cohorts."""

from __future__ import annotations

import pytest

from sweeper.search.study_run import StudyRun, result
from sweeper.search.warm_start import WarmStart
from sweeper.spec.schedulers import Halving, Population
from tests.sweeper.search.wave_feeds import Heard, recorded, rows, run, study, study_run, waves


def test_a_wave_follows_when_each_trial_of_the_one_before_has_a_result() -> None:
    feed = waves(study_run(study()))
    first = [feed.next(), feed.next()]
    assert feed.next() is None and not feed.ended
    widths = [{trial.config["width"] for trial in cohort.trials} for cohort in first if cohort]
    assert sorted(map(len, widths)) == [1] * len([cohort for cohort in first if cohort])  # one shape a cohort
    for cohort in filter(None, first):
        assert feed.next() is None
        feed.told(cohort.id, rows(cohort), [])
    assert feed.next() is not None


def test_all_trials_are_asked_numbered_and_of_their_wave() -> None:
    feed = waves(study_run(study()))
    given = [trial for trials in run(feed) for trial in trials]
    assert feed.ended and len({trial.id for trial in given}) == 10
    assert sorted(int(str(trial.facts["number"])) for trial in given) == list(range(10))
    assert [trial.facts["wave"] for trial in feed.trials] == [0] * 4 + [1] * 4 + [2] * 2
    assert all(trial.facts["study_id"] == "s0" for trial in given)


@pytest.mark.parametrize("sampler", ["random", "tpe"])
@pytest.mark.parametrize("done", [0, 1, 2, 3])
def test_a_study_rebuilt_from_its_rows_goes_on_as_if_it_had_not_been_cut_off(sampler: str, done: int) -> None:
    of = study(sampler=sampler)
    whole = waves(study_run(of))
    run(whole)
    before = waves(study_run(of))
    trained = [trial for trials in run(before, stop_after=done) for trial in trials]
    after = waves(study_run(of, recorded(trained, of)))
    assert not {trial.id for trials in run(after) for trial in trials} & {trial.id for trial in trained}
    assert after.trials == whole.trials and after.ended


def test_a_cohort_keeps_its_id_when_it_is_continued() -> None:
    of = study(wave=8, trials=8)
    whole = waves(study_run(of), size=2)
    run(whole, stop_after=1)
    first, *_ = whole.cohorts.values()
    after = waves(study_run(of, recorded(first.trials[:1], of)), size=2)
    again = after.next()
    assert again and again.id == first.id and again.trials == first.trials[1:]


def test_what_failed_never_stalls_a_search_and_is_tried_again_by_the_next() -> None:
    of = study()
    feed = waves(study_run(of))
    given = []
    while cohort := feed.next():
        given.append(cohort)
        feed.told(cohort.id, rows(cohort, "failed"), [])
    assert feed.ended and len(feed.trials) == 10
    failed = [trial for cohort in given for trial in cohort.trials]
    later = study_run(of, recorded(failed, of, "failed"))
    assert later.ahead == ["failed"] * 6 and waves(later).next() is not None


@pytest.mark.parametrize("status", ["diverged", "pruned"])
def test_diverged_and_pruned_trials_are_results(status: str) -> None:
    of = study(sampler="tpe")
    feed = waves(study_run(of))
    while cohort := feed.next():
        feed.told(cohort.id, [row | {"auroc": None} for row in rows(cohort, status)], [])
    assert feed.ended and study_run(of, recorded(feed.trials, of, status)).ended


def test_the_ladder_hears_of_every_cohort_in_order_and_of_what_earlier_runs_reached() -> None:
    of, ladder = study(pruner=Halving(1)), Heard()
    run(waves(study_run(of), ladder=ladder))
    places = [said[1] for said in ladder.said if said[0] == "expect"]
    assert places == sorted(set(places))
    numbers = [number for said in ladder.said if said[0] == "expect" for number in said[2]]
    assert sorted(numbers) == list(range(10))
    assert sum(said[0] == "end" for said in ladder.said) == len(places)
    later, first_wave = Heard(), study_run(of).waves[0]
    waves(study_run(of, recorded(first_wave, of)), ladder=later)
    assert later.said[0] == ("seed", 0, (0, 1, 2, 3), ({1: 0.5},) * 4)
    assert [said[0] for said in later.said[1:]] == ["expect"] * (len(later.said) - 1) and later.said[1][1] > 0


def test_the_ladder_hears_who_has_a_worker() -> None:
    ladder = Heard()
    feed = waves(study_run(study(pruner=Halving(1))), ladder=ladder)
    cohort = feed.next()
    assert cohort
    feed.started(cohort.id)
    feed.stopped(cohort.id)
    assert ladder.said[-2:] == [("started", cohort.id), ("stopped", cohort.id)]


def test_a_study_without_a_pruner_is_none_of_the_ladders_business() -> None:
    ladder = Heard()
    waves(study_run(study()), ladder=ladder)
    assert not ladder.said


def test_a_population_stays_whole() -> None:
    of = study(population=Population(1), wave=8, trials=8, axes={})
    feed = waves(study_run(of), size=1)
    assert max(len(cohort.trials) for cohort in (feed.next(), feed.next()) if cohort) > 1


def test_several_studies_take_turns() -> None:
    first, second = study_run(study()), StudyRun(study(seed=1), "s1", WarmStart(None), {}, dict)
    feed = waves(first, second)
    assert {trial.facts["study_id"] for trials in run(feed) for trial in trials} == {"s0", "s1"} and feed.ended


def test_a_value_that_is_not_finite_is_told_as_missing() -> None:
    row = {"trial_id": "t", "number": 3, "status": "finished", "auroc": float("nan")}
    assert result(study(), row, []).values == (None,)
    reports = [("t", 1, "auroc", 0.5), ("t", 2, "auroc", 0.6), ("t", 2, "loss", 9.0), ("u", 1, "auroc", 0.1)]
    assert result(study(), row | {"auroc": 0.6}, reports).reached == {1: 0.5, 2: 0.6}


def test_what_diverged_was_compared_with_nobody_in_that_epoch() -> None:
    row = {"trial_id": "t", "number": 3, "status": "diverged", "epochs_run": 2, "auroc": None}
    assert result(study(), row, [("t", 1, "auroc", 0.5), ("t", 2, "auroc", 0.6)]).reached == {1: 0.5}
