"""The rule of verdicts: against scipy's own intervals and hand-worked ones, and by simulation of known truths."""

import math
import warnings
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from sweeper.claims import verdicts
from sweeper.claims.verdicts import MOST_EXPECTED, holm, p_value, replicates_expected, together, verdict
from sweeper.results import estimates
from sweeper.results.estimates import (
    ALPHA,
    MIN_CELLS,
    MIN_REPLICATES,
    Estimate,
    argmax,
    correlation,
    correlation_of_metrics,
    difference,
    largest,
    mean,
    over_fixed,
    smallest,
    value_range,
)
from tests.cases import for_each

RNG = np.random.default_rng(0)
A, B = RNG.normal(size=8), RNG.normal(0.4, size=8)


def interval(estimate: Estimate, alpha: float = ALPHA) -> tuple[float, float]:
    assert estimate.bounds
    return estimate.bounds(alpha)


def test_a_paired_difference_is_student_s() -> None:
    estimate, expected = difference(mean(A), mean(B)), stats.ttest_rel(A, B)
    assert interval(estimate) == pytest.approx(tuple(expected.confidence_interval(0.95)))
    assert estimate.value == pytest.approx(A.mean() - B.mean()) and estimate.n == 8
    assert p_value(estimate, "<") == pytest.approx(expected.pvalue, rel=2e-3)


def test_an_unpaired_difference_is_welch_s() -> None:
    estimate, expected = (
        difference(mean(A), mean(3 * B[:5]), paired=False),
        stats.ttest_ind(A, 3 * B[:5], equal_var=False),
    )
    assert interval(estimate) == pytest.approx(tuple(expected.confidence_interval(0.95)))


@pytest.mark.slow
@given(arrays(np.float64, (3, 7), elements=st.floats(-1e3, 1e3)))
def test_a_metric_has_settled_at_the_first_report_after_which_it_stays_near_its_last_value(values: np.ndarray) -> None:
    at = np.arange(10.0, 80.0, 10.0)
    for row, epoch in zip(values, estimates.settled(values, at), strict=True):
        near = [abs(value - row[-1]) <= estimates.SETTLED * abs(row[0] - row[-1]) for value in row]
        assert epoch == next(at[start] for start in range(7) if all(near[start:]))


def test_a_falling_loss_has_settled_when_a_twentieth_of_its_fall_is_left() -> None:
    at = np.arange(1.0, 6.0)
    assert list(estimates.settled(np.array([[9.0, 3.0, 1.3, 1.2, 1.0], [5.0] * 5]), at)) == [3.0, 1.0]


def test_a_mean_is_compared_with_a_number() -> None:
    low, high = interval(difference(mean(A), None).minus(0.1))
    assert (low, high) == pytest.approx(tuple(stats.ttest_1samp(A - 0.1, 0).confidence_interval(0.95)))


def test_three_seeds_need_more_than_two_standard_errors() -> None:
    values = np.array([1.0, 2.0, 3.0])
    low, high = interval(difference(mean(values), None))
    assert (high - low) / 2 == pytest.approx(4.3027 / math.sqrt(3), rel=1e-4)


def test_a_correlation_of_metrics_is_of_products_of_different_replicates() -> None:
    """Their noise is independent, so that its share in the covariances over cells is zero on average."""
    truth = np.linspace(0, 3, 8)
    first, second = (truth + RNG.normal(0, 0.5, size=(4, 8)) for _ in range(2))

    def covariance(x: np.ndarray, y: np.ndarray) -> float:
        pairs = [(a, b) for a in range(4) for b in range(4) if a != b]
        return float(np.mean([np.cov(x[a], y[b])[0, 1] for a, b in pairs]))

    expected = covariance(first, second) / math.sqrt(covariance(first, first) * covariance(second, second))
    found = correlation_of_metrics(first, second)
    assert found.value == pytest.approx(min(expected, 1.0))
    low, high = interval(found)
    assert -1 <= low < found.value <= high <= 1
    with warnings.catch_warnings(action="error"):
        nobody = correlation_of_metrics(np.empty((0, 3)), np.empty((0, 3)))
    assert math.isnan(nobody.value) and nobody.n == 0 and nobody.bounds is None


