import itertools
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from sweeper.report.compare import Pairs, differences, draw, text
from sweeper.report.formatting import DASH
from sweeper.report.style import png

FIRST = np.array([0.91, 0.85, 0.97, 0.93, 0.88, 0.90])
SECOND = np.array([0.93, 0.90, 0.96, 0.97, 0.95, 0.93])


def pairs_of(**metrics: tuple[np.ndarray, np.ndarray]) -> Pairs:
    first, second = (pd.DataFrame({name: sides[side] for name, sides in metrics.items()}) for side in (0, 1))
    return Pairs(first, second, ("seed",), {}, (len(first), len(second)), (0, 0))


def signed_rank_by_enumeration(difference: np.ndarray) -> float:
    """Share of all choices of signs whose rank sum is at least as far from its mean."""
    ranks = stats.rankdata(np.abs(difference))
    observed = abs((np.sign(difference) * ranks).sum())
    sums = [abs((np.array(signs) * ranks).sum()) for signs in itertools.product((-1, 1), repeat=len(difference))]
    return float(np.mean([value >= observed - 1e-9 for value in sums]))


def test_mean_interval_and_test_agree_with_scipy_and_enumeration() -> None:
    (row,) = differences(pairs_of(auroc_joint=(FIRST, SECOND))).to_dict("records")
    reference = stats.ttest_rel(SECOND, FIRST)
    interval = reference.confidence_interval(0.95)
    assert row["difference"] == pytest.approx(0.0333333333) and row["n"] == 6
    assert (row["low"], row["high"]) == pytest.approx((interval.low, interval.high))
    assert row["difference"] / row["error"] == pytest.approx(reference.statistic)
    assert row["p"] == pytest.approx(signed_rank_by_enumeration(SECOND - FIRST))
    assert (row["direction"], row["better"], row["worse"]) == ("maximize", 5, 1)


def test_lower_is_better_for_a_loss_and_neither_for_a_metric_without_direction() -> None:
    table = differences(pairs_of(loss=(FIRST, SECOND), loss_kl=(FIRST, SECOND))).set_index("metric")
    assert table.loc["loss", ["better", "worse"]].tolist() == [1, 5]
    assert table.loc["loss_kl", "direction"] == "" and pd.isna(table.loc["loss_kl", "better"])


def test_missing_values_are_left_out_and_a_metric_without_pairs_has_no_row() -> None:
    gap, none = SECOND.copy(), np.full(6, math.nan)
    gap[0] = math.nan
    table = differences(pairs_of(knn_z=(FIRST, gap), probe_z=(FIRST, none)))
    assert table[["metric", "n"]].values.tolist() == [["knn_z", 5]]


def test_one_pair_has_no_spread_and_equal_sides_no_evidence() -> None:
    (one,) = differences(pairs_of(knn_z=(FIRST[:1], SECOND[:1]))).to_dict("records")
    assert one["n"] == 1 and math.isnan(one["error"]) and math.isnan(one["p"])
    assert differences(pairs_of(knn_z=(FIRST, FIRST)))["p"].tolist() == [1.0]


def test_the_text_has_a_line_for_each_metric() -> None:
    lines = text(differences(pairs_of(auroc_joint=(FIRST, SECOND), loss_kl=(FIRST, SECOND)))).splitlines()
    numbers = "0.907 0.940 +0.0333 ± 0.0112 6 5 1 0.062"
    assert " ".join(lines[2].split()) == f"auroc_joint higher {numbers}"
    assert len(lines) == 4 and lines[3].count(DASH) == 3


@pytest.mark.parametrize("count", [1, 6])
def test_the_figure_shows_every_pair_and_the_mean(count: int) -> None:
    pairs = pairs_of(auroc_joint=(FIRST[:count], SECOND[:count]), loss_kl=(FIRST[:count], FIRST[:count]))
    figure = draw(pairs, differences(pairs), ("a" * 200, "b"))
    assert len(figure.axes) == 2 and png(figure).startswith(b"\x89PNG")
    points = np.concatenate([np.asarray(item.get_offsets())[:, 0] for item in figure.axes[0].collections[:3]])
    assert sorted(points) == pytest.approx(sorted(SECOND[:count] - FIRST[:count]))
    low, high = figure.axes[0].get_xlim()
    assert low == -high, "zero is in the middle"
