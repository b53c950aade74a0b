"""Whole sweeps in which some trials have the keys of an optional section, which are null in the rows of the others."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution

import sweeper.run as run
from search_spaces import vje_search
from sweeper.spec import registry
from tests.fake_executor import without_ray
from tests.sweeper.small_grid import rows, small_grid

OPTIMISER = ["optimiser", "lr_schedule", "adam_epsilon"]
OPTIMISERS: Mapping[str, BaseDistribution] = {
    "optimiser": CategoricalDistribution(("sgd", "adam")),
    "lr": FloatDistribution(1e-4, 1e-2, log=True),
}


def test_an_axis_of_optimisers_changes_no_row_of_sgd(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with without_ray(tmp_path):
        assert run.main(small_grid(tmp_path / "plain")) == 0
        assert run.main(small_grid(tmp_path / "both", "--axis", "optimiser=sgd,adam")) == 0
    assert "12 finished of 12 trials" in capsys.readouterr().out
    plain, both = (rows(tmp_path / store, "anomaly_grid") for store in ("plain", "both"))
    assert not set(OPTIMISER) & set(plain.columns) and set(both.columns) == {*plain.columns, *OPTIMISER}
    sgd, adam = (both[both["optimiser"].isna() == is_sgd] for is_sgd in (True, False))
    assert sgd[OPTIMISER].isna().all(axis=None) and len(sgd) == len(adam) == 6
    pd.testing.assert_frame_equal(sgd[plain.columns], plain)
    assert adam[OPTIMISER].drop_duplicates().to_numpy().tolist() == [["adam", "cosine", 1e-8]]
    assert set(adam["status"]) == {"finished"}
    assert not set(adam["loss"]) & set(sgd["loss"]) and set(adam["changes"].str.split().str[-1]) >= {"optimiser=adam"}


def test_an_axis_with_sgd_alone_is_no_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with without_ray(tmp_path):
        assert run.main(small_grid(tmp_path / "store")) == 0
    before = rows(tmp_path / "store", "anomaly_grid")
    assert run.main(small_grid(tmp_path / "store", "--axis", "optimiser=sgd", "--plan")) == 0
    assert "6: 6 finished" in capsys.readouterr().out
    pd.testing.assert_frame_equal(rows(tmp_path / "store", "anomaly_grid"), before)


def test_a_search_over_optimisers_continues_from_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It learns from them which trials had the optimiser that is the default."""
    fixed = {key: value for key, value in vje_search.DIGITS.fixed.items() if key not in OPTIMISERS}
    search = replace(
        vje_search.DIGITS, space=OPTIMISERS, fixed={**fixed, "epochs": 2}, trials=8, wave=4, pruner=None, sampler="tpe"
    )
    sweep = replace(vje_search.SWEEP, presets={"digits": search})
    monkeypatch.setattr(registry, "find", lambda name: sweep)

    def command(store: str, trials: int) -> list[str]:
        return ["vje_search", "--store", str(tmp_path / store), "--trials", str(trials)]

    with without_ray(tmp_path):
        assert run.main(command("whole", 8)) == run.main(command("store", 4)) == run.main(command("store", 8)) == 0
    frame = rows(tmp_path / "store", "vje_search")
    assert len(frame) == 8 and 0 < frame["optimiser"].isna().sum() < 8
    pd.testing.assert_frame_equal(frame, rows(tmp_path / "whole", "vje_search"))
