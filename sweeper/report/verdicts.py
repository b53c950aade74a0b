"""The rule by which a claim is judged: an interval of the difference of its sides, and its place at the margin.

A sample has a row for each replicate (a seed, a class, a data set) and a column for each value of the key along which a
side is taken. Every interval is at a confidence level of `1 - alpha`:

- Means, and deviations along a key that is no replicate, differ by Student's t over the replicates, paired where both
  sides have them, else by Welch's t.
- The largest or smallest of several means and their range are extremes of differences of means, so that their bounds
  are extremes of those by t. Where the bound could profit from a choice among k differences, each of these has
  `alpha / k` (Bonferroni); where it cannot, `alpha` (an intersection-union test). A jackknife does not do: two equal
  methods have no stable larger one.
- argmax: all values whose mean no other exceeds by t, at `alpha / (k - 1)`; the interval reaches from the least to the
  greatest of these (Hsu's multiple comparisons with the best).
- A correlation with a key is that of the mean over the replicates. Its interval is by t of each replicate's covariance
  with the key, in units of the correlation. It is exact about 0, also where nothing depends on the key.
- A correlation of two metrics is that of the means of cells, of which there must be `MIN_CELLS`. Its interval leaves
  out one replicate at a time (jackknife) on Fisher's scale. Noise within the cells makes it smaller than that of the
  true means.
- A deviation along a replicate takes the values as a sample: chi-squared.

No statistic has an interval over fewer than `MIN_REPLICATES`. Equal replicates do not show their spread, so the
interval of what they agree in is infinite. In both cases there is no verdict.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Literal

import numpy as np
from scipy import special

Verdict = Literal["holds", "refuted", "undecided", "not run"]
LEVEL = 0.95
"""Confidence level of an interval."""
ALPHA = 1 - LEVEL
SETTLED = 0.05
"""Share of its whole change within which a metric has settled."""
EQUAL = 1e-9
"""Largest standard deviation of values that count as equal: they differ by rounding."""
MIN_REPLICATES = 3
"""Fewest replicates with an interval. That of two is 12.7 standard errors wide on each side, and says nothing."""
MIN_CELLS = 5
"""Fewest cells with a correlation: over two it is always 1 or -1."""
Bounds = tuple[float, float]
UNKNOWN: Bounds = (-math.inf, math.inf)


@dataclass(frozen=True)
class Estimate:
    """A number that was estimated from replicates."""

    value: float
    n: int
    """Replicates, or pairs of them."""
    bounds: Callable[[float], Bounds] | None
    """Total probability of an error, alpha -> the bounds of the interval; None if there is none."""
    lack: str = ""
    """What it lacks besides replicates to have an interval."""

    @property
    def reason(self) -> str:
        """Why it has no interval, if it has none."""
        return self.lack if self.n >= MIN_REPLICATES else ("no pairs", "one replicate", "two replicates")[self.n]

    def minus(self, number: float) -> "Estimate":
        """Return the estimate less a number that is known."""
        inner = self.bounds
        if inner is None:
            return replace(self, value=self.value - number)

        def bounds(alpha: float) -> Bounds:
            low, high = inner(alpha)
            return low - number, high - number

        return replace(self, value=self.value - number, bounds=bounds)


@dataclass(frozen=True)
class Extremes:
    """A number as the largest over the second dimension of the smallest over the third one of means over the first."""

    values: np.ndarray
    """[replicates, largest of, smallest of]."""

    @property
    def negated(self) -> "Extremes":
        return Extremes(-self.values.transpose(0, 2, 1))


def mean(values: np.ndarray) -> Extremes:
    """The mean of a sample [replicates]."""
    return Extremes(values[:, None, None])


def largest(values: np.ndarray) -> Extremes:
    """The largest mean of the columns of a sample [replicates, columns]."""
    return Extremes(values[:, :, None])


def smallest(values: np.ndarray) -> Extremes:
    return Extremes(values[:, None, :])


def value_range(values: np.ndarray) -> Extremes:
    """The largest less the smallest mean: the largest difference of two columns."""
    pairs = list(permutations(range(values.shape[1]), 2)) or [(0, 0)]
    return Extremes(np.stack([values[:, first] - values[:, second] for first, second in pairs], axis=1)[:, :, None])


def difference(left: Extremes, right: Extremes | None, paired: bool = True) -> Estimate:
    """Return the left side less the right one, or the left one alone. Paired samples have the same replicates."""
    if right is None:
        means, errors, freedom = _means(left.values)
        n = len(left.values)
    elif paired:
        first, second = left.values, right.negated.values
        n, rows, columns = len(first), first.shape[1] * second.shape[1], first.shape[2] * second.shape[2]
        both = (first[:, :, None, :, None] + second[:, None, :, None, :]).reshape(n, rows, columns)
        means, errors, freedom = _means(both)
    else:
        parts = [_means(values) for values in (left.values, right.negated.values)]
        (m1, e1, f1), (m2, e2, f2) = parts
        means, variances = _outer(m1, m2), _outer(e1**2, e2**2)
        with np.errstate(invalid="ignore", divide="ignore"):
            freedom = np.where(variances > 0, variances**2 / _outer(e1**4 / f1, e2**4 / f2), min(f1, f2))
        errors, n = np.sqrt(variances), min(len(left.values), len(right.values))
    value = float(means.min(1).max()) if n else math.nan
    if n < MIN_REPLICATES:
        return Estimate(value, n, None)

    def bounds(alpha: float) -> Bounds:
        over, under = means.shape
        with np.errstate(invalid="ignore"):  # of a quantile of 0 and an error that is not known
            margins = [_quantile(alpha / (2 * count), freedom) * errors for count in (over, under)]
        return float((means - margins[0]).min(1).max()), float((means + margins[1]).max(0).min())

    return Estimate(value, n, bounds)


def argmax(values: np.ndarray, at: Sequence[float] | np.ndarray) -> Estimate:
    """Return the value of the key, one of `at`, whose column of a sample [replicates, columns] has the largest mean."""
    n, count = values.shape
    best = float(at[int(values.mean(0).argmax())]) if n else math.nan
    if n < MIN_REPLICATES or count < 2:
        return Estimate(best, n, None, "one value of the key")
    pairs = list(permutations(range(count), 2))
    means, errors, _ = _means(np.stack([values[:, other] - values[:, own] for own, other in pairs], axis=1))

    def bounds(alpha: float) -> Bounds:
        if np.isinf(errors).all():
            return UNKNOWN
        reached = means - _quantile(alpha / (count - 1), n - 1) * errors
        worse = {own for (own, _), least in zip(pairs, reached, strict=True) if least > 0}
        left = [float(at[index]) for index in range(count) if index not in worse] or [best]
        return min(left), max(left)

    return Estimate(best, n, bounds)


def correlation(values: np.ndarray, at: np.ndarray) -> Estimate:
    """Return the correlation of the mean of a sample [replicates, columns] with the key's values `at` [columns]."""
    if np.ptp(at) == 0 or not len(values):
        return Estimate(math.nan, len(values), None, "one value of the key")
    centred = at - at.mean()
    centred = centred / np.linalg.norm(centred)
    total = float(np.linalg.norm(values.mean(0) - values.mean()))
    shares = (values - values.mean(1, keepdims=True)) @ centred / (total or 1.0)
    inner = difference(mean(shares), None)

    def bounds(alpha: float) -> Bounds:
        assert inner.bounds
        low, high = inner.bounds(alpha)
        return (max(low, -1.0), min(high, 1.0)) if math.isfinite(high - low) else UNKNOWN

    return replace(inner, bounds=inner.bounds and bounds)


