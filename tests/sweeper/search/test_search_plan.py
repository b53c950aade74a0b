from dataclasses import replace

import pytest

from sweeper.definition import Sweep
from sweeper.planning.plan import Plan
from sweeper.search.study_run import StudyRun
from tests.sweeper.search.toy_waves import recorded, study, study_run

STUDY = study(trials=8, wave=4)


def continued(*statuses: str) -> StudyRun:
    """Return the study, continued from recorded trials with these statuses."""
    trials = study_run(STUDY, recorded(study_run(STUDY).trials, STUDY)).trials
    results = [recorded([trial], STUDY, status) for trial, status in zip(trials, statuses, strict=False)]
    return study_run(STUDY, {number: trial for result in results for number, trial in result.items()})


def plan(*study_runs: StudyRun) -> Plan:
    return Plan("search", "digits", Sweep("about", {"digits": STUDY.search}), study_runs=study_runs)


def test_a_plan_knows_the_trials_of_the_waves_so_far_and_counts_all() -> None:
    search_plan = plan(continued("finished", "diverged"))
    assert len(search_plan.trials) == 4 and search_plan.total == 8
    assert sorted(search_plan.statuses.values()) == ["diverged", "finished"]
    assert search_plan.counts == {"finished": 1, "diverged": 1, "pruned": 0, "failed": 0, "to run": 6}


def test_recorded_trials_of_waves_that_are_not_asked_again_yet_are_counted() -> None:
    search_plan = plan(continued("finished", "failed", "finished", "finished", "finished", "pruned"))
    assert len(search_plan.trials) == 4
    assert search_plan.counts == {"finished": 4, "diverged": 0, "pruned": 1, "failed": 0, "to run": 3}


@pytest.mark.parametrize(
    ("statuses", "names"), [(["diverged"] * 8, ["all"]), (["diverged"] * 7 + ["finished"], []), (["diverged"] * 7, [])]
)
def test_a_study_has_diverged_once_all_its_trials_have(statuses: list[str], names: list[str]) -> None:
    assert plan(continued(*statuses)).diverged_studies == names


def test_trials_have_the_name_of_their_study_in_this_plan() -> None:
    run = study_run(replace(STUDY, name="3"))
    assert plan(run).study_names == {trial.id: "3" for trial in run.trials}


def test_a_trial_is_identified_by_its_study_if_there_are_several_and_by_all_searched_keys() -> None:
    assert plan(continued()).identifying_columns == ("x", "width")
    other = replace(STUDY.search, space={"y": STUDY.search.space["x"]}, fixed={"method": "byol"})
    several = plan(continued(), study_run(replace(STUDY, search=other)))
    assert several.identifying_columns == ("study", "x", "width", "y")
