"""The area under a ROC curve with its interval, and thresholds that new normal images exceed at most at a rate."""

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta, binomtest, norm
from sklearn.metrics import roc_auc_score

from tests.cases import for_each
from trainables.metrics.roc import alarm_bound, alarm_threshold, auroc_margin, clopper_pearson, mann_whitney


@given(st.lists(st.integers(-4, 4), min_size=30, max_size=50), st.lists(st.integers(-4, 4), min_size=30, max_size=50))
def test_the_area_and_its_interval_are_those_of_all_pairs(inliers: list[int], outliers: list[int]) -> None:
    """DeLong's variance by its definition: of the matrix that says which outlier is above which inlier."""
    inlier_N, outlier_M = np.array(inliers, float), np.array(outliers, float)
    wins_MN = (outlier_M[:, None] > inlier_N) + 0.5 * (outlier_M[:, None] == inlier_N)
    labels = [0] * len(inliers) + [1] * len(outliers)
    assert mann_whitney(inlier_N, outlier_M) == pytest.approx(roc_auc_score(labels, [*inliers, *outliers]))
    variance = wins_MN.mean(1).var(ddof=1) / len(outliers) + wins_MN.mean(0).var(ddof=1) / len(inliers)
    assert auroc_margin(inlier_N, outlier_M) == pytest.approx(norm.ppf(0.975) * math.sqrt(variance), abs=1e-9)


def test_an_interval_holds_the_true_area_as_often_as_it_says() -> None:
    """Of normal scores one standard deviation apart; the true area is Phi(1 / sqrt(2))."""
    rng, true, held = np.random.default_rng(0), 0.5 * (1 + math.erf(0.5)), 0
    for _ in range(2000):
        inlier_N, outlier_M = rng.normal(0, 1, 40), rng.normal(1, 1, 60)
        held += abs(mann_whitney(inlier_N, outlier_M) - true) <= auroc_margin(inlier_N, outlier_M)
    assert 0.92 < held / 2000 < 0.97
    assert math.isnan(auroc_margin(np.zeros(29), np.zeros(50))), "too few say too little"


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=60), st.integers(1, 99))
def test_a_threshold_is_the_conformal_quantile_or_refused(scores: list[int], percent: int) -> None:
    """Against the order statistic in whole numbers, with ties."""
    rate, n = percent / 100, len(scores)
    place = -(-(n + 1) * (100 - percent) // 100)
    if place > n:
        with pytest.raises(ValueError, match=f"needs at least {-(-100 // percent) - 1} held-out normal image"):
            alarm_threshold(np.array(scores, float), rate)
    else:
        assert alarm_threshold(np.array(scores, float), rate) == sorted(scores)[place - 1]


@pytest.mark.slow
@for_each(("held_out", "rate"), [(19, 0.05), (40, 0.1), (99, 0.01), (150, 0.25)])
@for_each("decimals", [0, 1, 12])
def test_new_normal_images_are_flagged_at_most_at_the_rate(held_out: int, rate: float, decimals: int) -> None:
    """The mean over many draws of held-out and new scores, also of coarse scores with ties. Without ties it is no lower
    than `rate - 1 / (N + 1)` either."""
    draws, new = 4000, 50
    scores = np.random.default_rng(held_out).gamma(2.0, 1.0, (draws, held_out + new)).round(decimals)
    thresholds = np.array([alarm_threshold(held_out_N, rate) for held_out_N in scores[:, :held_out]])
    flagged = (scores[:, held_out:] > thresholds[:, None]).mean(axis=1)
    error = 4 * flagged.std() / math.sqrt(draws)
    assert flagged.mean() <= rate + error
    assert decimals < 12 or flagged.mean() >= rate - 1 / (held_out + 1) - error


@pytest.mark.parametrize(
    ("held_out", "rate", "law"),
    [
        (
            17,
            0.01,
            "a false-alarm rate of 0.01 needs at least 99 held-out normal images, but there are 17; choose "
            "--alarm-rate 0.06 or more, or hold out more with --set validation=SHARE",
        ),
        (1, 0.4, "a false-alarm rate of 0.4 needs at least 2 held-out normal images, but there is 1; choose --alarm-"),
        (0, 0.5, "a false-alarm rate of 0.5 needs at least 1 held-out normal image, but there are none; hold some "),
        (99, 1.0, "a false-alarm rate must be in (0, 1), but got 1.0"),
        (99, math.nan, "a false-alarm rate must be in (0, 1), but got nan"),
    ],
)
def test_a_rate_that_cannot_be_had_is_refused_with_one_that_can(held_out: int, rate: float, law: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(law)}") as raised:
        alarm_threshold(np.zeros(held_out), rate)
    offered = re.search(r"--alarm-rate ([0-9.]+) or more", str(raised.value))
    if offered:
        alarm_threshold(np.zeros(held_out), float(offered[1]))


@given(st.integers(0, 60).flatmap(lambda images: st.tuples(st.integers(0, images), st.just(images))))
def test_the_interval_of_a_share_is_that_of_clopper_and_pearson(counted: tuple[int, int]) -> None:
    """Against SciPy's, and at each end against its definition: the binomial tail there has 2.5 %."""
    count, images = counted
    low, high = clopper_pearson(count, max(images, 1))
    known = binomtest(count, max(images, 1)).proportion_ci(0.95, "exact")
    assert (low, high) == pytest.approx((known.low, known.high), abs=1e-9)
    if count > 0:
        tail = sum(math.comb(images, i) * low**i * (1 - low) ** (images - i) for i in range(count, images + 1))
        assert tail == pytest.approx(0.025, abs=1e-6)


@for_each("share", [0.02, 0.3, 0.5, 0.97])
@for_each("images", [5, 25, 100])
def test_the_interval_of_a_share_holds_it_at_least_as_often_as_it_says(share: float, images: int) -> None:
    counts = np.random.default_rng(images).binomial(images, share, 4000)
    bounds = {count: clopper_pearson(int(count), images) for count in {*counts.tolist()}}
    held = np.mean([bounds[count][0] <= share <= bounds[count][1] for count in counts.tolist()])
    assert held >= 0.95 - 4 * math.sqrt(0.95 * 0.05 / 4000)


@for_each(("held_out", "rate"), [(100, 0.01), (19, 0.05), (199, 0.05), (40, 0.1)])
def test_a_real_false_alarm_rate_exceeds_its_bound_as_rarely_as_it_says(held_out: int, rate: float) -> None:
    """Uniform scores, whose share above a threshold is known exactly: 2.5 % of draws are beyond. Ties only lower it."""
    bound, rng = alarm_bound(held_out, rate), np.random.default_rng(held_out)
    assert (held_out, rate) != (100, 0.01) or bound == pytest.approx(1 - 0.025 ** (1 / 100))
    scores = rng.uniform(size=(4000, held_out))
    beyond = np.mean([1 - alarm_threshold(own_N, rate) > bound for own_N in scores])
    assert beyond == pytest.approx(0.025, abs=4 * math.sqrt(0.025 * 0.975 / 4000))
    tied = np.mean([np.mean(np.arange(20) > alarm_threshold(np.floor(20 * own_N), rate)) > bound for own_N in scores])
    assert tied <= 0.025 + 4 * math.sqrt(0.025 * 0.975 / 4000)
    allowed = math.floor((held_out + 1) * rate + 1e-9)
    assert bound == pytest.approx(beta.ppf(0.975, allowed, held_out + 1 - allowed))
