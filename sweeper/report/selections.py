"""The rows that a view shows: all, or those of its selections under their labels."""

from collections.abc import Sequence

import pandas as pd

from sweeper.spec.grid import Value
from sweeper.spec.views import Selection


def labelled(rows: pd.DataFrame, selections: Sequence[Selection]) -> pd.DataFrame:
    """Return the rows of each selection in turn, with its labels as columns; without selections the rows themselves.

    Labels are sorted in the order of the selections. A row that several selections have is there several times. Null
    equals None, and a hyperparameter that is no column of `rows` is null.
    """
    if not selections:
        return rows
    shown = pd.concat([_selected(rows, selection) for selection in selections], ignore_index=True)
    orders = {axis: dict.fromkeys(selection.labels[axis] for selection in selections) for axis in selections[0].labels}
    return shown.assign(**{axis: pd.Categorical(shown[axis], [*order]) for axis, order in orders.items()})


def _selected(rows: pd.DataFrame, selection: Selection) -> pd.DataFrame:
    for name, value in selection.where.items():
        rows = rows[_equal(rows[name], value)] if name in rows else rows if value is None else rows.iloc[:0]
    return rows.assign(**selection.labels)


def _equal(values: pd.Series, value: Value) -> pd.Series:
    return values.isna() if value is None else (values == value).fillna(False).astype(bool)
