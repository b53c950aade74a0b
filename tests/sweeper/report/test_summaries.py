import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from sweeper.report.summaries import averaged_over, described, replicate_numbers, spread_of, summarise
from sweeper.report.verdicts import MIN_REPLICATES

VALUES = st.lists(st.floats(-1e3, 1e3), min_size=0, max_size=12)


def summary(values: list[float], replicates: list[int] | None = None) -> dict[str, float]:
    numbers = np.arange(len(values)) if replicates is None else np.array(replicates)
    table = summarise(pd.Series(values, dtype=float), np.zeros(len(values), dtype=int), numbers, 1)
    return dict(table.iloc[0])


def test_values_whose_sum_would_overflow_are_infinite() -> None:
    assert summary([1e308, 0.5])["mean"] == math.inf and summary([-1e308, 0.5])["mean"] == -math.inf
    assert summary([1e308])["count"] == 1


@pytest.mark.slow
@given(st.lists(VALUES, min_size=1, max_size=4))
@settings(deadline=None, max_examples=50)
def test_each_cell_agrees_with_scipy(cells: list[list[float]]) -> None:
    places = np.repeat(np.arange(len(cells)), [len(values) for values in cells])
    numbers = np.concatenate([np.arange(len(values)) for values in cells])
    table = summarise(
        pd.Series([value for values in cells for value in values], dtype=float), places, numbers, len(cells)
    )
    for values, cell in zip(cells, table.to_dict("records"), strict=True):
        assert (cell["replicates"], cell["count"], cell["missing"]) == (len(values), len(values), 0)
        assert math.isnan(cell["mean"]) if not values else cell["mean"] == pytest.approx(np.mean(values), abs=1e-9)
        if len(values) < MIN_REPLICATES:
            assert np.isnan([cell["low"], cell["high"], spread_of(cell)]).all()
        elif cell["std"] > 1e-6:
            interval = stats.t.interval(0.95, len(values) - 1, np.mean(values), stats.sem(values))
            assert (cell["low"], cell["high"]) == pytest.approx(interval, abs=1e-9)
            assert spread_of(cell) == pytest.approx((interval[1] - interval[0]) / 2)
        if len(values) >= 5:
            assert cell["iqm"] == pytest.approx(stats.trim_mean(values, 0.25), abs=1e-9)
        else:
            assert math.isnan(cell["iqm"])


def test_few_replicates_or_equal_ones_have_no_interval_instead_of_one_of_width_zero() -> None:
    for values in ([0.5], [0.5, 0.5, 0.5], [0.5, math.nan], [0.4, 0.6]):
        cell = summary(values)
        assert cell["mean"] == 0.5 and np.isnan([cell["low"], cell["high"], spread_of(cell)]).all()
    assert summary([0.5, 0.5])["std"] == 0 and math.isnan(summary([0.5])["std"])


def test_trials_that_differ_in_what_repeats_nothing_count_once_together() -> None:
    """Three seeds at three widths are three replicates: the widths are no sample of anything."""
    values, seeds = [1.0, 2.0, 6.0, 2.0, 3.0, 10.0, 4.0, 4.0, 4.0], [0, 0, 0, 1, 1, 1, 2, 2, 2]
    cell, means = summary(values, seeds), summary([3.0, 5.0, 4.0])
    assert (cell["replicates"], cell["count"]) == (3, 9)
    assert [cell[name] for name in ("mean", "std", "low")] == pytest.approx(
        [means[name] for name in ("mean", "std", "low")]
    )
    assert described(pd.DataFrame([cell]).astype({"replicates": int}), "seeds") == (
        "mean ± 95 % interval over 3 seeds, each the mean of several trials"
    )
    two = pd.DataFrame([summary([3.0, 5.0])]).astype({"replicates": int})
    assert described(two, "seeds") == "mean over 2 seeds"
    assert described(two, "seeds", "deviation") == "mean ± standard deviation over 2 seeds"


def test_classes_are_the_replicates_where_there_are_several_and_else_seeds_null_among_them() -> None:
    rows = pd.DataFrame({"seed": [0, 0, 1, None], "normal_class": [0, 1, 0, 0], "lr": [1, 2, 3, 4]})
    assert replicate_numbers(rows, ("seed", "normal_class", "held_out")).tolist() == [0, 1, 0, 0]
    assert len(set(replicate_numbers(rows.assign(normal_class=3), ("seed", "normal_class")))) == 3
    assert len(set(replicate_numbers(rows, ("held_out",)))) == 1
    assert averaged_over(rows, ["lr"], ("seed", "normal_class")) == "replicates"
    assert averaged_over(rows.assign(lr=1), ["lr"], ("seed", "normal_class")) == "classes"
    rows = pd.DataFrame({"beta": [0, 0, 1, 1], "seed": [0, 1, 0, 1], "lr": [1, 2, 1, 2]})
    assert averaged_over(rows, ["beta"], ("seed", "normal_class")) == "seeds"
    assert averaged_over(rows, ["beta"], ("seed", "normal_class"), "classes") == "seeds", "also in a narrowed request"
