"""The rows behind a side of a claim, and its sample of them.

A replicate is what is drawn anew: a seed, or a value that the sweep calls random. Data sets and classes are fixed, so a
replicate has the mean over them, and one that lacks a fixed value which others have is left out.
"""

import math
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from sweeper.claims.claim import EPOCH, WITH_NUMBER, Side, meets, values_along
from sweeper.definition import Grid, Search, Sweep, registry
from sweeper.definition.judging import JUDGING
from sweeper.planning.changes import options_of
from sweeper.results.replicates import strata_means, value_codes, whole_means
from sweeper.results.sentences import counted
from sweeper.storage.requests import undecided_changes
from sweeper.storage.rows import plain_value
from trainables.metrics.meanings import family_of

DATASET = "dataset"
Parts = Sequence[Grid | Search]
Label = tuple[Any, ...]
"""The values of several hyperparameters."""
NO_VALUES = pd.Series([math.nan])
"""A column that is not there."""


class MissingRows(Exception):
    """Rows that a claim needs are not in the store: what is missing, as text."""

    def __init__(self, text: str, *, outdated: bool = False) -> None:
        """`outdated`: whether the trials are there, but were trained before their metric existed."""
        super().__init__(text)
        self.outdated = outdated


@dataclass(frozen=True)
class SweepRows:
    """The finished rows of a request of a sweep, and its history."""

    sweep: Sweep
    preset: str
    rows: pd.DataFrame
    ended: pd.DataFrame
    """The rows of all trials, also of those that did not finish."""
    history: pd.DataFrame
    command: str = ""
    """The command that trains the trials of the request."""
    changed: tuple[str, ...] = ()
    """The keys that the request changes in the preset, if therefore some of its rows cannot judge claims and are left
    out."""

    def with_seeds(self, seeds: Collection[int]) -> "SweepRows":
        """Return the rows with one of these seeds, and those without any."""
        if "seed" not in self.ended:
            return self
        rows, ended = (frame[frame["seed"].isna() | frame["seed"].isin(seeds)] for frame in (self.rows, self.ended))
        return replace(self, rows=rows.reset_index(drop=True), ended=ended)

    @property
    def parts(self) -> Parts:
        return self.sweep.parts(self.preset)

    @property
    def repeating(self) -> tuple[str, ...]:
        """Columns whose values are no choice: a side has the mean over them."""
        return tuple(dict.fromkeys((DATASET, *self.sweep.repeats.names)))

    def fixed(self, keys: Collection[str] = ()) -> tuple[str, ...]:
        """Return the columns that are fixed, without some keys."""
        drawn = self.sweep.repeats.drawn
        return tuple(name for name in self.repeating if name not in drawn and name not in keys)


@dataclass(frozen=True)
class Sample:
    """The runs of a side.

    Shapes: M metrics (two for a correlation of metrics), K values along which the side is taken, C combinations of
    fixed values, N replicates.
    """

    runs_MKCN: np.ndarray
    """The mean of the rows that agree in all of these; NaN without any."""
    columns: tuple[Any, ...]
    """The K values along the key, or their numbers."""
    fixed_names: tuple[str, ...]
    fixed: tuple[Label, ...]
    replicate_names: tuple[str, ...]
    replicates: tuple[Label, ...]
    trials: tuple[frozenset[str], ...]
    """Those of each column."""
    takes_no_seed: bool
    """Whether its methods draw nothing: what they score is known without an error."""

    @property
    def means_MNK(self) -> np.ndarray:
        """The means over the fixed values; NaN for a replicate that lacks some of them."""
        return whole_means(self.runs_MKCN).swapaxes(1, 2)

    def of_replicates(self, labels: Collection[Label]) -> "Sample":
        """Return the sample of some replicates, in the order of these."""
        places = [self.replicates.index(label) for label in labels]
        return replace(self, runs_MKCN=self.runs_MKCN[..., places], replicates=tuple(labels))

    def fixed_at(self, names: Sequence[str]) -> list[Label]:
        """Return of each combination of fixed values those of some names."""
        places = [self.fixed_names.index(name) for name in names]
        return [tuple(label[place] for place in places) for label in self.fixed]

    def of_fixed(self, names: Sequence[str], labels: Collection[Label]) -> "Sample":
        """Return the sample of those combinations of fixed values that have one of these `labels` under the names."""
        places = [place for place, label in enumerate(self.fixed_at(names)) if label in labels]
        return replace(self, runs_MKCN=self.runs_MKCN[:, :, places], fixed=tuple(self.fixed[place] for place in places))

    def by_fixed(self, names: Sequence[str]) -> dict[Label, float]:
        """Return the values of some fixed names -> the mean of the runs of the first metric and column."""
        found: dict[Label, list[float]] = {}
        for label, mean in zip(self.fixed_at(names), strata_means(self.runs_MKCN[0, 0]), strict=True):
            found.setdefault(label, []).extend([] if math.isnan(mean) else [float(mean)])
        return {label: sum(values) / len(values) for label, values in found.items() if values}


