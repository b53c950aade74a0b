"""Studies before anything starts: checked at the ends of their search space, and rebuilt from their rows."""

from __future__ import annotations

import functools
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sweeper.definition.space import SECONDS, UNSEARCHABLE_KEYS, Population, Search, Study, Value, bounds
from sweeper.errors import SpecError
from sweeper.planning.changes import Differences, format_value
from sweeper.planning.cohorts import content_hash
from sweeper.planning.sources import Record
from sweeper.request import Request
from sweeper.storage.files import read_record
from sweeper.storage.layout import study_path
from sweeper.storage.store import Store
from trainables import config
from trainables.json_input import decode
from trainables.sections import Training, TrialConfig
from trainables.training.checks import PreflightResult

if TYPE_CHECKING:
    from sweeper.search.study_run import StudyRun


@dataclass(frozen=True)
class StudyDefinition:
    """What the proposals of a study depend on, as `Study.identity` has it and the store keeps it."""

    fixed: Mapping[str, bool | int | float | str | None]
    space: Mapping[str, str]
    """Key -> the text of Optuna's distribution."""
    objectives: tuple[tuple[str, str | None], ...]
    rules: tuple[int, str, int, str, str]
    """Wave, sampler, its seed, pruner and population."""
    replicates: Mapping[str, tuple[bool | int | float | str | None, ...]] = field(default_factory=dict)
    constraints: tuple[tuple[str, str, float], ...] = ()
    conditions: tuple[tuple[str, tuple[bool | int | float | str | None, ...], Mapping[str, str]], ...] = ()

    @property
    def described(self) -> Mapping[str, str]:
        """Key, or option of a search -> what the study has for it, as text."""
        found = {key: format_value(value) for key, value in self.fixed.items()}
        found |= {key: _shown_distribution(text) for key, text in self.space.items()}
        found |= {key: f"each of {_listed(values)}" for key, values in self.replicates.items()}
        for on, choices, space in self.conditions:
            found |= {key: f"{_shown_distribution(text)} if {on} is {_listed(choices)}" for key, text in space.items()}
        wave, sampler, seed, pruner, population = self.rules
        found |= {"wave": str(wave), "sampler": sampler, "search-seed": str(seed)}
        found |= {"pruner": pruner, "population": population}
        found["objective"] = ", ".join(f"{direction} {name}" for name, direction in self.objectives)
        found["constraints"] = ", ".join(f"{column} {sign} {bound:g}" for column, sign, bound in self.constraints)
        return {key: "none" if text in ("", "None") else text for key, text in found.items()}


@dataclass(frozen=True)
class _StoredDefinition:
    """What the store has of a study beside its warm start."""

    study: StudyDefinition


ABSENT = "absent"
NUMBERS = re.compile(r"(?:Float|Int)Distribution\(high=(.+), log=(True|False), low=(.+), step=(.+)\)")
CHOICES = re.compile(r"CategoricalDistribution\(choices=\((.*)\)\)")


def _shown_distribution(text: str) -> str:
    """Return what Optuna's text of a distribution says, such as `0.03 to 3, log` or `one of 1, 2`."""
    if numbers := NUMBERS.fullmatch(text):
        high, log, low, step = numbers.groups()
        steps = "" if step in ("None", "1") else f", in steps of {step}"
        return f"{low} to {high}{', log' if log == 'True' else ''}{steps}"
    choices = CHOICES.fullmatch(text)
    return f"one of {choices[1].removesuffix(',')}" if choices else text


def _listed(values: Sequence[Value]) -> str:
    return ",".join(map(format_value, values))


