"""Which setting of a request is best: the answer of `sweeper best`, of `sweeper.best` and of the end of every run.

It needs no definition of the sweep: what a preset decides by is in the store, beside the rows. Only the command that
trains again needs the one that it will find (`Commands`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pandas as pd

from sweeper.definition import registry
from sweeper.definition.metric import VALIDATION, Metric, Spread
from sweeper.definition.space import Value, unknown
from sweeper.errors import SpecError
from sweeper.report.commands import Commands
from sweeper.report.figures import PresetFigures, Shown
from sweeper.report.formatting import CLASS, ValueText, text_with_class_names
from sweeper.report.kinds import read_figures
from sweeper.results.best import BestSetting
from sweeper.results.sentences import MAX_BEST, detection_sentences, measured_on, over, sentences, short_text
from sweeper.storage.files import Files
from sweeper.storage.layout import TRIALS, model_path
from sweeper.storage.load import absent, in_order_of_ends
from sweeper.storage.models import known_metadata, trials_with_models
from sweeper.storage.requests import StoredRequest, is_again, stored_requests
from sweeper.storage.rows import Columns, columns_of, plain_value
from sweeper.storage.store import StoreReader
from trainables.metrics.meanings import family_of


@dataclass(frozen=True)
class Choice:
    """The best setting of one question: of the request, or of one of its data sets or studies."""

    sentence: str
    question: Mapping[str, object]
    """Data set or study, where there are several."""
    at: Mapping[str, object]
    """The hyperparameters that tell the setting apart from the others."""
    metric: str
    mean: float
    """Mean of `metric` over the replicates, on test images where the trials have that."""
    low: float
    high: float
    """The 95 % interval of the mean, in which the choice is counted; NaN if it is not known."""
    n: int
    """Number of replicates."""
    over: str
    """What the mean is over, such as `10 classes, each the mean of 3 seeds`."""
    chosen_by: str
    """The metric by which it was chosen."""
    chosen_on: str
    """The data of that metric, such as `validation images`."""
    chosen_mean: float
    """Mean of `chosen_by`, by which no other setting is better."""
    chosen_low: float
    chosen_high: float
    """The 95 % interval of `chosen_mean`, in which the choice is counted."""
    compared: int
    """Number of settings that were compared."""
    not_told_apart: int
    """How many of the others are not told apart from it."""
    alike: tuple[Mapping[str, object], ...]
    """The first of these."""
    trials: tuple[str, ...]
    """Its trials, the best by `chosen_by` first."""
    model: str | None
    """Address of the kept model of the first trial; None if none was kept."""
    epoch: int | None
    """The epoch of that model if it is not the last, as `--keep best-epoch` keeps it; else None."""
    detection: tuple[str, ...]
    """A sentence for each false-alarm rate: the share of each class of test images that the first trial flags, of the
    user's own images."""
    keep: str | None
    """The command that writes the model of the first trial to a file. Where none was kept it is trained again. None for
    a trial that copied others of its population, which cannot be trained alone."""
    retrain: str | None
    """The command that trains its trials again and no other. Where no run has them alone, as the proposals of a search,
    it is `sweeper trial`, which trains the first. None where no command finds the definition of the sweep, and for a
    trial that copied others."""

    def __str__(self) -> str:
        return self.sentence

    @property
    def lines(self) -> Iterator[str]:
        """What its best trial flags, how it is trained again, and where its model is."""
        yield from self.detection
        trial = f"trial {self.trials[0]}{f', the best of its {len(self.trials)}' if len(self.trials) > 1 else ''}"
        if self.retrain:
            yield f"train again: {self.retrain}" + f" ({trial})" * (self.trials[0] in self.retrain)
        if self.model:
            yield f"model: {self.model} ({trial}{f', epoch {self.epoch}' if self.epoch else ''})"
        else:
            again = f"; to train {trial}, again and keep it: {self.keep}" if self.keep else ""
            yield f"model: none is kept{again}"


