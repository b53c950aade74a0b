"""The range of values that a heatmap's colours span, wide enough that differences due to noise look alike."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

STANDARD_ERRORS = 20.0
"""Minimum range of the colours, in standard errors of a cell's mean.

The means of 50 cells that differ by noise alone span 4.5 standard errors on average, which is a quarter of the colours.
"""


@dataclass(frozen=True)
class ColourScale:
    """The range of the colours, and the noise that it is based on."""

    low: float
    """Value of the first colour, in units of the metric."""
    high: float
    """Value of the last colour, in units of the metric."""
    std: float
    """Median over all cells of the standard deviation within a cell; NaN if no cell has two values."""
    error: float
    """Median over all cells of the standard error of the cell's mean; NaN if no cell has two values."""
    widened: bool
    """Whether the range was widened to `STANDARD_ERRORS`, because the cells differ by less."""


def colour_scale(cells: pd.DataFrame, bounds: tuple[float, float] | None = None) -> ColourScale:
    """Return the scale of cells (`mean`, `std`, `count`), widened within `bounds`, the metric's possible range."""
    means, spread = cells["mean"][np.isfinite(cells["mean"])], cells[np.isfinite(cells["std"])]
    low, high = (float(means.min()), float(means.max())) if len(means) else (0.0, 1.0)
    std, error = float(spread["std"].median()), float((spread["std"] / np.sqrt(spread["count"])).median())
    smallest_range = STANDARD_ERRORS * error if len(spread) else 0.0
    if high - low < smallest_range:
        middle = (low + high) / 2
        limits = _within(middle - smallest_range / 2, middle + smallest_range / 2, bounds)
        return ColourScale(*limits, std, error, widened=True)
    margin = (high - low) * 0.02 or abs(high) * 0.01 or 1.0
    return ColourScale(low - margin, high + margin, std, error, widened=False)


def _within(low: float, high: float, bounds: tuple[float, float] | None) -> tuple[float, float]:
    """Shift the range into the bounds, and cut it if it is wider than they are."""
    if bounds is None:
        return low, high
    if high > bounds[1]:
        low, high = low - (high - bounds[1]), bounds[1]
    if low < bounds[0]:
        low, high = bounds[0], min(bounds[1], high + bounds[0] - low)
    return low, high