def test_a_correlation_is_that_of_the_mean() -> None:
    values, at = RNG.normal(size=(4, 5)), np.array([1.0, 3.0, 7.0, 20.0, 50.0])
    assert correlation(values, at).value == pytest.approx(stats.pearsonr(values.mean(0), at)[0])


def test_extremes_of_one_value_are_means() -> None:
    """The largest of one method is its mean."""
    expected = interval(difference(mean(A), mean(B)))
    for take in (largest, smallest):
        assert interval(difference(take(A[:, None]), take(B[:, None]))) == pytest.approx(expected)


STATISTICS: dict[str, Callable[[np.ndarray], Estimate]] = {
    "mean": lambda values: difference(mean(values.mean(1)), None),
    "difference": lambda values: difference(mean(values[:, 0]), mean(values[:, 1:].mean(1))),
    "unpaired difference": lambda values: difference(mean(values[:, 0]), mean(values[:, 1]), paired=False),
    "largest": lambda values: difference(largest(values), None),
    "smallest against largest": lambda values: difference(smallest(values), largest(values)),
    "range": lambda values: difference(value_range(values), None),
    "argmax": lambda values: argmax(values, np.arange(values.shape[1])),
    "correlation with a key": lambda values: correlation(values, np.arange(values.shape[1])),
    "correlation of metrics": lambda values: correlation_of_metrics(values, values[:, ::-1] ** 2),
    "deviation of each replicate": lambda values: difference(mean(values.std(1, ddof=1)), None),
    "settled": lambda values: difference(mean(estimates.settled(values, np.arange(values.shape[1]))), None),
}
"""Every statistic of a claim, of a sample [replicates, columns]."""
CLAIMED = [(relation, margin) for relation in (">", "<", "~") for margin in (0.0, 0.5, -0.5)]
NUMBERS = st.integers(-400, 400).map(lambda number: number / 8)


@for_each("name", STATISTICS)
@for_each("n", range(MIN_REPLICATES))
def test_few_replicates_decide_nothing(name: str, n: int) -> None:
    estimate = STATISTICS[name](RNG.normal(size=(n, 6)))
    assert estimate.bounds is None and estimate.reason in ("no pairs", "one replicate", "two replicates")
    assert all(verdict(estimate, *claimed) == "undecided" and p_value(estimate, *claimed) == 1 for claimed in CLAIMED)


@pytest.mark.slow
@for_each("name", STATISTICS)
@settings(max_examples=30)
@given(arrays(float, (1, 6), elements=NUMBERS), st.integers(MIN_REPLICATES, 10))
def test_equal_replicates_decide_nothing(name: str, row: np.ndarray, n: int) -> None:
    """Seeds that have the same number of test images right say nothing of the spread, so no interval has width 0."""
    estimate = STATISTICS[name](np.repeat(row, n, axis=0))
    assert all(verdict(estimate, *claimed) == "undecided" and p_value(estimate, *claimed) == 1 for claimed in CLAIMED)


@given(arrays(float, st.tuples(st.integers(0, 10), st.integers(1, MIN_CELLS - 1)), elements=NUMBERS))
def test_a_correlation_of_metrics_over_few_cells_decides_nothing(values: np.ndarray) -> None:
    """Over two cells it is always 1 or -1."""
    estimate = correlation_of_metrics(values, values[:, ::-1] ** 2)
    assert math.isnan(estimate.value) and estimate.bounds is None and estimate.reason
    assert all(verdict(estimate, *claimed) == "undecided" and p_value(estimate, *claimed) == 1 for claimed in CLAIMED)


def test_one_value_of_a_key_decides_nothing() -> None:
    value_range_of_one = difference(value_range(A[:, None]), None)
    for estimate in (argmax(A[:, None], [1.0]), correlation(A[:, None], np.array([3.0])), value_range_of_one):
        assert all(verdict(estimate, *claimed) == "undecided" for claimed in CLAIMED)


