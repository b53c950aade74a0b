"""Waves of trials that cost nothing to train, with real rungs."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from optuna.distributions import CategoricalDistribution, FloatDistribution

from sweeper.definition.metric import Metric
from sweeper.definition.space import Search, Study
from sweeper.planning.cohorts import Cohort, Cut, Group, Trial
from sweeper.search.rungs import Rungs
from sweeper.search.study_run import Recorded, StudyRun, WarmStart, result
from sweeper.search.waves import Waves

SPACE = {"x": FloatDistribution(0.0, 1.0), "width": CategoricalDistribution([1, 2])}


def study(**changes: Any) -> Study:
    options: dict[str, Any] = {"trials": 10, "wave": 4, "metric": Metric("auroc", "maximize"), "sampler": "random"}
    (only_study,) = Search(SPACE, {"method": "vje"}, **(options | changes)).studies()
    return only_study


def study_run(definition: Study, recorded: Mapping[int, Recorded] | None = None) -> StudyRun:
    return StudyRun(definition, "s0", WarmStart(None), recorded or {}, toy_config)


class ToyConfig(dict[str, Any]):
    """Keys and values as they are, in place of a `TrialConfig`: no method has them."""

    def flat(self) -> dict[str, Any]:
        return dict(self)

    complete = flat


def toy_config(params: Mapping[str, Any]) -> Any:
    return ToyConfig({"seed": 0, **params})


def waves(
    *study_runs: StudyRun,
    size: int = 4,
    halved: Collection[str] = (),
    record: Callable[[str], None] = lambda cohort: None,
) -> Waves:
    def cut(groups: Sequence[Group], whole: bool, repeats: int) -> list[Cut]:
        return [Cut(100, 100) if whole else Cut(size, size)] * len(groups)

    return Waves(
        study_runs,
        lambda trial: trial.config["width"],
        lambda trial: 0,
        cut,
        rungs={each.id: rungs_of(each.study) for each in study_runs if each.study.search.pruner},
        halved=halved,
        record_halved=record,
    )


def rungs_of(definition: Study) -> Rungs:
    """The rungs of a study that prunes and reports after each of four epochs."""
    pruner = definition.search.pruner
    assert pruner
    return Rungs("maximize", pruner, pruner.ladders(4, 1))


def standing(source: Waves) -> list[tuple[int, ...]]:
    """Numbers of the trials at each position of the only study, lowest position first."""
    (rungs,) = source._rungs.values()
    return [cohort.numbers for _, cohort in sorted(rungs._positions.items())]


def placed(source: Waves, cohort: Cohort) -> tuple[int, ...]:
    """Numbers of a cohort's trials, by its place at the rungs."""
    place = source.place(cohort.id)
    assert place
    numbers = place.rungs._positions[place.position].numbers
    return tuple(numbers[index] for index in place.members)


def asked_trials(source: Waves) -> tuple[Trial, ...]:
    """All trials asked so far, study by study."""
    return tuple(trial for study_run in source.study_runs for trial in study_run.trials)


def next_cohort(source: Waves) -> Cohort:
    cohort = source.next()
    assert cohort is not None
    return cohort


def rows(cohort: Cohort, status: str = "finished") -> list[dict[str, Any]]:
    return [
        {
            "trial_id": trial.id,
            "number": trial.facts["number"],
            "status": status,
            "epochs_run": 1,
            "auroc": trial.config["x"],
            "val_auroc": trial.config["x"],
        }
        for trial in cohort.trials
    ]


def run(source: Waves, stop_after: int = 1000) -> list[tuple[Trial, ...]]:
    """Finish at most `stop_after` cohorts of the source, one by one. Returns their trials."""
    trained: list[tuple[Trial, ...]] = []
    while (cohort := source.next()) and len(trained) < stop_after:
        trained.append(cohort.trials)
        source.completed(cohort.id, rows(cohort), [(trial.id, 1, "auroc", 0.5) for trial in cohort.trials])
    return trained


def recorded(trials: Sequence[Trial], definition: Study, status: str = "finished") -> dict[int, Recorded]:
    recorded_trials: dict[int, Recorded] = {}
    for trial in trials:
        (row,) = rows(Cohort("c", (trial,), 1), status)
        params = {key: trial.config[key] for key in SPACE}
        proposal = recorded_trials.setdefault(int(str(trial.facts["number"])), Recorded(params, {}))
        of_trial = result(definition, row, [(trial.id, 1, "auroc", 0.5)])
        proposal.results[definition.replicate_of(trial.config, {})] = of_trial
    return recorded_trials
