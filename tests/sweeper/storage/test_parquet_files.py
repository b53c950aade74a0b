"""Parquet files: their digests, reading and replacing them, and damage."""

import dataclasses
import io
import math
import os
import random
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sweeper import runtime
from sweeper.errors import DamagedError, DamagedFiles, StoreError
from sweeper.option_values import WarmStartRequest
from sweeper.search.study_run import warm_start_from_rows
from sweeper.storage import parquet_files
from sweeper.storage.files import Files
from sweeper.storage.layout import SUFFIX
from sweeper.storage.load import load, load_history
from sweeper.storage.parquet_files import (
    LARGE,
    MARK,
    contents_of,
    has_digest,
    parquet_to_table,
    parse_file,
    parse_intact,
    quarantine,
    quarantining,
    read_tables,
    replace,
    table_to_parquet,
)
from sweeper.storage.retry import NO_RETRIES
from sweeper.storage.rows import Columns, history_of, table_of
from sweeper.storage.store import Store
from tests.cases import for_each
from tests.sweeper.storage.rows import COLUMNS, DAMAGES, flipped, row

FLIPS = 300
"""Bits to flip per file. Without checksums and digest, a third of them changed a value of the rows, and nine tenths a
value of the history."""


def rows() -> pa.Table:
    fixed = {"status": "finished", "seconds": 1.5, "ended": datetime(2026, 1, 2, tzinfo=UTC), "method": "vje"}
    columns = Columns({"method": str, "nu": float}, ("auroc",))
    draw = random.Random(0)
    return table_of([{"trial_id": f"t{n}", "nu": 3.0, "auroc": draw.random(), **fixed} for n in range(20)], columns)


def history() -> pa.Table:
    draw = random.Random(1)
    return history_of([(f"t{trial}", epoch, "auroc", draw.random()) for trial in range(5) for epoch in range(40)])


def plain(table: pa.Table) -> bytes:
    """Return the table as earlier versions wrote it, without checksums and digest."""
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue()


@pytest.mark.parametrize("table", [rows(), history()], ids=["rows", "history"])
def test_no_flipped_bit_changes_a_value(table: pa.Table) -> None:
    data, draw, detected = table_to_parquet(table), random.Random(2), 0
    begin = data.index(MARK)
    for bit in draw.sample(range(len(data) * 8), FLIPS):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        if begin <= bit // 8 < begin + len(MARK):  # the file seems to have no digest, and is intact otherwise
            assert parquet_to_table(bytes(damaged))[1].equals(table)
            continue
        with pytest.raises(DamagedError):
            parquet_to_table(bytes(damaged))
        detected += 1
    assert detected > FLIPS / 2


