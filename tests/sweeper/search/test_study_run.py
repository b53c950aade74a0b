"""A study in progress, and what it begins with."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sweeper.errors import SpecError
from sweeper.search.study_run import WarmStart, read_warm_start, warm_start_from_rows
from sweeper.storage.files import Files
from sweeper.storage.rows import Columns
from sweeper.storage.store import Store
from tests.sweeper.search.toy_waves import study, study_run


def test_the_definition_of_a_study_is_written_once_and_again_if_it_is_damaged(tmp_path: Path) -> None:
    files, path = Files(tmp_path), tmp_path / "studies/search/s0.json"
    run = study_run(study(trials=8, wave=8))
    run.write_definition(files, "search")
    definition = path.read_text()
    path.write_text(definition.replace("\n", ""))
    run.write_definition(files, "search")
    assert path.read_text() == definition.replace("\n", "")
    path.write_text(definition[:-1])
    run.write_definition(files, "search")
    assert path.read_text() == definition


COLUMNS = Columns({"method": str, "dataset": str, "x": float, "width": int}, ("auroc",))
CONFIG = {"method": "vje", "dataset": "digits"}
NOW = datetime(2026, 1, 1, tzinfo=UTC)
FITTING: dict[str, Any] = {
    **{"trial_id": "fits", "status": "finished", "x": 0.5, "width": 2, "auroc": 0.75},
    **{"cohort": "c", "cohort_size": 1, "epochs_run": 1, "started": NOW, "ended": NOW, **CONFIG},
}
RESULTS = (({"x": 0.5, "width": 2}, (0.75,)),)
PATH = "studies/s/identity.json"


def store_of(folder: Path, *rows: dict[str, Any]) -> Store:
    store = Store(folder)
    store.prepare("earlier", COLUMNS)
    store.write("earlier", "c", rows, COLUMNS)
    return store


@pytest.mark.parametrize(
    "change",
    [
        *({"status": "pruned"}, {"status": "diverged"}, {"auroc": None}, {"x": 1.5}, {"x": None}, {"width": 3}),
        *({"method": "simclr"}, {"dataset": "cifar10"}),
    ],
)
def test_only_finished_rows_that_fit_the_study_are_used(change: dict[str, Any], tmp_path: Path) -> None:
    other = {**FITTING, "trial_id": "other", **change}
    store = store_of(tmp_path / "both", FITTING, other)
    assert warm_start_from_rows(store, "earlier", study(), CONFIG, {}) == WarmStart("earlier", RESULTS)
    with pytest.raises(SpecError, match=r"^no finished row of sweep 'earlier' fits study 'all': a row must have"):
        warm_start_from_rows(store_of(tmp_path / "other", other), "earlier", study(), CONFIG, {})


@pytest.mark.parametrize(("default", "fits"), [(0.25, True), (1.5, False), (None, False)])
def test_a_value_that_is_null_is_the_default(default: float | None, fits: bool, tmp_path: Path) -> None:
    """Trials lack the keys of an optional section at their defaults. The space of x is [0, 1]."""
    store = store_of(tmp_path, FITTING, {**FITTING, "trial_id": "other", "x": None})
    warm = warm_start_from_rows(store, "earlier", study(), CONFIG, {"x": default})
    other = (({"x": default, "width": 2}, (0.75,)),)
    assert warm == WarmStart("earlier", RESULTS + other if fits else RESULTS)


def test_a_sweep_without_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"^--warm-start needs rows, but store .* has none of sweep 'earlier'$"):
        warm_start_from_rows(Store(tmp_path), "earlier", study(), CONFIG, {})


@pytest.mark.parametrize("warm", [WarmStart(None), WarmStart("earlier", RESULTS)])
def test_a_written_warm_start_is_read_back(warm: WarmStart, tmp_path: Path) -> None:
    files = Files(tmp_path)
    assert read_warm_start(files, PATH, study()) is None
    warm.write(files, PATH, study())
    assert read_warm_start(files, PATH, study()) == warm


@pytest.mark.parametrize(
    "result",
    [
        *([{"x": 0.5}, [0.75]], [{"x": 1.5, "width": 2}, [0.75]], [{"x": 0.5, "width": 2}, []]),
        *([{"x": 0.5, "width": 2}, ["1"]], [{"x": 0.5, "width": 2}, [float("nan")]]),
    ],
)
def test_a_damaged_file_counts_as_absent(result: list[Any], tmp_path: Path) -> None:
    files = Files(tmp_path)
    files.write(PATH, json.dumps({"warm_start": "earlier", "results": [result]}).encode())
    assert read_warm_start(files, PATH, study()) is None
