"""Which cells of a figure are marked: those with a best setting, and those with one that is not told apart from it."""

from collections.abc import Collection, Hashable, Sequence

import pandas as pd

from sweeper.results.best import BestSetting
from sweeper.results.sentences import ALIKE, BEST
from sweeper.storage.rows import plain_value


def marks(cells: pd.DataFrame, rows: pd.DataFrame, axes: Sequence[str], best: Sequence[BestSetting]) -> list[str]:
    """Return the mark of each cell, or an empty text."""
    found = [""] * len(cells)
    alike = {trial for setting in best for other in setting.alike for trial in other.trials}
    for trials, mark in ((alike, ALIKE), ({trial for setting in best for trial in setting.values}, BEST)):
        for index in positions(cells, rows, axes, trials):
            found[index] = mark
    return found


def positions(
    cells: pd.DataFrame, rows: pd.DataFrame, axes: Sequence[str], trials: Collection[Hashable], by: str = "trial_id"
) -> list[int]:
    """Return the positions of the cells that have some of these trials, which the column `by` names. A trial that is in
    several rows, with several labels, counts for the first."""
    if by not in rows or not trials:
        return []
    chosen = rows[rows[by].isin(trials)].drop_duplicates(by)[[*axes]].drop_duplicates()
    keys = {tuple(map(plain_value, key)) for key in zip(*(chosen[axis] for axis in axes), strict=True)}
    places = zip(*(cells[axis] for axis in axes), strict=True)
    return [index for index, key in enumerate(places) if tuple(map(plain_value, key)) in keys]