def run_command(name: str, preset: str, store: str, changes: str = "") -> str:
    """Return the command that runs a preset of a sweep, as it is named in a store, with changes into that store."""
    words = [registry.as_named(name), "--preset", preset, *options_of(undecided_changes(changes)), "--store", store]
    return shlex.join(["sweeper", "run", *words])


def chosen_rows(side: Side, source: SweepRows) -> pd.DataFrame:
    """Return the rows of a side with their `value`, one for each epoch where it reads the history, and `other` for a
    correlation of metrics.

    Raises MissingRows for rows that are not there, and ValueError if they have no value.
    """
    where = side.wanted_of_trials(source.parts)
    rows = _selected(source.rows, where)
    if rows.empty:
        _raise_missing(side, source, where)
    if side.from_history:
        reports = pd.DataFrame(columns=["trial_id", "epoch", "value"])
        if len(source.history):
            reports = source.history[source.history["metric"] == side.metric][["trial_id", "epoch", "value"]]
        if EPOCH in side.where:
            reports = reports[[meets(int(epoch), side.where[EPOCH]) for epoch in reports["epoch"]]]
        rows = rows.drop(columns=["epoch", "value"], errors="ignore").merge(reports, on="trial_id")
        if rows.empty:
            raise ValueError(f"no report of {side.metric} at these epochs")
    else:
        rows = rows.assign(value=rows.get(side.metric, math.nan))
    if side.of_metric:
        rows = rows.assign(other=rows.get(side.along, math.nan))
    metrics = [side.metric, side.along] if side.of_metric else [side.metric]
    unknown = [name for name in metrics if not side.from_history and source.rows.get(name, NO_VALUES).isna().all()]
    if any((family := family_of(name)) and not family.may_be_undefined for name in unknown):
        raise MissingRows(f"the trials were trained before {' and '.join(unknown)} existed", outdated=True)
    rows = rows.dropna(subset=["value", "other"] if side.of_metric else ["value"])
    if rows.empty:
        raise ValueError(f"no trial has a value of {' and '.join(metrics)}")
    return rows


def replicate_names(sweep: Sweep, keys: Collection[str], sides: Sequence[pd.DataFrame]) -> tuple[str, ...]:
    """Return the columns whose values are the replicates of sides that go along some `keys`."""
    repeats = sweep.repeats.without(keys)
    known = [name for name in repeats.drawn if any(name in side for side in sides)]
    return repeats.replicates(
        {name: {value for side in sides if name in side for value in side[name].dropna().unique()} for name in known}
    )


def sample(side: Side, source: SweepRows, rows: pd.DataFrame, replicates: Sequence[str]) -> Sample:
    """Return the runs of a side, by the columns whose values are its `replicates`. A column of the sample is a value
    along which the side is taken, and for a correlation of metrics a cell. A method without a seed counts as having
    every replicate that others of the side have.

    Null is a value of a key, too. Where the values must be numbers, rows with null are left out. Raises MissingRows
    for values of the preset along the keys, or on the axes of its cells, that no row has, and ValueError if their
    trials have no result.
    """
    names, columns = ["value"], [EPOCH] if side.along == EPOCH else list(side.keys)
    if side.of_metric:
        names, columns = ["value", "other"], _varying(source, rows)
    fixed = [name for name in source.fixed(side.keys) if name in rows]
    rows = rows.reindex(columns=list(dict.fromkeys((*rows, *columns, *replicates))))
    axes = dict.fromkeys(key for part in source.parts for key in part.axes if key not in source.repeating)
    _check_complete(side, source, axes if side.of_metric else side.keys, rows)
    if side.take in WITH_NUMBER and side.keys:
        rows = rows.dropna(subset=list(side.keys))
        if rows.empty:
            raise ValueError(f"no trial has a number as its {side.along}")
    coded = [value_codes(rows[name]) for name in columns]
    cells, labels = _numbered([*zip(*(codes for codes, _ in coded), strict=True)] if coded else [()] * len(rows))
    strata, fixed_labels = _numbered(_labels(rows, fixed))
    drawn, replicate_labels = _numbered(_labels(rows, replicates))
    nothing: Label = (None,) * len(replicates)
    if nothing in replicate_labels and len(replicate_labels) > 1:
        cells, strata, drawn, rows = _repeated(replicate_labels.index(nothing), cells, strata, drawn, rows)
        replicate_labels = [label for label in replicate_labels if label != nothing]
    means = rows[names].groupby([cells, strata, drawn]).mean()
    runs_MKCN = np.full((len(names), len(labels), len(fixed_labels), len(replicate_labels)), math.nan)
    runs_MKCN[:, *(means.index.get_level_values(level) for level in range(3))] = means.to_numpy(dtype=float).T
    values = [*map(plain_value, coded[0][1])] if len(columns) == 1 else range(len(labels))
    along_drawn = not set(side.keys).isdisjoint(source.sweep.repeats.drawn)
    return Sample(
        runs_MKCN,
        tuple(values),
        tuple(fixed),
        tuple(fixed_labels),
        tuple(replicates),
        tuple(replicate_labels),
        tuple(frozenset(rows["trial_id"][cells == cell]) for cell in range(len(labels))),
        takes_no_seed=not along_drawn and replicate_labels == [nothing],
    )


