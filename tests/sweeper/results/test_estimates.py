"""Every statistic against an independent formulation, and its interval by how often it covers the truth."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import special, stats

from sweeper.results.estimates import (
    ALPHA,
    Estimate,
    correlation_of_metrics,
    difference,
    improvement,
    intervals,
    known_interval,
    mean,
    over_fixed,
    over_images,
    p_value,
)
from tests.cases import for_each
from trainables.metrics.roc import auroc_margin, mann_whitney

COUNTS = (3, 5, 10)
KINDS = ("normal", "Beta(9, 1)")
LEAST, MOST_WRONG = 0.93, 0.07
"""Least coverage of a 95 % interval, and most wrong verdicts at the margin, of both kinds together."""


def draws(kind: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.beta(9, 1, shape) if kind == "Beta(9, 1)" else rng.normal(0.9, 0.03, shape)


def coverage(make: Callable[[int], Estimate], truth: float, worlds: int) -> float:
    """The share of worlds whose interval has the truth."""
    found = [known_interval(make(world)) for world in range(worlds)]
    assert not np.isnan(found).any()
    return float(np.mean([low <= truth <= high for low, high in found]))


@pytest.mark.slow
@for_each("n", COUNTS)
@for_each("kind", KINDS)
@for_each("classes", [1, 10])
def test_the_interval_of_a_mean_covers_it(n: int, kind: str, classes: int) -> None:
    """By 20,000 worlds, of values or of means over classes. Student's t alone covers 90 % of shares of Beta(9, 1)."""
    values = draws(kind, (20_000, n, classes), n).mean(2)
    low, high = intervals(values.mean(1), values.std(1, ddof=1), np.full(len(values), n), kind == "Beta(9, 1)")
    covered, holds, refuted = np.mean((low <= 0.9) & (high >= 0.9)), np.mean(low > 0.9), np.mean(high < 0.9)
    assert covered >= LEAST and holds + refuted <= MOST_WRONG and max(holds, refuted) < 0.055
    assert (high[values.mean(1) < 1] <= 1).all() or kind == "normal"


@pytest.mark.slow
@for_each("n", COUNTS)
@for_each("kind", KINDS)
@for_each("paired", [True, False])
def test_the_interval_of_a_difference_covers_it(n: int, kind: str, paired: bool) -> None:
    left, right = draws(kind, (2000, n), n), draws(kind, (2000, n), 100 + n)

    def make(world: int) -> Estimate:
        share = kind == "Beta(9, 1)"
        return difference(mean(left[world], share), mean(right[world], share), paired)

    assert coverage(make, 0.0, 2000) >= LEAST


def test_shares_of_different_replicates_differ_by_the_square_and_add_of_their_intervals() -> None:
    """Newcombe, Statistics in Medicine 17, 1998, from two logit intervals."""
    left, right = np.array([0.99, 0.97, 0.95]), np.array([0.9, 0.7, 0.8, 0.85])

    def ends(values: np.ndarray) -> tuple[float, float]:
        p = values.mean()
        half = stats.t.ppf(0.975, len(values) - 1) * stats.sem(values) / (p * (1 - p))
        return special.expit(special.logit(p) - half), special.expit(special.logit(p) + half)

    (l1, u1), (l2, u2), a, b = ends(left), ends(right), left.mean(), right.mean()
    expected = (a - b - math.hypot(a - l1, u2 - b), a - b + math.hypot(u1 - a, b - l2))
    found = difference(mean(left, True), mean(right, True), paired=False)
    assert known_interval(found) == pytest.approx(expected)


