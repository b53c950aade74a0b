import math
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sweeper.errors import StoreError
from sweeper.storage.arrow_tables import conform, table_of, table_to_parquet
from sweeper.storage.io.files import Files
from sweeper.storage.load import load, load_history
from sweeper.storage.schema import Columns
from sweeper.storage.store import Store

COLUMNS = Columns({"method": str, "dataset": str, "nu": float, "k": int, "flip": bool}, ("auroc", "entropy"))


def row(trial: str, status: str = "finished", **more: object) -> dict[str, object]:
    fixed = {
        "trial_id": trial,
        "status": status,
        "cohort": "c0",
        "cohort_size": 2,
        "epochs_run": 3,
        "seconds": 1.5,
        "started": datetime(2026, 1, 1, tzinfo=UTC),
        "ended": datetime(2026, 1, 2, tzinfo=UTC),
    }
    return {**fixed, "method": "vje", "dataset": "digits", "nu": 3.0, "k": 30, "flip": True, "auroc": 0.9, **more}


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path)
    assert store.prepare("grid", COLUMNS) == COLUMNS
    return store


def folder(store: Store, kind: str = "trials") -> Path:
    local = store.files.local_folder
    assert local is not None
    return local / kind / "sweep=grid"


def test_pandas_reads_native_types_and_no_sweep_column(store):
    store.write("grid", "c0", [row("a", nu=math.inf), row("b", auroc=math.nan, entropy=np.float32(0.5))], COLUMNS)
    table = pq.read_table(folder(store) / "c0.parquet", partitioning=None)
    assert table["nu"].to_pylist() == [math.inf, 3.0]
    assert table["auroc"].to_pylist() == [0.9, None] and table["auroc"].null_count == 1
    assert table["entropy"].to_pylist() == [None, 0.5] and table["error"].null_count == 2
    assert [str(table.schema.field(n).type) for n in ("k", "flip", "method")] == ["int64", "bool", "string"]
    assert str(table.schema.field("ended").type) == "timestamp[us, tz=UTC]"
    frame = pd.read_parquet(folder(store))
    assert len(frame) == 2 and frame["nu"].max() == math.inf and "sweep" not in table.schema.names
    assert set(pd.read_parquet(folder(store).parent)["sweep"]) == {"grid"}


def test_writing_twice_changes_nothing(store):
    rows = [row("b"), row("a", auroc=math.nan)]
    store.write("grid", "c0", rows, COLUMNS)
    before = (folder(store) / "c0.parquet").stat()
    store.write("grid", "c0", rows[::-1], COLUMNS)
    assert (folder(store) / "c0.parquet").stat().st_ino == before.st_ino


def test_a_failure_never_replaces_a_result(store):
    store.write("grid", "c0", [row("a"), row("b", "diverged"), row("c", "failed", auroc=None)], COLUMNS)
    store.write("grid", "c0", [row(t, "failed", error="lost", auroc=None) for t in "abc"], COLUMNS)
    assert store.statuses("grid") == {"a": "finished", "b": "diverged", "c": "failed"}
    store.write("grid", "c0", [row("c", auroc=0.7)], COLUMNS)
    assert store.statuses("grid")["c"] == "finished"
    assert load("grid", store.files)["auroc"].tolist() == [0.9, 0.9, 0.7]


def test_a_new_cut_drops_the_superseded_rows(store):
    store.write("grid", "c0", [row("a", "failed"), row("b", auroc=0.1)], COLUMNS)
    store.write("grid", "c1", [row("a", auroc=0.8), row("b", "failed", auroc=None)], COLUMNS)
    plain = pd.read_parquet(folder(store)).sort_values("trial_id")
    assert plain["trial_id"].tolist() == ["a", "b"] and plain["auroc"].tolist() == [0.8, 0.1]
    again = Store(store.files)
    again.prepare("grid", COLUMNS)
    again.write("grid", "c2", [row("a", auroc=0.6)], COLUMNS)
    assert len(pd.read_parquet(folder(store))) == 2


@pytest.mark.parametrize(
    ("bad", "law"),
    [
        ({"nuu": 1.0}, "did you mean 'nu'"),
        ({"nu": "3"}, "'nu' must hold double"),
        ({"k": 1.5}, "'k' must hold int64"),
        ({"k": True}, "'k' must hold int64"),
        ({"status": "done"}, "finished, diverged, pruned, failed"),
        ({"ended": datetime(2026, 1, 1)}, "time zone"),
        ({"trial_id": None}, "must be a str"),
    ],
)
def test_a_row_that_does_not_fit_is_refused(store, bad, law):
    with pytest.raises(ValueError, match=law):
        store.write("grid", "c0", [{**row("a"), **bad}], COLUMNS)
    assert store.statuses("grid") == {}


