import math

import pandas as pd
import pytest

from sweeper.report.compare import STUDY_COLUMNS, pair
from sweeper.search.studies import FACTS
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


def test_the_columns_of_studies_are_those_that_searches_record() -> None:
    assert set(STUDY_COLUMNS) == set(FACTS)
