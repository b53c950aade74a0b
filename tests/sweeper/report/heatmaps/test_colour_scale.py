"""The colours of a heatmap do not exaggerate differences due to noise."""

import numpy as np
import pandas as pd
import pytest

from sweeper.report.heatmaps import STANDARD_ERRORS, colour_scale


def cells(means: list[float], std: float = 0.01, count: int = 4) -> pd.DataFrame:
    return pd.DataFrame({"mean": means, "std": std, "count": count})


@pytest.mark.parametrize("count", [3, 10])
def test_cells_that_differ_by_noise_alone_have_less_than_half_of_the_colours(count: int) -> None:
    draws = np.random.default_rng(0).normal(0.9, 0.02, (56, count))
    noise = pd.DataFrame({"mean": draws.mean(1), "std": draws.std(1, ddof=1), "count": count})
    scale = colour_scale(noise)
    assert scale.widened and np.ptp(noise["mean"]) < 0.4 * (scale.high - scale.low)
    assert (scale.low + scale.high) / 2 == pytest.approx((noise["mean"].max() + noise["mean"].min()) / 2)


def test_cells_that_differ_by_more_have_all_of_the_colours() -> None:
    scale = colour_scale(cells([0.1, 0.5, 0.9]))
    assert not scale.widened and 0.05 < scale.low < 0.1 and 0.9 < scale.high < 0.95
    assert (scale.std, scale.error) == pytest.approx((0.01, 0.005))


def test_the_range_is_moved_into_the_bounds_of_the_metric() -> None:
    near_the_top = colour_scale(cells([0.99, 0.995]), (0.0, 1.0))
    assert (near_the_top.low, near_the_top.high) == pytest.approx((1 - STANDARD_ERRORS * 0.005, 1.0))
    near_the_bottom = colour_scale(cells([0.01, 0.02]), (0.0, 1.0))
    assert (near_the_bottom.low, near_the_bottom.high) == pytest.approx((0.0, STANDARD_ERRORS * 0.005))
    both = colour_scale(cells([0.4, 0.6], std=2.0), (0.0, 1.0))
    assert (both.low, both.high) == (0.0, 1.0)


@pytest.mark.parametrize("means", [[0.5, 0.6], [0.5], [np.nan, np.nan], [0.5, np.inf]])
def test_a_single_trial_a_cell_says_nothing_of_noise(means: list[float]) -> None:
    scale = colour_scale(cells(means, std=np.nan, count=1))
    assert not scale.widened and np.isnan([scale.std, scale.error]).all() and scale.low < scale.high < np.inf
