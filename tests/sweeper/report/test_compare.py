import itertools
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from sweeper.report.compare import Pairs, differences, improvement, pair, picture, strip, text
from sweeper.report.formatting import DASH
from sweeper.spec import SpecError

KEYS, METRICS = ("method", "nu", "tau", "epochs", "seed"), ("knn",)


def side(method: str, nus: list[float | None], seeds: range, epochs: int = 20, better: float = 0.0) -> pd.DataFrame:
    rows = [
        {"method": method, "nu": nu, "epochs": epochs, "seed": seed, "knn": 0.1 * seed + better}
        for nu in nus
        for seed in seeds
    ]
    return pd.DataFrame(rows)


def test_trials_are_paired_by_seed_and_by_what_the_sides_share() -> None:
    pairs = pair(side("vje", [1.0, 3.0], range(3)), side("vje", [3.0], range(1, 5), better=0.5), KEYS, METRICS)
    assert pairs.first["knn"].tolist() == pytest.approx([0.1, 0.2])
    assert pairs.second["knn"].tolist() == pytest.approx([0.6, 0.7])
    assert pairs.agreeing == ("nu", "seed") and pairs.differing == {}
    assert pairs.trials == (2, 2) and pairs.unpaired == (4, 2)


def test_what_differs_by_construction_is_left_out_of_the_agreement() -> None:
    """A method lacks the other's keys, and an axis that only one side has is averaged over."""
    pairs = pair(side("vje", [1.0, 3.0], range(3)), side("simclr", [None], range(3), 30, 0.5), KEYS, METRICS)
    assert pairs.differing == {
        "method": (("vje",), ("simclr",)), "nu": ((1.0, 3.0), (None,)), "epochs": ((20,), (30,))
    }  # fmt: skip
    assert pairs.agreeing == ("seed",) and pairs.trials == (6, 3) and len(pairs.first) == 3
    assert (pairs.second["knn"] - pairs.first["knn"]).tolist() == pytest.approx([0.5] * 3)


def test_a_key_by_which_a_side_was_chosen_differs_even_if_the_sides_share_a_value() -> None:
    first, second = side("vje", [1.0, 3.0], range(2)), side("vje", [1.0], range(2))
    assert pair(first, second, KEYS, METRICS).trials == (2, 2)
    pairs = pair(first, second, KEYS, METRICS, {"nu"})
    assert pairs.trials == (4, 2) and set(pairs.differing) == {"nu"}


def test_a_metric_that_a_trial_lacks_is_missing_in_its_pair() -> None:
    first = side("vje", [1.0], range(2)).assign(knn=[math.nan, 0.5])
    assert pair(first, side("vje", [1.0], range(2)), KEYS, METRICS).first["knn"].isna().tolist() == [True, False]


def test_sides_of_which_no_trials_agree_are_refused() -> None:
    first = pd.concat([side("vje", [1.0], range(1)), side("vje", [3.0], range(1, 2))])
    second = pd.concat([side("vje", [3.0], range(1)), side("vje", [1.0], range(1, 2))])
    with pytest.raises(SpecError, match="none agrees in: nu, seed"):
        pair(first, second, KEYS, METRICS)


FIRST = np.array([0.91, 0.85, 0.97, 0.93, 0.88, 0.90])
SECOND = np.array([0.93, 0.90, 0.96, 0.97, 0.95, 0.93])


def pairs_of(**metrics: tuple[np.ndarray, np.ndarray]) -> Pairs:
    first, second = (pd.DataFrame({name: sides[side] for name, sides in metrics.items()}) for side in (0, 1))
    return Pairs(first, second, ("seed",), {}, (len(first), len(second)), (0, 0), np.zeros(len(first), dtype=int))


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
    numbers = "0.907 0.940 +0.0333 ± 0.0287 0.75 [0.43, 1.00] 6 5 1 0.062"
    assert " ".join(lines[2].split()) == f"auroc_joint higher {numbers}"
    assert len(lines) == 4 and lines[3].count(DASH) == 4


@pytest.mark.parametrize("count", [1, 6])
def test_the_figure_shows_every_pair_and_the_mean(count: int) -> None:
    pairs = pairs_of(auroc_joint=(FIRST[:count], SECOND[:count]), loss_kl=(FIRST[:count], FIRST[:count]))
    table = differences(pairs)
    assert picture(pairs, table, ("a" * 200, "b")).startswith(b"\x89PNG")
    auroc, loss_kl = (strip(row, pairs) for row in table.to_dict("records"))
    assert [point["x"] for point in auroc["points"]] == (SECOND[:count] - FIRST[:count]).tolist()
    assert [point["outcome"] for point in auroc["points"]] == ["B better", "B better", "B worse", *["B better"] * 3][
        :count
    ]
    assert {point["outcome"] for point in loss_kl["points"]} == {"neither"}
    low, high = auroc["limits"]
    assert low == -high and ("low" in auroc["mean"][0]) == (count > 1), "zero is in the middle"


@pytest.mark.slow
def test_the_probability_of_improvement_is_the_mean_over_strata_of_mann_whitneys_u() -> None:
    """U over its maximum is the share of pairs of runs that are won, ties counting half."""
    rng, sizes = np.random.default_rng(0), ((5, 4), (5, 5), (3, 6))
    worse, better = ([rng.integers(0, 6, size[side]) + side for size in sizes] for side in (0, 1))
    found, low, high = improvement(worse, better)
    shares = [
        stats.mannwhitneyu(second, first).statistic / first.size / second.size
        for first, second in zip(worse, better, strict=True)
    ]
    assert found == pytest.approx(np.mean(shares)) and low < found < high
    assert improvement(worse, better) == (found, low, high), "seeded"
    again = improvement(better, worse)
    assert again[0] == pytest.approx(1 - found)
    draws = np.random.default_rng(1)

    def won(first: np.ndarray, second: np.ndarray) -> float:
        drawn = [draws.choice(side, len(side)) for side in (second, first)]
        return float(stats.mannwhitneyu(*drawn).statistic / first.size / second.size)

    resampled = [np.mean([*map(won, worse, better)]) for _ in range(500)]
    assert (low, high) == pytest.approx(tuple(np.quantile(resampled, (0.025, 0.975))), abs=0.04)


def test_an_interval_of_improvement_is_absent_where_runs_say_nothing_of_it() -> None:
    won = improvement([FIRST], [FIRST + 1])
    few = improvement([*FIRST[:, None]], [*SECOND[:, None]])
    assert won[0] == 1.0 and np.isnan([*won[1:], *few[1:]]).all() and few[0] == pytest.approx(5 / 6)
    (row,) = differences(pairs_of(loss_kl=(FIRST, SECOND))).to_dict("records")
    assert math.isnan(row["improved"]), "a metric without a direction"
