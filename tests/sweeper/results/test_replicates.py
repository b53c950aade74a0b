"""What a cell says of its trials: over replicates, each of which has the mean over the fixed values."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from sweeper.definition.sweep import SEEDS, Repeats
from sweeper.results.estimates import MIN_REPLICATES
from sweeper.results.replicates import (
    Repetition,
    beside,
    difference_of_runs,
    repetition,
    runs_of,
    summarise,
    whole_means,
)
from sweeper.results.sentences import Over, averaged_over, described

VALUES = st.lists(st.floats(-1e3, 1e3), min_size=0, max_size=12)


def summary(
    values: Sequence[float], seeds: Sequence[int] | None = None, classes: Sequence[int] | None = None, **options: Any
) -> dict[str, Any]:
    """The only cell of trials, whose seeds are all different and whose class is one, unless they are given."""
    numbers = np.arange(len(values)) if seeds is None else np.array(seeds)
    fixed = np.zeros(len(values), dtype=int) if classes is None else np.array(classes)
    table = summarise(
        np.array(values, dtype=float), np.zeros(len(values), dtype=int), Repetition(numbers, fixed), 1, **options
    )
    return dict(table.iloc[0])


def cells(*found: dict[str, Any]) -> pd.DataFrame:
    return pd.DataFrame(found).astype(dict.fromkeys(("replicates", "fixed", "count", "missing"), int))


def test_values_whose_sum_would_overflow_are_infinite() -> None:
    assert summary([1e308, 0.5])["mean"] == math.inf and summary([-1e308, 0.5])["mean"] == -math.inf
    assert summary([1e308])["count"] == 1


@pytest.mark.slow
@given(st.lists(VALUES, min_size=1, max_size=4))
@settings(deadline=None, max_examples=50)
def test_each_cell_agrees_with_scipy(cells: list[list[float]]) -> None:
    places = np.repeat(np.arange(len(cells)), [len(values) for values in cells])
    numbers = np.concatenate([np.arange(len(values)) for values in cells])
    values_of_all = np.array([value for values in cells for value in values], dtype=float)
    table = summarise(values_of_all, places, Repetition(numbers, np.zeros_like(numbers)), len(cells))
    for values, cell in zip(cells, table.to_dict("records"), strict=True):
        assert (cell["replicates"], cell["count"], cell["missing"]) == (len(values), len(values), 0)
        assert math.isnan(cell["mean"]) if not values else cell["mean"] == pytest.approx(np.mean(values), abs=1e-9)
        if len(values) < MIN_REPLICATES:
            assert np.isnan([cell["low"], cell["high"]]).all() and beside(cell) == ()
        elif cell["std"] > 1e-6:
            interval = stats.t.interval(0.95, len(values) - 1, np.mean(values), stats.sem(values))
            assert (cell["low"], cell["high"]) == beside(cell) == pytest.approx(interval, abs=1e-9)
        if len(values) >= 5:
            assert cell["iqm"] == pytest.approx(stats.trim_mean(values, 0.25), abs=1e-9)
        else:
            assert math.isnan(cell["iqm"])


def test_few_replicates_or_equal_ones_have_no_interval_instead_of_one_of_width_zero() -> None:
    for values in ([0.5], [0.5, 0.5, 0.5], [0.5, math.nan], [0.4, 0.6]):
        cell = summary(values)
        assert cell["mean"] == 0.5 and np.isnan([cell["low"], cell["high"]]).all() and beside(cell) == ()
    assert summary([0.5, 0.5])["std"] == 0 and math.isnan(summary([0.5])["std"])


def test_an_interval_of_a_share_is_that_of_its_logit_and_stays_within_its_range() -> None:
    """By the delta method: the standard error of the logit is that of the share over p (1 - p)."""
    values = [0.999, 0.96, 0.9999]
    cell, plain = summary(values, share=True), summary(values)
    p, error = np.mean(values), stats.sem(values)
    half = stats.t.ppf(0.975, 2) * error / (p * (1 - p))
    ends = [stats.logistic.cdf(stats.logistic.ppf(p) + sign * half) for sign in (-1, 1)]
    assert [cell["low"], cell["high"]] == pytest.approx(ends) and cell["high"] < 1 < plain["high"]
    assert summary([99.9, 96.0, 99.99], share=True)["high"] > 100, "these are no shares"


RUNS = st.lists(st.one_of(st.floats(0, 1), st.just(math.nan)), min_size=12, max_size=12)


@given(RUNS)
@settings(deadline=None)
def test_a_replicate_counts_if_it_has_every_class_that_its_cell_has(values: list[float]) -> None:
    """Worked in dictionaries, of 3 classes and 4 seeds."""
    runs = {
        key: value for key, value in zip(itertools.product(range(3), range(4)), values, strict=True) if value == value
    }
    classes = {label for label, _ in runs}
    whole = [seed for seed in range(4) if classes and all((label, seed) in runs for label in classes)]
    expected = [float(np.mean([runs[label, seed] for label in classes])) for seed in whole]
    if classes and not whole:
        expected = [float(np.mean([np.mean([runs[key] for key in runs if key[0] == label]) for label in classes]))]
    labels, seeds = zip(*itertools.product(range(3), range(4)), strict=True)
    cell = summary(values, seeds, labels)
    means = whole_means(np.array(values).reshape(3, 4))
    assert means[~np.isnan(means)] == pytest.approx(expected)
    assert (cell["replicates"], cell["fixed"], cell["count"]) == (len(expected), len(classes), len(runs))
    assert cell["mean"] == pytest.approx(np.mean(expected) if expected else math.nan, nan_ok=True)
    if len(expected) > 1:
        assert cell["std"] == pytest.approx(np.std(expected, ddof=1), abs=1e-12)


def test_with_few_seeds_the_deviation_over_classes_is_beside_the_mean() -> None:
    values, seeds, classes = [0.9, 0.8, 0.5, 0.6], [0, 1, 0, 1], [0, 0, 1, 1]
    cell, deviation = summary(values, seeds, classes), float(np.std([0.85, 0.55], ddof=1))
    assert beside(cell) == pytest.approx((deviation,)) and (cell["replicates"], cell["fixed"]) == (2, 2)
    assert beside(cell, "deviation") == pytest.approx((np.std([0.7, 0.7], ddof=1),))
    over = Over("seeds", "classes")
    assert described(cells(cell), over) == "mean ± standard deviation over 2 classes, each the mean of 2 seeds"
    one = summary(values[::2], seeds[::2], classes[::2])
    assert described(cells(one), over) == "mean ± standard deviation over 2 classes"
    many = summary([0.9, 0.8, 0.7, 0.5, 0.6, 0.6], [0, 1, 2] * 2, [0] * 3 + [1] * 3)
    assert described(cells(many), over) == "mean [95 % interval] over 3 seeds, each the mean of 2 classes"
    assert described(cells(many, one), over) == (
        "mean [95 % interval] over 1 to 3 seeds, each the mean of 2 classes; without that ± standard deviation over "
        "classes"
    )


def test_trials_that_differ_in_what_repeats_nothing_count_once_together() -> None:
    """Three seeds at three widths are three replicates: the widths are no sample of anything."""
    values, seeds = [1.0, 2.0, 6.0, 2.0, 3.0, 10.0, 4.0, 4.0, 4.0], [0, 0, 0, 1, 1, 1, 2, 2, 2]
    cell, means = summary(values, seeds), summary([3.0, 5.0, 4.0])
    assert (cell["replicates"], cell["count"]) == (3, 9)
    assert [cell[name] for name in ("mean", "std", "low")] == pytest.approx(
        [means[name] for name in ("mean", "std", "low")]
    )
    over = Over("seeds")
    assert described(cells(cell), over) == "mean [95 % interval] over 3 seeds, each the mean of several trials"
    two = cells(summary([3.0, 5.0]))
    assert described(two, over) == "mean over 2 seeds"
    assert described(two, over, "deviation") == "mean ± standard deviation over 2 seeds"


def test_seeds_are_the_replicates_and_classes_are_fixed_unless_they_are_random() -> None:
    rows = pd.DataFrame({"seed": [0, 0, 1, None], "normal_class": [0, 1, 0, 0], "lr": [1, 2, 3, 4]})
    known = repetition(rows, SEEDS)
    assert known.replicate_T.tolist() == [0, 0, 1, 2] and known.fixed_T.tolist() == [0, 1, 0, 0]
    assert repetition(rows, SEEDS, ["normal_class"]).fixed_T.tolist() == [0] * 4, "an axis tells cells apart"
    random = Repeats(("seed", "normal_class"), ())
    assert repetition(rows, random).replicate_T.tolist() == [0, 1, 0, 0], "seeds of a class are averaged"
    assert len(set(repetition(rows.assign(normal_class=3), random).replicate_T)) == 3
    assert set(repetition(rows, Repeats(("held_out",), ())).replicate_T) == {0}


def test_what_a_cell_is_the_mean_over_has_a_noun() -> None:
    rows = pd.DataFrame({"seed": [0, 0, 1, 1], "normal_class": [0, 1, 0, 1], "beta": [0, 0, 0, 0]})
    assert averaged_over(rows, ["beta"], SEEDS) == Over("seeds", "classes")
    assert averaged_over(rows.assign(beta=[0, 1, 2, 3]), ["beta"], SEEDS) == Over()
    rows = pd.DataFrame({"beta": [0, 0, 1, 1], "seed": [0, 1, 0, 1], "noise": [1, 2, 1, 2]})
    noisy = Repeats(("seed",), ("noise",))
    assert averaged_over(rows, ["beta"], noisy, "corruptions") == Over("seeds", "corruptions")
    assert averaged_over(rows, ["beta"], noisy).fixed == "values of noise"


def test_a_difference_is_paired_by_seeds_then_by_classes() -> None:
    rng = np.random.default_rng(0)
    first, second = rng.normal(1, 1, (4, 5)), rng.normal(0, 1, (4, 5))
    by_seed = difference_of_runs(first, second)
    paired = stats.ttest_rel(first.mean(0), second.mean(0)).confidence_interval(0.95)
    assert by_seed.bounds and by_seed.bounds(0.05) == pytest.approx((paired.low, paired.high)) and by_seed.n == 5
    apart = [np.full((4, 10), math.nan) for _ in range(2)]
    apart[0][:, :5], apart[1][:, 5:] = first, second
    welch = difference_of_runs(apart[0], apart[1])
    unpaired = stats.ttest_ind(first.mean(0), second.mean(0), equal_var=False).confidence_interval(0.95)
    assert welch.bounds and welch.bounds(0.05) == pytest.approx((unpaired.low, unpaired.high))
    classes = rng.normal(1, 1, (8, 1))
    one = difference_of_runs(classes, np.zeros((8, 1)), "classes")
    assert one.over == "8 classes" and one.n == 8 and one.value == pytest.approx(classes.mean())
    blocks = difference_of_runs(classes, np.zeros((8, 1)), "classes", block_C=np.repeat([0, 1], 4))
    assert blocks.n == 2 and blocks.bounds is None, "settings on the same class are no sample"
    lacking = first.copy()
    lacking[3] = math.nan
    assert difference_of_runs(lacking, second).value == pytest.approx((first - second)[:3].mean()), "what both have"


def test_runs_are_the_means_of_trials_that_agree() -> None:
    runs = runs_of([1.0, 3.0, math.nan, 5.0], np.array([0, 0, 1, 1]), np.array([0, 0, 0, 1]), (2, 2))
    np.testing.assert_array_equal(runs, [[2.0, math.nan], [math.nan, 5.0]])
