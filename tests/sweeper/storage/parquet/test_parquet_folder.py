import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from sweeper.errors import DamagedFiles, StoreError
from sweeper.storage.files import Files
from sweeper.storage.parquet_files import (
    contents_of,
    map_parallel,
    parse_intact,
    read_tables,
    replace,
    table_to_parquet,
)
from sweeper.storage.rows import history_of, table_of
from tests.sweeper.storage.rows import COLUMNS, row

FOLDER = "trials/sweep=grid"


def table(*trials: str) -> pa.Table:
    return table_of([row(trial) for trial in trials], COLUMNS)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """Two files with a row each, and one that is no Parquet file."""
    files = Files(tmp_path)
    for trial in "ab":
        files.write(f"{FOLDER}/{trial}.parquet", table_to_parquet(table(trial)))
    files.write(f"{FOLDER}/notes.txt", b"")
    return files


def before_first_read(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Call `act` once, before the first file is read, as another writer might."""
    read, actions = Files.read, [act]

    def read_later(files: Files, path: str) -> bytes | None:
        if actions:
            actions.pop()()
        return read(files, path)

    monkeypatch.setattr(Files, "read", read_later)
    monkeypatch.setattr("sweeper.storage.parquet_files.THREADS", 1)


def test_only_the_requested_columns_are_read_and_the_schema_has_all(files: Files) -> None:
    tables = read_tables(files, FOLDER, ["trial_id", "absent"])
    assert {name: rows["trial_id"].to_pylist() for name, (_, rows) in tables.items()} == {
        "a.parquet": ["a"],
        "b.parquet": ["b"],
    }
    assert all(rows.column_names == ["trial_id"] and "nu" in schema.names for schema, rows in tables.values())


def test_rows_that_a_writer_moves_meanwhile_are_not_missed(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    old = contents_of(files, FOLDER)
    before_first_read(monkeypatch, lambda: replace(files, FOLDER, old, "segment-0.parquet", table("a", "b")))
    assert list(contents_of(files, FOLDER)) == ["segment-0.parquet"]


def test_files_that_keep_vanishing_are_an_error(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Files, "read", lambda *_: None)
    with pytest.raises(StoreError, match=f"files in '{FOLDER}' keep vanishing"):
        contents_of(files, FOLDER)


def test_a_file_that_was_written_since_is_not_replaced(files: Files) -> None:
    old = contents_of(files, FOLDER)
    files.write(f"{FOLDER}/b.parquet", table_to_parquet(table("b", "c")))
    size = replace(files, FOLDER, old, "segment-0.parquet", table("a", "b"))
    merged, newer = sorted(files.list(FOLDER), key=lambda name: name != "segment-0.parquet")[:2]
    assert merged == "segment-0.parquet" and len(files.read(f"{FOLDER}/{merged}") or b"") == size
    assert read_tables(files, FOLDER)[newer][1]["trial_id"].to_pylist() == ["b", "c"]
    assert "a.parquet" not in files.list(FOLDER)


def test_damaged_files_are_named_with_the_reason(files: Files) -> None:
    files.write(f"{FOLDER}/b.parquet", b"PAR1")
    tables, reasons = parse_intact(FOLDER, contents_of(files, FOLDER))
    assert list(tables) == ["a.parquet"] and list(reasons) == [f"{FOLDER}/b.parquet"]
    with pytest.raises(DamagedFiles) as damaged:
        read_tables(files, FOLDER)
    assert damaged.value.reasons == reasons


def test_a_history_has_exactly_its_columns() -> None:
    history = table_to_parquet(history_of([("a", 1, "auroc", 0.5)]))
    contents = {"a.parquet": history, "b.parquet": table_to_parquet(table("b"))}
    tables, reasons = parse_intact("history/sweep=grid", contents)
    assert list(tables) == ["a.parquet"] and "its columns are trial_id" in reasons["history/sweep=grid/b.parquet"]


def test_a_single_name_needs_no_thread() -> None:
    assert map_parallel(lambda name: threading.current_thread(), ["a"]) == [threading.current_thread()]
    assert threading.current_thread() not in map_parallel(lambda name: threading.current_thread(), ["a", "b"])
