"""One study of a search in progress: its trials so far, wave by wave, their results, and those that it began with.

A warm start, the results of another sweep, is kept in the store so that the study continues as it was begun.
"""

import itertools
import json
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sweeper.definition.metric import is_finite, mean_of_all
from sweeper.definition.space import EPOCHS, MEAN_OF, SEED, Study, Value, value_in
from sweeper.errors import SpecError
from sweeper.option_values import WarmStartRequest
from sweeper.planning.changes import Differences, differences_text, format_value, sorted_values
from sweeper.planning.cohorts import Trial, content_hash, identity
from sweeper.planning.sources import Record
from sweeper.search.ask_tell import AskTellStudy, Status, TrialResult
from sweeper.storage.files import Files, read_record
from sweeper.storage.layout import study_path
from sweeper.storage.store import Store
from trainables.json_input import Finite
from trainables.sections import TrialConfig

MATCHED_KEYS = (
    *("method", "dataset", "image_digest", "normal_class", "held_out", "outliers", "validation"),
    *("normal_images", "contamination"),
)
"""Keys that define what an objective measures. Only rows with the study's own values of these keys are used."""


@dataclass(frozen=True)
class WarmStart:
    """Results that a study knows before its first trial."""

    sweep: str | None
    """Sweep that the results come from; None for a study without a warm start."""
    results: tuple[tuple[Mapping[str, Value], tuple[float, ...]], ...] = ()
    """Values of the searched keys and the objectives, followed by the columns of the constraints, for each result."""
    note: str = field(default="", compare=False)
    """One line on the rows that the results are from; empty where they were read from the study's own file."""

    def write(self, files: Files, path: str, study: Study) -> None:
        """Write the warm start and the study's definition to `path`."""
        content = {"study": study.identity, "warm_start": self.sweep, "results": self.results}
        files.write(path, json.dumps(content, indent=1).encode())


@dataclass(frozen=True)
class _WarmStartRecord:
    """What `WarmStart.write` writes of a warm start."""

    warm_start: str | None
    results: tuple[tuple[Mapping[str, Value], tuple[Finite, ...]], ...]


def definition_path(sweep: str, identity: str) -> str:
    """Return the path in the store of a study's definition and warm start."""
    return study_path(sweep, identity)


def read_warm_start(files: Files, path: str, study: Study) -> WarmStart | None:
    """Read what `WarmStart.write` wrote for this study; None if there is no file or it is damaged."""
    numbers = len(study.search.objectives) + len(study.search.constraints)

    def checked(
        params: Mapping[str, Value], values: tuple[float, ...]
    ) -> tuple[Mapping[str, Value], tuple[float, ...]]:
        if not study.contains(params):
            raise ValueError("a result must have one value inside the search space for each key that it draws")
        if len(values) != numbers:
            raise ValueError("a result must have one number for each objective and constraint")
        return params, values

    def warm_start(record: _WarmStartRecord) -> WarmStart:
        return WarmStart(record.warm_start, tuple(checked(*pair) for pair in record.results))

    return read_record(files, path, _WarmStartRecord, warm_start)


@dataclass(frozen=True)
class _Used:
    """A row that a warm start uses."""

    row: Mapping[str, Any]
    values: tuple[float, ...]
    """As in the results of a `WarmStart`."""


