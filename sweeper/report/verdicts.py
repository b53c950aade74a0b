"""Half the widths of intervals, for the figures that have not moved to `sweeper.results.estimates` yet."""

import math

import numpy as np

from sweeper.results.estimates import (
    ALPHA,
    EQUAL,
    LEVEL,
    MIN_REPLICATES,
    difference,
    intervals,
    mean,
    pearson,
)

__all__ = ["ALPHA", "EQUAL", "LEVEL", "MIN_REPLICATES", "difference", "half_widths", "mean", "pearson"]


def half_widths(deviations: np.ndarray, n: np.ndarray) -> np.ndarray:
    """Return half the widths of the intervals of means over n replicates that have these standard deviations. One of
    fewer than `MIN_REPLICATES`, or of equal ones, is NaN: it is not known."""
    low, high = intervals(np.zeros_like(np.asarray(deviations, dtype=float)), deviations, n)
    return np.where(np.isfinite(high - low), (high - low) / 2, math.nan)
