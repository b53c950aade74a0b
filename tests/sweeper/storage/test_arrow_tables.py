from sweeper.storage.arrow_tables import conform, one_per_trial, rows_except, rows_of, table_of
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
