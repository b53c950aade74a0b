"""Rows have every hyperparameter of their method with its value, also those keys that ids leave out at their defaults,
and also where an earlier version, whose rows lacked such keys, wrote the store."""

import math
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sweeper.commands import compare, run
from sweeper.planning.cohorts import trial_id
from sweeper.results.compare import ComparedSide, pair, rows_of
from sweeper.storage.load import load, take_snapshot
from sweeper.storage.rows import Columns
from sweeper.storage.store import Store, StoreReader
from tests.fake_executor import without_ray
from tests.sweeper.small_sweeps import small_grid
from trainables.config import column_types, keys, left_out_defaults, resolve
from trainables.sections import TrialConfig, Value

pytestmark = pytest.mark.usefixtures("unreported")

CHANGES: Mapping[str, tuple[Value, ...]] = {
    "optimiser": ("sgd", "adam"),
    "clip_grad_norm": (0.5, math.inf),
    "patience": (0, 3),
    "batch_unit": ("images", "views"),
    "similarity": ("cosine", "distance"),
    "normal_class": (None, 1),
}
"""Keys that ids leave out at their first value, `similarity` of SimCLR alone; and one that can be null."""


@st.composite
def configs_of_a_sweep(draw: st.DrawFn) -> list[TrialConfig]:
    """Trials of one or two methods that differ in a few of these keys."""
    drawn: dict[str, TrialConfig] = {}
    for method in draw(st.lists(st.sampled_from(["vje", "vae", "random"]), min_size=1, max_size=2, unique=True)):
        for values in draw(st.lists(st.fixed_dictionaries({key: st.sampled_from(v) for key, v in CHANGES.items()}))):
            own = {key: value for key, value in values.items() if key in keys(method)}
            epochs = 0 if method == "random" else 5
            config = resolve({"method": method, "epochs": epochs, "validation": 0.2, **own})
            drawn[trial_id(config)] = config
    return list(drawn.values())


def earlier_file(store: Store, configs: Sequence[TrialConfig], name: str = "c") -> None:
    """Write the rows of trials as earlier versions did: with the keys of their ids, and with no defaults beside."""
    flats = [{"trial_id": trial_id(config), **config.flat()} for config in configs]
    known = {key for flat in flats for key in flat}
    types = {key: kind for key, kind in column_types(configs).items() if key in known}
    store.write("grid", name, [{**flat, "status": "finished"} for flat in flats], Columns(types, ()))


