"""The rows of one store are added to another; no run that is there is lost, wherever the merge is cut off."""

import shutil
from pathlib import Path

import pytest

from sweeper.errors import StoreError
from sweeper.storage.evaluations import read_evaluations, write_evaluations
from sweeper.storage.layout import (
    best_models_path,
    evaluations_folder,
    history_folder,
    log_path,
    model_path,
    page_figures_folder,
    sample_grid_path,
    trials_folder,
)
from sweeper.storage.load import load, load_history
from sweeper.storage.logs import LARGEST_LOG
from sweeper.storage.merging import check_mergeable, merge, plan_merge
from sweeper.storage.models import delete_models, record_unwritten, unwritten_models
from sweeper.storage.requests import RequestRows, read_request, write_request
from sweeper.storage.rows import Columns
from sweeper.storage.store import Store
from tests.cases import for_each
from tests.sweeper.storage.crashes import crashed_copies
from tests.sweeper.storage.rows import COLUMNS, model, row


def store_of(folder: Path, rows: dict[str, dict[str, object]], columns: Columns = COLUMNS) -> Store:
    store = Store(folder)
    store.prepare("grid", columns)
    for trial, more in rows.items():
        store.write("grid", f"c{trial}", [row(trial, **more)], columns)  # type: ignore[arg-type]
        store.write_history("grid", f"c{trial}", [(trial, 1, "auroc", float(more.get("auroc", 0.9)))])  # type: ignore[arg-type]
        store.files.write(model_path("grid", trial), model(f"{folder.name} {trial}".encode()))
        store.files.write(sample_grid_path("grid", trial, "samples.png"), b"grid")
        store.files.write(log_path("grid", trial), f"{folder.name} {trial}".encode())
    return store


@pytest.fixture
def source(tmp_path: Path) -> Store:
    rows: dict[str, dict[str, object]] = {
        "new": {}, "equal": {"host": "a"}, "other": {"auroc": 0.1}, "mended": {}, "failed": {"status": "failed"},
        "pruned": {"status": "pruned"}, "lost": {},
    }  # fmt: skip
    columns = Columns(COLUMNS.hyperparameters, (*COLUMNS.metrics, "extra"))
    store = store_of(tmp_path / "source", rows, columns)
    store.files.delete(model_path("grid", "pruned"))
    delete_models(store.files, "grid", ["lost"])
    record_unwritten(store.files, "grid", "c", ["lost"])
    write_request(store.files, "grid", RequestRows("digits", "digits", [*rows]))
    evaluate(store, "a", **dict.fromkeys(rows, 0.5))
    evaluate(store, "b", new=0.7)
    return store


@pytest.fixture
def target(tmp_path: Path) -> Store:
    rows: dict[str, dict[str, object]] = {
        "old": {}, "equal": {"host": "b"}, "other": {}, "mended": {"status": "failed"}, "failed": {},
    }  # fmt: skip
    store = store_of(tmp_path / "target", rows)
    evaluate(store, "a", old=0.2, equal=0.4)
    return store


def evaluate(store: Store, dataset: str, **metrics: float) -> None:
    """Write what the models of trials are on other data."""
    rows = [
        {"trial_id": trial, "dataset": dataset, "image_digest": None, "weights": trial, "knn": value}
        for trial, value in metrics.items()
    ]
    write_evaluations(store.files, "grid", dataset, "", rows)


def content(store: Store) -> dict[str, object]:
    rows = load("grid", store.files).set_index("trial_id").sort_index()
    return {
        "rows": rows[["status", "auroc", "host"]].fillna("").to_dict("index"),
        "history": load_history("grid", store.files).values.tolist(),
        "models": {path: store.files.read(path) for path in store.files.sizes("models/sweep=grid")},
        "unwritten": unwritten_models(store.files, "grid"),
        "sheets": store.files.list("sheets/grid"),
        "logs": {path: store.files.read(path) for path in store.files.sizes("logs")},
        "requests": store.files.list("requests/grid"),
        "evaluations": {
            dataset: {trial: row["knn"] for trial, row in read_evaluations(store.files, "grid", dataset, "").items()}
            for dataset in ("a", "b")
        },
    }


