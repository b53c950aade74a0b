"""Which values the colours of a heatmap span, so that differences no larger than noise look alike."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

STANDARD_ERRORS = 20.0
"""Standard errors of a cell's mean that the colours span at least. The means of 50 cells that differ by noise alone
span 4.5 of them on average: a quarter of the colours."""


@dataclass(frozen=True)
class ColourScale:
    """The range of the colours, and the spread within a cell that it follows from."""

    low: float
    high: float
    std: float
    """Median over the cells of the standard deviation within one; NaN where no cell has two values."""
    error: float
    """Median over the cells of the standard error of a cell's mean; NaN likewise."""
    widened: bool
    """The colours span more than the cells do, because the cells differ by little more than noise."""


def colour_scale(cells: pd.DataFrame, bounds: tuple[float, float] | None = None) -> ColourScale:
    """The scale for cells with `mean`, `std` and `count`; it stays within `bounds` of the metric, if there are any."""
    means, stds = cells["mean"].to_numpy("float64"), cells["std"].to_numpy("float64")
    finite = means[np.isfinite(means)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    known = np.isfinite(stds)
    errors = stds[known] / np.sqrt(cells["count"].to_numpy("float64")[known])
    std, error = (float(np.median(values)) if known.any() else np.nan for values in (stds[known], errors))
    least = STANDARD_ERRORS * error if known.any() else 0.0
    if high - low < least:
        middle = (low + high) / 2
        return ColourScale(*_within(middle - least / 2, middle + least / 2, bounds), std, error, widened=True)
    room = (high - low) * 0.02 or abs(high) * 0.01 or 1.0
    return ColourScale(low - room, high + room, std, error, widened=False)


def _within(low: float, high: float, bounds: tuple[float, float] | None) -> tuple[float, float]:
    """The range moved, and if need be cut, to lie in the bounds."""
    if bounds is None:
        return low, high
    if high > bounds[1]:
        low, high = low - (high - bounds[1]), bounds[1]
    if low < bounds[0]:
        low, high = bounds[0], min(bounds[1], high + bounds[0] - low)
    return low, high
