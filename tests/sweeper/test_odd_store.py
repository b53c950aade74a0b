"""What a store holds is data, however odd: any file with any damage is a line, and the rest goes on."""

import contextlib
import gzip
import io
import json
import math
import os
import re
import shutil
import socket
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweeper.commands import export, merge, rm, run
from sweeper.commands import list as list_command
from sweeper.commands.best import main as best
from sweeper.commands.compare import main as compare
from sweeper.commands.table import main as table_main
from sweeper.definition import SpecError, registry
from sweeper.errors import DamagedError, StoreError
from sweeper.models import load_model
from sweeper.report.page import document, publish
from sweeper.report.page.publish import list_of_sweeps
from sweeper.storage import files as files_module
from sweeper.storage.evaluations import write_evaluations
from sweeper.storage.files import Files
from sweeper.storage.layout import (
    ARCHIVES,
    FOLDERS,
    best_models_path,
    checkpoint_path,
    class_names_path,
    cut_path,
    halved_folder,
    interim_path,
    leases_folder,
    model_path,
    page_figures_folder,
    report_path,
    sample_grid_path,
    study_path,
    summary_path,
    sweep_folders,
    trials_folder,
)
from sweeper.storage.load import load, load_history, load_runs
from sweeper.storage.parquet_files import parquet_to_table, parse_file, table_to_parquet
from sweeper.storage.requests import RequestRows, write_request
from sweeper.storage.rows import Columns
from sweeper.storage.store import Store, StoreReader
from tests.cases import for_each
from tests.fake_executor import without_ray
from tests.sweeper.small_sweeps import TINY
from tests.sweeper.storage.rows import COLUMNS, model, row

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
    "devices": "profiles/devices/*.json",
    "profile": "profiles/*/*.json",
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
    monkeypatch.setenv("SWEEPER_STORE_TIMEOUT", "1")
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
    for file in sorted((store / "models/sweep=tiny").iterdir())[:2]:
        in_one_line(load_model, copy, file.stem, data=tmp_path)
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


NUMBERS = st.sampled_from([math.inf, -math.inf, math.nan, 1e308, -1e308, 5e-324, -1.0])
WHOLE = st.sampled_from([-(2**63), 2**63 - 1, -1, 0, 10**10])
TEXTS = st.sampled_from(["a\nb", "..", "", "\x1b[31m", "x" * 30_000, "a/b", "None", None]) | st.text()
TIMES = st.sampled_from([-(2**63) + 1, 2**63 - 1, 0, -1, 253402300800000000])
VALUES = {pa.float64(): NUMBERS, pa.int64(): WHOLE, pa.string(): TEXTS, pa.timestamp("us", tz="UTC"): TIMES}


def with_odd_value(store: Path, copy: Path, kind: str, drawn: st.DataObject) -> Path:
    """Copy the store to `copy`, with an odd value in one row or in all of the first file of a kind, and return that."""
    shutil.copytree(store, copy)
    path = min(copy.glob(KINDS[kind]))
    schema, table = parquet_to_table(path.read_bytes())
    field = drawn.draw(st.sampled_from([field for field in schema if field.type in VALUES]))
    odd = drawn.draw(VALUES[field.type])
    whole = pa.int64() if pa.types.is_timestamp(field.type) else field.type
    values = [odd] * len(table)
    if drawn.draw(st.booleans()):
        values[1:] = table[field.name].cast(whole).to_pylist()[1:]
    column = pa.array(values, whole, from_pandas=False).cast(field.type)
    table = table.set_column(schema.get_field_index(field.name), field, column)
    path.write_bytes(table_to_parquet(table))
    return path


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(kind=st.sampled_from(["rows", "history", "request"]), drawn=st.data())
def test_a_file_of_odd_values_is_damaged_or_read_by_every_command(store: Path, kind: str, drawn: st.DataObject) -> None:
    """Nothing ends in a traceback. A damaged file is named, the rest is used, and no merge takes it."""
    with tempfile.TemporaryDirectory() as made:
        copy = Path(made) / "store"
        path = with_odd_value(store, copy, kind, drawn)
        named, sides, errors = (
            ["--store", str(copy)],
            ["tiny:digits,beta=0.5", "tiny:digits,beta=1.5"],
            dict[str, str](),
        )
        for command, main, arguments in (
            ("list", list_command.main, [str(copy)]),
            ("best", best, ["tiny", *named]),
            ("table", table_main, ["tiny", *named]),
            ("compare", compare, [*sides, *named, "--out", f"{made}/c.png"]),
            ("plan", run.main, ["tiny", *named]),
            ("export", export.main, ["tiny", *named, "--best", "auroc_joint", "--out", f"{made}/m.safetensors"]),
            ("rm", rm.main, ["tiny:digits", *named]),
            ("merge", merge.main, [str(copy), f"{made}/target"]),
        ):
            files_module.say_once.cache_clear()
            with contextlib.redirect_stderr(io.StringIO()) as error:
                assert main(arguments) in (0, 2, 3), command  # 3: `rm` is not confirmed
            errors[command] = error.getvalue()
        for read in (load, load_history, load_runs):
            in_one_line(read, "tiny", copy)
        in_one_line(publish.write, Files(copy), "tiny")
        in_one_line(list_of_sweeps, Files(copy))
        try:
            parse_file(str(path.parent.relative_to(copy)), path.read_bytes())
        except DamagedError:
            assert kind == "request" or not (Path(made) / "target/trials").exists()
            if kind == "rows":
                named_by = {command for command in errors if f"{path.name}' is damaged" in errors[command]}
                assert named_by >= {"list", "best", "table", "plan", "export", "merge"}
                assert len(load("tiny", copy)) == 2


