"""The ROC curve of a score: its area with a confidence interval, the threshold at a false-alarm rate, and the
confidence interval of a share of images.

This module also serves reports and therefore needs no PyTorch. Shapes: N inliers, M outliers.
"""

import math
from decimal import ROUND_UP, Context, Decimal
from fractions import Fraction
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
MIN_IMAGES = 30
"""Minimum number of inliers and of outliers for a confidence interval of the AUROC; with fewer its coverage is too
low."""


def mann_whitney(inlier_N: Floats, outlier_M: Floats) -> float:
    """Probability that an outlier scores higher than an inlier; ties count one half. Scores must be finite and both
    arrays non-empty."""
    return float(_share_below(outlier_M, np.sort(inlier_N)).mean())


def auroc_margin(inlier_N: Floats, outlier_M: Floats, level: float = 0.95) -> float:
    """Half the confidence interval of the AUROC over images, from the variance of DeLong et al. (1988): the variance
    over outliers of the share of inliers below each, plus the variance over inliers of the share of outliers above
    each. NaN with fewer than `MIN_IMAGES` inliers or outliers; 0 if all outliers score above all inliers."""
    if min(len(inlier_N), len(outlier_M)) < MIN_IMAGES:
        return math.nan
    of_outliers_M = _share_below(outlier_M, np.sort(inlier_N))
    of_inliers_N = _share_below(inlier_N, np.sort(outlier_M))
    variance = of_outliers_M.var(ddof=1) / len(outlier_M) + of_inliers_N.var(ddof=1) / len(inlier_N)
    return NormalDist().inv_cdf((1 + level) / 2) * math.sqrt(variance)


def _share_below(values_N: Floats, sorted_M: Floats) -> Floats:
    """Share of the sorted values below each value; ties count one half."""
    below_N = np.searchsorted(sorted_M, values_N, side="left") + np.searchsorted(sorted_M, values_N, side="right")
    return below_N / (2 * len(sorted_M))


def check_alarm_rate(rate: float, held_out: int) -> int:
    """Return how many of `held_out` scores of normal images may lie at or above the threshold of a false-alarm rate:
    `floor((held_out + 1) rate)`, at least 1. Raises ValueError, with one line, if the rate is not in (0, 1) or needs
    more held-out images."""
    if not (isinstance(rate, int | float) and 0 < rate < 1):
        raise ValueError(f"a false-alarm rate must be in (0, 1), but got {rate}")
    exact = Fraction(str(float(rate)))
    if allowed := math.floor((held_out + 1) * exact):
        return allowed
    needed = math.ceil(1 / exact) - 1
    images = f"{needed} held-out normal image{'s' if needed > 1 else ''}"
    law = f"a false-alarm rate of {rate:g} needs at least {images}"
    if not held_out:
        raise ValueError(f"{law}, but there are none; hold some out with --set validation=0.2")
    least = Context(prec=1, rounding=ROUND_UP).divide(Decimal(1), Decimal(held_out + 1))
    raise ValueError(
        f"{law}, but there {'is' if held_out == 1 else 'are'} {held_out}; choose --alarm-rate {least.normalize():f} or "
        "more, or hold out more with --set validation=SHARE"
    )


def alarm_threshold(held_out_N: Floats, rate: float) -> float:
    """The threshold of a false-alarm rate: images that score higher are flagged.

    It is the `ceil((N + 1)(1 - rate))`-th smallest score of the N held-out normal images, as in split conformal
    prediction. A new normal image of the same kind scores higher with a probability of at most `rate`, on average over
    held-out images, because all ranks among N + 1 exchangeable scores are equally probable. Raises ValueError as
    `check_alarm_rate`.
    """
    place = len(held_out_N) - check_alarm_rate(rate, len(held_out_N))
    return float(np.partition(held_out_N, place)[place])


def alarm_bound(held_out: int, rate: float, level: float = 0.95) -> float:
    """The upper end of the central interval of the real false-alarm rate of `alarm_threshold`, which is a random number
    because the held-out images are.

    With a = `check_alarm_rate(rate, held_out)` and continuous scores the share of new normal images above the threshold
    has the distribution Beta(a, held_out + 1 - a), as an order statistic of uniform numbers; with ties it is smaller.
    For a rate of 0.01 and 100 held-out images the bound is 0.036. Raises ValueError as `check_alarm_rate` does.
    """
    from scipy.special import betaincinv  # here: plans import this module, and SciPy is slow to import

    allowed = check_alarm_rate(rate, held_out)
    return float(betaincinv(allowed, held_out + 1 - allowed, (1 + level) / 2))


def clopper_pearson(count: int, images: int, level: float = 0.95) -> tuple[float, float]:
    """The interval of a share of which `count` of `images` are known, by Clopper and Pearson (1934). It holds the true
    share at least as often as `level` says, for any share and any number of images."""
    from scipy.special import betaincinv  # here: plans import this module, and SciPy is slow to import

    tail = (1 - level) / 2
    low = betaincinv(count, images - count + 1, tail) if count else 0.0
    high = betaincinv(count + 1, images - count, 1 - tail) if count < images else 1.0
    return float(low), float(high)