@dataclass(frozen=True, repr=False)
class Answer:
    """The best settings of a request. It prints as the sentences about them."""

    sweep: str
    request: str
    done: int
    """Number of trials that have a result."""
    total: int | None
    """Number of its trials; None if that is not known, as of a search."""
    choices: tuple[Choice, ...]
    """One for each data set and study; none if nothing is best."""
    text: str
    """The sentences, or why there are none."""

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text

    @property
    def head(self) -> str:
        """Return e.g. `anomaly_grid (digits): 12 of 560 trials have a result`."""
        of_all = "" if self.total is None else f" of {self.total:,}"
        return f"{self.sweep} ({self.request}): {self.done:,}{of_all} trials have a result"

    @cached_property
    def choice(self) -> Choice:
        """The only choice. Raises SpecError if there are several, or none."""
        if len(self.choices) != 1:
            raise SpecError(f"one setting must be best, but there are {len(self.choices)}: {self.text}")
        return self.choices[0]


def find_answer(
    files: Files,
    name: str,
    *,
    preset: str | None = None,
    changes: str | None = None,
    metric: str | None = None,
    data: str | None = None,
    defaults: Callable[[str, Collection[str]], Mapping[str, Value]] = lambda method, code: {},
) -> Answer:
    """Return the best settings of a request in a store, by default of that with the latest row, of a sweep that is
    named as in a command: by its name in the store, a file or a module.

    `metric` is by default the preset's. `data` and `defaults`: see `Commands`. Raises StoreError if there are no rows,
    and SpecError if there is no such request or metric.
    """
    reference, definition = name, registry.find(name) if registry.is_findable(name) else None
    name = definition.name if definition else registry.name_in_store(name)
    request, columns = find_request(files, name, preset, changes)
    figures, ranked = figures_ranked(files, name, request, columns, metric)
    return answer_of(
        files,
        name,
        request,
        figures,
        list(columns.hyperparameters),
        Commands(reference, name, definition, files.display_uri, data, defaults),
        metric=ranked if metric else None,
    )


def figures_ranked(
    files: Files, name: str, request: StoredRequest, columns: Columns, metric: str | None
) -> tuple[PresetFigures, Metric]:
    """Return the figures of a request's preset, and the metric of this name, by default the preset's. Raises SpecError
    if there is no such metric."""
    figures = read_figures(files, name)[0].get(request.preset)
    measured = [known for known in columns.metrics if request.rows[known].notna().any()]
    ranked = _ranked(figures, metric, measured, request.label)
    return figures or PresetFigures(request.preset, "", "trials", ranked, (), (), (), ()), ranked


def find_request(
    files: Files, name: str, preset: str | None, changes: str | None, *, trained_again: bool = True
) -> tuple[StoredRequest, Columns]:
    """Return a request of a sweep in a store, by default that with the latest row, and the columns of its rows. Those
    of best settings that were trained again count only with `trained_again`. Raises StoreError if there are no rows,
    and SpecError if there is no such request."""
    stored, columns = requests_of(files, name)
    if columns is None:
        raise absent(files, TRIALS, name)
    own = [each for each in stored if trained_again or not is_again(each.preset)]
    return _chosen_request(own, preset, changes), columns


def requests_of(files: Files, name: str) -> tuple[list[StoredRequest], Columns | None]:
    """Return the requests of a sweep that have rows, that with the latest first, and the columns of the rows; none
    without rows."""
    table = StoreReader(files).rows(name)
    return (
        ([], None)
        if table is None
        else (stored_requests(files, name, in_order_of_ends(table))[0], columns_of(table.schema))
    )


def shown_of(
    files: Files, name: str, request: StoredRequest, figures: PresetFigures, hyperparameters: Sequence[str]
) -> Shown:
    """Return what the figures of a preset show of a request, but for the history. `hyperparameters`: see `Shown`."""
    rows = request.comparable
    value_text = text_with_class_names(files, name, rows)
    beside = figures.beside(rows, request.changes)
    return Shown(beside, rows, pd.DataFrame, hyperparameters, value_text, so_far=request.so_far)