def test_paired_differences_over_fixed_values_are_those_of_the_sign_flip_test() -> None:
    """The interval has all centres that the test of flipped signs, enumerated, does not reject."""
    values = np.array([0.02, 0.05, -0.01, 0.04, 0.03, 0.06, 0.01, 0.0])
    estimate = over_fixed(values, "8 classes")
    assert estimate.bounds and estimate.over == "8 classes"
    low, high = estimate.bounds(ALPHA)
    signs = (np.arange(2**8)[:, None] >> np.arange(8) & 1) * 2 - 1

    def one_sided(centre: float) -> float:
        flipped = signs @ (values - centre) / 8
        return float(np.mean(flipped >= (values - centre).mean() - 1e-12))

    for end, sign in ((low, -1), (high, 1)):
        beyond, within = one_sided(end + sign * 1e-9), one_sided(end - sign * 1e-9)
        tails = (beyond, within) if sign < 0 else (1 - beyond + 1 / 256, 1 - within + 1 / 256)
        assert tails[0] <= ALPHA / 2 + 1e-9 < tails[1] + 1 / 256
    assert over_fixed(values[:5], "5 classes").bounds(ALPHA) == (-math.inf, math.inf)  # type: ignore[misc]
    assert math.isinf(over_fixed(np.full(8, 0.1), "").bounds(ALPHA)[0]), "equal ones show no spread"  # type: ignore[misc]


def test_the_order_of_fixed_values_changes_nothing() -> None:
    values = np.random.default_rng(5).normal(0.02, 0.1, 30)
    ends = [over_fixed(own, "30 classes").bounds(ALPHA) for own in (values, values[::-1])]  # type: ignore[misc]
    assert ends[0] == pytest.approx(ends[1], abs=1e-15)


def test_the_p_value_is_the_level_at_which_the_interval_ends_at_zero() -> None:
    rng = np.random.default_rng(2)
    first, second = rng.normal(0.5, 1, 8), rng.normal(0, 1, 8)
    assert p_value(difference(mean(first), mean(second))) == pytest.approx(
        stats.ttest_rel(first, second).pvalue, rel=2e-3
    )
    assert p_value(Estimate(0.1, 2, None)) == 1.0


@pytest.mark.slow
@for_each("n", COUNTS)
@for_each("truth", [0.0, 0.9])
@for_each("noise", [0.3, 1.0])
@for_each("alike", [0.0, 0.7])
def test_a_correlation_over_cells_is_that_of_the_true_means(n: int, truth: float, noise: float, alike: float) -> None:
    """With noise as large as the signal Pearson's r of the means has no interval that covers: .12 to .17 at .9. A share
    of the noise may be `alike` in neighbouring cells of a seed."""
    rng, cells = np.random.default_rng(n), 20
    x = stats.zscore(stats.norm.ppf((np.arange(cells) + 0.5) / cells))
    other = rng.normal(0, 1, cells)
    other = stats.zscore(other - np.polyval(np.polyfit(x, other, 1), x))
    y = truth * x + math.sqrt(1 - truth**2) * other
    assert np.corrcoef(x, y)[0, 1] == pytest.approx(truth, abs=1e-9)
    shared = rng.normal(0, 0.5, (2, 400, n, 1))
    waves = np.stack([np.sin(np.arange(cells) / 4), np.cos(np.arange(cells) / 3)])

    def noisy(own: np.ndarray, luck: np.ndarray) -> np.ndarray:
        smooth, rough = rng.normal(0, 1, (400, n, 2)) @ waves, rng.normal(0, 1, (400, n, cells))
        return np.asarray(own + noise * (math.sqrt(alike) * smooth + math.sqrt(1 - alike) * rough) + luck)

    first, second = (noisy(own, luck) for own, luck in zip((x, y), shared, strict=True))
    estimates = [correlation_of_metrics(*pair) for pair in zip(first, second, strict=True)]
    known = [estimate for estimate in estimates if not math.isnan(known_interval(estimate)[0])]
    assert len(known) > 380 and coverage(known.__getitem__, truth, len(known)) >= (LEAST if alike == 0 else 0.9)
    assert alike or np.median([estimate.value for estimate in estimates]) == pytest.approx(truth, abs=0.06)


