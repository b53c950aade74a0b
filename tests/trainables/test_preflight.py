"""What is known before anything trains."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainables import preflight
from trainables.config import TrialConfig, Value, resolve
from trainables.data.datasets import DATASETS, DataError, Dataset, load
from trainables.preflight import steps_of


def _config(**changes: Value) -> TrialConfig:
    return resolve({"method": "vje", "batch_size": 60, **changes})


def test_steps_of_each_trial_in_order(tmp_path: Path) -> None:
    configs = [_config(), _config(normal_class=3), _config(normal_class=3, batch_size=100, seed=4), _config(beta=2)]
    assert steps_of(configs, tmp_path) == [21, 2, 1, 21]


def test_none_of_nothing(tmp_path: Path) -> None:
    assert steps_of([], tmp_path) == []


def test_a_class_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError) as error:
        steps_of([_config(normal_class=3), _config(normal_class=10)], tmp_path)
    assert str(error.value) == "normal_class must be one of 0..9 for digits, but got 10"


def test_a_batch_that_the_class_cannot_fill(tmp_path: Path) -> None:
    """Known although another trial of the same class fits."""
    with pytest.raises(ValueError, match=r"^batch_size must not exceed the 12\d training images of digits with "):
        steps_of([_config(normal_class=3), _config(normal_class=3, batch_size=400)], tmp_path)


def test_data_that_cannot_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(root: Path) -> Dataset:
        raise DataError(f"gone from {root}")

    monkeypatch.setitem(DATASETS, "absent", absent)
    with pytest.raises(DataError, match="gone from"):
        steps_of([_config(), _config(dataset="absent")], tmp_path)


def test_each_set_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(name: str, root: Path) -> Dataset:
        calls.append(name)
        return load(name, root)

    monkeypatch.setattr(preflight, "load", counted)
    steps_of([_config(normal_class=digit, seed=seed) for digit in range(3) for seed in range(3)], tmp_path)
    assert calls == ["digits"]