def test_every_bit_of_the_footers_length_counts() -> None:
    data = table_to_parquet(rows())
    for bit in range(32):
        damaged = bytearray(data)
        damaged[-8 + bit // 8] ^= 1 << bit % 8
        with pytest.raises(DamagedError, match="digest"):
            parquet_to_table(bytes(damaged))


def test_other_readers_take_the_file_as_it_is_and_can_verify_its_pages() -> None:
    data = table_to_parquet(rows())
    assert has_digest(data)
    pd.testing.assert_frame_equal(pd.read_parquet(io.BytesIO(data)), pd.read_parquet(io.BytesIO(plain(rows()))))
    damaged = bytearray(data)
    damaged[data.index(MARK) - 2] ^= 1
    with pytest.raises(OSError, match="CRC"):
        pq.read_table(io.BytesIO(bytes(damaged)), page_checksum_verification=True)


def test_a_file_of_an_earlier_version_is_read_and_most_damage_to_it_detected() -> None:
    data = plain(rows())
    assert not has_digest(data) and parquet_to_table(data)[1].equals(rows())
    schema, table = parquet_to_table(data, ["trial_id"])
    assert schema.equals(rows().schema) and table.column_names == ["trial_id"]
    page = pq.ParquetFile(io.BytesIO(data)).metadata.row_group(0).column(3)
    damaged = bytearray(data)
    damaged[page.data_page_offset : page.data_page_offset + 8] = bytes(8)
    with pytest.raises(DamagedError, match="not a whole Parquet file"):  # in a column that was not asked for
        parquet_to_table(bytes(damaged), ["trial_id"])


@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1 not really", bytes(100), b"x" * 100])
def test_a_file_that_is_not_parquet_is_damaged(data: bytes) -> None:
    with pytest.raises(DamagedError):
        parquet_to_table(data)


@pytest.mark.parametrize(("rows", "compression"), [(10, "SNAPPY"), (LARGE // 8, "ZSTD")])
def test_only_large_tables_are_worth_the_slower_compression(rows: int, compression: str) -> None:
    table = pa.table({"value": pa.array(range(rows + 1), pa.int64())})
    metadata = pq.ParquetFile(pa.BufferReader(table_to_parquet(table))).metadata
    assert metadata.row_group(0).column(0).compression == compression


def test_a_file_cannot_declare_far_more_text_than_it_has() -> None:
    """3 kB with 200 GB: one text, to which all rows refer."""
    same = pa.DictionaryArray.from_arrays(pa.array([0] * 2**20, pa.int32()), pa.array(["x" * 200_000]))
    sink = io.BytesIO()
    pq.write_table(pa.table({"trial_id": same}), sink, compression="zstd", store_schema=False)
    assert len(sink.getvalue()) < 5000
    with pytest.raises(DamagedError, match=r"its texts must have at most 4 GiB, but have 195\.3"):
        parquet_to_table(sink.getvalue())


def test_a_large_table_is_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its texts are counted before they are unpacked."""
    for columns in (None, ["trial_id", "auroc"]):
        whole = parquet_to_table(table_to_parquet(rows()), columns)
        with monkeypatch.context() as patched:
            patched.setattr(parquet_files, "MAX_BYTES", 1 << 16)
            counted = parquet_to_table(table_to_parquet(rows()), columns)
        assert counted[0].equals(whole[0], check_metadata=True) and counted[1].equals(whole[1], check_metadata=True)


@for_each(
    ("column", "values"),
    [
        ("trial_id", ["a\nb", "..", "", "a/b", "x" * 201]),
        ("cohort", ["../c"]),
        ("seconds", [math.inf, -math.inf, 1e308]),
        ("cost", [math.inf]),
        ("cohort_size", [-1, 2**40]),
        ("epochs_run", [-1]),
        ("ended", [-1, 2**63 - 1, 253402300800000000]),
        ("started", [-(2**63) + 1]),
    ],
)
def test_a_file_of_values_that_no_run_writes_is_damaged_whatever_columns_are_read(
    column: str, values: Sequence[object]
) -> None:
    intact = rows()
    index, field = intact.schema.get_field_index(column), intact.schema.field(column)
    parse_file(FOLDER, table_to_parquet(intact), [])
    for value in values:
        odd = pa.array([value, *[None] * (len(intact) - 1)] if column != "trial_id" else [value] * len(intact))
        data = table_to_parquet(intact.set_column(index, field, odd.cast(field.type)))
        for columns in ([], ["status"], None):
            with pytest.raises(DamagedError, match=f"its column {column} has "):
                parse_file(FOLDER, data, columns)


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
    monkeypatch.setattr(runtime, "THREADS", 1)


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


def test_a_listing_that_shows_files_which_are_gone_is_waited_for(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    slept, versions = list[float](), files.list_versions(FOLDER, SUFFIX)
    files.runtime = dataclasses.replace(files.runtime, sleep=slept.append)
    list_versions = Files.list_versions
    cached = lambda files, *where: list_versions(files, *where) if sum(slept) > 30 else versions  # noqa: E731
    monkeypatch.setattr(Files, "list_versions", cached)
    files.delete(f"{FOLDER}/a.parquet")
    assert list(contents_of(files, FOLDER)) == ["b.parquet"]
    assert 30 < sum(slept) < 40
    monkeypatch.setattr(Files, "read", lambda *_: None)
    with pytest.raises(StoreError, match=f"files in '{FOLDER}' keep vanishing"):
        contents_of(files, FOLDER)
    assert 80 < sum(slept) < 100


def test_an_old_file_is_read_and_parsed_once_until_it_changes(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """By copies of the files, too. One of the last 1,000 s is read each time, since its time may not have changed."""
    path, reads, parses = f"{FOLDER}/a.parquet", list[str](), list[object]()
    read, unpacked = Files.read, parquet_files.parquet_to_table

    def counted_read(files: Files, path: str) -> bytes | None:
        reads.append(Path(path).stem)
        return read(files, path)

    def counted_parse(data: bytes, names: list[str] | None) -> tuple[pa.Schema, pa.Table]:
        parses.append(names)
        return unpacked(data, names)

    monkeypatch.setattr(Files, "read", counted_read)
    monkeypatch.setattr(parquet_files, "parquet_to_table", counted_parse)
    written = os.stat(Path(files.uri, path)).st_mtime - 1001
    os.utime(Path(files.uri, path), (written, written))

    def trials(columns: list[str] | None) -> dict[str, object]:
        tables = read_tables(files.with_retries(NO_RETRIES), FOLDER, columns)
        assert columns is None or all(table.column_names == columns for _, table in tables.values())
        return {name[0]: table["trial_id"].to_pylist() for name, (_, table) in tables.items()}

    for columns in (["trial_id"], ["trial_id"], None, None, ["trial_id", "nu"]):
        assert trials(columns) == {"a": ["a"], "b": ["b"]}
    assert "".join(sorted(reads)) == "abbbbb" and len(parses) == 5 + 2
    files.write(path, table_to_parquet(table("c")))
    assert trials(None) == {"a": ["c"], "b": ["b"]}
    files.delete(path)
    assert trials(None) == {"b": ["b"]} and not files.remembered[FOLDER]


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
    tables, reasons = parse_intact(files, FOLDER, contents_of(files, FOLDER))
    assert list(tables) == ["a.parquet"] and list(reasons) == [f"{FOLDER}/b.parquet"]
    with pytest.raises(DamagedFiles) as damaged:
        read_tables(files, FOLDER)
    assert damaged.value.reasons == reasons


def test_a_history_has_exactly_its_columns(files: Files) -> None:
    history = table_to_parquet(history_of([("a", 1, "auroc", 0.5)]))
    contents = {"a.parquet": history, "b.parquet": table_to_parquet(table("b"))}
    tables, reasons = parse_intact(files, "history/sweep=grid", contents)
    assert list(tables) == ["a.parquet"] and "its columns are trial_id" in reasons["history/sweep=grid/b.parquet"]


KINDS = ("trials", "history")


class Harness:
    """A store with two trials in two cohorts. `log` has the lines that it printed."""

    def __init__(self, folder: Path) -> None:
        self.log: list[str] = []
        self.store = Store(Files(folder, NO_RETRIES, self.log.append))
        self.store.prepare("grid", COLUMNS)
        for trial in "ab":
            self.train(self.store, trial)

    def train(self, store: Store, trial: str) -> None:
        store.write_history("grid", f"c{trial}", [(trial, 1, "auroc", 0.5), (trial, 2, "auroc", 0.9)])
        store.write("grid", f"c{trial}", [row(trial)], COLUMNS)

    def reopened(self) -> Store:
        """Open the store as the next run does."""
        return Store(self.store.files)

    def quarantined(self, kind: str) -> list[bytes | None]:
        folder = f"_damaged/{kind}/sweep=grid"
        return [self.store.files.read(f"{folder}/{name}") for name in self.store.files.list(folder)]


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return Harness(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", DAMAGES)
def test_the_trials_of_a_damaged_file_are_to_run_and_the_file_is_quarantined(
    harness: Harness, kind: str, how: str
) -> None:
    path = f"{kind}/sweep=grid/ca.parquet"
    content = flipped(harness.store.files, path, how)
    plan = harness.reopened()
    assert plan.statuses("grid") == {"b": "finished"} and list(plan.damaged) == [path]
    assert harness.log == [] and harness.quarantined(kind) == [], "a plan writes nothing"
    begun = harness.reopened()
    begun.quarantine(plan.damaged)
    begun.prepare("grid", COLUMNS)
    assert harness.quarantined(kind) == [content]
    assert [path in line and "moved to '_damaged/" in line for line in harness.log] == [True], harness.log
    assert harness.reopened().statuses("grid") == {"b": "finished"}, "as long as it has not been trained again"
    harness.train(begun, "a")
    assert harness.reopened().statuses("grid") == {"a": "finished", "b": "finished"}
    assert len(load("grid", harness.store.files)) == 2 and len(load_history("grid", harness.store.files)) == 4
    assert len(harness.log) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_reader_names_a_damaged_file_and_the_remedy_uses_the_rest_and_moves_nothing(
    harness: Harness, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    flipped(harness.store.files, f"{kind}/sweep=grid/ca.parquet")
    read = load if kind == "trials" else load_history
    assert {*read("grid", harness.store.files)["trial_id"]} == {"b"}
    line = rf"store .*{kind}/sweep=grid/ca\.parquet' is damaged and left out: .*; the next run moves it to '_damaged'"
    assert re.fullmatch(rf"{line}.*\n", capsys.readouterr().err)
    flipped(harness.store.files, f"{kind}/sweep=grid/cb.parquet")
    with pytest.raises(DamagedFiles, match=rf"'{kind}/sweep=grid/ca\.parquet' is damaged: .*; run the sweep again, "):
        read("grid", harness.store.files)
    assert harness.quarantined(kind) == []


def test_a_history_of_other_columns_is_damaged(harness: Harness) -> None:
    path = "history/sweep=grid/ca.parquet"
    harness.store.files.write(path, table_to_parquet(table_of([row("a")], COLUMNS)))
    plan = harness.reopened()
    assert plan.statuses("grid") == {"b": "finished"} and "its columns are trial_id, method, " in plan.damaged[path]


@pytest.mark.parametrize("kind", KINDS)
def test_a_cohort_writes_over_its_own_damaged_file(harness: Harness, kind: str) -> None:
    content = flipped(harness.store.files, f"{kind}/sweep=grid/ca.parquet")
    harness.train(harness.store, "a")
    assert harness.quarantined(kind) == [content] and len(harness.log) == 1
    assert harness.reopened().statuses("grid") == {"a": "finished", "b": "finished"}
    assert len(load_history("grid", harness.store.files)) == 4


@pytest.mark.parametrize("kind", KINDS)
def test_merging_goes_on_without_a_damaged_file(harness: Harness, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_files, "MANY", 4)
    harness.train(harness.store, "c")
    content = flipped(harness.store.files, f"{kind}/sweep=grid/ca.parquet")
    harness.train(harness.store, "d")
    assert harness.quarantined(kind) == [content] and len(harness.log) == 1
    assert len(harness.store.files.list(f"{kind}/sweep=grid")) == 1
    assert harness.reopened().statuses("grid") == dict.fromkeys("bcd", "finished")


def test_compaction_goes_on_without_a_damaged_file(harness: Harness) -> None:
    content = flipped(harness.store.files, "trials/sweep=grid/ca.parquet")
    harness.store.compact("grid")
    assert harness.quarantined("trials") == [content] and load("grid", harness.store.files)["trial_id"].tolist() == [
        "b"
    ]


def test_a_result_without_any_metric_needs_no_history(harness: Harness) -> None:
    """A trial that diverged before its first report has no history, and must not be trained again forever."""
    harness.store.write("grid", "cx", [row("x", "diverged", auroc=None), row("y", "failed")], COLUMNS)
    flipped(harness.store.files, "history/sweep=grid/ca.parquet")
    assert harness.reopened().statuses("grid") == {"b": "finished", "x": "diverged", "y": "failed"}


def test_without_damage_no_history_is_read(harness: Harness) -> None:
    harness.store.files.delete_folder("history")
    assert harness.reopened().statuses("grid") == {"a": "finished", "b": "finished"}


def test_a_search_trains_a_row_again_that_has_lost_its_history(harness: Harness) -> None:
    flipped(harness.store.files, "history/sweep=grid/ca.parquet")
    plan = harness.reopened()
    rows, history = plan.records("grid")
    assert [(row["trial_id"], row["status"]) for row in rows] == [("a", "failed"), ("b", "finished")]
    assert {record[0] for record in history} == {"b"} and len(plan.damaged) == 1


def test_a_warm_start_does_not_ignore_damaged_rows(harness: Harness) -> None:
    flipped(harness.store.files, "trials/sweep=grid/ca.parquet")
    study: Any = None  # not needed before the damage is found
    with pytest.raises(DamagedFiles, match=r"ca\.parquet"):
        warm_start_from_rows(harness.reopened(), WarmStartRequest("grid"), study, {}, {})


def test_a_file_that_is_intact_after_all_comes_back(harness: Harness) -> None:
    """It was misread, or another writer has replaced it meanwhile."""
    path = "trials/sweep=grid/ca.parquet"
    quarantine(harness.store.files, {path: "misread", "trials/sweep=grid/gone.parquet": "misread"})
    assert harness.log == [] and harness.quarantined("trials") == []
    assert harness.store.files.read(path) is None and len(load("grid", harness.store.files)) == 2


def test_many_damaged_files_are_named_and_quarantined_at_once(harness: Harness) -> None:
    for trial in "ab":
        flipped(harness.store.files, f"history/sweep=grid/c{trial}.parquet")
    rounds: list[int] = []

    def read() -> int:
        rounds.append(1)
        return len(read_tables(harness.store.files, "history/sweep=grid"))

    harness.train(harness.store, "c")
    with pytest.raises(DamagedFiles, match=r"\(and 1 more\)"):
        read()
    assert quarantining(harness.store.files, read) == 1 and len(rounds) == 3 and len(harness.log) == 2


def test_without_a_callback_a_warning_is_issued(harness: Harness, tmp_path: Path) -> None:
    flipped(harness.store.files, "trials/sweep=grid/ca.parquet")
    with pytest.warns(UserWarning, match=r"ca\.parquet' is damaged"):
        Store(tmp_path).prepare("grid", COLUMNS)