def plain(frame: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Trial -> column -> value, None for null."""
    found = frame.astype(object).where(frame.notna(), None).to_dict("records")
    return {str(row["trial_id"]): {str(key): value for key, value in row.items()} for row in found}


@given(configs=configs_of_a_sweep(), split=st.integers(0, 20))
def test_every_reader_finds_the_values_that_earlier_rows_lack(configs: list[TrialConfig], split: int) -> None:
    """Before a run of this version, after it also for pandas without this package, and with its rows beside them."""
    if not configs:
        return
    expected = {trial_id(config): config.complete() for config in configs}
    earlier, new = configs[:split], configs[split:]
    columns = Columns(column_types(configs), (), {each.method: left_out_defaults(each.method) for each in configs})

    def check(frame: pd.DataFrame) -> None:
        for trial, row in plain(frame).items():
            known = {key: value for key, value in row.items() if key in columns.hyperparameters}
            assert known == {key: expected[trial].get(key) for key in known}

    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        if earlier:
            earlier_file(store, earlier)
            check(load("grid", folder))
            check(take_snapshot(store.files, "grid").rows)
            check(pd.DataFrame(StoreReader(folder).records("grid")[0]))
        store.prepare("grid", columns)
        finished = [{"trial_id": trial_id(each), "status": "finished", **each.complete()} for each in new]
        if finished:
            store.write("grid", "d", finished, columns)
        check(load("grid", folder))
        stored = pd.read_parquet(f"{folder}/trials/sweep=grid")
        check(stored)
        assert len(stored) == len(configs) and set(columns.hyperparameters) <= set(stored)


def test_rows_of_a_method_of_the_users_own_are_read_without_its_code(tmp_path: Path) -> None:
    """An earlier version wrote them, whose keys are those of all methods of images. A later run records the defaults
    of its own keys, too."""
    theirs: dict[str, Any] = {"method": "theirs:Method", "batch_size": 64, "encoder": "mlp", "status": "finished"}
    kinds = {"method": str, "batch_size": int, "encoder": str, "optimiser": str, "depth": int}
    older = [{**theirs, "trial_id": "a"}, {**theirs, "trial_id": "b", "optimiser": "adam", "depth": 2}]
    Store(tmp_path).write("grid", "c", older, Columns(kinds, ()))
    assert plain(load("grid", tmp_path))["a"] == {**plain(load("grid", tmp_path))["b"], "trial_id": "a"} | {
        "optimiser": "sgd",
        "depth": None,
    }
    newer = [{**theirs, "trial_id": "d", "optimiser": "sgd", "depth": 4}]
    Store(tmp_path).write("grid", "d", newer, Columns(kinds, (), {"theirs:Method": {"optimiser": "sgd", "depth": 1}}))
    assert {trial: row["depth"] for trial, row in plain(load("grid", tmp_path)).items()} == {"a": 1, "b": 2, "d": 4}


def test_rows_of_an_earlier_version_are_compared_by_the_keys_of_the_other_side(tmp_path: Path) -> None:
    """Its trials had the default of a key that varies there, and of others that it did not record at all."""
    configs = [resolve({"method": "vje", "seed": seed}) for seed in range(3)]
    varied = [resolve({**config.flat(), "optimiser": "adam"}) for config in configs]
    for name, own in (("earlier", configs), ("later", [*configs, *varied])):
        store = Store(tmp_path / name)
        columns = Columns(column_types(own), ("auroc",), {"vje": left_out_defaults("vje")})
        rows = [{"trial_id": trial_id(each), **each.complete(), "auroc": each.training.seed} for each in own]
        if name == "earlier":
            columns = Columns(
                {key: kind for key, kind in columns.hyperparameters.items() if key in own[0].flat()}, ("auroc",)
            )
            rows = [{key: row[key] for key in ("trial_id", "auroc", *columns.hyperparameters)} for row in rows]
        store.write("grid", "c", [{**row, "status": "finished"} for row in rows], columns)
    first, second = rows_of(
        ComparedSide("grid", store=str(tmp_path / "earlier")), ComparedSide("grid", store=str(tmp_path / "later"))
    )
    pairs = pair(first.rows, second.rows, second.hyperparameters, ("auroc",), ())
    assert pairs.trials == (3, 3) and pairs.unpaired == (0, 3) and not pairs.differing
    assert set(pairs.agreeing) == {"seed", "optimiser"}


@pytest.mark.slow
def test_an_axis_over_a_key_has_its_default_wherever_rows_are_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a first run all trials have the default; a second varies the key, and a third narrows it to the default."""
    store, varied = tmp_path / "store", ["--axis", "clip_grad_norm=0.5,inf"]
    for axis in ([], varied, ["--axis", "clip_grad_norm=inf"]):
        with without_ray(tmp_path):
            assert run.main([*small_grid(store), *axis]) == 0
        if axis == varied:
            assert re.search(r"at beta=\S+ clip_grad_norm=(inf|0\.5)", capsys.readouterr().out)
    frame = pd.read_parquet(store / "trials/sweep=anomaly_grid")
    counts = frame.groupby("clip_grad_norm")["auroc_joint"].count()
    assert counts.to_dict() == {0.5: 6, math.inf: 6}
    assert not frame[["optimiser", "patience", "accumulate"]].isna().any().any()
    side = "changes=clip_grad_norm=0.5,inf epochs=2 seed=0,1"
    sides = [f"anomaly_grid:digits,clip_grad_norm=inf,{side}@{store}", f",clip_grad_norm=0.5,{side}"]
    assert compare.main([*sides, "--out", str(tmp_path / "comparison.png")]) == 0
