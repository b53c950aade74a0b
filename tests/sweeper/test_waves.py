import random
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution

from sweeper.attempts import Attempts
from sweeper.cohorts import Cohort, Cut, Group, halves
from sweeper.course import Course, Recorded, result
from sweeper.metric import Metric
from sweeper.rules import Halving, Population
from sweeper.study import Search, Study
from sweeper.trials import Trial
from sweeper.warm import Warm
from sweeper.waves import Waves

SPACE = {"x": FloatDistribution(0.0, 1.0), "width": CategoricalDistribution([1, 2])}


def study(**changes: Any) -> Study:
    given: dict[str, Any] = {"trials": 10, "wave": 4, "metric": Metric("auroc", "maximize"), "sampler": "random"}
    (made,) = Search(SPACE, {"method": "vje"}, **(given | changes)).studies()
    return made


def course(of: Study, recorded: Mapping[int, Recorded] | None = None) -> Course:
    return Course(of, "s0", Warm(None), recorded or {}, lambda given: {**given, "seed": 0})


class Heard:
    """A ladder that writes down what it is told."""

    def __init__(self) -> None:
        self.said: list[tuple[Any, ...]] = []
        self.places: dict[str, int] = {}

    def expect(self, study: str, place: int, cohort: str, numbers: Sequence[int]) -> None:
        self.said.append(("expect", place, tuple(numbers)))
        self.places[cohort] = place

    def seed(self, study: str, place: int, numbers: Sequence[int], reached: Sequence[Mapping[int, float]]) -> None:
        self.said.append(("seed", place, tuple(numbers), tuple(dict(one) for one in reached)))

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
        """Trials by number, those of each place together, lower places first."""
        places: dict[int, tuple[int, ...]] = {}
        for what, place, *rest in self.said:
            if what == "split":
                count, first = rest
                assert not any(first < one <= place for one in places)
                places |= {first: places[first][:count], place: places[first][count:]}
            elif what in ("expect", "seed"):
                assert places[place] == rest[0] if place in places else all(one < place for one in places)
                places[place] = rest[0]
        return [places[place] for place in sorted(places)]


def waves(
    *courses: Course,
    size: int = 4,
    ladder: Heard | None = None,
    halved: Collection[str] = (),
    record: Callable[[str], None] = lambda cohort: None,
) -> Waves:
    made = Waves(courses, lambda trial: trial.config["width"], lambda trial: 0, lambda of: {})

    def cut(groups: Sequence[Group], whole: bool) -> list[Cut]:
        return [Cut(100, 100) if whole else Cut(size, size)] * len(groups)

    made.begin(cut, ladder, halved=halved, record=record)
    return made


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
    """Train all that the feed gives, cohort by cohort; returns what was given."""
    given: list[tuple[Trial, ...]] = []
    while (cohort := feed.next()) and len(given) < stop_after:
        given.append(cohort.trials)
        feed.told(cohort.id, rows(cohort), [(trial.id, 1, "auroc", 0.5) for trial in cohort.trials])
    return given


def recorded(trials: Sequence[Trial], of: Study, status: str = "finished") -> dict[int, Recorded]:
    found = {}
    for trial in trials:
        (row,) = rows(Cohort("c", (trial,), 1), status)
        params = {key: trial.config[key] for key in SPACE}
        found[int(str(trial.facts["number"]))] = Recorded(params, result(of, row, [(trial.id, 1, "auroc", 0.5)]))
    return found


def test_a_wave_follows_when_each_trial_of_the_one_before_has_a_result() -> None:
    feed = waves(course(study()))
    first = [feed.next(), feed.next()]
    assert feed.next() is None and not feed.ended
    widths = [{trial.config["width"] for trial in cohort.trials} for cohort in first if cohort]
    assert sorted(map(len, widths)) == [1] * len([cohort for cohort in first if cohort])  # one shape a cohort
    for cohort in filter(None, first):
        assert feed.next() is None
        feed.told(cohort.id, rows(cohort), [])
    assert feed.next() is not None


