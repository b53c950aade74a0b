"""The best setting among the trials of a request, by one rule.

A *setting* is all hyperparameters but those whose values only repeat an experiment: the seed, and the class that is
normal or held out. In a study it is a proposal, whatever its trials differ in. Its trials are its *replicates*, and its
score is the mean over those that finished. It is chosen by `val_METRIC` if the trials have it, else by the metric
itself, which the sentence says. Errors are over classes, each with the mean of its seeds, where there are several, and
else over seeds (`sweep.replicate_keys`).

Only settings with the same replicates are compared: those that finished with the most. So none wins because a hard
class is still to be trained, has failed or has diverged. A setting without a hyperparameter that repeats, such as a
method that takes no seed, needs no values of it: it would have the same result for each. Trials on different data, and
those of different studies, are not compared: each data set and each study has its own best setting.

A proposal of a study whose means do not meet a constraint of its search is infeasible, and never the best.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from sweeper.spec.constraint import Constraint
from sweeper.spec.metric import VALIDATION, Metric, is_finite
from sweeper.spec.space import SEED
from sweeper.spec.sweep import REPLICATES, replicate_keys
from trainables.metrics.meanings import CHOICES, CHOSEN, MARGIN

QUESTIONS = ("study", "dataset", "image_digest")
"""Columns whose values are different questions: their trials are not compared."""
NUMBER = "number"
"""The column that tells the proposals of a study apart, each of which is a setting."""
STUDY_COLUMNS: dict[str, type] = {"study": str, "study_id": str, NUMBER: int, "wave": int, "schedule": str}
"""Columns of a search's rows that are recorded beside the hyperparameters."""
OTHER_COLUMNS = ("trial_id", "status", "study", NUMBER)
"""Columns beside hyperparameters and metrics that the rule reads."""
FINISHED = "finished"
ABSENT: Mapping[str, object] = {"status": FINISHED}
"""Column -> its value in a row that lacks it; of the others null."""
NO_CHOICE = ("schedule",)
"""Hyperparameters that nobody sets: the copies within a population."""
NOUNS = {"seed": "seeds", "normal_class": "classes", "held_out": "held-out classes", "dataset": "data sets"}
"""Hyperparameter -> what its values are, as a plural noun; others are `values of NAME`."""

MOST_NAMED = 6
"""Number of the best settings whose hyperparameters are named."""
NO_SCORES = (*CHOICES, MARGIN)
"""Metrics that are no AUROC of one score."""
AUROC = "auroc_"
"""Prefix of the AUROC of each score."""

Key = tuple[Hashable, ...]


@dataclass(frozen=True)
class Sample:
    """The trials of a setting that was compared."""

    trials: tuple[str, ...]
    runs: Mapping[Key, Mapping[Key, float]]
    """Class, as its values of the hyperparameters that tell classes apart -> run -> finite value of the metric that is
    shown. A run is its values of the hyperparameters that repeat an experiment, and a number."""
    margin: float = math.nan
    """Half the 95 % interval of a single value over test images; NaN if it is not known."""
    at: Mapping[str, object] = field(default_factory=dict)
    """The hyperparameters that tell it apart from the other settings; of the first `MOST_NAMED` alone."""

    @cached_property
    def values(self) -> Mapping[Key, float]:
        """Replicate -> value: the mean of each class if there are several, else each run."""
        if len(self.runs) == 1:
            return next(iter(self.runs.values()))
        return {own: statistics.fmean(runs.values()) for own, runs in self.runs.items()}

    @property
    def is_fixed(self) -> bool:
        """Whether it is known without an error: a method without any hyperparameter that repeats gives it again."""
        runs = [key for of_class in self.runs.values() for key in of_class]
        return len(runs) == 1 and all(value is None for value in runs[0][:-1])


