"""Every statistic of replicates: its value, its interval, and the fewest replicates that have one.

A sample has a row for each replicate (a seed) and a column for each value of the key along which it is taken. Every
interval is at a confidence level of `1 - alpha`:

- A mean has Student's t over the replicates. That of shares in [0, 1] is made on the logit scale by the delta method,
  so that it stays in [0, 1] and covers a skewed share, too.
- A difference of means is paired where both sides have the same replicates, by t of the differences. Else it is
  Welch's t, and of shares the square-and-add of the two logit intervals (Newcombe, Statistics in Medicine 17, 1998).
- The largest or smallest of several means and their range are extremes of differences of means, so that their bounds
  are extremes of those by t. Where the bound could profit from a choice among k differences, each of these has
  `alpha / k` (Bonferroni); where it cannot, `alpha` (an intersection-union test). A jackknife does not do: two equal
  methods have no stable larger one.
- argmax: all values whose mean no other exceeds by t, at `alpha / (k - 1)`; the interval reaches from the least to the
  greatest of these (Hsu's multiple comparisons with the best).
- A correlation of two metrics over cells is corrected for the noise within these (`correlation_of_metrics`).
- A correlation with a key is that of the mean over the replicates. Its interval is by t of each replicate's covariance
  with the key, in units of the correlation. It is exact about 0, also where nothing depends on the key.

No statistic has an interval over fewer than `MIN_REPLICATES`. Equal replicates do not show their spread, so the
interval of what they agree in is infinite. In both cases there is no verdict.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

import numpy as np
from scipy import special

LEVEL = 0.95
"""Confidence level of an interval."""
ALPHA = 1 - LEVEL
EQUAL = 1e-9
"""Largest standard deviation of values that count as equal: they differ by rounding."""
MIN_REPLICATES = 3
"""Fewest replicates with an interval. That of two is 12.7 standard errors wide on each side, and says nothing."""
MIN_CELLS = 5
"""Fewest cells with a correlation: over two it is always 1 or -1."""
SETTLED = 0.05
"""Share of its whole change within which a metric has settled."""
Bounds = tuple[float, float]
UNKNOWN: Bounds = (-math.inf, math.inf)
Numbers = np.ndarray | float


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
    over: str = ""
    """What it generalises to, where that is not further replicates."""

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
    share: bool = False
    """Whether the means are of shares in [0, 1]."""

    @property
    def negated(self) -> "Extremes":
        return Extremes(-self.values.transpose(0, 2, 1))


def mean(values: np.ndarray, share: bool = False) -> Extremes:
    """The mean of a sample [replicates]."""
    return Extremes(values[:, None, None], share)


def largest(values: np.ndarray, share: bool = False) -> Extremes:
    """The largest mean of the columns of a sample [replicates, columns]."""
    return Extremes(values[:, :, None], share)


def smallest(values: np.ndarray, share: bool = False) -> Extremes:
    return Extremes(values[:, None, :], share)


def value_range(values: np.ndarray) -> Extremes:
    """The largest less the smallest mean: the largest difference of two columns."""
    pairs = list(permutations(range(values.shape[1]), 2)) or [(0, 0)]
    return Extremes(np.stack([values[:, first] - values[:, second] for first, second in pairs], axis=1)[:, :, None])


def difference(left: Extremes, right: Extremes | None, paired: bool = True) -> Estimate:
    """Return the left side less the right one, or the left one alone. Paired samples have the same replicates."""
    if right is not None and paired:
        first, second = left.values, right.negated.values
        n, rows, columns = len(first), first.shape[1] * second.shape[1], first.shape[2] * second.shape[2]
        both = (first[:, :, None, :, None] + second[:, None, :, None, :]).reshape(n, rows, columns)
        return difference(Extremes(both), None)
    sides = [_means(each) for each in ([left] if right is None else [left, right])]
    n = min(side.n for side in sides)
    means = sides[0].means if right is None else _outer(sides[0].means, -sides[1].means.T)
    value = float(means.min(1).max()) if n else math.nan
    if n < MIN_REPLICATES:
        return Estimate(value, n, None)

    def limits(alpha: float) -> tuple[np.ndarray, np.ndarray]:
        return sides[0].limits(alpha) if right is None else _apart(sides[0], sides[1], means, alpha)

    def bounds(alpha: float) -> Bounds:
        over, under = means.shape
        low, high = limits(alpha / over)[0], limits(alpha / under)[1]
        return float(low.min(1).max()), float(high.max(0).min())

    return Estimate(value, n, bounds)


@dataclass(frozen=True)
class _Means:
    """Means over replicates, with their standard errors."""

    means: np.ndarray
    errors: np.ndarray
    n: int
    share: bool

    def limits(self, alpha: float) -> tuple[np.ndarray, np.ndarray]:
        return mean_limits(self.means, self.errors, self.n, self.share, alpha)


def _means(side: Extremes) -> _Means:
    """Means over the first dimension, with their standard errors."""
    values = side.values
    n, unknown = len(values), np.full(values.shape[1:], math.nan)
    if n < 1:
        return _Means(unknown, unknown, 0, side.share)
    errors = standard_errors(values.std(axis=0, ddof=1), n) if n > 1 else unknown
    within = side.share and bool(((values >= 0) & (values <= 1)).all())
    return _Means(values.mean(axis=0), errors, n, within)


def _apart(first: _Means, second: _Means, means: np.ndarray, alpha: float) -> tuple[np.ndarray, np.ndarray]:
    """The bounds of differences of means over different replicates."""
    if first.share and second.share:
        (low1, high1), (low2, high2) = (
            (side.means - low, high - side.means) for side in (first, second) for low, high in [side.limits(alpha)]
        )
        return means - np.sqrt(_outer(low1**2, high2.T**2)), means + np.sqrt(_outer(high1**2, low2.T**2))
    squares = [first.errors**2, second.errors.T**2]
    variances = _outer(*squares)
    with np.errstate(invalid="ignore", divide="ignore"):
        of_both = _outer(squares[0] ** 2 / (first.n - 1), squares[1] ** 2 / (second.n - 1))
        freedom = np.where(variances > 0, variances**2 / of_both, min(first.n, second.n) - 1)
        margins = _quantile(alpha / 2, freedom) * np.sqrt(variances)
    margins = np.where(np.isnan(margins), math.inf, margins)
    return means - margins, means + margins


def _outer(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Sums of all pairs of elements of two [largest of, smallest of]."""
    (a, b), (c, d) = first.shape, second.shape
    return (first[:, None, :, None] + second[None, :, None, :]).reshape(a * c, b * d)


