"""Rows that are trained again are archived by trial and can be brought back; no crash loses any."""

from pathlib import Path

import pytest

from sweeper.errors import StoreError
from sweeper.storage.archive import TrialSelection, archive, preview_archive, restore
from sweeper.storage.layout import log_path
from sweeper.storage.load import load, load_history
from sweeper.storage.rows import Columns
from sweeper.storage.store import Store
from tests.sweeper.storage.crashes import crashed_copies

COLUMNS = Columns({"nu": float, "study_id": str}, ("auroc",))


def row(trial: str, study: str | None = None, auroc: float = 0.5) -> dict[str, object]:
    return {"trial_id": trial, "status": "finished", "nu": 1.0, "study_id": study, "auroc": auroc}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store with trials a to d: a, b and c share a file, as after a merge, and d has its own."""
    store = Store(tmp_path)
    store.prepare("grid", COLUMNS)
    store.write("grid", "segment-0", [row("a", "s0"), row("b", "s1"), row("c", "s1")], COLUMNS)
    store.write("grid", "c1", [row("d", "s0")], COLUMNS)
    store.write_history("grid", "segment-0", [(trial, 1, "auroc", 0.1) for trial in "abc"])
    store.write_history("grid", "c1", [("d", 1, "auroc", 0.2)])
    return store


def trials(store: Store) -> list[str]:
    return load("grid", store.files)["trial_id"].tolist()


def reported(store: Store) -> list[str]:
    return load_history("grid", store.files)["trial_id"].tolist()


def test_others_rows_and_history_stay(store: Store) -> None:
    expected = preview_archive(store.files, "grid", TrialSelection(["a", "d", "new"]), COLUMNS)
    assert trials(store) == list("abcd")
    moved = archive(store.files, "grid", TrialSelection(["a", "d", "new"]), COLUMNS)
    assert moved and (moved.rows, moved.files) == (expected.rows, expected.files) == (2, 4)
    assert moved.text == "2 rows, from 4 files of rows and history"
    assert trials(store) == reported(store) == ["b", "c"]
    archived = Store(f"{store.files.uri}/{moved.folder}")
    assert trials(archived) == reported(archived) == ["a", "d"]
    assert archive(store.files, "grid", TrialSelection(["a"]), COLUMNS) is None
    assert archive(store.files, "none", TrialSelection(["a"]), COLUMNS) is None


def test_a_selected_study_includes_all_its_trials(store: Store) -> None:
    moved = archive(store.files, "grid", TrialSelection([], studies=["s1"]), COLUMNS)
    assert moved and moved.rows == 2 and trials(store) == reported(store) == ["a", "d"]


def test_a_later_run_is_written_and_read_as_usual(store: Store) -> None:
    archive(store.files, "grid", TrialSelection(["a"]), COLUMNS)
    again = Store(store.files)
    again.prepare("grid", COLUMNS)
    again.write("grid", "segment-0", [row("a", auroc=0.9)], COLUMNS)
    assert trials(store) == list("abcd") and load("grid", store.files)["auroc"].tolist() == [0.9, 0.5, 0.5, 0.5]


def test_rows_that_are_restored_swap_with_those_that_replaced_them(store: Store) -> None:
    paths = ["cuts/sweep=grid/p0.json", "heatmaps/grid/digits"]
    store.files.write(paths[0], b"cut")
    store.files.write(f"{paths[1]}/auroc.png", b"old")
    store.files.write("cuts/sweep=grid/halved/h0", b"")
    moved = archive(
        store.files, "grid", TrialSelection(["a", "d"], paths=[*paths, "cuts/sweep=grid/halved/h0"]), COLUMNS
    )
    assert moved and not store.files.read(paths[0]) and store.files.list("heatmaps/grid") == []
    store.write("grid", "c9", [row("a", auroc=0.9)], COLUMNS)
    store.files.write(f"{paths[1]}/auroc.png", b"new")
    back = restore(store.files, "grid", moved.folder.split("/")[1])
    assert back.rows == 2 and trials(store) == reported(store) == list("abcd")
    assert load("grid", store.files)["auroc"].tolist() == [0.5] * 4
    assert store.files.read(paths[0]) == b"cut" and store.files.read(f"{paths[1]}/auroc.png") == b"old"
    assert store.files.list("cuts/sweep=grid/halved") == ["h0"]
    (later,) = (time for time in store.files.list("_replaced") if time != moved.folder.split("/")[1])
    assert load("grid", f"{store.files.uri}/_replaced/{later}")["auroc"].tolist() == [0.9]
    assert store.files.read(f"_replaced/{later}/{paths[1]}/auroc.png") == b"new"
    with pytest.raises(StoreError, match=rf"nothing was archived at .*; there are: {later}$"):
        restore(store.files, "grid", moved.folder.split("/")[1])


def test_history_without_rows_takes_the_place_of_no_result(store: Store) -> None:
    """It is of a run that did not end."""
    archive(store.files, "grid", TrialSelection("a"), COLUMNS)
    store.write_history("grid", "c2", [("a", 1, "auroc", 0.3), ("e", 1, "auroc", 0.4)])
    unfinished = archive(store.files, "grid", TrialSelection("ae"), COLUMNS)
    for time in store.files.list("_replaced"):
        restore(store.files, "grid", time)
    assert unfinished and store.files.list("_replaced") == []
    history = load_history("grid", store.files).set_index("trial_id")["value"]
    assert trials(store) == list("abcd") and history.to_dict() == {"a": 0.1, "b": 0.1, "c": 0.1, "d": 0.2, "e": 0.4}


def test_sample_grids_and_logs_move_with_their_trials(store: Store) -> None:
    for trial in "abcd":
        store.write_sample_grids("grid", trial, {"samples.png": b"old"})
        store.files.write(log_path("grid", trial), b"old")
    moved = archive(store.files, "grid", TrialSelection(["a"], studies=["s1"]), COLUMNS)
    assert moved and store.files.list("sheets/grid") == ["d"], "b and c are of the study"
    assert store.files.list(f"{moved.folder}/sheets/grid") == ["a", "b", "c"]
    assert store.files.list("logs/sweep=grid") == ["d.txt"]
    store.write_sample_grids("grid", "a", {"samples.png": b"new"})
    restore(store.files, "grid", moved.folder.split("/")[1])
    assert [store.files.read(f"sheets/grid/{trial}/samples.png") for trial in "abcd"] == [b"old"] * 4
    assert [store.files.read(log_path("grid", trial)) for trial in "abcd"] == [b"old"] * 4
    (later,) = store.files.list("_replaced")
    assert store.files.read(f"_replaced/{later}/sheets/grid/a/samples.png") == b"new"


def test_a_restore_that_is_killed_anywhere_has_no_row_without_its_sample_grids_and_can_be_repeated(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for trial in "ad":
        store.write_sample_grids("grid", trial, {"samples.png": trial.encode()})
    moved = archive(store.files, "grid", TrialSelection(["a", "d"]), COLUMNS)
    assert moved
    time, states = moved.folder.split("/")[1], set[tuple[int, int]]()
    for after, copy in crashed_copies(monkeypatch, store, lambda copy: restore(copy.files, "grid", time)):
        grids, back = copy.files.list("sheets/grid"), {*trials(copy)} - {*"bc"}
        states.add((len(grids), len(back)))
        assert back <= {*grids} and {*trials(copy)} <= {*reported(copy)}, after
        restore(copy.files, "grid", time)
        assert time not in copy.files.list("_replaced"), after
        assert [copy.files.read(f"sheets/grid/{trial}/samples.png") for trial in "ad"] == [b"a", b"d"], after
        assert trials(copy) == reported(copy) == list("abcd"), after
    assert states >= {(0, 0), (1, 0), (2, 0), (2, 2)}


@pytest.mark.slow
def test_a_fresh_run_that_is_killed_anywhere_and_repeated_can_be_restored(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An archive that was being copied is gone; every other one brings rows back together with their history."""
    selection = TrialSelection(["a", "d"])
    copies = crashed_copies(monkeypatch, store, lambda copy: archive(copy.files, "grid", selection, COLUMNS))
    for after, copy in copies:
        archive(copy.files, "grid", selection, COLUMNS)
        assert trials(copy) == reported(copy) == ["b", "c"], after
        for time in copy.files.list("_replaced"):
            restore(copy.files, "grid", time)
            rows = load("grid", copy.files)["trial_id"]
            assert set(rows) <= set(reported(copy)) and rows.is_unique, after
        assert trials(copy) == reported(copy) == list("abcd"), after
    assert after >= 7