def answer_of(
    files: Files,
    name: str,
    request: StoredRequest,
    figures: PresetFigures,
    hyperparameters: Sequence[str],
    commands: Commands,
    *,
    metric: Metric | None = None,
    spread: Spread = "interval",
) -> Answer:
    """Return the best settings of a request by a metric, by default that of its preset. See `shown_of`."""
    shown = shown_of(files, name, request, figures, hyperparameters)
    value_text = with_names(shown.value_text)
    ranked, has_best = metric or figures.headline, metric is not None or figures.ranks
    settings = shown.settings(shown.rows, ranked, figures.naming)
    found = settings.best(ranked, figures.naming) if has_best else []
    texts = sentences(
        *(found, MAX_BEST),
        so_far=request.so_far,
        value_text=value_text,
        spread=spread,
        none_feasible=settings.none_feasible(ranked) if has_best else (),
    )
    if texts:
        text = "\n".join(texts)
    elif not metric and not figures.ranks:
        names = ", ".join(f"{each.name} ({each.better})" for each in figures.objectives)
        text = f"no single setting is best by {names}: the search has a front; --metric ranks by one"
    else:
        text = f"no trial has finished with a value of {ranked.name} yet"
    kept = set(trials_with_models(files, name)) if found else set()
    choices = [
        _choice(files, name, shown, request, best, said, kept, commands)
        for best, said in zip(found[:MAX_BEST], texts, strict=False)
    ]
    done = int((request.rows["status"] != "failed").sum())
    return Answer(name, request.label, done, request.total, tuple(choices), text)


def with_names(value_text: ValueText) -> ValueText:
    """Return how a sentence writes values: short numbers, and the names of classes."""
    return lambda name, value: value_text(name, value) if name == CLASS else short_text(name, value)


def _chosen_request(requests: Sequence[StoredRequest], preset: str | None, changes: str | None) -> StoredRequest:
    """The latest request with this preset and these changes. Raises SpecError if there is none."""
    presets = list(dict.fromkeys(request.preset for request in requests))
    if preset is not None and preset not in presets:
        raise SpecError(unknown("rows of preset", preset, presets))
    of_preset = [request for request in requests if preset in (None, request.preset)]
    found = [request for request in of_preset if changes is None or request.changes == changes]
    if not found:
        known = ", ".join(repr(request.changes) for request in of_preset)
        raise SpecError(f"no request changes its preset by {changes!r}; there are: {known}")
    return found[0]


def _ranked(figures: PresetFigures | None, name: str | None, measured: Sequence[str], request: str) -> Metric:
    """The metric of this name, by default the preset's. Raises SpecError for one without values or a direction."""
    families = {known: family_of(known.removeprefix(VALIDATION)) for known in measured}
    declared = figures.metric(name) if figures and name else None
    ranking = [known for known, family in families.items() if family and family.direction]
    if name is None:
        if figures:
            return figures.headline
        raise SpecError(f"the store does not say what '{request}' is best by, so --metric must: {', '.join(ranking)}")
    if name not in measured or not (declared or name in ranking):
        raise SpecError(unknown("metric with a direction", name, ranking))
    family = families[name]
    return replace(declared, name=name) if declared else Metric(name, family.direction if family else None)


def _choice(
    files: Files,
    name: str,
    shown: Shown,
    request: StoredRequest,
    best: BestSetting,
    sentence: str,
    kept: set[str],
    commands: Commands,
) -> Choice:
    (low, high), (chosen_mean, chosen_interval) = best.interval, best.choice
    alike, trials = best.alike, tuple(best.values)
    path, is_kept = model_path(name, trials[0]), trials[0] in kept
    return Choice(
        sentence=sentence,
        question=best.question,
        at={key: plain_value(value) for key, value in best.at.items()},
        metric=best.metric.name,
        mean=best.mean,
        low=low,
        high=high,
        n=len(best.sample.values),
        over=over(best),
        chosen_by=best.criterion,
        chosen_on=measured_on(best),
        chosen_mean=chosen_mean,
        chosen_low=chosen_interval[0],
        chosen_high=chosen_interval[1],
        compared=best.compared,
        not_told_apart=len(alike),
        alike=tuple(other.at for other in alike if other.at),
        trials=trials,
        model=files.display_uri_of(path) if is_kept else None,
        epoch=known_metadata(files, path).get("epoch") if is_kept else None,
        detection=tuple(detection_sentences(best, shown.value_text)),
        keep=commands.export(request, trials[0]),
        retrain=commands.train_again(request, trials, shown),
    )