def correlation_of_metrics(values: np.ndarray, others: np.ndarray) -> Estimate:
    """Return the correlation over columns, which are cells, of the means of two samples [replicates, columns]."""
    n, cells = len(values), values.shape[1]
    value = pearson(values.mean(0), others.mean(0)) if n else math.nan
    if n < MIN_REPLICATES or math.isnan(value):
        few = f"a correlation needs {MIN_CELLS} cells, but there {'is' if cells == 1 else 'are'} {cells}"
        return Estimate(value, n, None, few if cells < MIN_CELLS else "a metric is constant over the cells")

    def without(row: int) -> float:
        left = (np.delete(sample, row, axis=0).mean(0) for sample in (values, others))
        return _fisher(pearson(*left))

    centre, error = _fisher(value), math.sqrt((n - 1) * np.var([*map(without, range(n))]))

    def bounds(alpha: float) -> Bounds:
        if not error > EQUAL:  # also where a metric is constant without one of the replicates
            return UNKNOWN
        half = _quantile(alpha / 2, n - 1) * error
        return math.tanh(centre - half), math.tanh(centre + half)

    return Estimate(value, n, bounds)


def pearson(x: np.ndarray, y: np.ndarray) -> float:
    """Return Pearson's r over cells; NaN for fewer than `MIN_CELLS` of them, or if one is constant but for rounding."""
    if len(x) < MIN_CELLS or any(np.ptp(values) <= 1e-12 * np.abs(values).max() for values in (x, y)):
        return math.nan
    return float(np.clip(np.corrcoef(x, y)[0, 1], -1.0, 1.0))