def warm_start_from_rows(
    store: Store,
    request: WarmStartRequest,
    study: Study,
    config: Mapping[str, Value],
    defaults: Mapping[str, Value],
) -> WarmStart:
    """Warm start of a study from the finished rows of another sweep.

    A row is used if it has the values of `config` for the keys in `MATCHED_KEYS`, and for `epochs` unless the request
    says otherwise, and its searched values lie within the space. All other keys may differ. With replicates, rows of
    equal searched values are one result, their mean, if there is one of each replicate. `defaults` are those of the
    method's keys. Raises SpecError if no row can be used.
    """
    rows, own_values = store.rows(request.sweep, every=True), {**defaults, **config}
    if rows is None:
        raise SpecError(
            f"--warm-start needs rows, but store {store.files.display_uri} has none of sweep '{request.sweep}'"
        )
    constrained = [constraint.column for constraint in study.search.constraints]
    names = [*(metric.name for metric in study.search.objectives), *constrained]
    matched = [key for key in MATCHED_KEYS if key not in study.search.replicates]
    replicates = [tuple(own.values()) for own in study.replicates]
    same_epochs = not (request.any_epochs or EPOCHS in study.search.replicates or EPOCHS in study.search.searched)
    found: dict[tuple[object, ...], tuple[dict[str, Value], dict[Replicate, _Used]]] = {}
    of_other_epochs = list[Value]()
    for row in rows.to_pylist():
        fits = row["status"] == "finished" and all(
            value_in(row, key, defaults) == own_values.get(key) for key in matched
        )
        params = study.searched_values(row, defaults)
        values = [float(row[name]) for name in names if is_finite(row.get(name))]
        replicate = study.replicate_of(row, defaults)
        if not (fits and study.contains(params) and len(values) == len(names) and replicate in replicates):
            continue
        if same_epochs and row.get(EPOCHS) != config.get(EPOCHS):
            of_other_epochs.append(row.get(EPOCHS))
            continue
        # Rows may repeat a proposal, with other values of keys that are not searched.
        places = ((*params.items(), count) for count in itertools.count())
        place = next(place for place in places if place not in found or replicate not in found[place][1])
        found.setdefault(place, (params, {}))[1][replicate] = _Used(row, tuple(values))
    complete = [(params, list(own.values())) for params, own in found.values() if len(own) == len(replicates)]
    results = tuple(
        (params, tuple(map(statistics.fmean, zip(*(each.values for each in own), strict=True))))
        for params, own in complete
    )
    had = ",".join(map(format_value, sorted_values(set(of_other_epochs))))
    every, here = replace(request, any_epochs=True), f"these trials have epochs={config.get(EPOCHS)}"
    if not results and of_other_epochs:
        raise SpecError(
            f"--warm-start {request} must have rows of the same epochs, but those that fit study '{study.name}' have "
            f"epochs={had}, and {here}; --warm-start {every} begins with them"
        )
    if not results:
        keys = ", ".join(study.search.searched)
        each = "".join(f", one for each {key}={','.join(map(str, of))}" for key, of in study.search.replicates.items())
        raise SpecError(
            f"no finished row of sweep '{request.sweep}' fits study '{study.name}': a row must have the same "
            f"{', '.join(matched)}, report {', '.join(names)}, and have {keys} within the search space{each}"
        )
    free = {*study.search.searched, *study.search.replicates}
    fixed = {key: value for key, value in own_values.items() if key not in free}
    differences = [_fixed_differences(each.row, fixed, defaults) for _, own in complete for each in own]
    noted = [f"study {study.name} begins with {len(differences)} of the {len(rows)} rows of '{request.sweep}'"]
    if any(differences):
        noted.append(f"in keys that are fixed here, {differences_text(differences)}")
    if of_other_epochs:
        noted.append(f"{len(of_other_epochs)} with epochs={had} do not count, because {here} (--warm-start {every})")
    return WarmStart(request.sweep, results, "; ".join(noted))


def _fixed_differences(
    row: Mapping[str, Any], fixed: Mapping[str, Value], defaults: Mapping[str, Value]
) -> Differences:
    """Return the fixed keys in which a row differs from the study."""
    values = {key: value_in(row, key, defaults) for key in fixed}
    return {key: (values[key], (value,)) for key, value in fixed.items() if values[key] != value}


Replicate = tuple[Value, ...]
"""Values of the replicated keys, which tell the trials of a proposal apart; empty without replicates."""


@dataclass(frozen=True)
class Recorded:
    """One proposal of a study as the store has it."""

    params: Mapping[str, Value]
    """Value of every key that it draws."""
    results: dict[Replicate, TrialResult]
    """Those of its trials that have a row."""