def test_an_archive_that_another_sweep_is_writing_stays(store: Store) -> None:
    store.files.write("_replaced/now/copying/sweep=other", b"")
    archive(store.files, "grid", TrialSelection(["a"]), COLUMNS)
    assert "now" in store.files.list("_replaced")
    store.files.write("_replaced/now/copying/sweep=grid", b"")
    with pytest.raises(StoreError, match="nothing was archived at 'now'"):
        restore(store.files, "grid", "now")


@pytest.mark.parametrize("time", ["yesterday", "../trials", ""])
def test_an_unknown_time_is_refused_with_the_known_ones(store: Store, time: str) -> None:
    with pytest.raises(StoreError, match=r"nothing was archived at .*; there are: none$"):
        restore(store.files, "grid", time)


def test_files_that_no_run_can_use_move_whole(store: Store) -> None:
    store.files.write("trials/sweep=grid/broken.parquet", b"PAR1")
    store.files.write("history/sweep=grid/broken.parquet", b"PAR1")
    other = Columns({"nu": float, "study_id": int}, ())
    moved = archive(store.files, "grid", TrialSelection(["x"]), COLUMNS)
    assert moved and (moved.rows, moved.files, moved.unusable) == (0, 2, 2)
    assert "2 of which cannot be used" in moved.text and trials(store) == list("abcd")
    moved = archive(store.files, "grid", TrialSelection(["x"]), other)
    assert moved and moved.unusable == 2 and store.statuses("grid") == {}
    Store(store.files).prepare("grid", other)