def over_fixed(differences: np.ndarray, what: str) -> Estimate:
    """Return the mean of paired differences [C] over values that are fixed, such as classes, of one run each.

    Its interval is that of the sign-flip test: the means of all subsets of the differences divide the line into parts
    that hold the centre with equal probability (Hartigan, JASA 64, 1969). It says whether further values would differ
    alike, not further seeds, and it exists from 6 values on.
    """
    differences = np.sort(differences)  # the random subsets must not depend on the order
    count = len(differences)
    value = float(differences.mean()) if count else math.nan
    if count < 2:
        return Estimate(value, count, None)
    if count <= MOST_FLIPPED:
        members = (np.arange(1, 2**count)[:, None] >> np.arange(count)) & 1
    else:
        members = np.random.default_rng(0).integers(0, 2, (2**MOST_FLIPPED - 1, count))
        members = members[members.any(1)]
    means = np.sort(members @ differences / members.sum(1))

    def bounds(alpha: float) -> Bounds:
        rank = math.floor(alpha / 2 * (len(means) + 1) + 1e-9)
        if rank < 1 or np.ptp(differences) <= EQUAL:
            return UNKNOWN
        return float(means[rank - 1]), float(means[-rank])

    return Estimate(value, count, bounds if count >= MIN_REPLICATES else None, over=what)


MOST_FLIPPED = 14
"""Most differences whose subsets are all taken; of more it is as many random ones."""


