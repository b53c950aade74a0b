"""The area under a ROC curve with its interval, and thresholds that new normal images exceed at most at a rate."""

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm
from sklearn.metrics import roc_auc_score

from tests.cases import for_each
from trainables.metrics.roc import alarm_threshold, auroc_margin, mann_whitney


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