class StudyRecords:
    """The rows and the history of a sweep, from which its studies are rebuilt; none for a request that begins anew."""

    def __init__(self, request: Request, store: Store, sweep: str, studies: Sequence[Study]) -> None:
        """Nothing is read without `studies`."""
        self._request, self._store, self._sweep = request, store, sweep
        self._studies, self._definitions = studies, dict[str, StudyDefinition | None]()
        self.notes: list[str] = []
        """What the user should know of the studies, one line each."""
        self.rows, history = store.records(sweep) if studies and not request.fresh else ([], [])
        self._reports: dict[str, list[Record]] = {}
        for report in history:
            self._reports.setdefault(report[0], []).append(report)

    def differences(self, row: Mapping[str, Any]) -> Differences:
        """Return in what the definition of the study of a row differs from the nearest of the present ones; in what the
        row itself differs from their fixed values, where the store does not have it."""
        earlier, found = self._definition(str(row["study_id"])), list[Differences]()
        for definition in self._present:
            if earlier is None:
                own = definition.fixed.items()
                found.append({key: (row.get(key), (value,)) for key, value in own if row.get(key) != value})
                continue
            was, now = earlier.described, definition.described
            keys = [key for key in dict.fromkeys((*was, *now)) if was.get(key) != now.get(key)]
            found.append({key: (was.get(key, ABSENT), (now.get(key, ABSENT),)) for key in keys})
        return min(found, key=len) or {"study": ("of another version", ("of this one",))}

    @functools.cached_property
    def _present(self) -> list[StudyDefinition]:
        return [decode(StudyDefinition, json.loads(json.dumps(study.identity))) for study in self._studies]

    def _definition(self, study_id: str) -> StudyDefinition | None:
        """The definition of a study as the store has it."""
        if study_id not in self._definitions:
            stored = read_record(self._store.files, study_path(self._sweep, study_id), _StoredDefinition)
            self._definitions[study_id] = stored.study if stored else None
        return self._definitions[study_id]

    def study_run(
        self, study: Study, study_config: Mapping[str, Value], facts: Mapping[str, Value], steps: int
    ) -> StudyRun:
        """Return the study as its rows leave it. `study_config` is a config of its trials, `facts` are further columns
        of its rows, and a trial makes `steps` at least."""
        from sweeper.search.study_run import (  # here: it imports Optuna
            Recorded,
            StudyRun,
            WarmStart,
            definition_path,
            read_warm_start,
            result,
            warm_start_from_rows,
        )

        defaults, own = config.defaults(str(study.fixed["method"])), identity(study, self._request)
        path, warm = definition_path(self._sweep, own), None
        if not self._request.fresh:
            warm = read_warm_start(self._store.files, path, study)
        if warm is None and self._request.warm_start:
            warm = warm_start_from_rows(self._store, self._request.warm_start, study, study_config, defaults)
            self.notes.append(warm.note)
        recorded: dict[int, Recorded] = {}
        for row in self.rows:
            if row.get("study_id") == own and row["number"] < study.search.trials:
                proposal = recorded.setdefault(row["number"], Recorded(study.searched_values(row, defaults), {}))
                reports = self._reports.get(row["trial_id"], [])
                proposal.results[study.replicate_of(row, defaults)] = result(study, row, reports)
        return StudyRun(study, own, warm or WarmStart(None), recorded, config.resolve, facts, steps)


def identity(study: Study, request: Request) -> str:
    """Return the id of a study: a hash of all that its proposals depend on."""
    return content_hash([study.identity, request.warm_start and str(request.warm_start)])


def corners(study: Study) -> list[TrialConfig]:
    """Configs of trials at the ends of the search space.

    The first has every key at its lowest value or first choice. The others differ from it in one key, which has its
    highest value or another choice, and in those that are drawn on condition of that, or are its conditions. Each comes
    with all of its replicates, one after the other. Raises SpecError if one of them is illegal.
    """
    ends = [study.proposal({})]
    for key, distribution in study.search.searched.items():
        own = [study.proposal({**study.reaching(key), key: value}) for value in bounds(distribution)]
        ends += [params for params in own if params not in ends]
    try:
        return [config.resolve({**study.fixed, **params, **own}) for params in ends for own in study.replicates]
    except ValueError as error:
        raise SpecError(str(error)) from None


def check(
    studies: Sequence[Study],
    corners: Sequence[Sequence[TrialConfig]],
    preflight_results: Sequence[PreflightResult],
    cohort: int | None = None,
) -> list[int]:
    """Return the training steps of a trial of each study, the least where they differ. Raises SpecError if studies
    cannot run. The results are those of all `corners`, in order; `cohort` is the size of cohorts that is asked for."""
    unread, steps = iter(preflight_results), []
    for study, own_corners in zip(studies, corners, strict=True):
        own_results = list(itertools.islice(unread, len(own_corners)))
        _check_study(study, own_corners, own_results)
        if study.search.replicates and study.search.pruner:
            _check_judged_together(study.search, own_corners, own_results, cohort)
        pairs = zip(own_corners, own_results, strict=True)
        steps.append(min(corner.training.epochs * result.steps for corner, result in pairs))
    if len({corner.training.processes for corner in itertools.chain(*corners)}) > 1:
        raise SpecError("all trials of a search must have the same number of workers, but got several")
    return steps