SECRET = b"SECRET KEY"


def synthetic(folder: Path) -> Store:
    """A store with a file of each kind that a sweep has there."""
    store, files = Store(folder), Files(folder)
    store.prepare("grid", COLUMNS)
    for trial in "ab":
        store.write("grid", f"c{trial}", [row(trial)], COLUMNS)
        store.write_history("grid", f"c{trial}", [(trial, 1, "auroc", 0.9)])
        files.write(path := model_path("grid", trial), model(path.encode()))
        files.write(sample_grid_path("grid", trial, "samples.png"), b"grid")
    identity = {"trial_id": "a", "dataset": "d", "image_digest": None, "weights": "w"}
    write_evaluations(files, "grid", "d", "", [{**identity, "knn": 0.5}])
    write_request(files, "grid", RequestRows("digits", "digits", ["a", "b"], ["s"]))
    for path in (
        *(checkpoint_path("grid", "c"), f"{leases_folder('grid')}/x.json", best_models_path("grid/digits")),
        *(interim_path("grid", "digits"), f"{page_figures_folder('grid')}/digits.json", class_names_path("grid", "d")),
        *(cut_path("grid", "p"), study_path("grid", "s"), report_path("grid"), summary_path("grid")),
        *(f"{halved_folder('grid')}/c", f"{ARCHIVES}/20260101T000000.000000Z/{trials_folder('grid')}/c.parquet"),
    ):
        files.write(path, b"[]")
    return store


def places(folder: Path) -> list[str]:
    """Every file and folder of a store but its root."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def each_place() -> st.SearchStrategy[str]:
    with tempfile.TemporaryDirectory() as made:
        synthetic(Path(made))
        return st.sampled_from(places(Path(made)))


def put(kind: str, path: Path, outside: Path) -> None:
    """Put something else in the place of a file or a folder, which comes to `outside`."""
    path.rename(outside)
    if outside.is_file():
        outside.write_bytes(SECRET)
    if kind == "link":
        path.symlink_to(outside)
    elif kind == "loop":
        path.symlink_to(".")
    elif kind == "dangling":
        path.symlink_to("nowhere")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(os.path.relpath(path))


def content(folder: Path) -> dict[str, bytes | None]:
    return {place: (folder / place).read_bytes() if (folder / place).is_file() else None for place in places(folder)}


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    place=st.deferred(each_place),
    kind=st.sampled_from(["link", "loop", "dangling", "pipe", "socket"]),
    more=st.booleans(),
)
def test_nothing_below_the_root_but_files_and_folders_is_followed_read_or_written(
    place: str, kind: str, more: bool
) -> None:
    """Of the store itself and of `more` links to their own folder."""
    with tempfile.TemporaryDirectory() as made, pytest.MonkeyPatch.context() as patched:
        folder, target, outside = (Path(made) / name for name in ("store", "target", "outside"))
        patched.chdir(made)
        store = synthetic(folder)
        put(kind, folder / place, outside)
        for link in (folder / f"sheets/l{number}" for number in range(2 * more)):
            if link.parent.is_dir() and not link.parent.is_symlink():
                link.symlink_to(".")
        before = content(outside.parent) if outside.is_dir() else {}
        before = {name: data for name, data in before.items() if name.startswith("outside")}
        root = Path(made) / "root"
        root.symlink_to(folder)  # which may be a link
        assert list_command.main([str(root)]) in (0, 2)
        assert merge.main([str(root), str(target)]) in (0, 2)
        for path in (target / each for each in places(target)):
            assert not path.is_symlink() and not (path.is_file() and SECRET in path.read_bytes())
        if kind in ("link", "loop") and outside.is_dir():
            own = (path for paths in sweep_folders("grid").values() for path in paths)
            refused = place in FOLDERS or any(f"{path}/".startswith(f"{place}/") for path in own)  # or above one
            with pytest.raises(StoreError, match="is a link") if refused else contextlib.nullcontext():
                store.prepare("grid", COLUMNS)
        in_one_line(store.write, "grid", "cc", [row("c")], COLUMNS)
        in_one_line(store.write_history, "grid", "cc", [("c", 1, "auroc", 0.9)])
        assert rm.main(["grid", "--yes", "--store", str(root)]) in (0, 2)
        after = content(outside.parent) if outside.is_dir() else {}
        assert {name: data for name, data in after.items() if name.startswith("outside")} == before
        assert not outside.is_file() or outside.read_bytes() == SECRET


def test_files_whose_columns_do_not_fit_together_are_named_by_every_reader(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, kind in (("a", float), ("b", str)):
        row = {"trial_id": name, "status": "finished", "beta": kind("0.5")}
        Store(tmp_path).write("grid", name, [row], Columns({"beta": kind}, ()))
    law = "holds rows of sweep 'grid' in another schema: 'b.parquet': column 'beta' must have one type"
    for read in (lambda: load("grid", tmp_path), lambda: StoreReader(tmp_path).statuses("grid")):
        with pytest.raises(StoreError, match=law):
            read()
    assert list_command.main([str(tmp_path)]) == 0
    assert "column 'beta' must have one type" in "".join(capsys.readouterr())
