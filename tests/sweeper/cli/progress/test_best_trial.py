import math

import pandas as pd
import pytest

from sweeper.cli.progress.best_trial import BestTrial
from sweeper.spec import Metric
from sweeper.spec.metric import Direction


def ranked(rows: list[dict], columns: tuple[str, ...] = (), direction: Direction = "maximize") -> list[str]:
    best = BestTrial(Metric("score", direction), columns)
    best.rank(rows)
    return best.texts


@pytest.mark.parametrize(("direction", "expected"), [("maximize", 0.9), ("minimize", 0.2)])
def test_the_best_of_values_follows_the_direction_and_skips_what_is_no_number(
    direction: Direction, expected: float
) -> None:
    values = [None, math.nan, math.inf, -math.inf, "high", 0.2, 0.9]
    assert BestTrial(Metric("score", direction), ()).best_of(values) == expected


def test_the_best_trial_is_named_without_keys_that_its_method_lacks() -> None:
    """In a table of several methods, the missing value is NaN or pandas' null."""
    table = pd.DataFrame({"trial_id": ["a", "b"], "score": [0.9, 0.5], "ema": [None, 0.99], "tau": [0.2, None]})
    table["queue"] = pd.array([None, 512], dtype="Int64")
    assert ranked(table.to_dict("records"), ("ema", "tau", "queue")) == ["best score 0.9 at tau=0.2"]


def test_a_trial_without_keys_has_its_id_and_the_first_of_equals_stays() -> None:
    assert ranked([{"trial_id": "a", "score": 0.5}, {"trial_id": "b", "score": 0.5}]) == [
        "best score 0.5 at trial_id=a"
    ]


def test_pruned_trials_are_not_considered() -> None:
    rows = [{"trial_id": "a", "score": 0.9, "status": "pruned"}, {"trial_id": "b", "score": 0.5, "status": "finished"}]
    assert ranked(rows) == ["best score 0.5 at trial_id=b"]
    assert ranked(rows[:1]) == []