@given(
    arrays(float, (4, 3), elements=st.integers(-40, 40).map(lambda number: number / 8)),
    st.permutations(range(4)),
    st.floats(0.5, 20),
)
def test_order_and_scale_of_the_rows_do_not_matter(values: np.ndarray, order: list[int], scale: float) -> None:
    for take in (largest, smallest, value_range):
        plain, mixed = (difference(take(each), None) for each in (values, scale * values[order]))
        assert interval(mixed) == pytest.approx(tuple(scale * end for end in interval(plain)), abs=1e-6)
    assert argmax(values, [1, 2, 3]).n == 4


@for_each(
    ("relation", "margin", "bounds", "expected"),
    [
        (">", 0.0, (0.1, 0.2), "holds"),
        (">", 0.15, (0.1, 0.2), "undecided"),
        (">", 0.3, (0.1, 0.2), "refuted"),
        ("<", 0.0, (0.1, 0.2), "refuted"),
        ("<", 0.1, (-0.3, -0.2), "holds"),
        ("~", 0.3, (-0.1, 0.2), "holds"),
        ("~", 0.1, (0.2, 0.3), "refuted"),
        ("~", 0.1, (0.0, 0.3), "undecided"),
    ],
)
def test_the_side_of_the_margin_decides(
    relation: str, margin: float, bounds: tuple[float, float], expected: str
) -> None:
    assert verdict(Estimate(sum(bounds) / 2, 3, lambda alpha: bounds), relation, margin) == expected


def test_holm_s_correction() -> None:
    assert holm([0.04, 0.001, 0.03]) == pytest.approx([0.06, 0.003, 0.06])
    assert holm([]) == []


def test_the_verdict_over_parts() -> None:
    assert together(["holds", "holds"]) == "holds"
    assert together(["holds", "refuted"]) == "partly"
    assert together(["undecided", "refuted"]) == "refuted"
    assert together(["holds", "not run"]) == "not run"


Draw = Callable[[np.random.Generator, int], Estimate]
FAR = np.array([0.0, 0.0, 9.0])
AT = np.array([1.0, 3.0, 7.0, 20.0, 50.0])
MEAN_DEVIATION = math.sqrt(0.5) * math.gamma(2.5) / math.gamma(2.0)
"""The mean of the standard deviation of five normal values whose true one is 1."""


def _noise(rng: np.random.Generator, n: int, columns: int) -> np.ndarray:
    """Replicates with an effect of their own, which all columns share."""
    return rng.normal(size=(n, columns)) + rng.normal(size=(n, 1))


def _metrics(rng: np.random.Generator, n: int) -> Estimate:
    """Two metrics over 20 cells whose true means do not correlate."""
    cells = stats.zscore(rng.normal(size=(2, 20)), axis=1)
    cells[1] -= cells[0] * (cells[0] @ cells[1]) / 20
    return correlation_of_metrics(*(each + rng.normal(size=(n, 20)) for each in cells))


TRUTHS: dict[str, tuple[Draw, str, float]] = {
    "mean at the margin": (lambda rng, n: difference(mean(_noise(rng, n, 1)[:, 0] + 1), None), ">", 1.0),
    "mean at the tolerance": (lambda rng, n: difference(mean(rng.normal(size=n) + 1), None), "~", 1.0),
    "unpaired means": (
        lambda rng, n: difference(mean(rng.normal(size=n)), mean(3 * rng.normal(size=n)), paired=False), ">", 0.0,
    ),
    "largest of three equal": (
        lambda rng, n: (lambda x: difference(mean(x[:, 0]), largest(x[:, 1:])))(_noise(rng, n, 4)), ">", 0.0,
    ),
    "largest of three, one far below": (
        lambda rng, n: (lambda x: difference(mean(x[:, 0]), largest(x[:, 1:] - FAR)))(_noise(rng, n, 4)), ">", 0.0,
    ),
    "smallest against largest": (
        lambda rng, n: (lambda x: difference(smallest(x[:, :3]), largest(x[:, 3:])))(_noise(rng, n, 6)), ">", 0.0,
    ),
    "range of five equal": (lambda rng, n: difference(value_range(_noise(rng, n, 5)), None), "<", 0.0),
    "range at the margin": (
        lambda rng, n: difference(value_range(_noise(rng, n, 5) + np.arange(5)), None).minus(4.0), "<", 0.0,
    ),
    "argmax of five equal": (lambda rng, n: argmax(_noise(rng, n, 5), AT).minus(7.0), "~", 0.5),
    "correlation of nothing": (lambda rng, n: correlation(_noise(rng, n, 5), AT), "<", 0.0),
    "correlation of metrics": (_metrics, ">", 0.0),
    "deviation of five classes at the margin": (
        lambda rng, n: difference(mean(rng.normal(size=(n, 5)).std(1, ddof=1)), None).minus(MEAN_DEVIATION), "<", 0.0,
    ),
}  # fmt: skip
"""Name -> a draw of a difference whose truth is the margin itself, so that every verdict is wrong."""


