"""What a choice among settings says: which of them may be the best, and an interval of the chosen one.

Shapes: N replicates, the same for all settings; S settings. Higher values are better.

Both rules need how settings vary from replicate to replicate. The variance of a setting is shrunk towards that of all
(empirical Bayes, as in Smyth, Statistical Applications in Genetics 3, 2004): alone it has N - 1 degrees of freedom,
which tell nothing apart among many settings, and pooled it is wrong for settings that are noisier than the others. What
a replicate adds to all settings, such as a lucky seed or a hard class, is taken out first.

In simulations with 2 to 56 settings and 3, 5 and 10 replicates, of normal and of Beta(9, 1) values, also with one wild
setting, the interval covers at least 93 % and the set has the truly best setting in at least 94 %. Where the best of
equal settings is four times as noisy as the others, the set has it in 88 to 97 %: least among 56 with three replicates.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from sweeper.results.estimates import ALPHA, EQUAL, MIN_REPLICATES, Bounds, mean_limits, standard_errors

FIRST = 64
"""Settings with the best means, with which each is compared first."""
LARGE = 1e50
"""Values beyond this are clipped: their fourth powers would overflow."""
NODES, LEVELS = 40, 60
"""Nodes of the quadrature over the common rival, and quantiles of its standard deviation."""


@dataclass(frozen=True)
class _Spread:
    """How settings vary from replicate to replicate, beyond what a replicate adds to all."""

    pooled: float
    """Variance of a typical setting: by the median, which a few very noisy ones do not move."""
    own_S: np.ndarray
    weight: float
    """Of the pooled variance in a shrunk one, in [0, 1]."""
    freedom: float
    """Degrees of freedom of a shrunk variance."""


def not_told_apart(values_NS: np.ndarray) -> np.ndarray:
    """Return which settings `[S]` are not told apart from the best: a set that contains the truly best one with a
    probability of at least 95 % (Hsu's multiple comparisons with the best).

    A setting is left out if a better one exceeds it by Dunnett's one-sided quantile of the shrunk error of their
    difference, and by the paired t of the two alone. Where no difference varies, none is told apart: equal replicates
    do not show their spread.
    """
    count, settings = values_NS.shape
    if settings == 1:
        return np.ones(1, dtype=bool)
    values_NS = np.clip(values_NS, -LARGE, LARGE)
    means_S, freedom = values_NS.mean(0), count - 1
    centred_NS = (values_NS - means_S) / math.sqrt(freedom)
    noise = _noise(values_NS)
    quantile, alone = dunnett(settings - 1, noise.freedom), float(special.stdtrit(freedom, 1 - ALPHA))
    squares_S = (centred_NS**2).sum(0)
    kept_S = np.ones(settings, dtype=bool)
    ranked = np.argsort(-means_S)

    def is_exceeded(index: int, rivals: np.ndarray) -> bool:
        better = rivals[means_S[rivals] > means_S[index]]
        products = centred_NS[:, index] @ centred_NS[:, better]
        own = np.maximum(squares_S[index] + squares_S[better] - 2 * products, 0)
        shrunk = noise.weight * 2 * noise.pooled + (1 - noise.weight) * own
        needed = np.maximum(quantile * np.sqrt(shrunk), alone * np.sqrt(own)) / math.sqrt(count)
        return bool(((needed > EQUAL) & (means_S[better] - means_S[index] > needed * (1 + 1e-9))).any())

    for index in ranked:  # nearly all that are exceeded at all are by one of the first
        kept_S[index] = not (is_exceeded(index, ranked[:FIRST]) or is_exceeded(index, ranked[FIRST:]))
    return kept_S


def chosen_interval(values_NS: np.ndarray, by_NS: np.ndarray, chosen: int, share: bool = False) -> Bounds:
    """Return the 95 % interval of the true mean of `values_NS` of the setting that was `chosen` because its mean of
    `by_NS` is best, which may be the same values. NaN below `MIN_REPLICATES`, or without any variance.

    Being best of several is luck in part. So the lower end is that of a plain interval less the expected luck of the
    best of those that `by_NS` does not tell apart (Blom's approximation), as far as luck in it is luck in the values.
    The plain interval is the longer one of the setting's own by Student's t, and of that with its shrunk variance.
    """
    count, settings = values_NS.shape
    known_S = (np.abs(values_NS) <= LARGE).all(0) & (np.abs(by_NS) <= LARGE).all(0)
    if count < MIN_REPLICATES or not known_S[chosen]:
        return math.nan, math.nan
    values_NS, by_NS, chosen = values_NS[:, known_S], by_NS[:, known_S], int(known_S[:chosen].sum())
    settings = values_NS.shape[1]
    mean, std = float(values_NS[:, chosen].mean()), float(values_NS[:, chosen].std(ddof=1))
    if std <= EQUAL:
        return math.nan, math.nan
    low, high = map(float, mean_limits(mean, float(standard_errors(std, count)), count, share))
    if settings == 1:
        return low, high
    noise, freedom = _noise(values_NS), count - 1
    variance = noise.weight * noise.pooled + (1 - noise.weight) * float(noise.own_S[chosen])
    shared, own = float(np.median(values_NS - values_NS.mean(0), axis=1).var(ddof=1)), (1 - 1 / settings) * variance
    of_both = (shared + own) ** 2 / (shared**2 / freedom + own**2 / noise.freedom)
    half = float(special.stdtrit(of_both, 1 - ALPHA / 2)) * math.sqrt((shared + own) / count) if settings > 2 else 0.0
    alike = int(not_told_apart(by_NS).sum())
    luck = (
        special.ndtri((alike - 0.375) / (alike + 0.25)) * math.sqrt(variance / count) * _shared_luck(values_NS, by_NS)
    )
    low, high = min(low, mean - half) - float(luck), max(high, mean + half)
    return (max(low, 0.0), min(high, 1.0)) if share else (low, high)


def dunnett(rivals: int, freedom: float, level: float = 1 - ALPHA) -> float:
    """Return the upper point of the largest of several Student t's with a common rival and a common variance, which
    correlate by 1/2 (Dunnett, JASA 50, 1955)."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    levels = (np.arange(LEVELS) + 0.5) / LEVELS
    deviations = np.sqrt(2 * special.gammaincinv(freedom / 2, levels) / freedom)
    low, high = 0.0, float(-special.stdtrit(freedom, (1 - level) / rivals)) + 0.1  # Bonferroni's is an upper bound
    for _ in range(24):
        middle = (low + high) / 2
        below = special.ndtr(nodes[:, None] + math.sqrt(2) * middle * deviations) ** rivals
        low, high = (middle, high) if (weights @ below).mean() / weights.sum() < level else (low, middle)
    return high


def _noise(values_NS: np.ndarray) -> _Spread:
    count, settings = values_NS.shape
    freedom = count - 1
    residuals_NS = _residuals(values_NS)
    if settings == 2:
        pooled = float((residuals_NS**2).sum() / freedom)
        return _Spread(pooled, np.full(settings, pooled), 1.0, freedom)
    raw_S = (residuals_NS**2).sum(0) / freedom
    typical = float(np.median(raw_S)) / (1 - 2 / (9 * freedom)) ** 3  # by Wilson and Hilferty
    pooled = typical / (1 - 1 / settings)
    own_S = np.maximum((raw_S - pooled / settings) / (1 - 2 / settings), 0)
    if not own_S.any():
        return _Spread(0.0, own_S, 1.0, freedom * (settings - 1))
    excess = (1 + own_S.var(ddof=1) / own_S.mean() ** 2) / (1 + 2 / freedom) - 1
    prior = 0.5 + 2 / excess if excess > 2e-4 else 1e4
    return _Spread(pooled, own_S, prior / (prior + freedom), min(prior + freedom, freedom * (settings - 1)))


def _residuals(values_NS: np.ndarray) -> np.ndarray:
    """The values less the mean of their setting, and less what their replicate adds to a typical setting."""
    centred_NS = values_NS - values_NS.mean(0)
    residuals_NS = centred_NS - np.median(centred_NS, axis=1, keepdims=True)
    return np.asarray(residuals_NS - residuals_NS.mean(0))


def _shared_luck(values_NS: np.ndarray, by_NS: np.ndarray) -> float:
    """The correlation over runs of two metrics, in [0, 1]: how far luck in one is luck in the other."""
    first_NS, second_NS = _residuals(values_NS), _residuals(by_NS)
    scale = math.sqrt((first_NS**2).sum() * (second_NS**2).sum())
    return max(0.0, float((first_NS * second_NS).sum() / scale)) if scale > 0 else 0.0