@pytest.mark.parametrize("name", ["", "_x", ".x", "a/b", "../a", "a b"])
def test_a_name_that_readers_would_not_see_is_refused(store, name):
    with pytest.raises(ValueError, match="a name in the store"):
        store.write("grid", name, [row("a")], COLUMNS)


@pytest.mark.parametrize(
    "wrong",
    [
        {"hyperparameters": {"a": list}},
        {"hyperparameters": {"status": str}},
        {"hyperparameters": {"x": int}, "metrics": ("x",)},
        {"metrics": ("sweep",)},
    ],
)
def test_columns_keep_their_law(wrong):
    with pytest.raises(ValueError, match="but"):
        Columns(**{"hyperparameters": {}, "metrics": (), **wrong})


def test_another_type_is_refused_in_one_line(store):
    store.write("grid", "c0", [row("a")], COLUMNS)
    with pytest.raises(
        StoreError, match=r"column 'nu' must have one type, but is double in some rows and string in others.*--fresh"
    ) as caught:
        Store(store.files).prepare("grid", Columns({"nu": str}, ()))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"trial_id": ["a"], "status": ["finished"]}),
        table_of([row("a")], COLUMNS).drop_columns(["host"]),
        table_of([row("a")], COLUMNS).replace_schema_metadata({"sweeper.format": "0"}),
    ],
)
def test_foreign_files_are_refused(store, table):
    store.files.write("trials/sweep=grid/x.parquet", table_to_parquet(table))
    for read in (lambda: store.prepare("grid", COLUMNS), lambda: load("grid", store.files)):
        with pytest.raises(StoreError, match=r"another schema: 'x\.parquet': .*move such files out of"):
            read()


def test_a_reader_is_told_which_file_is_no_parquet_and_the_way_out(store):
    store.files.write("trials/sweep=grid/x.parquet", b"PAR1 not really")
    with pytest.raises(StoreError, match=r"x\.parquet.*not a whole Parquet file.*run the sweep again"):
        load("grid", store.files)


def test_new_columns_migrate_old_files_and_old_ones_stay(store):
    store.write("grid", "c0", [row("a")], COLUMNS)
    newer = Columns({"method": str, "nu": float, "beta": float}, ("auroc", "knn"))
    united = Store(store.files).prepare("grid", newer)
    assert set(united.hyperparameters) == {"method", "dataset", "nu", "k", "flip", "beta"}
    assert united.metrics == ("auroc", "entropy", "knn")
    frame = pd.read_parquet(folder(store))
    assert {"beta", "knn", "entropy", "k"} <= set(frame.columns) and frame["beta"].isna().all()
    assert Store(store.files).prepare("grid", COLUMNS) == united


def test_load_unites_files_of_unlike_columns_and_sweeps(store):
    store.write("grid", "c0", [row("a")], COLUMNS)
    other = Columns({"method": str, "beta": float}, ("knn",))
    store.write("other", "c0", [{"trial_id": "z", "status": "finished", "beta": 1.0, "knn": 0.5}], other)
    both = load(["grid", "other"], store.files)
    assert both["sweep"].tolist() == ["grid", "other"] and both["nu"].isna().tolist() == [False, True]
    assert load("other", store.files)["beta"].tolist() == [1.0]
    with pytest.raises(StoreError, match=r"no trials of sweep 'nope'; there are: grid, other"):
        load("nope", store.files)


def test_load_selects_a_preset_and_what_was_changed_in_it(store):
    made = {"a": ("digits", ""), "b": ("digits", "epochs=5"), "c": ("paper", "")}
    rows = [row(trial, preset=preset, changes=changes) for trial, (preset, changes) in made.items()]
    store.write("grid", "c0", rows, COLUMNS)

    def loaded(**chosen: str | None) -> list[str]:
        return load("grid", store.files, **chosen)["trial_id"].tolist()

    assert loaded() == ["a", "b", "c"] and loaded(preset="digits", changes=None) == ["a", "b"]
    assert loaded(preset="digits") == ["a"] and loaded(preset="digits", changes="epochs=5") == ["b"]
    with pytest.raises(StoreError, match=r"no rows with preset 'digit'; there are: 'digits', 'paper'$"):
        loaded(preset="digit")
    with pytest.raises(StoreError, match=r"no rows with changes 'epochs=6'; there are: '', 'epochs=5'$"):
        loaded(preset="digits", changes="epochs=6")
    frame = pd.read_parquet(folder(store))
    assert frame[(frame.preset == "digits") & (frame.changes == "")]["trial_id"].tolist() == ["a"]