def test_a_correlation_without_noise_is_pearsons_and_few_cells_have_none() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(0, 1, (2, 8))
    exact = correlation_of_metrics(np.tile(x, (3, 1)), np.tile(y, (3, 1)))
    assert exact.value == pytest.approx(np.corrcoef(x, y)[0, 1]) and np.isnan(known_interval(exact)).all()
    for cells in (1, 2, 4):
        few = correlation_of_metrics(rng.normal(0, 1, (10, cells)), rng.normal(0, 1, (10, cells)))
        assert few.bounds is None and f"but there {'is' if cells == 1 else 'are'} {cells}" in few.reason
    noise = correlation_of_metrics(np.array([[0.0] * 6, [1.0] * 6, [2.0] * 6]), rng.normal(0, 1, (3, 6)))
    assert noise.bounds is None and "differ by noise" in noise.reason


def test_the_probability_of_improvement_is_the_mean_over_strata_of_mann_whitneys_u() -> None:
    """U over its maximum is the share of pairs of runs that are won, ties counting half."""
    rng = np.random.default_rng(0)
    worse, better = rng.integers(0, 6, (3, 5)).astype(float), rng.integers(1, 7, (3, 4)).astype(float)
    found, low, high = improvement(worse, better)
    shares = [stats.mannwhitneyu(b, a).statistic / 20 for a, b in zip(worse, better, strict=True)]
    assert found == pytest.approx(np.mean(shares)) and 0 < low < found < high < 1
    again = improvement(better, worse)
    assert again == pytest.approx((1 - found, 1 - high, 1 - low))
    worse[0, 0] = math.nan
    shares[0] = stats.mannwhitneyu(better[0], worse[0, 1:]).statistic / 16
    assert improvement(worse, better)[0] == pytest.approx(np.mean(shares)), "a run that is missing"


@pytest.mark.slow
@for_each("n", COUNTS)
@for_each("shared", [0.0, 0.3])
def test_the_interval_of_the_probability_of_improvement_covers_it(n: int, shared: float) -> None:
    """Of ten classes whose runs share their seed's luck. Resampling runs within each class covers .66 to .78 then."""
    rng, covered, known = np.random.default_rng(n), 0, 0
    for _ in range(600):
        worse, better = (
            math.sqrt(shared) * rng.normal(0, 1, (1, n)) + math.sqrt(1 - shared) * rng.normal(0, 1, (10, n))
            for _ in range(2)
        )
        _, low, high = improvement(worse, better + math.sqrt(2) * special.ndtri(0.75))
        known += not math.isnan(low)
        covered += low <= 0.75 <= high
    assert covered / known >= LEAST and known > 590


def test_an_interval_of_improvement_is_absent_where_runs_say_nothing_of_it() -> None:
    values = np.array([[0.91, 0.85, 0.97, 0.93]])
    assert improvement(values, values + 1)[0] == 1.0 and np.isnan(improvement(values, values + 1)[1:]).all()
    few = improvement(values[:, :2], values[:, 2:])
    assert not math.isnan(few[0]) and np.isnan(few[1:]).all()


def test_the_interval_of_an_auroc_over_images_is_that_of_its_logit() -> None:
    low, high = over_images(0.95, 0.04)
    centre, half = special.logit(0.95), 0.04 / (0.95 * 0.05)
    assert (low, high) == pytest.approx((special.expit(centre - half), special.expit(centre + half))) and high < 1
    assert np.isnan([over_images(1.0, 0.0), over_images(0.9, math.nan)]).all()


@pytest.mark.slow
@for_each("area", [0.7, 0.9])
@for_each("inliers", [30, 270])
def test_the_interval_of_an_auroc_over_images_covers_it(area: float, inliers: int) -> None:
    """From 30 images of either kind on. On its own scale DeLong's covers .90 at an area of .9."""
    rng, covered = np.random.default_rng(inliers), 0
    for _ in range(500):
        normal, outliers = rng.normal(0, 1, inliers), rng.normal(math.sqrt(2) * special.ndtri(area), 1, 30)
        low, high = over_images(mann_whitney(normal, outliers), auroc_margin(normal, outliers))
        covered += low <= area <= high
    assert covered / 500 >= LEAST
    assert math.isnan(auroc_margin(normal[:29], outliers))