def argmax(values: np.ndarray, at: Sequence[float] | np.ndarray) -> Estimate:
    """Return the value of the key, one of `at`, whose column of a sample [replicates, columns] has the largest mean."""
    n, count = values.shape
    best = float(at[int(values.mean(0).argmax())]) if n else math.nan
    if n < MIN_REPLICATES or count < 2:
        return Estimate(best, n, None, "one value of the key")
    pairs = list(permutations(range(count), 2))
    differences = np.stack([values[:, other] - values[:, own] for own, other in pairs], axis=1)
    means, errors = differences.mean(0), standard_errors(differences.std(axis=0, ddof=1), n)

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


def correlation_of_metrics(values_NC: np.ndarray, others_NC: np.ndarray) -> Estimate:
    """Return the correlation over C cells, which are fixed, of the true means of two metrics, from N replicates.

    Noise pulls Pearson's r of the measured means to 0. So the noise's share, which the replicates show, is taken from
    their variances and their covariance (errors in variables). The interval has all rho at which the estimate is
    within Student's quantile of its standard error there. Three errors are taken, of which the longest end counts: of
    noise alike in all cells, of each cell's own, and of whole replicates, because cells that share a seed are not
    independent. Over 12 to 56 cells and 3 to 10 replicates it covers at least 94 % with noise as large as the signal,
    and 91 % where neighbouring cells share nearly all of it. There is none where the cells of a metric differ by no
    more than noise.
    """
    n, cells = values_NC.shape
    lack = ""
    if cells < MIN_CELLS:
        lack = f"a correlation needs {MIN_CELLS} cells, but there {'is' if cells == 1 else 'are'} {cells}"
    if lack or n < 2:
        return Estimate(pearson(values_NC.mean(0), others_NC.mean(0)) if n else math.nan, n, None, lack)
    x_NC, y_NC = (values - values.mean(1, keepdims=True) for values in (values_NC, others_NC))
    x_C, y_C = x_NC.mean(0), y_NC.mean(0)
    x_errors, y_errors = x_NC - x_C, y_NC - y_C
    unit, freedom = 1 / (n * (n - 1)), (cells - 1) * (n - 1)
    x_noise, y_noise, both = (unit * (a * b).sum() for a, b in _pairs_of(x_errors, y_errors))
    x_signal, y_signal = float(x_C @ x_C - x_noise), float(y_C @ y_C - y_noise)
    if not (x_signal > 1e-12 * float(x_C @ x_C) and y_signal > 1e-12 * float(y_C @ y_C)):
        return Estimate(pearson(values_NC.mean(0), others_NC.mean(0)), n, None, "the cells of a metric differ by noise")
    if x_noise <= EQUAL**2 or y_noise <= EQUAL**2:
        return Estimate(pearson(x_C, y_C), n, None if n < MIN_REPLICATES else lambda alpha: UNKNOWN)
    scale = math.sqrt(x_signal * y_signal)
    r = float(np.clip((x_C @ y_C - both) / scale, -1, 1))
    # The variance of r at a true value rho is a polynomial of rho, here by rising powers.
    a, b, c = (share / (cells - 1) for share in (x_noise / x_signal, y_noise / y_signal, both / scale))
    h = (cells - 1) * n / (n - 1)
    alike = [
        a + b + h * (c * c + a * b),
        -2 * c - 2 * h * c * (a + b),
        h * (a * a + b * b + 2 * c * c) / 2 - a - b,
        2 * c,
    ]
    u, w = (x_C * y_errors + y_C * x_errors) / scale, x_C * x_errors / x_signal + y_C * y_errors / y_signal
    each = unit * cells / (cells - 1)
    own = [each * (u * u).sum(), -2 * each * (u * w).sum(), each * (w * w).sum(), 0.0]
    u_N, w_N = u.sum(1), w.sum(1)
    shared = [unit * (u_N @ u_N), -2 * unit * (u_N @ w_N), unit * (w_N @ w_N), 0.0]

    def bounds(alpha: float) -> Bounds:
        ends = [r]
        for variance, own_freedom in ((alike, freedom), (own, freedom), (shared, n - 1)):
            squared = float(_quantile(alpha / 2, own_freedom)) ** 2
            excess = np.array([r * r, -2 * r, 1.0, 0.0]) - squared * np.array(variance)  # (r - rho)^2 - q^2 var(rho)
            ends += [root.real for root in np.roots(excess[::-1]) if abs(root.imag) < 1e-9 and abs(root.real) <= 1]
            ends += [end for end in (-1.0, 1.0) if np.polyval(excess[::-1], end) <= 0]
        return float(min(ends)), float(max(ends))

    return Estimate(r, n, bounds if n >= MIN_REPLICATES else None)