def wrong_share(name: str, n: int, runs: int, seed: int = 0) -> float:
    """Share of the draws that get a verdict, all of which are wrong."""
    draw, relation, margin = TRUTHS[name]
    rng = np.random.default_rng(seed)
    return sum(verdict(draw(rng, n), relation, margin) != "undecided" for _ in range(runs)) / runs


@pytest.mark.slow
@for_each("n", [3, 10])
@for_each("name", TRUTHS)
def test_wrong_verdicts_are_rarer_than_their_level(name: str, n: int) -> None:
    """Three standard errors of 400 draws above 5 % are 8.3 %; the truth lies on the margin, the worst there is."""
    assert wrong_share(name, n, 400) <= ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / 400)


def test_a_clear_difference_gets_its_verdict() -> None:
    rng = np.random.default_rng(1)
    for take in (mean, lambda x: largest(np.stack([x, x - 1], axis=1))):
        found = [verdict(difference(take(rng.normal(3, 1, size=10)), None), ">") for _ in range(50)]
        assert found.count("holds") > 45
    assert verdicts.verdict(argmax(rng.normal(size=(10, 3)) * 0.1 + [0, 1, 0], [1, 2, 3]).minus(2), "~", 0.5) == "holds"


def test_the_replicates_expected_are_those_at_which_an_interval_of_the_same_spread_decides() -> None:
    """By samples that have exactly the value 1 and the standard deviation 2."""

    def sample(count: int) -> Estimate:
        values = np.linspace(-1, 1, count)
        return difference(mean(1 + 2 * values / values.std(ddof=1)), None)

    for relation, margin in ((">", 0.0), ("<", 0.2), ("~", 2.5)):
        undecided = [count for count in range(5, 80) if verdict(sample(count), relation, margin) == "undecided"]
        first = undecided[-1] + 1
        assert undecided == [*range(5, first)] and first < 79
        p = p_value(sample(5), relation, margin)
        assert replicates_expected(p, 5, lambda count: ALPHA) == first
        paid = replicates_expected(p, 5, lambda count: 0.02)
        assert paid and paid > first


@for_each(("p", "n"), [(1.0, 5), (0.99, 5), (0.01, 2)])
def test_what_more_replicates_are_not_expected_to_decide(p: float, n: int) -> None:
    """The estimate is at its margin, or so near that `MOST_EXPECTED` replicates are too few, or has no spread."""
    assert replicates_expected(p, n, lambda count: ALPHA) is None and MOST_EXPECTED == 1000


def test_a_difference_over_classes_is_a_sign_flip_test() -> None:
    """Of ten classes of which all favour one side: of 1024 flips of signs the two extreme ones are as far."""
    estimate = over_fixed(np.linspace(0.5, 1.5, 10), "10 classes of one seed")
    assert verdict(estimate, ">") == "holds" and estimate.n == 10 and estimate.over == "10 classes of one seed"
    assert p_value(estimate, ">") == pytest.approx(2 / 1024, rel=2e-3)
    assert verdict(over_fixed(np.linspace(0.5, 1.5, 5), ""), ">") == "undecided"