def _fisher(r: float) -> float:
    return float(np.arctanh(np.clip(r, -1 + 1e-9, 1 - 1e-9)))


def deviation(values: np.ndarray) -> Estimate:
    """Return the standard deviation of a sample [replicates] as that of a normal distribution."""
    n = len(values)
    std = float(values.std(ddof=1)) if n > 1 else math.nan
    if n < MIN_REPLICATES:
        return Estimate(std, n, None)

    def bounds(alpha: float) -> Bounds:
        if std <= EQUAL:
            return UNKNOWN
        low, high = special.chdtri(n - 1, (alpha / 2, 1 - alpha / 2))  # by the share above them
        return std * math.sqrt((n - 1) / low), std * math.sqrt((n - 1) / high) if high > 0 else math.inf

    return Estimate(std, n, bounds)


def settled(values: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Return for each row of a sample [replicates, reports] the value of `at` [reports] from which on all its values
    differ from the last one by at most `SETTLED` of the change from the first to the last."""
    last = values[:, -1:]
    away = np.abs(values - last) > SETTLED * np.abs(values[:, :1] - last)
    reports = values.shape[1]
    return at[np.where(away.any(axis=1), reports - np.argmax(away[:, ::-1], axis=1), 0)]


def verdict(estimate: Estimate, relation: str, margin: float = 0.0, alpha: float = ALPHA) -> Verdict:
    """Judge `left > right + margin`, `left < right - margin` or `left ~ right` (within the margin) by the difference
    left - right: by the side of the margin on which its interval at the level `1 - alpha` is."""
    if estimate.bounds is None:
        return "undecided"
    low, high = estimate.bounds(alpha)
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
    if estimate.bounds is None:
        return 1.0
    if verdict(estimate, relation, margin, SMALLEST) != "undecided":
        return SMALLEST
    if verdict(estimate, relation, margin, LARGEST) == "undecided":
        return 1.0
    undecided, decided = SMALLEST, LARGEST
    while decided / undecided > 1.001:
        middle = math.sqrt(undecided * decided)
        if verdict(estimate, relation, margin, middle) == "undecided":
            undecided = middle
        else:
            decided = middle
    return decided


SMALLEST, LARGEST = 1e-12, 1 - 1e-9
"""The least and the greatest alpha that are tried."""


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


def half_widths(deviations: np.ndarray, n: np.ndarray) -> np.ndarray:
    """Return half the widths of the intervals of means over n replicates that have these standard deviations. One of
    fewer than `MIN_REPLICATES`, or of equal ones, is NaN: it is not known."""
    with np.errstate(invalid="ignore", divide="ignore"):
        halves = _quantile(ALPHA / 2, np.asarray(n, dtype=float) - 1) * _errors(deviations, n)
    return np.where(np.isfinite(halves) & (n >= MIN_REPLICATES), halves, math.nan)


def _quantile(alpha: float, freedom: np.ndarray | float) -> np.ndarray | float:
    """The value that Student's t exceeds with the probability alpha."""
    quantile: np.ndarray | float = special.stdtrit(freedom, 1 - alpha)
    return quantile


def _errors(deviations: np.ndarray, n: np.ndarray | int) -> np.ndarray:
    """Standard errors of means over n replicates. The error of equal values is infinite: shares of a few test images
    can be equal by chance, and say nothing of their spread."""
    return np.where(deviations <= EQUAL, math.inf, deviations / np.sqrt(n))


def _means(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray | float]:
    """Means over the first dimension, their standard errors and the degrees of freedom."""
    n, unknown = len(values), np.full(values.shape[1:], math.nan)
    if n < 1:
        return unknown, unknown, 0.0
    return values.mean(axis=0), _errors(values.std(axis=0, ddof=1), n) if n > 1 else unknown, float(n - 1)


def _outer(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Sums of all pairs of elements of two [largest of, smallest of]."""
    (a, b), (c, d) = first.shape, second.shape
    return (first[:, None, :, None] + second[None, :, None, :]).reshape(a * c, b * d)
