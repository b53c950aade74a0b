"""Pictures of trials in the store."""

import pytest

from sweeper.storage.load import load
from sweeper.storage.store import Store
from tests.sweeper.storage.rows import COLUMNS, row


def test_a_trials_pictures_are_in_a_folder_of_its_own(store: Store) -> None:
    for _ in range(2):
        store.write_sheets("grid", "a", {"samples.png": b"one", "reconstructions.png": b"two"})
    assert store.files.list("sheets/grid/a") == ["reconstructions.png", "samples.png"]
    assert store.files.read("sheets/grid/a/samples.png") == b"one"


def test_no_pictures_make_no_folder(store: Store) -> None:
    store.write_sheets("grid", "a", {})
    assert store.files.list("sheets") == []


def test_rows_are_read_and_compacted_beside_pictures(store: Store) -> None:
    for trial in "ab":
        store.write_sheets("grid", trial, {"samples.png": trial.encode()})
        store.write("grid", f"c{trial}", [row(trial)], COLUMNS)
    store.compact("grid")
    assert load("grid", store.files)["trial_id"].tolist() == ["a", "b"]
    assert [store.files.read(f"sheets/grid/{trial}/samples.png") for trial in "ab"] == [b"a", b"b"]


@pytest.mark.parametrize(("trial", "name"), [("../a", "samples"), ("a", "../samples"), ("a", "_hidden")])
def test_a_name_that_readers_would_not_see_is_refused(store: Store, trial: str, name: str) -> None:
    with pytest.raises(ValueError, match="a name in the store"):
        store.write_sheets("grid", trial, {name: b""})
