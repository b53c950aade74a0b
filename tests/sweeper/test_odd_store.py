"""What a store holds is data, however odd: any file with any damage is a line, and the rest goes on."""

import gzip
import json
import os
import re
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sweeper.run as run
from sweeper.errors import StoreError
from sweeper.models import load_model
from sweeper.report.page import document, publish
from sweeper.report.page.publish import list_of_sweeps
from sweeper.spec import SpecError, registry
from sweeper.storage.files import Files
from sweeper.storage.layout import FOLDERS
from sweeper.storage.load import load
from tests.cases import for_each
from tests.fake_executor import without_ray
from tests.sweeper.small_sweeps import TINY

KINDS = {
    "rows": "trials/sweep=tiny/*.parquet",
    "history": "history/sweep=tiny/*.parquet",
    "request": "requests/tiny/*.parquet",
    "model": "models/sweep=tiny/*.safetensors",
    "best": "models/best/tiny/*.json",
    "views": "reports/tiny.views/*.json",
    "trial names": "reports/tiny.trials.json",
    "summary": "reports/tiny.summary.json",
    "cuts": "cuts/sweep=tiny/*.json",
    "devices": "probes/devices/*.json",
    "profile": "probes/*/*.json",
}
"""Kind of file -> where its files are. One of them is damaged."""
PAGES = ["views", "trial names", "summary", "cuts", "profile"]
"""Those that no other kind is read before: damaged together, none hides the damage of another."""


def _huge_table(data: bytes) -> bytes:
    buffer = pa.BufferOutputStream()
    pq.write_table(pa.table({f"c{column}": pa.nulls(1 << 20) for column in range(300)}), buffer)
    return bytes(buffer.getvalue())


def _huge(data: bytes) -> bytes:
    """The file with all its numbers a billion, and in the header of a model."""
    if data.startswith(b"PAR1"):
        return _huge_table(data)
    if data[:1] not in (b"{", b"["):
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + length])
        content = json.loads(header["__metadata__"]["sweeper"])
        content["config"]["width"] = content["config"]["features"] = 10**9
        header["__metadata__"]["sweeper"] = json.dumps(content)
        text = json.dumps(header).encode()
        return len(text).to_bytes(8, "little") + text + data[8 + length :]
    return re.sub(rb"\b\d+\b", b"1000000000", data)


DAMAGES: dict[str, Callable[[bytes], bytes] | str] = {
    "empty": lambda data: b"",
    "half": lambda data: data[: len(data) // 2],
    "deep": lambda data: b"[" * 100_000,
    "wrong": lambda data: b'{"cuts": 7, "preset": [1], "a": {"b": [null, 1e999, "\\u2028"]}}',
    "random": lambda data: np.random.default_rng(0).bytes(5000),
    "huge": _huge,
    "pipe": "pipe",
    "folder": "folder",
}


@pytest.fixture(autouse=True, scope="module")
def library() -> Iterator[None]:
    """Pages without their charts: half of the time that a page takes goes into the library that draws them."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(document, "compressed_library", lambda: gzip.compress(b""))
        yield


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished sweep of two cohorts, with all models."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patched, without_ray(folder):
        patched.setattr(registry, "find", lambda name: TINY)
        for keep in ("all", "best"):  # the second run writes which are the best, and deletes none
            assert run.main(["tiny", "--store", str(folder / "store"), "--cohort", "2", "--keep", keep]) == 0
    for kind, pattern in KINDS.items():
        assert list((folder / "store").glob(pattern)), kind
    return folder / "store"


@pytest.fixture(autouse=True)
def sweep(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(registry, "find", lambda name: TINY)
    monkeypatch.setenv("SWEEPER_PATIENCE", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def damaged_copy(store: Path, copy: Path, kinds: Iterable[str], damage: str) -> Path:
    """Copy the store to `copy`, and damage one file of each of these kinds."""
    shutil.copytree(store, copy)
    for file in {min(path for path in copy.glob(KINDS[kind]) if path.is_file()) for kind in kinds}:
        data, change = file.read_bytes(), DAMAGES[damage]
        file.unlink()
        if change == "pipe":
            os.mkfifo(file)
        elif isinstance(change, str):
            file.mkdir()
            (file / "a").write_bytes(data)
        else:
            file.write_bytes(change(data))
    return copy


def in_one_line(act: Callable[..., Any], *arguments: Any, **options: Any) -> None:
    """Call `act`, which may be refused."""
    try:
        act(*arguments, **options)
    except (StoreError, SpecError) as error:
        assert "\n" not in str(error)


@pytest.mark.slow
def test_every_folder_of_a_store_is_known_as_one(store: Path) -> None:
    """No other store can lie in it."""
    folders = {path.name for path in store.iterdir() if path.is_dir()}
    assert folders <= FOLDERS and {"requests", "trials"} <= folders


@pytest.mark.slow
@for_each(
    ("kinds", "damage"),
    [
        *[(kinds, damage) for kinds in (["rows"], PAGES) for damage in list(DAMAGES)[::2]],
        *[(kinds, damage) for kinds in (["request"], ["history", "model", "best"]) for damage in list(DAMAGES)[1::2]],
        *[(["rows"], "huge"), (["devices"], "deep"), (PAGES, "huge"), (["history", "best"], "wrong")],
    ],
)
def test_readers_end_with_a_line(
    store: Path, tmp_path: Path, kinds: list[str], damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = damaged_copy(store, tmp_path / "store", kinds, damage)
    assert run.main(["tiny", "--store", str(copy), "--plan"]) in (0, 2)
    in_one_line(load, "tiny", copy)
    in_one_line(load, "tiny", copy, preset="digits")
    for model in sorted((store / "models/sweep=tiny").iterdir())[:2]:
        in_one_line(load_model, copy, model.stem, data=tmp_path)
    in_one_line(list_of_sweeps, Files(copy))
    in_one_line(publish.write, Files(copy), "tiny")
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(
    "kinds",
    [["rows"], ["request"], [kind for kind in KINDS if kind not in ("rows", "request")]],
    ids=["rows", "request", "others"],
)
def test_the_same_command_goes_on_and_changes_no_good_row(
    store: Path, tmp_path: Path, kinds: list[str], damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = damaged_copy(store, tmp_path / "store", kinds, damage)
    with without_ray(tmp_path):
        status = run.main(["tiny", "--store", str(copy), "--cohort", "2", "--keep", "all"])
    if damage == "folder" and "rows" not in kinds:  # in the place of a file that the run has to write
        assert status in (1, 2) and "error: store" in capsys.readouterr().err
    else:
        assert status == 0
    assert "Traceback" not in capsys.readouterr().err
    before, after = load("tiny", store), load("tiny", copy)
    assert sorted(before["trial_id"]) == sorted(after["trial_id"]) and set(after["status"]) == {"finished"}
    trained = set(before["ended"]).symmetric_difference(after["ended"])
    good = [rows[~rows["ended"].isin(trained)].set_index("trial_id").sort_index() for rows in (before, after)]
    assert len(good[0]) >= 2
    pd.testing.assert_frame_equal(*good)