class StudyRun:
    """One study in progress. Its last wave is open until each of its trials has a result; then the next is asked."""

    def __init__(
        self,
        study: Study,
        identity: str,
        warm: WarmStart,
        recorded: Mapping[int, Recorded],
        resolve: Callable[[Mapping[str, Value]], TrialConfig],
        facts: Mapping[str, Value] | None = None,
        steps: int = 0,
    ) -> None:
        """Ask and tell as many waves as the recorded results complete.

        `recorded` maps the numbers of proposals to what the store has. `resolve` adds the defaults to a trial's
        values. `facts` are further columns for the row of every trial, besides its study, number and wave. A trial
        makes `steps` training steps at least, from beginning to end.
        """
        self.study, self.id, self.warm, self.engine = study, identity, warm, AskTellStudy(study, warm.results)
        self.steps, self.waves = steps, list[tuple[Trial, ...]]()
        self._recorded, self._resolve, self._facts = recorded, resolve, facts or {}
        self._results: dict[str, TrialResult] = {}
        self._advance()

    @property
    def trials(self) -> tuple[Trial, ...]:
        return tuple(trial for wave in self.waves for trial in wave)

    @property
    def ended(self) -> bool:
        return self._proposed == self.study.search.trials and not self._open

    @property
    def statuses(self) -> dict[str, str]:
        """trial_id -> status, for the trials that have a result."""
        return {trial_id: result.status for trial_id, result in self._results.items()}

    @property
    def ahead(self) -> list[tuple[Trial, str]]:
        """The recorded trials not yet asked again, and their statuses: an earlier wave is open, as one of its trials
        failed."""
        return [
            (self._trial(number, recorded.params, replicate), result.status)
            for number, recorded in self._recorded.items()
            for replicate in self.study.replicates
            if number >= self._proposed and (result := self._result(number, replicate))
        ]

    @property
    def diverged(self) -> bool:
        """Whether the study has ended and none of its proposals has a result other than diverged."""
        return self.ended and all(
            result.status == "diverged" for wave in self.waves for result in self._results_of(wave)
        )

    def write_definition(self, files: Files, sweep: str) -> None:
        """Write the definition and the warm start of the study to the store, unless they are already there."""
        path = definition_path(sweep, self.id)
        if read_warm_start(files, path, self.study) is None:
            self.warm.write(files, path, self.study)

    def reached(self, trial: Trial) -> Mapping[int, float]:
        """Epoch -> objective, for a trial that has a result."""
        return self._results[trial.id].reached

    def add_results(self, results: Mapping[str, TrialResult]) -> bool:
        """Add results, keyed by trial_id. Returns whether they complete the open wave."""
        self._results |= results
        complete = not self._open
        self._advance()
        return complete

    @property
    def _open(self) -> bool:
        """Whether the last wave has a trial without a result."""
        return bool(self.waves) and any(trial.id not in self._results for trial in self.waves[-1])

    @property
    def _proposed(self) -> int:
        """Number of proposals so far."""
        return len(self.trials) // self.study.search.repeats

    def _results_of(self, wave: Sequence[Trial]) -> Iterator[TrialResult]:
        """Yield the result of each proposal of a wave whose trials all have one."""
        for start in range(0, len(wave), repeats := self.study.search.repeats):
            yield mean_result(
                [self._results[trial.id] for trial in wave[start : start + repeats]], self.study.replicates
            )

    def _advance(self) -> None:
        """Tell complete waves and ask for the next, until a wave is open or the study has all its trials."""
        while not self._open:
            if self.waves:
                self.engine.tell(list(self._results_of(self.waves[-1])))
            if self._proposed == self.study.search.trials:
                break
            self.waves.append(self._ask())

    def _ask(self) -> tuple[Trial, ...]:
        """Ask for the next wave, in which the replicates of a proposal follow each other. Takes over the recorded
        results of its trials, except failures."""
        asked_before, search = self._proposed, self.study.search
        known = {**dict(enumerate(search.given)), **{at: recorded.params for at, recorded in self._recorded.items()}}
        asked = self.engine.ask(min(search.wave, search.trials - asked_before), known)
        trials = []
        for (number, params), replicate in itertools.product(asked, self.study.replicates):
            trials.append(trial := self._trial(number, params, replicate))
            result = self._result(number, replicate)
            if result and result.status != "failed":  # failed trials are tried again
                self._results[trial.id] = result
        return tuple(trials)

    def _trial(self, number: int, params: Mapping[str, Value], replicate: Mapping[str, Value]) -> Trial:
        """A trial of a proposal. One with a result has the id of its row, which may be of a version in which trials had
        fewer keys."""
        config = self._resolve({**self.study.fixed, **params, **replicate})
        facts: dict[str, Value] = {"study": self.study.name, "study_id": self.id, "number": number}
        facts = {**self._facts, **facts, "wave": number // self.study.search.wave}
        result, trial_id = self._result(number, replicate), content_hash([self.id, number, identity(config)])
        if result and result.status != "failed":
            trial_id = str(result.attributes.get("trial_id", trial_id))
        return Trial(trial_id, config.complete(), facts)

    def _result(self, number: int, replicate: Mapping[str, Value]) -> TrialResult | None:
        """What the store has of a trial."""
        recorded = self._recorded.get(number)
        return recorded.results.get(tuple(replicate.values())) if recorded else None


WORST_FIRST: tuple[Status, ...] = ("failed", "diverged", "pruned", "finished")
"""Status of a proposal: the first one that any of its replicates has."""


def mean_result(results: Sequence[TrialResult], replicates: Sequence[Mapping[str, Value]]) -> TrialResult:
    """Return the result of a proposal from those of its trials, each with what it has by `replicates`: the means, of
    objectives and constrained columns that all of them have.

    If one has failed or diverged, so has the proposal: a mean over the others would be better the more of them do.
    """
    if len(results) == 1:
        return results[0]
    first, statuses = results[0], {result.status for result in results}
    values = [[result.values[index] for result in results] for index in range(len(first.values))]
    epochs = set.intersection(*(set(result.reached) for result in results))
    reached = {epoch: statistics.fmean(result.reached[epoch] for result in results) for epoch in sorted(epochs)}
    status = next(status for status in WORST_FIRST if status in statuses)
    trials = ",".join(str(result.attributes.get("trial_id", "")) for result in results)
    attributes = {"trial_id": trials, "status": status, MEAN_OF: [_by_seed(own, replicates) for own in values]}
    constrained = tuple(map(mean_of_all, zip(*(result.constrained for result in results), strict=True)))
    return TrialResult(first.number, status, tuple(map(mean_of_all, values)), reached, attributes, constrained)


def _by_seed(values: Sequence[float | None], replicates: Sequence[Mapping[str, Value]]) -> list[list[float | None]]:
    """Return the values of trials `[fixed values, seeds]`; None where there is none."""
    fixed = [tuple(value for key, value in own.items() if key != SEED) for own in replicates]
    seeds = [own.get(SEED) for own in replicates]
    known = dict(zip(zip(fixed, seeds, strict=True), values, strict=True))
    return [[known.get((of, seed)) for seed in dict.fromkeys(seeds)] for of in dict.fromkeys(fixed)]


def result(study: Study, row: Mapping[str, Any], history: Sequence[Record]) -> TrialResult:
    """Result of the trial of `row`; its reports are taken from `history`, which may hold other trials, too."""
    objectives = study.search.objectives
    values = tuple(_number(row.get(metric.name)) for metric in objectives)
    end = row["epochs_run"] if row["status"] == "diverged" else math.inf  # no rung compares a diverged member
    reached = {
        epoch: value
        for trial_id, epoch, metric, value in history
        if len(objectives) == 1
        and trial_id == row["trial_id"]
        and metric == objectives[0].name
        and epoch < end
        and is_finite(value)
    }
    attributes = {"trial_id": str(row["trial_id"]), "status": str(row["status"])}
    constrained = tuple(_number(row.get(constraint.column)) for constraint in study.search.constraints)
    return TrialResult(int(row["number"]), row["status"], values, reached, attributes, constrained)


def _number(value: Any) -> float | None:
    return float(value) if is_finite(value) else None
