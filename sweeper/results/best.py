"""The best setting among the trials of a request, by one rule.

A *setting* is all hyperparameters but those whose values only repeat an experiment: the seed, and the class that is
normal or held out (`sweep.Repeats`). In a study it is a proposal, whatever its trials differ in. Its score is the mean
over its replicates, each of which has the mean over the classes (`replicates.whole_means`). It is chosen by
`val_METRIC` if the trials have it, else by the metric itself, which the sentence says.

Only settings with the same replicates are compared: those that finished with the most. So none wins because a hard
class is still to be trained, has failed or has diverged. A setting without a hyperparameter that repeats, such as a
method that takes no seed, needs no values of it: it would have the same result for each. Trials on different data, and
those of different studies, are not compared: each data set and each study has its own best setting.

A proposal of a study whose means do not meet a constraint of its search is infeasible, and never the best.

Shapes: S settings, C combinations of fixed values such as classes, N replicates.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import NormalDist
from typing import Any, Literal

import numpy as np

from sweeper.definition.constraint import Constraint
from sweeper.definition.metric import VALIDATION, Metric, is_finite, mean_of_all
from sweeper.definition.sweep import SEEDS, Repeats
from sweeper.results.estimates import ALPHA, MIN_REPLICATES, Bounds, over_images
from sweeper.results.replicates import strata_means, whole_means, within_unit
from sweeper.results.selection import chosen_interval, not_told_apart
from sweeper.storage.rows import QUESTIONS
from trainables.metrics.detection import Detection, detections_of, is_detection
from trainables.metrics.meanings import CHOICES, CHOSEN, MARGIN
from trainables.validation import is_own

METHOD = "method"
NUMBER = "number"
"""The column that tells the proposals of a study apart, each of which is a setting."""
OTHER_COLUMNS = ("trial_id", "status", "study", NUMBER, METHOD)
"""Columns beside hyperparameters and metrics that the rule reads."""
FINISHED = "finished"
ABSENT: Mapping[str, object] = {"status": FINISHED}
"""Column -> its value in a row that lacks it; of the others null."""
NO_CHOICE = ("schedule",)
"""Hyperparameters that nobody sets: the copies within a population."""

MOST_NAMED = 6
"""Number of the best settings whose hyperparameters are named."""
NO_SCORES = (*CHOICES, MARGIN)
"""Metrics that are no AUROC of one score."""
AUROC = "auroc_"
"""Prefix of the AUROC of each score."""

Key = tuple[Hashable, ...]


@dataclass(frozen=True, eq=False)
class SettingRuns:
    """The trials of a setting that was compared."""

    trials: tuple[str, ...]
    runs_CN: np.ndarray
    """The metric that is shown, of each class and replicate; NaN for a run without a finite value. A setting that takes
    no seed has its one value for every replicate."""
    by_CN: np.ndarray
    """The same of the metric by which it was chosen."""
    is_fixed: bool = False
    """Whether it is known without an error: a method that takes no seed gives it again."""
    margin: float = math.nan
    """Half the 95 % interval of a single value over test images; NaN if it is not known."""
    at: Mapping[str, object] = field(default_factory=dict)
    """The hyperparameters that tell it apart from the other settings; of the first `MOST_NAMED` alone."""

    @cached_property
    def values(self) -> np.ndarray:
        """The metric that is shown, of each replicate that has all classes."""
        means_N = whole_means(self.runs_CN)
        return means_N[~np.isnan(means_N)][: 1 if self.is_fixed else None]


@dataclass(frozen=True, eq=False)
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
    fixed: tuple[str, ...]
    """Those of these hyperparameters whose values are no replicates, but fixed, such as classes."""
    is_reported: bool
    """Whether its trials are of a user's function, whose metrics have the meaning that the function gives them."""
    number: int | None
    """The number of the trial in its study; None if there is no study."""
    compared: int
    """Number of settings that were compared."""
    settings: int
    """Number of settings that have trials."""
    sample: SettingRuns
    others: tuple[SettingRuns, ...]
    """Those of the other settings that were compared, the best by the criterion first."""
    scores: Mapping[str, int] = field(default_factory=dict)
    """For `CHOSEN`: anomaly score -> number of trials that chose it, the most frequent first."""
    infeasible: int = 0
    """Number of settings that were not compared because they do not meet one of the `constraints`."""
    constraints: tuple[Constraint, ...] = ()
    detection: tuple[Detection, ...] = ()
    """What the trial that comes first flags at each false-alarm rate; empty but for trials on one class of the user's
    own images."""

    @property
    def mean(self) -> float:
        """The mean over replicates."""
        return float(self.sample.values.mean()) if len(self.sample.values) else math.nan

    @property
    def interval(self) -> Bounds:
        """The 95 % interval of the mean, with the choice in it; of a single trial over test images. NaN if there is
        none."""
        if len(self.sample.trials) == 1:
            return over_images(self.mean, self.sample.margin)
        return self._chosen_interval(self.metric, "runs_CN")

    @property
    def choice(self) -> tuple[float, Bounds]:
        """The mean of the criterion, by which no other setting is better, and its interval."""
        mean = float(np.nanmean(whole_means(self.sample.by_CN)))
        return mean, self._chosen_interval(replace(self.metric, name=self.criterion), "by_CN")

    def _chosen_interval(self, metric: Metric, runs: str) -> Bounds:
        """The interval of the mean of the sample's `runs`, which was chosen by its `by_CN`."""
        values_SN, by_SN = (
            whole_means(np.stack([getattr(sample, name) for sample in (self.sample, *self.others)]))
            for name in (runs, "by_CN")
        )
        known_N = ~np.isnan(values_SN[0] + by_SN[0])
        known_S = ~np.isnan(values_SN[:, known_N] + by_SN[:, known_N]).any(1)
        if self.sample.is_fixed or not known_N.any():
            return math.nan, math.nan
        share = metric.bounds is not None and within_unit(values_SN[known_S][:, known_N].ravel())
        is_cost = metric.cost(1.0) > 0
        turned = [own[known_S][:, known_N].T * (-1.0 if is_cost else 1.0) for own in (values_SN, by_SN)]
        turned[0] += float(is_cost and share)
        low, high = chosen_interval(turned[0], turned[1], 0, share)
        return (share - high, share - low) if is_cost else (low, high)

    @cached_property
    def alike(self) -> tuple[SettingRuns, ...]:
        """The other settings that are not told apart from the best, the best by the criterion first: these and the best
        one have the truly best one with a probability of at least 95 %. Of a setting that lacks a value nothing is
        said."""
        samples, sign = (self.sample, *self.others), -self.metric.cost(1.0)
        if self.compared_over == "images":
            scale = NormalDist().inv_cdf(1 - ALPHA / len(self.others)) / NormalDist().inv_cdf(1 - ALPHA / 2)
            return tuple(other for other in self.others if not self._is_apart(other, scale))
        if not self.compared_over:
            return ()
        blocks_SN = self._blocks(self.compared_over)
        known_S = ~np.isnan(blocks_SN).any(1)
        kept = not_told_apart(sign * blocks_SN[known_S].T)
        alike = (sample for sample, own in zip(np.array(samples)[known_S], kept, strict=True) if own)
        return tuple(sample for sample in alike if sample is not self.sample)

    @cached_property
    def compared_over(self) -> Literal["replicates", "fixed", "images", ""]:
        """Over what settings are told apart: replicates, else fixed values such as classes, where there are at least
        `MIN_REPLICATES`; of single trials over test images; empty if nothing can be said."""
        if not self.others:
            return ""
        kinds = [kind for kind in ("replicates", "fixed") if self._blocks(kind).shape[1] >= MIN_REPLICATES]
        if kinds:
            return kinds[0]  # type: ignore[return-value]
        return "images" if math.isfinite(self.sample.margin) else ""

    def _blocks(self, kind: str) -> np.ndarray:
        """The values `[S, N]` of all settings over replicates, or the means `[S, C]` over these of fixed values, where
        the best setting has some."""
        runs_SCN = np.stack([sample.runs_CN for sample in (self.sample, *self.others)])
        blocks = whole_means(runs_SCN) if kind == "replicates" else strata_means(runs_SCN)
        if self.sample.is_fixed and all(other.is_fixed for other in self.others) and kind == "replicates":
            return blocks[:, :1]
        return np.asarray(blocks[:, ~np.isnan(blocks[0])])

    def _is_apart(self, other: SettingRuns, scale: float) -> bool:
        """Whether the other setting is worse beyond the error over test images, as if these were others for each."""
        own, mean = self.mean, float(other.values.mean()) if len(other.values) else math.nan
        low, high = over_images(own, scale * self.sample.margin)[0], over_images(mean, scale * other.margin)[1]
        return not math.hypot(own - low, high - mean) >= own - mean


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
        repeats: Repeats = SEEDS,
        constraints: Sequence[Constraint] = (),
    ) -> None:
        """`hyperparameters`: the columns of rows that are some; those that all trials share may be left out.
        `constraints` are those of searches."""
        self._constraints = tuple(constraints)
        names = [name for name in dict.fromkeys(hyperparameters) if name not in NO_CHOICE]
        self._questions = tuple(name for name in QUESTIONS if name not in repeats.names)
        self._repeats = repeats
        self._replicates = tuple(name for name in repeats.names if name in names)
        own = (name for name in names if name not in (*QUESTIONS, *self._replicates))
        self._keys = (NUMBER, *own)
        self._places: dict[str, int] = {}
        """Trial -> its place in each column."""
        self._columns: dict[str, list[Any]] = {name: [] for name in self.columns}
        """Column -> the value of each trial, None for null."""
        self._settings: dict[Key, dict[Key, list[int]]] = {}
        """Question -> setting -> places of its trials."""
        self._comparisons: dict[tuple[Key, bytes], _ComparedSettings] = {}
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
            mean = mean_of_all(values)
            return mean is None or constraint.violation(mean) > 0

        return lambda setting, places: (
            setting[0] is not None
            and any(is_beyond(constraint, [values[place] for place in places]) for constraint, values in columns)
        )

    def _answers(self, metric: Metric, named: Sequence[str]) -> Iterator[BestSetting | NoneFeasible]:
        """Yield what there is to say of each question whose trials have values of a metric."""
        every, shown = range(len(self._places)), metric.name.removeprefix(VALIDATION)
        trials = _TrialScores(
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
        self, question: Key, trials: _TrialScores, metric: Metric, named: Sequence[str]
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
        if not comparison.settings:
            return NoneFeasible(replace(metric, name=name), {}, comparison.infeasible, self._constraints)
        by_SCN, runs_SCN = (comparison.cube(scores) for scores in (by, shown))
        costs = [float(f"{metric.cost(cost):.12g}") for cost in np.nanmean(whole_means(by_SCN), axis=-1)]
        ranked = sorted(range(len(costs)), key=lambda index: (costs[index], comparison.trials[index][0]))
        setting, known = comparison.settings[ranked[0]], comparison.places[ranked[0]]
        order = sorted(known, key=lambda place: (metric.cost(by[place]), ids[place]))
        values = {ids[place]: math.nan if (value := shown[place]) is None else value for place in order}
        counts = {key: len({self._columns[key][place] for place in known}) for key in self._replicates}
        samples = [
            SettingRuns(
                comparison.trials[index],
                runs_SCN[index],
                by_SCN[index],
                bool(comparison.is_fixed[index]),
                self._margin(comparison.places[index]) if name == CHOSEN else math.nan,
                self._names(comparison.settings[index], settings, named) if position < MOST_NAMED else {},
            )
            for position, index in enumerate(ranked)
        ]
        number = setting[0] if isinstance(setting[0], int | float) else None
        return BestSetting(
            metric=replace(metric, name=name),
            criterion=criterion,
            at=samples[0].at,
            question={},
            values=values,
            replicates=counts,
            fixed=tuple(name for name in self._replicates if name not in comparison.drawn),
            is_reported=self._is_reported(known),
            number=None if number is None else int(number),
            compared=len(comparison.settings),
            settings=len(settings),
            sample=samples[0],
            others=tuple(samples[1:]),
            scores=chosen_scores(self._rows(order)) if name == CHOSEN else {},
            infeasible=comparison.infeasible,
            constraints=self._constraints,
            detection=tuple(detections_of(self._detection_columns(order[0]))),
        )

    def _detection_columns(self, place: int) -> dict[str, float | None]:
        """Return the metrics of detection of the trial at this place."""
        return {name: values[place] for name, values in self._columns.items() if is_detection(name)}

    def _comparison(
        self, settings: Mapping[Key, Sequence[int]], trials: _TrialScores, scores: Sequence[float | None]
    ) -> _ComparedSettings:
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
        drawn = self._repeats.replicates(self._distinct(wanted))
        indices = [index for index, name in enumerate(self._replicates) if name in drawn]
        others = [index for index, name in enumerate(self._replicates) if name not in self._repeats.drawn]
        replicates = _numbered(tuple(key[index] for index in indices) for key in sorted(wanted, key=repr))
        fixed = _numbered(tuple(key[index] for index in others) for key in sorted(wanted, key=repr))
        spots = [
            (
                number,
                fixed.setdefault(tuple(key[index] for index in others), len(fixed)),
                replicates.get(tuple(key[index] for index in indices), 0),
                place,
            )
            for number, known in enumerate(compared.values())
            for key, place in known.items()
        ]
        is_fixed = [all(key[index] is None for key in known for index in indices) for known in compared.values()]
        return _ComparedSettings(
            [*compared],
            [tuple(known.values()) for known in compared.values()],
            [tuple(trials.ids[place] for place in known.values()) for known in compared.values()],
            np.array(spots, dtype=np.int64).reshape(-1, 4),
            (len(compared), max(len(fixed), 1), max(len(replicates), 1)),
            np.array(is_fixed, dtype=bool),
            len(complete) - len(compared),
            drawn,
        )

    def _distinct(self, keys: Iterable[Key]) -> dict[str, set[Hashable]]:
        """Return hyperparameter that repeats an experiment -> its values, without null, among these replicates."""
        columns = [*zip(*keys, strict=True)]
        return {name: {*columns[index]} - {None} for index, name in enumerate(self._replicates)}

    def _has(self, places: Collection[int]) -> tuple[bool, ...]:
        """Return of each hyperparameter that repeats an experiment whether some of these trials have it."""
        return tuple(any(self._columns[name][place] is not None for place in places) for name in self._replicates)

    def _is_reported(self, places: Sequence[int]) -> bool:
        """Whether trials are of a user's function: of a method of the user's that has no data set."""
        methods, datasets = (self._columns.get(name, [None] * len(self._places)) for name in (METHOD, "dataset"))
        return all(
            methods[place] is not None and is_own(methods[place]) and datasets[place] is None for place in places
        )

    def _margin(self, places: Sequence[int]) -> float:
        """Return the margin over test images of a single trial; NaN for several."""
        if MARGIN not in self._columns or len(places) > 1:
            return math.nan
        (place,) = places
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
    names = [metric, shown, f"{VALIDATION}{shown}", *filter(is_detection, known)]
    if shown == CHOSEN:
        names += [name for name in known if name.removeprefix(VALIDATION).startswith(AUROC)]
    return [name for name in dict.fromkeys(names) if name in known]


def best_settings(
    rows: Sequence[Mapping[str, Any]],
    metric: Metric,
    hyperparameters: Iterable[str],
    *,
    repeats: Repeats = SEEDS,
    named: Sequence[str] = (),
    constraints: Sequence[Constraint] = (),
) -> list[BestSetting]:
    """Return the best setting of each question among rows. `hyperparameters` are the columns that are some."""
    settings = Settings(hyperparameters, repeats, constraints)
    settings.add(rows)
    return settings.best(metric, named)


@dataclass(frozen=True)
class _TrialScores:
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


@dataclass(frozen=True, eq=False)
class _ComparedSettings:
    """What is compared by a metric, which depends on the trials that have a value of it, and not on the values."""

    settings: Sequence[Key]
    places: Sequence[tuple[int, ...]]
    """The places of the trials of each setting."""
    trials: Sequence[tuple[str, ...]]
    """Their ids."""
    spots: np.ndarray
    """`[trials, 4]`: setting, class, replicate and place of each trial."""
    shape: tuple[int, int, int]
    is_fixed: np.ndarray
    """Of each setting whether its trials take no seed, so that it has one value for all replicates."""
    infeasible: int
    drawn: tuple[str, ...]
    """The hyperparameters whose values are the replicates."""

    def cube(self, scores: Sequence[float | None]) -> np.ndarray:
        """Return the scores `[S, C, N]`, the means of trials that agree in these; NaN where there are none."""
        values = np.array([math.nan if score is None else score for score in scores], dtype="float64")
        known = values[self.spots[:, 3]]
        spots, size = self.spots[~np.isnan(known)], math.prod(self.shape)
        flat = np.ravel_multi_index(tuple(spots[:, :3].T), self.shape)
        counts = np.bincount(flat, minlength=size)
        with np.errstate(invalid="ignore", divide="ignore"):
            cube = (np.bincount(flat, known[~np.isnan(known)], size) / counts).reshape(self.shape)
        cube[self.is_fixed] = cube[self.is_fixed][..., :1]
        return cube


def _numbered(keys: Iterable[Key]) -> dict[Key, int]:
    return {key: number for number, key in enumerate(dict.fromkeys(keys))}


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
