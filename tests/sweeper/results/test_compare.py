import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from sweeper.definition import SpecError
from sweeper.report.differences import drawing, strip, text
from sweeper.report.formatting import DASH
from sweeper.results.compare import REPLICATE, STRATUM, PairedTrials, differences, pair

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


def pairs_of(**metrics: tuple[np.ndarray, np.ndarray]) -> PairedTrials:
    """Pairs of one stratum, each of another seed."""
    first, second = (pd.DataFrame({name: sides[side] for name, sides in metrics.items()}) for side in (0, 1))
    count = len(first)
    a, b = (side.assign(**{STRATUM: 0, REPLICATE: range(count)}) for side in (first, second))
    return PairedTrials(first, second, ("seed",), {}, (count, count), (0, 0), (a, b), (0,))


def test_mean_and_interval_agree_with_scipy() -> None:
    (row,) = differences(pairs_of(auroc_joint=(FIRST, SECOND))).to_dict("records")
    reference = stats.ttest_rel(SECOND, FIRST)
    interval = reference.confidence_interval(0.95)
    assert row["difference"] == pytest.approx(0.0333333333) and (row["n"], row["pairs"], row["over"]) == (6, 6, "")
    assert (row["low"], row["high"]) == pytest.approx((interval.low, interval.high))
    assert row["p"] == pytest.approx(reference.pvalue, rel=2e-3)
    assert (row["direction"], row["better"], row["worse"]) == ("maximize", 5, 1)


def settings_of(seeds: range, noise: float, method: str, rng: np.random.Generator) -> pd.DataFrame:
    """Trials of 10 classes at 8 settings, which share the luck of their seed."""
    keys = [(seed, of, nu) for seed in seeds for of in range(10) for nu in range(8)]
    luck = dict(zip(seeds, rng.normal(0, 0.02, len(seeds)), strict=True))
    values = [0.8 + 0.01 * of + luck[seed] + rng.normal(0, noise) for seed, of, _ in keys]
    frame = pd.DataFrame(keys, columns=["seed", "normal_class", "nu"])
    return frame.assign(method=method, knn=values)


def compared(first: pd.DataFrame, second: pd.DataFrame) -> dict[str, Any]:
    keys = ("method", "seed", "normal_class", "nu")
    (row,) = differences(pair(first, second, keys, METRICS)).to_dict("records")
    return row


def test_many_settings_of_few_seeds_are_no_more_than_few_replicates() -> None:
    """Two methods that are equal differ by the luck of their seeds, which all settings share."""
    rng, misses = np.random.default_rng(0), 0
    for _ in range(100):
        row = compared(*(settings_of(range(3), 0.001, method, rng) for method in ("vje", "simclr")))
        assert row["n"] == 3 and row["pairs"] == 240
        misses += not row["low"] <= 0 <= row["high"]
    assert misses <= 10, "5 % are expected"


def test_the_difference_is_that_of_the_means_that_stand_beside_it_where_runs_are_missing() -> None:
    rng = np.random.default_rng(4)
    for _ in range(20):
        first, second = (settings_of(range(4), 0.3, method, rng) for method in ("vje", "simclr"))
        found = compared(first.sample(frac=0.8, random_state=rng), second.sample(frac=0.8, random_state=rng))
        assert found["second"] - found["first"] == pytest.approx(found["difference"])


def test_two_seeds_of_the_same_settings_tell_nothing() -> None:
    rng = np.random.default_rng(1)
    row = compared(*(settings_of(range(seed, seed + 1), 0.001, "vje", rng) for seed in (0, 1)))
    assert row["n"] == 1 and row["pairs"] == 80 and np.isnan([row["low"], row["high"], row["p"]]).all()
    unpaired = compared(*(settings_of(range(first, first + 4), 0.001, "vje", rng) for first in (0, 4)))
    assert unpaired["n"] == 4 and unpaired["low"] < 0 < unpaired["high"], "seeds on both sides"


def test_one_seed_is_compared_over_classes_and_says_so() -> None:
    """By the sign-flip test of the means of classes, over the settings of each."""
    rng = np.random.default_rng(2)
    first, second = (settings_of(range(1), 0.01, method, rng) for method in ("vje", "simclr"))
    row = compared(first, second)
    by_class = second.groupby("normal_class")["knn"].mean() - first.groupby("normal_class")["knn"].mean()
    assert (row["n"], row["over"]) == (10, "10 classes") and row["difference"] == pytest.approx(by_class.mean())
    p = stats.permutation_test((by_class,), np.mean, permutation_type="samples", n_resamples=np.inf).pvalue
    assert row["p"] == pytest.approx(p, abs=4 / 1024)
    without = first.assign(normal_class=3), second.assign(normal_class=3)
    assert np.isnan(compared(*without)["low"]), "settings are no sample"


def test_lower_is_better_for_a_loss_and_neither_for_a_metric_without_direction() -> None:
    table = differences(pairs_of(loss=(FIRST, SECOND), loss_kl=(FIRST, SECOND))).set_index("metric")
    assert table.loc["loss", ["better", "worse"]].tolist() == [1, 5]
    assert table.loc["loss_kl", "direction"] == "" and pd.isna(table.loc["loss_kl", "better"])
    assert math.isnan(table.loc["loss_kl", "improved"])


def test_missing_values_are_left_out_and_a_metric_without_pairs_has_no_row() -> None:
    gap, none = SECOND.copy(), np.full(6, math.nan)
    gap[0] = math.nan
    table = differences(pairs_of(knn_z=(FIRST, gap), probe_z=(FIRST, none)))
    assert table[["metric", "n"]].values.tolist() == [["knn_z", 5]]


def test_one_pair_has_no_spread_and_equal_sides_no_evidence() -> None:
    (one,) = differences(pairs_of(knn_z=(FIRST[:1], SECOND[:1]))).to_dict("records")
    assert one["n"] == 1 and np.isnan([one["low"], one["p"]]).all()
    assert differences(pairs_of(knn_z=(FIRST, FIRST)))["low"].isna().all()


def test_the_text_has_a_line_for_each_metric() -> None:
    lines = text(differences(pairs_of(auroc_joint=(FIRST, SECOND), loss_kl=(FIRST, SECOND)))).splitlines()
    numbers = "0.907 0.940 +0.0333 [+0.00466, +0.0620] 0.75 [0.29, 0.96] 6 5 1 0.031"
    assert " ".join(lines[2].split()) == f"auroc_joint higher {numbers}"
    assert len(lines) == 4 and lines[3].count(DASH) == 4


@pytest.mark.parametrize("count", [1, 6])
def test_the_figure_shows_every_pair_and_the_mean(count: int) -> None:
    pairs = pairs_of(auroc_joint=(FIRST[:count], SECOND[:count]), loss_kl=(FIRST[:count], FIRST[:count]))
    table = differences(pairs)
    assert drawing(pairs, table, ("a" * 200, "b")).png.startswith(b"\x89PNG")
    auroc, loss_kl = (strip(row, pairs) for row in table.to_dict("records"))
    assert [point["x"] for point in auroc["points"]] == (SECOND[:count] - FIRST[:count]).tolist()
    assert [point["outcome"] for point in auroc["points"]] == ["B better", "B better", "B worse", *["B better"] * 3][
        :count
    ]
    assert {point["outcome"] for point in loss_kl["points"]} == {"neither"}
    low, high = auroc["limits"]
    assert low == -high and ("low" in auroc["mean"][0]) == (count > 1), "zero is in the middle"
