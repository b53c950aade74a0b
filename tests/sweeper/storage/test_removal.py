"""A sweep or a request is removed for good; what others have stays, wherever the removal is cut off."""

import shutil
from pathlib import Path

import pytest

from sweeper.errors import SpecError, StoreError
from sweeper.storage.inventory import take_inventory
from sweeper.storage.layout import figure_path, log_path, model_path, request_path, sample_grid_path
from sweeper.storage.load import load, load_history
from sweeper.storage.removal import plan_removal, remove
from sweeper.storage.requests import RequestRows, write_request
from sweeper.storage.store import Store
from tests.sweeper.storage.crashes import crashed_copies
from tests.sweeper.storage.rows import COLUMNS, row

LISTS = {"digits": ["a", "b", "c"], "digits, epochs=5": ["c", "d"]}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Trials a to c of one request in a file, c and d of another; and another sweep."""
    store = Store(tmp_path / "store")
    for sweep in ("grid", "other"):
        store.prepare(sweep, COLUMNS)
        for cohort, trials in (("c0", "abc"), ("c1", "d")):
            store.write(sweep, cohort, [row(trial) for trial in trials], COLUMNS)
            store.write_history(sweep, cohort, [(trial, 1, "auroc", 0.1) for trial in trials])
        for trial in "abcd":
            store.files.write(model_path(sweep, trial), b"weights")
            store.files.write(sample_grid_path(sweep, trial, "samples.png"), b"grid")
            store.files.write(log_path(sweep, trial), b"printed")
        for request, own in LISTS.items():
            write_request(store.files, sweep, RequestRows(request, "digits", own))
            store.files.write(figure_path("heatmaps", f"{sweep}/{request}", "auroc.png"), b"heatmap")
    return store


def content(store: Store, sweep: str = "grid") -> dict[str, object]:
    """What a reader finds of a sweep."""
    files = store.files
    return {
        "rows": load(sweep, files)["trial_id"].tolist(),
        "history": load_history(sweep, files)["trial_id"].tolist(),
        "models": files.list(f"models/sweep={sweep}"),
        "sheets": files.list(f"sheets/{sweep}"),
        "logs": files.list(f"logs/sweep={sweep}"),
        "heatmaps": files.list(f"heatmaps/{sweep}"),
        "requests": files.list(f"requests/{sweep}"),
    }


def test_trials_that_another_request_has_stay(store: Store) -> None:
    before = content(store, "other")
    removal = plan_removal(store.files, "grid", "digits")
    assert (removal.trials, removal.shared) == ({"a", "b"}, 1) and removal.kinds["models"] == 2 * len(b"weights")
    assert removal.kinds["logs"] == 2 * len(b"printed")
    remove(store.files, removal)
    assert content(store) == {
        "rows": ["c", "d"],
        "history": ["c", "d"],
        "models": ["c.safetensors", "d.safetensors"],
        "sheets": ["c", "d"],
        "logs": ["c.txt", "d.txt"],
        "heatmaps": ["digits, epochs=5"],
        "requests": ["digits, epochs=5.parquet"],
    }
    assert content(store, "other") == before and not store.files.sizes(".removals")
    remove(store.files, plan_removal(store.files, "grid", "digits, epochs=5"))
    assert [path for path in store.files.sizes() if "grid" in path] == [], "the last request is the sweep"
    assert content(store, "other") == before
    with pytest.raises(SpecError, match="nothing of sweep 'grid' is there"):
        plan_removal(store.files, "grid")


def test_what_is_not_there_is_refused_and_what_may_be_shared_too(store: Store) -> None:
    with pytest.raises(SpecError, match=r"no request 'digit' .*; there are: digits, epochs=5, digits$"):
        plan_removal(store.files, "grid", "digit")
    store.files.write(request_path("grid", "digits, epochs=5"), b"PAR1")
    with pytest.raises(StoreError, match=r"not known what it shares with others: .* is damaged"):
        plan_removal(store.files, "grid", "digits")


@pytest.mark.slow
@pytest.mark.parametrize("request_name", ["digits", ""])
def test_a_removal_that_is_cut_off_anywhere_leaves_a_store_that_is_read_and_is_ended_by_the_same_call(
    store: Store, monkeypatch: pytest.MonkeyPatch, request_name: str
) -> None:
    other = content(store, "other")
    whole = Store(shutil.copytree(store.files.uri, f"{store.files.uri}-whole"))
    remove(whole.files, plan_removal(whole.files, "grid", request_name))
    stays = {"c", "d"} if request_name else set()
    copies = crashed_copies(
        monkeypatch, store, lambda copy: remove(copy.files, plan_removal(copy.files, "grid", request_name))
    )
    for after, copy in copies:
        if not any("grid" in path for path in copy.files.sizes()):
            continue  # all of it was gone
        statuses = copy.statuses("grid")
        assert stays <= set(statuses) and not copy.damaged, after
        assert {sweep.name for sweep in take_inventory(copy.files)} == {"grid", "other"}, after
        remove(copy.files, plan_removal(copy.files, "grid", request_name))
        assert content(copy, "other") == other, after
        if request_name:
            assert content(copy) == content(whole), after
        else:
            assert copy.files.sizes().keys() == whole.files.sizes().keys(), after
    assert after > 8
