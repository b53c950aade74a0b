"""Waves of trials that cost nothing to train, and a fake `RungClient` that records its calls."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from optuna.distributions import CategoricalDistribution, FloatDistribution

from sweeper.plan.cohorts import Cohort, Cut, Group
from sweeper.plan.trials import Trial
from sweeper.search.study_run import RecordedTrial, StudyRun, result
from sweeper.search.warm_start import WarmStart
from sweeper.search.waves import Waves
from sweeper.spec.metric import Metric
from sweeper.spec.search import Search, Study

SPACE = {"x": FloatDistribution(0.0, 1.0), "width": CategoricalDistribution([1, 2])}


def study(**changes: Any) -> Study:
    options: dict[str, Any] = {"trials": 10, "wave": 4, "metric": Metric("auroc", "maximize"), "sampler": "random"}
    (only_study,) = Search(SPACE, {"method": "vje"}, **(options | changes)).studies()
    return only_study


def study_run(of: Study, recorded: Mapping[int, RecordedTrial] | None = None) -> StudyRun:
    return StudyRun(of, "s0", WarmStart(None), recorded or {}, lambda params: {**params, "seed": 0})


class Heard:
    """`RungVerbs` that records its calls."""

    def __init__(self) -> None:
        self.said: list[tuple[Any, ...]] = []
        self.places: dict[str, int] = {}

    def expect(self, study: str, place: int, cohort: str, numbers: Sequence[int]) -> None:
        self.said.append(("expect", place, tuple(numbers)))
        self.places[cohort] = place

    def seed(self, study: str, place: int, numbers: Sequence[int], reached: Sequence[Mapping[int, float]]) -> None:
        self.said.append(("seed", place, tuple(numbers), tuple(dict(values) for values in reached)))

    def started(self, cohort: str) -> None:
        self.said.append(("started", cohort))

    def stopped(self, cohort: str) -> None:
        self.said.append(("stopped", cohort))

    def reported(self, cohort: str, report: Mapping[str, Any]) -> None:
        self.said.append(("reported", cohort))

    def split(self, cohort: str, parts: Sequence[str], second: int, count: int) -> None:
        self.said.append(("split", second, count, self.places[cohort]))
        self.places |= dict(zip(parts, (self.places[cohort], second), strict=True))

    def end(self, cohort: str) -> None:
        self.said.append(("end", cohort))

    @property
    def standing(self) -> list[tuple[int, ...]]:
        """Numbers of the trials at each position, lowest position first."""
        places: dict[int, tuple[int, ...]] = {}
        for what, place, *rest in self.said:
            if what == "split":
                count, first = rest
                assert not any(first < other <= place for other in places)
                places |= {first: places[first][:count], place: places[first][count:]}
            elif what in ("expect", "seed"):
                assert places[place] == rest[0] if place in places else all(other < place for other in places)
                places[place] = rest[0]
        return [places[place] for place in sorted(places)]


def waves(
    *study_runs: StudyRun,
    size: int = 4,
    ladder: Heard | None = None,
    halved: Collection[str] = (),
    record: Callable[[str], None] = lambda cohort: None,
) -> Waves:
    feed = Waves(study_runs, lambda trial: trial.config["width"], lambda trial: 0, lambda of: {})

    def cut(groups: Sequence[Group], whole: bool) -> list[Cut]:
        return [Cut(100, 100) if whole else Cut(size, size)] * len(groups)

    feed.begin(cut, ladder, halved=halved, record=record)
    return feed


def given(feed: Waves) -> Cohort:
    cohort = feed.next()
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
        }
        for trial in cohort.trials
    ]


def run(feed: Waves, stop_after: int = 1000) -> list[tuple[Trial, ...]]:
    """Finish at most `stop_after` cohorts of the feed, one by one. Returns their trials."""
    trained: list[tuple[Trial, ...]] = []
    while (cohort := feed.next()) and len(trained) < stop_after:
        trained.append(cohort.trials)
        feed.told(cohort.id, rows(cohort), [(trial.id, 1, "auroc", 0.5) for trial in cohort.trials])
    return trained


def recorded(trials: Sequence[Trial], of: Study, status: str = "finished") -> dict[int, RecordedTrial]:
    recorded_trials = {}
    for trial in trials:
        (row,) = rows(Cohort("c", (trial,), 1), status)
        params = {key: trial.config[key] for key in SPACE}
        told = result(of, row, [(trial.id, 1, "auroc", 0.5)])
        recorded_trials[int(str(trial.facts["number"]))] = RecordedTrial(params, told)
    return recorded_trials