def test_all_trials_are_asked_numbered_and_of_their_wave() -> None:
    feed = waves(course(study()))
    given = [trial for trials in run(feed) for trial in trials]
    assert feed.ended and len({trial.id for trial in given}) == 10
    assert sorted(int(str(trial.facts["number"])) for trial in given) == list(range(10))
    assert [trial.facts["wave"] for trial in feed.trials] == [0] * 4 + [1] * 4 + [2] * 2
    assert all(trial.facts["study_id"] == "s0" for trial in given)


@pytest.mark.parametrize("sampler", ["random", "tpe"])
@pytest.mark.parametrize("done", [0, 1, 2, 3])
def test_a_study_rebuilt_from_its_rows_goes_on_as_if_it_had_not_been_cut_off(sampler: str, done: int) -> None:
    of = study(sampler=sampler)
    whole = waves(course(of))
    run(whole)
    before = waves(course(of))
    trained = [trial for trials in run(before, stop_after=done) for trial in trials]
    after = waves(course(of, recorded(trained, of)))
    assert not {trial.id for trials in run(after) for trial in trials} & {trial.id for trial in trained}
    assert after.trials == whole.trials and after.ended


def test_a_cohort_keeps_its_id_when_it_is_continued() -> None:
    of = study(wave=8, trials=8)
    whole = waves(course(of), size=2)
    run(whole, stop_after=1)
    first, *_ = whole.cohorts.values()
    after = waves(course(of, recorded(first.trials[:1], of)), size=2)
    again = after.next()
    assert again and again.id == first.id and again.trials == first.trials[1:]


def test_what_failed_never_stalls_a_search_and_is_tried_again_by_the_next() -> None:
    of = study()
    feed = waves(course(of))
    given = []
    while cohort := feed.next():
        given.append(cohort)
        feed.told(cohort.id, rows(cohort, "failed"), [])
    assert feed.ended and len(feed.trials) == 10
    failed = [trial for cohort in given for trial in cohort.trials]
    later = course(of, recorded(failed, of, "failed"))
    assert later.ahead == ["failed"] * 6 and waves(later).next() is not None


@pytest.mark.parametrize("status", ["diverged", "pruned"])
def test_diverged_and_pruned_trials_are_results(status: str) -> None:
    of = study(sampler="tpe")
    feed = waves(course(of))
    while cohort := feed.next():
        feed.told(cohort.id, [row | {"auroc": None} for row in rows(cohort, status)], [])
    assert feed.ended and course(of, recorded(feed.trials, of, status)).ended


def test_the_ladder_hears_of_every_cohort_in_order_and_of_what_earlier_runs_reached() -> None:
    of, ladder = study(pruner=Halving(1)), Heard()
    run(waves(course(of), ladder=ladder))
    places = [said[1] for said in ladder.said if said[0] == "expect"]
    assert places == sorted(set(places))
    numbers = [number for said in ladder.said if said[0] == "expect" for number in said[2]]
    assert sorted(numbers) == list(range(10))
    assert sum(said[0] == "end" for said in ladder.said) == len(places)
    later, first_wave = Heard(), course(of).waves[0]
    waves(course(of, recorded(first_wave, of)), ladder=later)
    assert later.said[0] == ("seed", 0, (0, 1, 2, 3), ({1: 0.5},) * 4)
    assert [said[0] for said in later.said[1:]] == ["expect"] * (len(later.said) - 1) and later.said[1][1] > 0


def test_parts_of_a_cohort_that_is_judged_stand_between_it_and_the_next() -> None:
    of, ladder = study(pruner=Halving(1)), Heard()
    feed = waves(course(of), ladder=ladder)
    whole = feed.next()
    assert whole is not None and len(whole.trials) == 2
    first, second = feed.halve(whole)
    assert first.trials + second.trials == whole.trials and {first.id, second.id} <= set(feed.cohorts)
    (split,) = (said for said in ladder.said if said[0] == "split")
    assert ladder.said[0][1] < split[1] < ladder.said[1][1] and split[2] == 1


