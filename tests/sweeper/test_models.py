"""Which row and which model of a trial are taken where several sweeps have trained it, and that neither runs code."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sweeper.errors import SpecError, StoreError
from sweeper.models import config_of, find_model, load_model, row_of
from sweeper.storage.files import Files
from sweeper.storage.layout import model_path
from sweeper.storage.store import Store
from tests.sweeper.storage.rows import COLUMNS, row
from tests.trainables.small import HERE
from tests.trainables.small import config_of as small_config
from tests.user_files import DENOISE, forget_modules, user_folder
from trainables.training.model_file import pack_model
from trainables.training.model_metadata import ENTRY, LENGTH_BYTES, metadata_bytes
from trainables.training.train import Callbacks, train

__all__ = ["user_folder"]

OTHERS = ("evil_of_others:Evil", "results.evil_of_others:Evil", "this:d")
"""Methods that data name: a module beside them, one in the store's folder, and one of Python."""


@pytest.fixture
def store(tmp_path: Path) -> Files:
    """Trial `t` failed in the sweep a, and finished in b and c, whose models differ."""
    store = Store(tmp_path)
    for sweep, status in (("a", "failed"), ("b", "finished"), ("c", "finished")):
        store.write(sweep, "c0", [row("t", status, cohort=sweep)], COLUMNS)
    for sweep in ("b", "c"):
        facts: dict[str, dict[str, object]] = {"config": {}, "shapes": {}, "inputs": {}}
        metadata = json.dumps({"format": 1, **facts, "digest": f"of {sweep}", "kept": "best"})
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


def test_models_that_differ_are_reported(store: Files) -> None:
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


@pytest.fixture
def planted(user_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a store `results`. Modules in both say in a file that they were imported."""
    (user_folder / "results").mkdir()
    for folder in (user_folder, user_folder / "results"):
        code = "open('executed', 'w').close()\n" + DENOISE + "\n\nEvil = Denoise\n"
        (folder / "evil_of_others.py").write_text(code)
    monkeypatch.syspath_prepend(user_folder)
    return user_folder


def model_of(method: str, **changes: Any) -> bytes:
    """A sound model's file, but for the method that it names."""
    models: list[bytes] = []
    for _ in train(
        [small_config(epochs=0)], HERE, callbacks=Callbacks(keep=lambda _, model: models.append(pack_model(model, {})))
    ):
        pass
    (data,) = models
    header = json.loads(data[LENGTH_BYTES : metadata_bytes(data)])
    content = json.loads(header["__metadata__"][ENTRY])
    header["__metadata__"][ENTRY] = json.dumps({**content, "config": {**content["config"], "method": method}})
    text = json.dumps(header).encode()
    return len(text).to_bytes(LENGTH_BYTES, "little") + text + data[metadata_bytes(data) :]


@pytest.mark.parametrize("method", OTHERS)
def test_no_module_that_a_store_or_a_file_names_is_imported(planted: Path, method: str) -> None:
    (planted / "best.safetensors").write_bytes(model_of(method))
    store = Store(planted / "results")
    rows = [{**row("kept", "finished"), "method": method}, {**row("dropped", "finished"), "method": method}]
    store.write("a", "c0", rows, COLUMNS)
    store.files.write(model_path("a", "kept"), model_of(method))
    before = set(sys.modules)
    uses: tuple[Callable[[], object], ...] = (
        lambda: load_model(planted / "best.safetensors"),
        lambda: load_model(store.files, "kept"),
        lambda: load_model(store.files, "dropped"),
        lambda: config_of(rows[0]),
        lambda: load_model(planted / "best.safetensors", methods=["vje"]),
    )
    for use in uses:
        with pytest.raises(SpecError) as refused:
            use()
        assert f"names the method '{method}', which neither ships nor is installed; it is" in str(refused.value)
        assert f"methods=['{method}']" in str(refused.value) and "\n" not in str(refused.value)
    assert {name.partition(".")[0] for name in set(sys.modules) - before}.isdisjoint(
        {"evil_of_others", "results", "this"}
    )
    assert not (planted / "executed").exists()


def test_a_method_that_the_user_names_is_imported(planted: Path) -> None:
    named = {**row("t", "finished"), "method": OTHERS[0], "sigma": 0.5, "epochs": 0}
    assert config_of(named, methods=[OTHERS[0]]).flat()["sigma"] == 0.5
    assert (planted / "executed").exists()
    assert config_of(named).flat()["sigma"] == 0.5, "named once is enough"
    forget_modules(planted)
    with pytest.raises(SpecError, match="names the method"):
        config_of(named)
    for methods, law in ((OTHERS[0], "methods must be a list of names"), (["evil_of_others:No"], "cannot be imported")):
        with pytest.raises(SpecError, match=law):
            config_of(named, methods=methods)