def test_rows_that_are_lacking_are_added_and_results_stay(source: Store, target: Store) -> None:
    before = content(source)
    merged = plan_merge(source.files, target.files, "grid")
    assert (merged.added, merged.replaced, merged.equal) == ({"lost", "mended", "new", "pruned"}, {"mended"}, 2)
    assert merged.differing == ("other",) and merged.requests == ("digits",) and merged.models == ("new",)
    merge(source.files, target.files, merged)
    rows = load("grid", target.files).set_index("trial_id")
    trials = ["equal", "failed", "lost", "mended", "new", "old", "other", "pruned"]
    assert rows["auroc"].to_dict() == dict.fromkeys(trials, 0.9)
    assert set(rows["status"].drop("pruned")) == {"finished"} and rows["host"]["equal"] == "b" and "extra" in rows
    assert target.files.read(model_path("grid", "new")) == model(b"source new")
    assert target.files.read(model_path("grid", "other")) == model(b"target other")
    assert target.files.read(log_path("grid", "new")) == b"source new"
    assert target.files.read(log_path("grid", "other")) == b"target other"
    assert unwritten_models(target.files, "grid") == {"lost"}
    listed = read_request(target.files, "grid", "digits")
    assert listed and listed.trials == ["new", "equal", "other", "mended", "failed", "pruned", "lost"]
    assert content(source) == before
    after, again = content(target), plan_merge(source.files, target.files, "grid")
    assert after["evaluations"] == {
        "a": {"equal": 0.4, "lost": 0.5, "mended": 0.5, "new": 0.5, "old": 0.2, "pruned": 0.5},
        "b": {"new": 0.7},
    }
    assert not again.added and again.equal == 6 and again.requests == again.models == again.kept_lists == ()
    merge(source.files, target.files, again)
    assert content(target) == after


def test_proposals_of_a_study_that_both_have_continued_stay_apart(tmp_path: Path) -> None:
    columns = Columns({**COLUMNS.hyperparameters, "study_id": str, "number": int}, COLUMNS.metrics)
    ours = {
        "a": {"study_id": "s", "number": 0},
        "b": {"study_id": "s", "number": 1},
        "c": {"study_id": "t", "number": 1},
    }
    theirs = {"a": {"study_id": "s", "number": 0}, "x": {"study_id": "s", "number": 1}}
    source, target = store_of(tmp_path / "a", ours, columns), store_of(tmp_path / "b", theirs, columns)
    merged = plan_merge(source.files, target.files, "grid")
    assert (merged.added, merged.equal, merged.differing) == ({"c"}, 1, ("b",))


def test_of_a_foreign_store_only_known_and_whole_files_are_added(
    source: Store, target: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    left_out = {
        model_path("grid", "new"): model(b"weights")[:-1],
        model_path("grid", "lost"): model(b"weights")[:-1] + b"?",
        sample_grid_path("grid", "new", "key.pem"): b"key",
        log_path("grid", "new"): b"\0" * (LARGEST_LOG + 1),
        f"{page_figures_folder('grid')}/digits.json": b"[",
        f"{page_figures_folder('grid')}/key.pem": b"key",
        best_models_path("grid/digits"): b"key",
    }
    for path, data in left_out.items():
        source.files.write(path, data)
    before = target.files.sizes().keys()
    merge(source.files, target.files, plan_merge(source.files, target.files, "grid"))
    assert not (target.files.sizes().keys() - before) & left_out.keys()
    lines = capsys.readouterr().err.splitlines()
    assert {line.split("'")[1] for line in lines} == left_out.keys() and all("not merged" in line for line in lines)


@for_each("path", [f"{folder('grid')}/x.parquet" for folder in (trials_folder, history_folder, evaluations_folder)])
def test_damaged_rows_are_refused_before_anything_is_written(path: str, tmp_path: Path) -> None:
    stores = [store_of(tmp_path / name, {name: {}}) for name in ("a", "b")]
    evaluate(stores[0], "d", a=0.5)
    for damaged in stores:
        damaged.files.write(path, b"PAR1")
        before = stores[1].files.sizes()
        with pytest.raises(StoreError, match=rf"'{path}' is damaged"):
            check_mergeable(stores[0].files, stores[1].files, "grid")
        assert stores[1].files.sizes() == before
        damaged.files.delete(path)


def test_columns_of_two_types_are_refused(source: Store, tmp_path: Path) -> None:
    other = Columns({**COLUMNS.hyperparameters, "k": str}, COLUMNS.metrics)
    target = store_of(tmp_path / "t", {"x": {"k": "30"}}, other)
    with pytest.raises(StoreError, match="column 'k' must have one type"):
        check_mergeable(source.files, target.files, "grid")


@pytest.mark.slow
def test_a_merge_that_is_cut_off_anywhere_is_ended_by_the_same_call(
    source: Store, target: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = set(load("grid", target.files)["trial_id"])
    whole = Store(shutil.copytree(target.files.uri, f"{target.files.uri}-whole"))
    merge(source.files, whole.files, plan_merge(source.files, whole.files, "grid"))
    copies = crashed_copies(
        monkeypatch,
        target,
        lambda copy: merge(source.files, copy.files, plan_merge(source.files, copy.files, "grid")),
    )
    for after, copy in copies:
        assert before <= set(load("grid", copy.files)["trial_id"]) and not copy.damaged, after
        merge(source.files, copy.files, plan_merge(source.files, copy.files, "grid"))
        assert content(copy) == content(whole), after
    assert after > 8