def _pairs_of(x: np.ndarray, y: np.ndarray) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    return (x, x), (y, y), (x, y)


def known_interval(estimate: Estimate) -> Bounds:
    """Return the 95 % interval of an estimate; NaN where it has none, or an infinite one."""
    low, high = estimate.bounds(ALPHA) if estimate.bounds else UNKNOWN
    return (low, high) if math.isfinite(high - low) else (math.nan, math.nan)


def p_value(
    estimate: Estimate, decided: Callable[[Bounds], bool] = lambda bounds: bounds[0] > 0 or bounds[1] < 0
) -> float:
    """Return the smallest alpha at which the interval decides, to three digits: 1 if it never does."""
    bounds = estimate.bounds
    if bounds is None or not decided(bounds(LARGEST)):
        return 1.0
    if decided(bounds(SMALLEST)):
        return SMALLEST
    below, above = SMALLEST, LARGEST
    while above / below > 1.001:
        middle = math.sqrt(below * above)
        below, above = (below, middle) if decided(bounds(middle)) else (middle, above)
    return above


SMALLEST, LARGEST = 1e-12, 1 - 1e-9
"""The least and the greatest alpha that are tried."""


def pearson(x: np.ndarray, y: np.ndarray) -> float:
    """Return Pearson's r over cells; NaN for fewer than `MIN_CELLS` of them, or if one is constant but for rounding."""
    if len(x) < MIN_CELLS or any(np.ptp(values) <= 1e-12 * np.abs(values).max() for values in (x, y)):
        return math.nan
    return float(np.clip(np.corrcoef(x, y)[0, 1], -1.0, 1.0))


