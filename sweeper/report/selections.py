"""The rows that a figure shows: all in the order of its axes, or those of its selections under their labels; and what a
request narrowed of it."""

import functools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pandas as pd

from sweeper.definition.figures import Selection
from sweeper.definition.space import Grid, Value
from sweeper.storage.rows import plain_value


def labelled(rows: pd.DataFrame, selections: Sequence[Selection]) -> pd.DataFrame:
    """Return the rows of each selection in turn, with its labels as columns; without selections the rows themselves.

    Labels are sorted in the order of the selections. A row that several selections have is there several times. Null,
    as of a key that the method lacks, equals None, and so does a hyperparameter that is no column of `rows`.
    """
    if not selections:
        return rows
    shown = pd.concat([_selected(rows, selection) for selection in selections], ignore_index=True)
    orders = {axis: dict.fromkeys(selection.labels[axis] for selection in selections) for axis in selections[0].labels}
    return shown.assign(**{axis: pd.Categorical(shown[axis], [*order]) for axis, order in orders.items()})


def in_order(grids: Sequence[Grid], rows: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Return the rows in the order in which the grids have the values of these hyperparameters."""
    mentioned = [key for key in keys if key in rows and any(grid.values(key) for grid in grids)]
    if not mentioned:
        return rows
    positions = [
        {
            key: {value: i for i, value in enumerate(tried)}
            for key in (*grid.axes, *mentioned)
            if key in mentioned and (tried := grid.values(key))
        }
        for grid in grids
    ]
    most_first = sorted(range(len(grids)), key=lambda index: -len(positions[index]))
    values = zip(*(map(plain_value, rows[key]) for key in mentioned), strict=True)

    @functools.cache
    def position(combination: tuple[Any, ...]) -> tuple[int, ...]:
        """Which grid has the combination, and the index of the value on each of its axes: of several grids the first of
        those that set the most keys. It takes no combination of the grids: there can be any number of them."""
        wanted = dict(zip(mentioned, combination, strict=True))
        for index in most_first:
            known = positions[index]
            if all(wanted[key] in order for key, order in known.items()):
                return index, *(order[wanted[key]] for key, order in known.items())
        return (len(positions),)

    places = list(map(position, values))
    return rows.iloc[sorted(range(len(places)), key=places.__getitem__)]


def narrowed(
    grids: Sequence[Grid], rows: pd.DataFrame, axes: Sequence[str], selections: Sequence[Selection]
) -> Mapping[str, Collection[Value]]:
    """Return axis -> the values that `rows`, as `labelled` returns them, have of it, where the grids have further ones:
    a request did not ask for these."""
    shown: dict[str, Collection[Value]] = {}
    for axis in axes:
        labels = [selection for selection in selections if axis in selection.labels]
        tried: set[Value] = {value for grid in grids for value in grid.values(axis)}
        if labels:
            tried = {each.labels[axis] for each in labels if any(_has(grid, each) for grid in grids)}
        found = {plain_value(value) for value in rows[axis]} if axis in rows else {None}
        if tried - found:
            shown[axis] = found
    return shown


def _has(grid: Grid, selection: Selection) -> bool:
    """Whether trials of the grid may be in the selection, as far as the grid mentions its hyperparameters."""
    return all(value in grid.values(key) for key, value in selection.where.items() if grid.values(key))


def _selected(rows: pd.DataFrame, selection: Selection) -> pd.DataFrame:
    for name, value in selection.where.items():
        rows = rows[_equal(rows[name], value)] if name in rows else rows if value is None else rows.iloc[:0]
    return rows.assign(**selection.labels)


def _equal(values: pd.Series, value: Value) -> pd.Series:
    return values.isna() if value is None else (values == value).fillna(False).astype(bool)
