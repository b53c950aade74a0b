import math

import numpy as np

from sweeper.storage.rows import conform, one_per_trial, rows_except, rows_of, table_of
from tests.sweeper.storage.rows import COLUMNS, row


def test_conform_puts_columns_in_order():
    table = table_of([row("a")], COLUMNS)
    assert conform(table.select(reversed(table.schema.names)), COLUMNS).equals(table)


def test_rows_are_those_of_the_trials_or_all_others():
    table = table_of([row("a"), row("b"), row("c")], COLUMNS)
    assert rows_of(table, ["c", "a", "z"])["trial_id"].to_pylist() == ["a", "c"]
    assert rows_except(table, ["c", "a", "z"])["trial_id"].to_pylist() == ["b"]


def test_a_later_failure_does_not_replace_a_result():
    table = table_of([row("b", "failed"), row("a"), row("a", "failed"), row("b", "failed", error="last")], COLUMNS)
    merged = one_per_trial(table)
    assert merged["trial_id"].to_pylist() == ["a", "b"] and merged["status"].to_pylist() == ["finished", "failed"]
    assert merged["error"].to_pylist() == [None, "last"]


def test_rows_may_have_their_values_in_any_order_and_lack_some():
    rows = [row("a", error=None), row("b", error="last")]
    whole = table_of(rows, COLUMNS)
    assert table_of([rows[0], dict(reversed(rows[1].items()))], COLUMNS).equals(whole)
    short = [{name: value for name, value in values.items() if value is not None} for values in rows]
    assert len(short[0]) < len(short[1]) and table_of(short, COLUMNS).equals(whole)


def test_not_a_number_is_null_among_plain_numbers_and_others():
    plain = table_of([row("a", seconds=math.nan), row("b", seconds=1.0)], COLUMNS)
    mixed = table_of([row("a", seconds=np.float64("nan")), row("b", seconds=1)], COLUMNS)
    assert plain["seconds"].to_pylist() == mixed["seconds"].to_pylist() == [None, 1.0]
