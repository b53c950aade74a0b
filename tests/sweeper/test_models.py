"""Which row and which model of a trial are taken where several sweeps have trained it."""

import json
from pathlib import Path

import pytest

from sweeper.errors import SpecError, StoreError
from sweeper.models import find_model, row_of
from sweeper.storage.io.files import Files
from sweeper.storage.layout import model_path
from sweeper.storage.store import Store
from tests.sweeper.storage.rows import COLUMNS, row


@pytest.fixture
def store(tmp_path: Path) -> Files:
    """Trial `t` failed in the sweep a, and finished in b and c, whose models differ."""
    store = Store(tmp_path)
    for sweep, status in (("a", "failed"), ("b", "finished"), ("c", "finished")):
        store.write(sweep, "c0", [row("t", status, cohort=sweep)], COLUMNS)
    for sweep in ("b", "c"):
        metadata = json.dumps({"format": 1, "digest": f"of {sweep}", "kept": "best"})
        header = json.dumps({"__metadata__": {"sweeper": metadata}}).encode()
        store.files.write(model_path(sweep, "t"), len(header).to_bytes(8, "little") + header + sweep.encode())
    return store.files


def test_a_row_that_has_finished_comes_first(store: Files) -> None:
    assert row_of(store, "t")["cohort"] == "b"
    assert row_of(store, "t", sweep="a")["status"] == "failed" and row_of(store, "t", sweep="c")["cohort"] == "c"
    with pytest.raises(StoreError, match="no trial 'u' in sweep 'c'"):
        row_of(store, "u", sweep="c")
    with pytest.raises(SpecError, match="no sweep 'd'; there are: a, b, c"):
        row_of(store, "t", sweep="d")


def test_models_that_differ_are_told(store: Files) -> None:
    said: list[str] = []
    assert find_model(store, "t", sweep="c", log=said.append)[1].endswith(b"c") and not said
    path, content = find_model(store, "t", log=said.append)
    assert path.endswith("models/sweep=b/t.safetensors") and content.endswith(b"b")
    assert said == [
        "the sweeps b, c have different models of trial t; this is that of b, and sweep=NAME chooses another"
    ]
    store.write(model_path("c", "t"), content.replace(b"best", b"all!"))
    find_model(store, "t", log=said.append)
    assert len(said) == 1, "equal weights that were kept on different requests"