@dataclass(frozen=True)
class BestSetting:
    """The best setting of one question, and how it was chosen."""

    metric: Metric
    """The metric whose values it has: on test images where the trials have that."""
    criterion: str
    """The metric by which it was chosen."""
    at: Mapping[str, object]
    """The hyperparameters that tell it apart from the other settings."""
    question: Mapping[str, object]
    """Data set and study, where there are several."""
    values: Mapping[str, float]
    """Trial -> value of `metric`, NaN if it has none. The trial that is best by the criterion comes first."""
    replicates: Mapping[str, int]
    """Hyperparameter -> number of its values among the trials."""
    number: int | None
    """The number of the trial in its study; None if there is no study."""
    compared: int
    """Number of settings that were compared."""
    settings: int
    """Number of settings that have trials."""
    sample: Sample
    others: tuple[Sample, ...]
    """Those of the other settings that were compared, the best by the criterion first."""
    choice: Sample | None = None
    """The values of the criterion, where that is another metric."""
    scores: Mapping[str, int] = field(default_factory=dict)
    """For `CHOSEN`: anomaly score -> number of trials that chose it, the most frequent first."""
    infeasible: int = 0
    """Number of settings that were not compared because they do not meet one of the `constraints`."""
    constraints: tuple[Constraint, ...] = ()

    @property
    def mean(self) -> float:
        """The mean over replicates."""
        return statistics.fmean(self.sample.values.values()) if self.sample.values else math.nan


@dataclass(frozen=True)
class NoneFeasible:
    """A question without a best setting, because no setting that would be compared meets the constraints."""

    metric: Metric
    question: Mapping[str, object]
    """Data set and study, where there are several."""
    infeasible: int
    """Number of these settings."""
    constraints: tuple[Constraint, ...]


