"""Axes and cells of the grid in `conftest.py`, for the tests of heatmaps."""

import pandas as pd

AXES = ("beta", "nu")


def cell(cells: pd.DataFrame, beta: float, nu: float) -> pd.Series:
    return cells[(cells["beta"] == beta) & (cells["nu"] == nu)].iloc[0]