def test_the_ladder_hears_who_has_a_worker() -> None:
    ladder = Heard()
    feed = waves(course(study(pruner=Halving(1))), ladder=ladder)
    cohort = feed.next()
    assert cohort
    feed.started(cohort.id)
    feed.stopped(cohort.id)
    assert ladder.said[-2:] == [("started", cohort.id), ("stopped", cohort.id)]


@pytest.mark.parametrize("done", [(), (0,), (1,), (0, 2), (2, 3)])
def test_a_continued_search_goes_on_with_the_parts_of_its_cohorts_where_they_stood(done: Sequence[int]) -> None:
    of, ladder, halved = study(pruner=Halving(1), wave=10), Heard(), list[str]()
    feed = waves(course(of), ladder=ladder, record=halved.append)
    whole = given(feed)
    first, second = feed.halve(whole)
    parts = (first, *feed.halve(second), *iter(feed.next, None))
    assert halved == [whole.id, second.id] and len(parts) > 3
    later = Heard()
    trained = [trial for index in done for trial in parts[index].trials]
    after = waves(course(of, recorded(trained, of)), ladder=later, halved=halved)
    left = [part for index, part in enumerate(parts) if index not in done]
    assert list(iter(after.next, None)) == left and later.standing == ladder.standing
    assert all(after.before(part.id) == feed.before(part.id) for part in left)
    more = [part for part in left if len(part.trials) > 1 and after.halve(part)]
    assert len(later.standing) == len(ladder.standing) + len(more)
    assert sum(later.standing, ()) == sum(ladder.standing, ())


@pytest.mark.parametrize(("done", "sizes"), [(1, [1, 2]), (2, [2])])
def test_halves_are_those_of_the_whole_without_who_has_a_result(done: int, sizes: list[int]) -> None:
    of, ladder = study(pruner=Halving(1), wave=10), Heard()
    whole = given(waves(course(of)))
    feed = waves(course(of, recorded(whole.trials[:done], of)), ladder=ladder)
    rest = given(feed)
    assert (rest.id, rest.trials) == (whole.id, whole.trials[done:])
    before = ladder.standing
    parts = feed.halve(rest)
    assert [len(part.trials) for part in parts] == sizes and sum((part.trials for part in parts), ()) == rest.trials
    assert {part.id for part in parts} <= {half.id for half in halves(whole)} & set(ladder.places)
    assert sum(ladder.standing, ()) == sum(before, ()) and len(ladder.standing) == len(before) + len(parts) - 1


def test_whatever_is_halved_and_killed_every_trial_of_a_search_ends_and_only_who_is_poisoned_fails() -> None:
    """And no cohort fails twice as a whole, but trials that stand alone."""
    drawn = random.Random(5)
    for _ in range(50):
        of, halved, failures = study(pruner=Halving(1), wave=drawn.randint(4, 10)), list[str](), Counter[str]()
        poisoned, results = set(drawn.sample(range(10), drawn.randint(1, 3))), dict[int, Recorded]()
        while not (all(number in results for number in range(10)) and drawn.random() < 0.5):
            ladder = Heard()
            feed = waves(course(of, results), size=8, ladder=ladder, halved=halved, record=halved.append)
            attempts = Attempts(feed, 0)
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
    feed = waves(course(study(population=Population(1), wave=8, trials=8, axes={})))
    whole = feed.next()
    assert whole is not None and list(feed.halve(whole)) == []


def test_a_study_without_a_pruner_is_none_of_the_ladders_business() -> None:
    ladder = Heard()
    waves(course(study()), ladder=ladder)
    assert not ladder.said


def test_a_population_stays_whole() -> None:
    of = study(population=Population(1), wave=8, trials=8, axes={})
    feed = waves(course(of), size=1)
    assert max(len(cohort.trials) for cohort in (feed.next(), feed.next()) if cohort) > 1


def test_several_studies_take_turns() -> None:
    first, second = course(study()), Course(study(seed=1), "s1", Warm(None), {}, dict)
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
