"""The rule by which a claim is judged: the side of its margin on which the interval of the difference of its sides is.

`sweeper.results.estimates` has the intervals.
"""

import math
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from sweeper.results import estimates
from sweeper.results.estimates import ALPHA, MIN_REPLICATES, Estimate, standard_halves

Verdict = Literal["holds", "refuted", "undecided", "not run"]


def verdict(estimate: Estimate, relation: str, margin: float = 0.0, alpha: float = ALPHA) -> Verdict:
    """Judge `left > right + margin`, `left < right - margin` or `left ~ right` (within the margin) by the difference
    left - right: by the side of the margin on which its interval at the level `1 - alpha` is."""
    return "undecided" if estimate.bounds is None else of_interval(*estimate.bounds(alpha), relation, margin)


def of_interval(low: float, high: float, relation: str, margin: float = 0.0) -> Verdict:
    """Judge by the bounds of an interval. One that is infinite on both sides decides nothing."""
    if not (math.isfinite(low) or math.isfinite(high)):
        return "undecided"
    if relation == "<":
        low, high = -high, -low
    if relation == "~":
        inside, outside = -margin <= low and high <= margin, low > margin or high < -margin
    else:
        inside, outside = low > margin, high < margin
    return "holds" if inside else "refuted" if outside else "undecided"


def p_value(estimate: Estimate, relation: str, margin: float = 0.0) -> float:
    """Return the smallest alpha at which the claim is decided, to three digits: 1 if it never is."""
    return estimates.p_value(estimate, lambda bounds: of_interval(*bounds, relation, margin) != "undecided")


def replicates_expected(p: float, n: int, alpha_at: Callable[[int], float]) -> int | None:
    """Return the smallest number of replicates, of more than n and at most `MOST_EXPECTED`, at which an interval is
    expected to decide a claim; None if none is. `p` is the smallest alpha at which n replicates decide it, and
    `alpha_at` returns the alpha of an analysis at a number of replicates.

    The estimate and the standard deviation s of a replicate are taken to stay what they are. At the level `1 - p` half
    the interval is as wide as the estimate is far from where it is decided, so m replicates are enough if

        s t(alpha_at(m) / 2, m - 1) / sqrt(m)  <=  s t(p / 2, n - 1) / sqrt(n).

    That is exact for a mean and for a paired difference, also of shares. Of unpaired means it is about right. Extremes
    of several means and an argmax divide alpha by the number of comparisons, so they need rather fewer.
    """
    if n < MIN_REPLICATES or not p < 1:
        return None
    counts = np.arange(n + 1, MOST_EXPECTED + 1)
    halves = standard_halves(counts, np.array([alpha_at(int(count)) for count in counts]))
    enough = halves <= standard_halves(n, p)
    return int(counts[enough.argmax()]) if enough.any() else None


MOST_EXPECTED = 1000
"""Most replicates that are expected of a claim."""


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values that are adjusted for their number (Holm): those of at most alpha are together wrong with a
    probability of at most alpha."""
    order, adjusted, least = sorted(range(len(p_values)), key=lambda index: p_values[index]), [1.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        least = max(least, min(1.0, (len(order) - rank) * p_values[index]))
        adjusted[index] = least
    return adjusted


def together(verdicts: Sequence[Verdict]) -> str:
    """Return the verdict over a claim of several parts: that of all, or `partly` if some hold and others are refuted.
    One that cannot be judged yet leaves the claim open, unless a part is refuted."""
    kinds = set(verdicts)
    if len(kinds) == 1:
        return verdicts[0]
    if "refuted" in kinds:
        return "partly" if "holds" in kinds else "refuted"
    return "not run" if "not run" in kinds else "undecided"
