"""The rows behind a side of a claim, and its sample of them: a value for each replicate that has all of them."""

import math
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from sweeper.plan.changes import options_of
from sweeper.report.looks import undecided_changes
from sweeper.results.replicates import value_codes
from sweeper.spec import Grid, Search, Side, Sweep, registry
from sweeper.spec.claim import EPOCH, JUDGING, WITH_NUMBER, judging, meets, part_keys, values_along
from sweeper.spec.space import SEED
from sweeper.spec.sweep import SEEDS
from sweeper.storage.rows import plain_value
from trainables.metrics.meanings import family_of

DATASET = "dataset"
UNITS = (DATASET, *SEEDS.names)
"""Columns that only repeat an experiment. Data sets are no replicates: a replicate has the mean over them."""
Parts = Sequence[Grid | Search]
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


def run_command(name: str, preset: str, store: str, changes: str = "") -> str:
    """Return the command that runs a preset of a sweep, as it is named in a store, with changes into that store."""
    words = [registry.as_named(name), "--preset", preset, *options_of(undecided_changes(changes)), "--store", store]
    return shlex.join(["python", "-m", "sweeper.run", *words])


def judging_rows(rows: pd.DataFrame, parts: Parts, changed: Collection[str]) -> pd.DataFrame:
    """Return those of the rows of a request that can judge claims about its preset, by `judging`. `changed` are the
    keys that the request changes in the preset."""
    keys = [key for key in {*(key for part in parts for key in part_keys(part)), *changed} - {SEED} if key in rows]
    if not changed or rows.empty or not keys:
        return rows
    judges, groups = judging(parts, changed), rows.groupby(keys, dropna=False).ngroup()
    first = ~groups.duplicated()
    can = {
        group: judges(dict(zip(keys, map(plain_value, values), strict=True)))
        for group, values in zip(groups[first], rows.loc[first, keys].itertuples(index=False, name=None), strict=True)
    }
    return rows[groups.map(can)]


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


def units_of(sides: Sequence[pd.DataFrame], pinned: Collection[str]) -> list[str]:
    """Return the columns by whose values the trials of the sides pair: the data set and the replicates, without those
    that the claim has as conditions or keys."""
    known = [name for name in UNITS if name not in pinned and any(name in side for side in sides)]
    distinct = {
        name: {value for side in sides if name in side for value in side[name].dropna().unique()}
        for name in known
        if name != DATASET
    }
    return [name for name in known if name == DATASET or name in SEEDS.replicates(distinct)]


def sample(side: Side, source: SweepRows, units: Sequence[str], rows: pd.DataFrame) -> pd.DataFrame:
    """Return the values of a side: a row for each replicate that has all of them, a column for each value along which
    it is taken. For a correlation of metrics a column is a pair of the metric and a cell.

    Null is a value of a key, too. Where the values must be numbers, rows with null are left out. Raises MissingRows
    for values of the preset along the keys, or on the axes of its cells, that no row has, and ValueError if their
    trials have no result.
    """
    names, columns = ["value"], [EPOCH] if side.along == EPOCH else list(side.keys)
    if side.of_metric:
        names, columns = ["value", "other"], _varying(source.parts, rows)
    rows = rows.reindex(columns=list(dict.fromkeys((*rows, *columns))))
    axes = dict.fromkeys(key for part in source.parts for key in part.axes if key not in UNITS)
    _check_complete(side, source, axes if side.of_metric else side.keys, rows)
    if side.take in WITH_NUMBER and side.keys:
        rows = rows.dropna(subset=list(side.keys))
    own = [name for name in units if name in rows]
    index = (
        pd.MultiIndex.from_frame(rows[own].astype(object).where(rows[own].notna(), ""))
        if own
        else pd.Index([0] * len(rows))
    )
    grouped = rows.set_index(index) if own else rows.set_axis(index, axis=0)
    levels: list[Any] = list(range(len(own))) if own else [0]
    if not columns:
        return grouped.groupby(level=levels, sort=True)[names].mean()
    coded = [value_codes(rows[name]) for name in columns]
    cells = [*zip(*(codes for codes, _ in coded), strict=True)]
    numbers = {cell: number for number, cell in enumerate(sorted({*cells}))}
    keyed = grouped.assign(cell=[numbers[cell] for cell in cells])
    wide = (
        keyed.groupby([*(keyed.index.get_level_values(level) for level in levels), "cell"])[names]
        .mean()
        .unstack("cell")
    )
    wide = wide.dropna(axis=0)
    if side.of_metric:
        return wide
    values = [*map(plain_value, coded[0][1])] if len(columns) == 1 else range(len(numbers))
    return wide["value"].set_axis(pd.Index(values, dtype=object), axis=1)


def over_datasets(sample: pd.DataFrame) -> pd.DataFrame:
    """Return the means of each replicate over its data sets. One that lacks a data set that others have is left out:
    differences between data sets are no spread of a mean over them."""
    if DATASET not in sample.index.names:
        return sample
    others = [name for name in sample.index.names if name != DATASET]
    if not others:
        return sample.mean().to_frame().T
    counts = sample.groupby(level=others).size()
    means = sample.groupby(level=others, sort=True).mean()
    return means[counts == sample.index.get_level_values(DATASET).nunique()]


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


def _varying(parts: Parts, rows: pd.DataFrame) -> list[str]:
    """Return the hyperparameters that make the cells of a correlation of metrics: those that vary in the preset."""
    keys = dict.fromkeys(key for part in parts for key in (*part.axes, *part.fixed))
    return [key for key in keys if key in rows and key not in UNITS and rows[key].nunique(dropna=False) > 1]
