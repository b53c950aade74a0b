"""A flipped bit anywhere in a file is an error, and other readers can read the files."""

import io
import random
from datetime import UTC, datetime

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sweeper.errors import DamagedError
from sweeper.storage.parquet_files import LARGE, MARK, has_digest, parquet_to_table, table_to_parquet
from sweeper.storage.rows import Columns, history_of, table_of

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