def missing_fixed(side: Side, source: SweepRows, found: Sample) -> str:
    """Return e.g. `over 3 of 10 classes`, if the preset has fixed values that the sample lacks; else nothing."""
    where, texts = side.wanted_of_trials(source.parts), list[str]()
    for place, name in enumerate(found.fixed_names):
        of_preset, own = values_along(source.parts, where, name), {label[place] for label in found.fixed}
        count = sum(value not in own for value in of_preset)
        if 0 < count < len(of_preset):  # lacking all, it stands in for them
            texts.append(f"over {len(of_preset) - count} of {counted(len(of_preset), [name])}")
    return "; ".join(texts)


def _labels(rows: pd.DataFrame, names: Sequence[str]) -> list[Label]:
    return [*zip(*(map(plain_value, rows[name]) for name in names), strict=True)] if names else [()] * len(rows)


def _numbered(labels: Sequence[Label]) -> tuple[np.ndarray, list[Label]]:
    """Return the number of each label among the distinct ones, and these in ascending order. Null is the last."""
    distinct = sorted({*labels}, key=lambda label: [(value is None, 0 if value is None else value) for value in label])
    numbers = {label: number for number, label in enumerate(distinct)}
    return np.array([numbers[label] for label in labels], dtype=np.int64), distinct


def _repeated(
    nothing: int, cells: np.ndarray, strata: np.ndarray, drawn: np.ndarray, rows: pd.DataFrame
) -> tuple[np.ndarray, np.ndarray, np.ndarray, pd.DataFrame]:
    """Return the rows with those of the replicate `nothing`, the last, once for each of the other replicates."""
    own, others = np.flatnonzero(drawn == nothing), np.flatnonzero(drawn != nothing)
    places = np.concatenate([others, np.tile(own, nothing)])
    drawn = np.concatenate([drawn[others], np.repeat(np.arange(nothing), len(own))])
    return cells[places], strata[places], drawn, rows.iloc[places]


def _check_complete(side: Side, source: SweepRows, keys: Iterable[str], rows: pd.DataFrame) -> None:
    """Raise MissingRows for values of a preset of some keys that no row of a side has, or ValueError if their trials
    have ended without a result."""
    where = side.wanted_of_trials(source.parts)
    for key in keys:
        found = set(map(plain_value, rows.get(key, NO_VALUES)))
        lacking = [value for value in values_along(source.parts, where, key) if value not in found]
        if lacking:
            text = f"no finished trial of {key}={'/'.join(map(str, lacking))}"
            has_ended = len(_selected(source.ended, {**where, key: tuple(lacking)})) > 0
            raise ValueError(text) if has_ended else MissingRows(text)


def _selected(rows: pd.DataFrame, where: Mapping[str, Any]) -> pd.DataFrame:
    for key, wanted in where.items():
        if key not in rows:
            return rows.iloc[:0]
        codes, values = pd.factorize(rows[key], use_na_sentinel=False)
        rows = rows[np.array([meets(plain_value(value), wanted) for value in values], dtype=bool)[codes]]
    return rows


def _raise_missing(side: Side, source: SweepRows, where: Mapping[str, Any]) -> None:
    """Raise MissingRows, or ValueError if the trials have ended without a result."""
    text = Side(side.metric, where).text.partition("{")[2].rstrip("}")
    ended = _selected(source.ended, where)
    if len(ended):
        counts = ", ".join(f"{count} {status}" for status, count in ended["status"].value_counts().items())
        raise ValueError(f"no finished trial of {text}: {counts}")
    found = f"no rows of {text}" if text and len(source.ended) else "no rows"
    why = f": {JUDGING}, but the request changes {', '.join(source.changed)}" if source.changed else ""
    raise MissingRows(f"{found}{why}")


def _varying(source: SweepRows, rows: pd.DataFrame) -> list[str]:
    """Return the hyperparameters that make the cells of a correlation of metrics: those that vary in the preset."""
    keys = dict.fromkeys(key for part in source.parts for key in (*part.axes, *part.fixed))
    return [key for key in keys if key in rows and key not in source.repeating and rows[key].nunique(dropna=False) > 1]