def settled(values: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Return for each row of a sample [replicates, reports] the value of `at` [reports] from which on all its values
    differ from the last one by at most `SETTLED` of the change from the first to the last."""
    last = values[:, -1:]
    away = np.abs(values - last) > SETTLED * np.abs(values[:, :1] - last)
    reports = values.shape[1]
    return at[np.where(away.any(axis=1), reports - np.argmax(away[:, ::-1], axis=1), 0)]


def mean_limits(
    means: Numbers, errors: Numbers, n: Numbers, share: Numbers = False, alpha: float = ALPHA
) -> tuple[np.ndarray, np.ndarray]:
    """Return the bounds of the intervals of means over n replicates with these standard errors, of shares on the logit
    scale; infinite ones where an error is."""
    means, errors, freedom = (np.asarray(given, dtype=float) for given in (means, errors, np.asarray(n) - 1))
    share = np.asarray(share, dtype=bool)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        margins = _quantile(alpha / 2, np.where(freedom > 0, freedom, math.nan)) * errors
        centres, halves = special.logit(np.where(share, means, 0.5)), margins / (means * (1 - means))
        known = share & np.isfinite(centres) & np.isfinite(halves)
        low = np.where(known, special.expit(centres - halves), means - margins)
        high = np.where(known, special.expit(centres + halves), means + margins)
    return low, high


def intervals(means: Numbers, deviations: Numbers, n: Numbers, share: Numbers = False) -> tuple[np.ndarray, np.ndarray]:
    """Return the bounds of the 95 % intervals of means over n replicates that have these standard deviations. One of
    fewer than `MIN_REPLICATES`, or of equal ones, is NaN: it is not known."""
    n = np.asarray(n, dtype=float)
    with np.errstate(invalid="ignore", divide="ignore"):
        low, high = mean_limits(means, standard_errors(np.asarray(deviations, dtype=float), n), n, share)
    known = np.isfinite(low) & np.isfinite(high) & (n >= MIN_REPLICATES)
    return np.where(known, low, math.nan), np.where(known, high, math.nan)


def over_images(auroc: float, margin: float) -> Bounds:
    """Return the 95 % interval of an AUROC over test images on the logit scale, from half its interval by DeLong et
    al.; NaN where that is not known or 0."""
    if not (margin > 0 and 0 < auroc < 1):
        return math.nan, math.nan
    centre, half = float(special.logit(auroc)), margin / (auroc * (1 - auroc))
    return float(special.expit(centre - half)), float(special.expit(centre + half))


def standard_errors(deviations: Numbers, n: Numbers) -> np.ndarray:
    """Standard errors of means over n replicates. The error of equal values is infinite: shares of a few test images
    can be equal by chance, and say nothing of their spread."""
    deviations = np.asarray(deviations)
    return np.where(deviations <= EQUAL, math.inf, deviations / np.sqrt(n))


def unit_halves(most: int) -> np.ndarray:
    """Return half the widths of the intervals of n replicates whose standard deviation is 1, for n from 0 to `most`;
    NaN below `MIN_REPLICATES`."""
    n = np.arange(most + 1)
    low, high = intervals(np.zeros(len(n)), np.ones(len(n)), n)
    return (high - low) / 2


def _quantile(alpha: Numbers, freedom: Numbers) -> np.ndarray:
    """The value that Student's t exceeds with the probability alpha."""
    return np.asarray(special.stdtrit(freedom, 1 - alpha))


def standard_halves(counts: Numbers, alphas: Numbers) -> np.ndarray:
    """Return half the widths of intervals of means over `counts` replicates, whose standard deviation is 1, at the
    levels `1 - alphas`."""
    return _quantile(np.asarray(alphas) / 2, np.asarray(counts) - 1) / np.sqrt(counts)


def improvement(worse_CN: np.ndarray, better_CM: np.ndarray) -> tuple[float, float, float]:
    """Return the probability that a run with values `better_CM` exceeds one with values `worse_CN`, ties counting half,
    with its 95 % interval. The values of a side are those of its M or N replicates in each of C strata, which are
    fixed; NaN where a run is missing.

    It is the mean over strata of Mann and Whitney's statistic. The interval is on the logit scale, from the spread of
    the placements of whole replicates (DeLong et al., Biometrics 44, 1988): the strata of a replicate share its seed.
    It is NaN over fewer than `MIN_REPLICATES` whole replicates of a side, and where one side wins always.
    """
    won_CMN = np.where(better_CM[:, :, None] > worse_CN[:, None, :], 1.0, 0.0)
    won_CMN = np.where(better_CM[:, :, None] == worse_CN[:, None, :], 0.5, won_CMN)
    won_CMN[np.isnan(better_CM[:, :, None] - worse_CN[:, None, :])] = math.nan
    strata = won_CMN[~np.isnan(won_CMN).all((1, 2))]
    value = float(np.nanmean(strata, axis=(1, 2)).mean()) if len(strata) else math.nan
    whole_CMN = won_CMN[:, ~np.isnan(better_CM).any(0)][:, :, ~np.isnan(worse_CN).any(0)]
    counts = np.array(whole_CMN.shape[1:])
    if counts.min() < MIN_REPLICATES or not 0 < value < 1:
        return value, math.nan, math.nan
    squares = [whole_CMN.mean((0, axis)).var(ddof=1) / count for axis, count in zip((2, 1), counts, strict=True)]
    if not sum(squares) > 0:
        return value, math.nan, math.nan
    freedom = sum(squares) ** 2 / sum(square**2 / (count - 1) for square, count in zip(squares, counts, strict=True))
    half = float(_quantile(ALPHA / 2, freedom)) * math.sqrt(sum(squares)) / (value * (1 - value))
    centre = float(special.logit(value))
    return value, float(special.expit(centre - half)), float(special.expit(centre + half))
