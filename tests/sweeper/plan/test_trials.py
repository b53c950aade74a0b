import math
import subprocess
import sys
from collections.abc import Mapping

import pytest

from sweeper.plan.trials import content_hash, enumerate_trials
from sweeper.spec import SpecError, Value
from trainables.config import resolve

PYTHON = "from sweeper.plan.trials import content_hash; print(content_hash({'nu': float('inf'), 'lr': 1e-05, 'k': 3}))"


def complete(combination: Mapping[str, Value]) -> Mapping[str, Value]:
    return resolve({"method": "vje", **combination}).flat()


def test_an_id_depends_on_the_content_alone() -> None:
    expected = content_hash({"k": 3, "lr": 1e-05, "nu": math.inf})
    for seed in ("1", "2"):
        completed = subprocess.run(
            [sys.executable, "-c", PYTHON], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        )
        assert completed.stdout.strip() == expected
    assert len(expected) == 16 and expected == "da1b620440bc824c"


@pytest.mark.parametrize("other", [{"nu": 3.0000000000000004}, {"nu": None}, {"nu": "3.0"}, {"mu": 3.0}, {}])
def test_other_content_has_another_id(other: dict[str, Value]) -> None:
    assert content_hash(other) != content_hash({"nu": 3.0})


def test_1_and_1_0_are_one_trial_and_true_is_none() -> None:
    (whole,) = enumerate_trials([{"nu": 1}], complete)
    (point,) = enumerate_trials([{"nu": 1.0}], complete)
    assert whole == point and isinstance(whole.config["nu"], float)
    with pytest.raises(SpecError, match="nu must be a number"):
        enumerate_trials([{"nu": True}], complete)


def test_a_default_written_out_is_the_same_trial() -> None:
    (short,) = enumerate_trials([{}], complete)
    (long,) = enumerate_trials([{"beta": 1.0, "epochs": 100}], complete)
    assert short.id == long.id and short.config["beta"] == 1.0


def test_infinity_is_a_value_like_any_other() -> None:
    trials = enumerate_trials([{"nu": math.inf}, {"nu": 1e308}], complete)
    assert trials[0].id != trials[1].id and trials[0].config["nu"] == math.inf


def test_trials_come_in_the_order_of_the_grid() -> None:
    assert [trial.config["seed"] for trial in enumerate_trials([{"seed": s} for s in (3, 1, 2)], complete)] == [3, 1, 2]


def test_a_trial_that_is_there_twice_is_refused() -> None:
    with pytest.raises(SpecError, match=r"trials must differ, but .*'nu': 3} occurs twice"):
        enumerate_trials([{"nu": 3.0}, {"nu": 3}, {"nu": 3.0}], complete)


def test_an_illegal_value_is_a_wrong_request() -> None:
    with pytest.raises(SpecError, match=r"`nu > 0` must hold, but got nu=-1"):
        enumerate_trials([{"nu": 1.0}, {"nu": -1.0}], complete)