def test_rows_of_earlier_versions_have_no_preset_and_their_sweep_is_continued(store):
    old = table_of([row("a"), row("b", "failed")], COLUMNS).drop_columns(["preset", "changes"])
    store.files.write("trials/sweep=grid/c0.parquet", table_to_parquet(old))
    assert store.statuses("grid") == {"a": "finished", "b": "failed"}
    assert load("grid", store.files)["preset"].isna().all()
    with pytest.raises(StoreError, match=r"no rows with preset 'digits'; there are: none$"):
        load("grid", store.files, preset="digits")
    again = Store(store.files)
    assert again.prepare("grid", COLUMNS) == COLUMNS
    again.write("grid", "c0", [row("b", preset="digits", changes="")], COLUMNS)
    frame = pd.read_parquet(folder(store)).set_index("trial_id")
    assert frame["preset"].isna().tolist() == [True, False] and set(frame["status"]) == {"finished"}
    assert load("grid", store.files, preset="digits")["trial_id"].tolist() == ["b"]


def test_load_takes_one_row_a_trial_results_first_then_the_latest(store):
    late = datetime(2026, 2, 1, tzinfo=UTC)
    for name, rows in {
        "x": [row("a", auroc=0.1), row("b", auroc=0.2)],
        "w": [row("a", auroc=0.3, ended=late), row("b", "failed", auroc=None, ended=late)],
    }.items():
        store.files.write(f"trials/sweep=grid/{name}.parquet", table_to_parquet(table_of(rows, COLUMNS)))
    assert load("grid", store.files)["auroc"].tolist() == [0.3, 0.2]
    store.prepare("grid", COLUMNS)
    assert len(pd.read_parquet(folder(store))) == 2


def test_compaction_keeps_the_rows_and_a_retry_still_lands_once(store):
    for cohort in range(5):
        store.write(
            "grid", f"c{cohort}", [row(f"{cohort}{t}", "failed" if t == "a" else "finished") for t in "abc"], COLUMNS
        )
    before = load("grid", store.files)
    name = store.compact("grid")
    assert store.files.list("trials/sweep=grid") == [name] and store.compact("grid") == name
    pd.testing.assert_frame_equal(load("grid", store.files), before)
    store.write("grid", "c2", [row("2a", auroc=0.4)], COLUMNS)
    frame = pd.read_parquet(folder(store))
    assert len(frame) == 15 and frame.set_index("trial_id").loc["2a", "status"] == "finished"
    assert store.compact("grid") != name and len(load("grid", store.files)) == 15


def test_a_crash_within_compaction_is_put_right(store, monkeypatch):
    for cohort in "xyz":
        store.write("grid", cohort, [row(cohort)], COLUMNS)
    before = load("grid", store.files)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Files, "delete_if_unchanged", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        store.compact("grid")
    assert len(store.files.list("trials/sweep=grid")) == 4
    pd.testing.assert_frame_equal(load("grid", store.files), before)
    Store(store.files).prepare("grid", COLUMNS)
    assert len(store.files.list("trials/sweep=grid")) == 1


def test_history_overlays_by_trial_metric_and_epoch(store):
    store.write_history("grid", "c0", [("a", 1, "auroc", 0.1), ("a", 2, "auroc", math.nan)])
    store.write_history(
        "grid",
        "c0",
        {
            "trial_id": np.array(["a", "a"]),
            "epoch": np.array([2, 10]),
            "metric": ["auroc"] * 2,
            "value": np.array([0.2, 0.3]),
        },
    )
    history = load_history("grid", store.files)
    assert history["epoch"].tolist() == [1, 2, 10] and history["value"].tolist() == [0.1, 0.2, 0.3]


def test_conform_puts_columns_in_order():
    table = table_of([row("a")], COLUMNS)
    assert conform(table.select(reversed(table.schema.names)), COLUMNS).equals(table)
