"""What a store holds, counted by trial and request."""

import tempfile
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeper.storage.inventory import take_inventory
from sweeper.storage.layout import trials_folder
from sweeper.storage.parquet_files import table_to_parquet
from sweeper.storage.requests import RequestRows, write_request
from sweeper.storage.rows import STATUSES, table_of
from sweeper.storage.store import Store
from tests.sweeper.storage.rows import COLUMNS, row

TRIALS = "abcdef"
START = datetime(2026, 1, 1, tzinfo=UTC)
ROWS = st.lists(st.tuples(st.sampled_from(TRIALS), st.sampled_from(STATUSES)), min_size=1, max_size=12)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(rows=ROWS, listed=st.lists(st.sampled_from(TRIALS), unique=True))
def test_each_trial_counts_once_as_what_did_not_fail(rows: list[tuple[str, str]], listed: list[str]) -> None:
    """Each row is in a file of its own, as of drivers that were cut off."""
    kept: dict[str, tuple[str, datetime]] = {}
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        for index, (trial, status) in enumerate(rows):
            ended = START + timedelta(microseconds=index + 1)
            table = table_of([{**row(trial, status), "ended": ended}], COLUMNS)
            store.files.write(f"{trials_folder('grid')}/c{index:02}.parquet", table_to_parquet(table))
            if status != "failed" or kept.get(trial, ("failed", ended))[0] == "failed":
                kept[trial] = status, ended
        write_request(store.files, "grid", RequestRows("digits", "digits", listed))
        (sweep,) = take_inventory(store.files)
    assert sweep.trials == kept.keys() and sweep.counts == Counter(status for status, _ in kept.values())
    assert sweep.last == max(ended for _, ended in kept.values())
    own = kept.keys() & {*listed}
    found = {request.label: request for request in sweep.requests}
    assert found["digits"].trials == own and found["digits"].total == len(listed)
    assert found["digits"].counts == Counter(kept[trial][0] for trial in own)
    assert {trial for request in sweep.requests for trial in request.trials} == kept.keys()