def _check_study(study: Study, corners: Sequence[TrialConfig], preflight_results: Sequence[PreflightResult]) -> None:
    """Raise SpecError if a corner does not report the study's objectives and constraints, or its trials cannot be
    compared."""
    search, training = study.search, corners[0].training
    constrained = [constraint.column for constraint in search.constraints if not constraint.at_end]
    for name in (*(metric.name for metric in search.objectives if metric.name != SECONDS), *constrained):
        for result in preflight_results:
            if result.lacks(name):
                raise SpecError(f"these trials do not report {name}; they report: {', '.join(result.metrics)}")
    for key in sorted(UNSEARCHABLE_KEYS & set(search.searched)):
        raise SpecError(f"{key} must be fixed or an axis in a search, but it is searched")
    if search.pruner or search.population:
        if any(corner.training.patience for corner in corners):
            raise SpecError(
                "a pruner or a population compares trials at the same epochs, so patience must be 0; --pruner none "
                "searches without"
            )
        _check_comparable_during_training(search, preflight_results)
    if (search.pruner or search.population) and config.is_function(corners[0].method):
        if training.epochs < 2:
            raise SpecError(
                "a pruner or a population compares trials at epochs, so a function needs a parameter `epochs` of at "
                f"least 2, but got epochs={training.epochs}"
            )
        if training.processes > 1:
            raise SpecError(
                f"a function that is compared while it trains needs workers=1, but got {training.processes}"
            )
    if search.pruner:
        search.pruner.ladders(training.epochs, training.report_every)
    if search.population:
        _check_population(study, search.population, training)


def _check_judged_together(
    search: Search, corners: Sequence[TrialConfig], preflight_results: Sequence[PreflightResult], cohort: int | None
) -> None:
    """Raise SpecError if the replicates of a proposal cannot be in one cohort, where a pruner compares their mean."""
    law = "a pruner compares the mean of a proposal's replicates, which must train in one cohort"
    way_out = "search without one (--pruner none)"
    fusible = config.fusible_keys(corners[0].method)
    if alone := [key for key in search.replicates if key not in fusible]:
        raise SpecError(f"{law}, but {', '.join(alone)} cannot differ in one; {way_out}")
    for first in range(0, len(corners), search.repeats):
        steps = {result.steps for result in preflight_results[first : first + search.repeats]}
        if len(steps) > 1:
            keys, counts = ", ".join(search.replicates), " or ".join(map(str, sorted(steps)))
            raise SpecError(f"{law}, but by {keys} an epoch has {counts} steps; {way_out}")
    if cohort and cohort < search.repeats:
        raise SpecError(f"{law}, but of its {search.repeats} replicates --cohort {cohort} holds fewer; {way_out}")


def _check_comparable_during_training(search: Search, preflight_results: Sequence[PreflightResult]) -> None:
    """Raise SpecError if trials report at different epochs, or any of them reports the objective only at the end."""
    for key in sorted({"epochs", "report_every"} & set(search.searched)):
        raise SpecError(f"{key} must be fixed in a search with a pruner or a population, but it is searched")
    names = (search.objectives[0].name, *(constraint.column for constraint in search.constraints))
    for result, name in itertools.product(preflight_results, names):
        if result.lacks(name, before_the_end=True):
            raise SpecError(
                f"a pruner or a population needs a metric that is reported during training, but {name} is reported "
                f"only at the end; metrics reported during training: {', '.join(result.metrics_during_training)}"
            )


def _check_population(study: Study, population: Population, training: Training) -> None:
    """Raise SpecError if the population cannot adapt a searched key, or its interval does not fit the reports."""
    adaptable = config.adaptable_keys(str(study.fixed["method"]))
    for key, distribution in study.search.space.items():
        if key not in adaptable or hasattr(distribution, "choices"):
            raise SpecError(
                f"a population can only adapt numeric hyperparameters that keep tensor shapes, but {key} is searched; "
                f"fix it with --set {key}=VALUE, or search only: {', '.join(sorted(adaptable))}"
            )
    if population.every % training.report_every or population.every >= training.epochs:
        raise SpecError(
            "the `every` of a population must be a multiple of report_every and less than epochs, but got "
            f"every={population.every}, report_every={training.report_every}, epochs={training.epochs}"
        )