class Settings:
    """Trials by question, setting and replicate, from rows that may come in any order and again."""

    def __init__(
        self,
        hyperparameters: Iterable[str],
        replicates: Sequence[str] = REPLICATES,
        constraints: Sequence[Constraint] = (),
    ) -> None:
        """`hyperparameters`: the columns of rows that are some; those that all trials share may be left out.
        `constraints` are those of searches."""
        self._constraints = tuple(constraints)
        names = [name for name in dict.fromkeys(hyperparameters) if name not in NO_CHOICE]
        self._questions = tuple(name for name in QUESTIONS if name not in replicates)
        self._replicates = tuple(name for name in dict.fromkeys(replicates) if name in names)
        own = (name for name in names if name not in (*QUESTIONS, *self._replicates))
        self._keys = (NUMBER, *own)
        self._places: dict[str, int] = {}
        """Trial -> its place in each column."""
        self._columns: dict[str, list[Any]] = {name: [] for name in self.columns}
        """Column -> the value of each trial, None for null."""
        self._settings: dict[Key, dict[Key, list[int]]] = {}
        """Question -> setting -> places of its trials."""
        self._comparisons: dict[tuple[Key, bytes], _Comparison] = {}
        """Question and which trials have a score -> what is compared: metrics that the same trials have share it."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of rows that are read, beside those of metrics."""
        constrained = (constraint.column for constraint in self._constraints)
        return tuple(dict.fromkeys((*OTHER_COLUMNS, *self._questions, *self._replicates, *self._keys, *constrained)))

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add rows. One of a trial that was added before replaces it."""
        known = list(rows)
        names = dict.fromkeys(name for row in known for name in row)
        self.add_columns({name: [row.get(name, ABSENT.get(name)) for row in known] for name in names})

    def add_columns(self, columns: Mapping[str, Sequence[Any]]) -> None:
        """Add rows, of which each column has the values."""
        count, before = max(map(len, columns.values()), default=0), len(self._places)
        trials = map(str, columns.get("trial_id", [""] * count))
        places = [self._places.setdefault(trial, len(self._places)) for trial in trials]
        are_new = places == list(range(before, before + count))
        for name in dict.fromkeys((*self._columns, *columns)):
            own, absent = self._columns.setdefault(name, []), ABSENT.get(name)
            values = _plain_values(columns.get(name, [absent] * count))
            own += [absent] * ((before if are_new else len(self._places)) - len(own))
            if are_new:
                own += values
                continue
            for place, value in zip(places, values, strict=True):
                own[place] = value
        self._comparisons.clear()
        new = range(before, len(self._places))
        keys = zip(new, self._values(self._questions, new), self._values(self._keys, new), strict=True)
        for place, question, setting in keys:
            self._settings.setdefault(question, {}).setdefault(setting, []).append(place)

    def _values(self, names: Sequence[str], places: range) -> Iterable[Key]:
        """Return the values of some columns at each of these places."""
        columns = [self._columns[name][places.start : places.stop] for name in names]
        return zip(*columns, strict=True) if columns else [()] * len(places)

    def best(self, metric: Metric, named: Sequence[str] = ()) -> list[BestSetting]:
        """Return the best setting of each question, in the order in which their trials came.

        `metric` may be one on validation images. `named` are hyperparameters that name a setting to a reader wherever
        they vary; others are added until it is told apart from all others of its question.
        """
        return [best for best in self._answers(metric, named) if isinstance(best, BestSetting)]

    def none_feasible(self, metric: Metric) -> list[NoneFeasible]:
        """Return the questions that have no best setting because of the constraints, in the same order."""
        found = self._answers(metric, ()) if self._constraints else ()
        return [answer for answer in found if isinstance(answer, NoneFeasible)]

    @property
    def infeasible(self) -> frozenset[str]:
        """The finished trials of the proposals that are infeasible by the means of their finished trials."""
        ids, statuses, beyond = list(self._places), self._columns["status"], self._are_infeasible()
        settings = (item for own in self._settings.values() for item in _by_number(own).items())
        finished = ((key, [place for place in own if statuses[place] == FINISHED]) for key, own in settings)
        return frozenset(ids[place] for key, own in finished if own and beyond(key, own) for place in own)

    def _are_infeasible(self) -> Callable[[Key, Collection[int]], bool]:
        """Return a function that says whether a setting, by the means of its trials at some places, does not meet a
        constraint. Only proposals of studies have constraints."""
        columns = [(constraint, self._scores(constraint.column)) for constraint in self._constraints]

        def is_beyond(constraint: Constraint, values: Sequence[float | None]) -> bool:
            known = [value for value in values if value is not None]
            return len(known) < len(values) or constraint.violation(statistics.fmean(known)) > 0

        return lambda setting, places: (
            setting[0] is not None
            and any(is_beyond(constraint, [values[place] for place in places]) for constraint, values in columns)
        )

    def _answers(self, metric: Metric, named: Sequence[str]) -> Iterator[BestSetting | NoneFeasible]:
        """Yield what there is to say of each question whose trials have values of a metric."""
        every, shown = range(len(self._places)), metric.name.removeprefix(VALIDATION)
        trials = _Trials(
            list(self._places),
            [(*values, 0) for values in self._values(self._replicates, every)],
            {name: self._scores(name) for name in (f"{VALIDATION}{shown}", shown) if name in self._columns},
        )
        several = [index for index, values in enumerate(zip(*self._settings, strict=True)) if len(set(values)) > 1]
        several = several[:1] if several[:1] == [0] else several  # the name of a study says its data set
        for question in self._settings:
            if (answer := self._best(question, trials, metric, named)) is not None:
                yield replace(answer, question={self._questions[index]: question[index] for index in several})

    def _scores(self, metric: str) -> list[float | None]:
        """Return the value of a metric at each place; None where the trial did not finish or has no finite one."""
        values = self._columns.get(metric, [None] * len(self._places))
        return [_score(value, status) for value, status in zip(values, self._columns["status"], strict=True)]

    def _best(
        self, question: Key, trials: _Trials, metric: Metric, named: Sequence[str]
    ) -> BestSetting | NoneFeasible | None:
        settings = _by_number(self._settings[question])
        places = [place for own in settings.values() for place in own]
        measured = [
            name for name, scores in trials.scores.items() if any(scores[place] is not None for place in places)
        ]
        if not measured:
            return None
        criterion, name = measured[0], measured[-1]
        by, shown, ids = trials.scores[criterion], trials.scores[name], trials.ids
        compares = question, bytes(score is not None for score in by)
        if compares not in self._comparisons:
            self._comparisons[compares] = self._comparison(settings, trials, by)
        comparison = self._comparisons[compares]
        compared = comparison.compared
        if not compared:
            return NoneFeasible(replace(metric, name=name), {}, comparison.infeasible, self._constraints)

        def rank(setting: Key) -> tuple[float, str]:
            own = [*compared[setting].values()]
            return metric.cost(statistics.fmean(map(by.__getitem__, own))), ids[own[0]]  # type: ignore[arg-type]

        ranked = sorted(compared, key=rank)
        setting, known = ranked[0], compared[ranked[0]]
        order = sorted(known, key=lambda key: (metric.cost(by[known[key]]), ids[known[key]]))
        values = {ids[known[key]]: math.nan if (value := shown[known[key]]) is None else value for key in order}
        counts = {key: len({each[index] for each in order}) for index, key in enumerate(self._replicates)}
        samples = [
            Sample(
                comparison.trials[own],
                _runs(comparison.classes[own], shown),
                self._margin(compared[own]) if name == CHOSEN else math.nan,
                self._names(own, settings, named) if position < MOST_NAMED else {},
            )
            for position, own in enumerate(ranked)
        ]
        choice = Sample(samples[0].trials, _runs(comparison.classes[setting], by))
        number = setting[0] if isinstance(setting[0], int | float) else None
        return BestSetting(
            metric=replace(metric, name=name),
            criterion=criterion,
            at=samples[0].at,
            question={},
            values=values,
            replicates=counts,
            number=None if number is None else int(number),
            compared=len(compared),
            settings=len(settings),
            sample=samples[0],
            others=tuple(samples[1:]),
            choice=choice if name != criterion else None,
            scores=chosen_scores(self._rows(known[key] for key in order)) if name == CHOSEN else {},
            infeasible=comparison.infeasible,
            constraints=self._constraints,
        )

    def _comparison(
        self, settings: Mapping[Key, Sequence[int]], trials: _Trials, scores: Sequence[float | None]
    ) -> _Comparison:
        """Return what is compared by a metric with these scores."""
        scored = {setting: known for setting, own in settings.items() if (known := trials.scored(own, scores))}
        wanted = _most_complete(known.keys() for known in scored.values())
        wanted_of = functools.cache(functools.partial(_without_those_lacking, wanted))
        complete = {
            setting: known
            for setting, known in scored.items()
            if known.keys() == wanted_of(self._has(settings[setting]))
        }
        beyond = self._are_infeasible()
        compared = {setting: known for setting, known in complete.items() if not beyond(setting, known.values())}
        names = [name for name in replicate_keys(self._distinct(wanted)) if name != SEED]
        return _Comparison(
            compared,
            {setting: tuple(trials.ids[place] for place in known.values()) for setting, known in compared.items()},
            {setting: self._classes(known, names) for setting, known in compared.items()},
            len(complete) - len(compared),
        )

    def _classes(self, replicates: Mapping[Key, int], names: Sequence[str]) -> dict[Key, dict[Key, int]]:
        """Return class, as its values of these hyperparameters -> its replicates, with the places of their trials."""
        indices = [self._replicates.index(name) for name in names]
        classes: dict[Key, dict[Key, int]] = {}
        for key, place in replicates.items():
            classes.setdefault(tuple([key[index] for index in indices]), {})[key] = place
        return classes

    def _distinct(self, keys: Iterable[Key]) -> dict[str, set[Hashable]]:
        """Return hyperparameter that repeats an experiment -> its values, without null, among these replicates."""
        columns = [*zip(*keys, strict=True)]
        return {name: {*columns[index]} - {None} for index, name in enumerate(self._replicates)}

    def _has(self, places: Collection[int]) -> tuple[bool, ...]:
        """Return of each hyperparameter that repeats an experiment whether some of these trials have it."""
        return tuple(any(self._columns[name][place] is not None for place in places) for name in self._replicates)

    def _margin(self, replicates: Mapping[Key, int]) -> float:
        """Return the margin over test images of a single trial; NaN for several."""
        if MARGIN not in self._columns or len(replicates) > 1:
            return math.nan
        (place,) = replicates.values()
        margin = _score(self._columns[MARGIN][place], FINISHED)
        return math.nan if margin is None else margin

    def _rows(self, places: Iterable[int]) -> Iterator[dict[str, Any]]:
        """Yield the rows at these places."""
        return ({name: values[place] for name, values in self._columns.items()} for place in places)

    def _names(self, setting: Key, settings: Collection[Key], named: Sequence[str]) -> dict[str, object]:
        """Return the hyperparameters that tell a setting apart: those in `named` that vary (of a study all of them,
        because they were searched), and as few others."""
        positions = {name: index for index, name in enumerate(self._keys) if name != NUMBER}
        others = [other for other in settings if other != setting]
        names = [
            name
            for name in dict.fromkeys(named)
            if (index := positions.get(name)) is not None
            and setting[index] is not None
            and (setting[0] is not None or any(other[index] != setting[index] for other in others))
        ]
        alike = [other for other in others if all(other[positions[name]] == setting[positions[name]] for name in names)]
        if setting[0] is not None and names:  # a trial of a study has its number
            alike = []
        for name in sorted(positions, key=lambda name: name != "method"):
            left = [other for other in alike if other[positions[name]] == setting[positions[name]]]
            if len(left) < len(alike):
                names.append(name)
                alike = left
        return {name: setting[positions[name]] for name in names}


def columns_of(metric: str, known: Collection[str]) -> list[str]:
    """Return the columns of rows that are read of a metric, as far as they are `known`."""
    shown = metric.removeprefix(VALIDATION)
    names = [metric, shown, f"{VALIDATION}{shown}"]
    if shown == CHOSEN:
        names += [name for name in known if name.removeprefix(VALIDATION).startswith(AUROC)]
    return [name for name in dict.fromkeys(names) if name in known]


def best_settings(
    rows: Sequence[Mapping[str, Any]],
    metric: Metric,
    hyperparameters: Iterable[str],
    *,
    replicates: Sequence[str] = REPLICATES,
    named: Sequence[str] = (),
    constraints: Sequence[Constraint] = (),
) -> list[BestSetting]:
    """Return the best setting of each question among rows. `hyperparameters` are the columns that are some."""
    settings = Settings(hyperparameters, replicates, constraints)
    settings.add(rows)
    return settings.best(metric, named)


@dataclass(frozen=True)
class _Trials:
    """What tells the best setting by a metric: of each trial, at its place."""

    ids: Sequence[str]
    replicates: Sequence[Key]
    """The values of the hyperparameters that repeat an experiment, and 0."""
    scores: Mapping[str, Sequence[float | None]]
    """The metric on validation images, and on test images -> its finite values, None without one."""

    def scored(self, places: Iterable[int], scores: Sequence[float | None]) -> dict[Key, int]:
        """Return replicate -> place, of those trials of a setting that have a score, by their ids.

        A replicate has its values of the hyperparameters and a number, as several trials may have the same values.
        """
        known: dict[Key, int] = {}
        numbers: Counter[Key] = Counter()
        for place in sorted(places, key=self.ids.__getitem__):
            if scores[place] is not None:
                key = self.replicates[place]
                if key in known:
                    numbers[key] += 1
                    key = (*key[:-1], numbers[key])
                known[key] = place
        return known


@dataclass(frozen=True)
class _Comparison:
    """What is compared by a metric, which depends on the trials that have a value of it, and not on the values."""

    compared: Mapping[Key, Mapping[Key, int]]
    """Setting -> replicate -> place of its trial."""
    trials: Mapping[Key, tuple[str, ...]]
    """Setting -> its trials."""
    classes: Mapping[Key, Mapping[Key, Mapping[Key, int]]]
    """Setting -> class -> replicate -> place."""
    infeasible: int


def _runs(classes: Mapping[Key, Mapping[Key, int]], scores: Sequence[float | None]) -> dict[Key, dict[Key, float]]:
    """Return class -> run -> score, of the runs that have one."""
    found = {
        own: {key: score for key, place in replicates.items() if (score := scores[place]) is not None}
        for own, replicates in classes.items()
    }
    return {own: runs for own, runs in found.items() if runs}


def _by_number(settings: Mapping[Key, Sequence[int]]) -> dict[Key, Sequence[int]]:
    """Return the settings, those with the number of one proposal as one, without the values in which they differ."""
    of_number: dict[Hashable, list[Key]] = {}
    for key in settings:
        of_number.setdefault(key if key[0] is None else key[0], []).append(key)
    return {
        tuple(values[0] if len(set(values)) == 1 else None for values in zip(*keys, strict=True)): [
            place for key in keys for place in settings[key]
        ]
        for keys in of_number.values()
    }


def _most_complete(known: Iterable[Collection[Key]]) -> frozenset[Key]:
    """Return the largest set of replicates that a setting has; of several, the one that most settings have."""
    counts = Counter(map(frozenset, known))
    most = max((len(keys), count) for keys, count in counts.items())
    return min(
        (keys for keys, count in counts.items() if (len(keys), count) == most), key=lambda keys: sorted(map(repr, keys))
    )


def _without_those_lacking(wanted: Iterable[Key], has: tuple[bool, ...]) -> set[Key]:
    """Return the replicates that a setting can have: without the hyperparameters that none of its trials has."""
    return {(*(value if own else None for value, own in zip(key, has, strict=False)), key[-1]) for key in wanted}


def _score(value: Any, status: object) -> float | None:
    """Return the value of a metric, which is plain, of a trial that finished; None if it is no finite number."""
    return float(value) if status == FINISHED and is_finite(value) else None


def chosen_scores(rows: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """Return how many trials chose each anomaly score: the first whose AUROC on validation images, or on test images
    where none was measured on these, is that of `CHOSEN`."""
    counts: Counter[str] = Counter()
    for row in rows:
        known = {name: _score(_plain(value), row.get("status", FINISHED)) for name, value in row.items()}
        prefix = VALIDATION if known.get(f"{VALIDATION}{CHOSEN}") is not None else ""
        best, names = known.get(f"{prefix}{CHOSEN}"), [name for name in row if name.startswith(f"{prefix}{AUROC}")]
        of_scores = (name for name in names if name.removeprefix(prefix) not in NO_SCORES)
        chosen = next((name for name in of_scores if known[name] == best), None)
        counts.update([chosen.removeprefix(f"{prefix}{AUROC}")] if chosen else [])
    return dict(counts.most_common())


def _plain(value: Any) -> Any:
    """Return the value with what pandas has for null replaced by None."""
    if isinstance(value, float):
        return None if math.isnan(value) else value
    if isinstance(value, str | int) or value is None:
        return value
    return value.item() if hasattr(value, "item") else None


NOT_NULL = {str, int, bool, type(None)}
"""Types of values that are plain as they are; floats are but for NaN."""


def _plain_values(values: Sequence[Any]) -> Sequence[Any]:
    """Return values of a column as `_plain` does."""
    types = {*map(type, values)}
    if types <= NOT_NULL:
        return values
    if types <= {*NOT_NULL, float}:
        return [None if value != value else value for value in values]
    return [*map(_plain, values)]
