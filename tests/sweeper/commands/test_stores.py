"""`sweeper list STORE` and `sweeper rm NAME[:REQUEST]`."""

import contextlib
import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from sweeper.commands import list as list_command
from sweeper.commands import merge, rm
from sweeper.storage import local_disk
from sweeper.storage.layout import model_path, run_log_path
from sweeper.storage.lease import Lease
from sweeper.storage.requests import RequestRows, write_request
from sweeper.storage.store import Store
from tests.cases import for_each
from tests.sweeper.storage.rows import COLUMNS, row


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return filled(tmp_path / "store")


def filled(folder: Path) -> Store:
    store = Store(folder)
    store.prepare("grid", COLUMNS)
    store.write("grid", "c0", [row("a"), row("b", "diverged"), row("c")], COLUMNS)
    for request, own in {"digits": ["a", "b"], "digits, epochs=5": ["b", "c", "new"]}.items():
        write_request(store.files, "grid", RequestRows(request, "digits", own))
    return store


def run(command: str, arguments: Sequence[str]) -> int:
    return {"list": list_command, "rm": rm, "merge": merge}[command].main(arguments)


def test_a_store_is_listed_by_request(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("list", [store.files.uri]) == 0
    first, _, _, *lines = capsys.readouterr().out.splitlines()
    assert first.startswith(f"{store.files.uri}: 1 sweep, 3 rows, ")
    table = [line.split()[:9] for line in lines]
    assert table[0][:6] == ["grid", "3", "2", "1", "2026-01-02", "00:00"]
    assert [*map(" ".join, table[1:])] == [
        "digits, epochs=5 2 of 3 1 1 2026-01-02 00:00",
        "digits 2 of 2 1 1 2026-01-02 00:00",
    ]
    assert run("list", [f"{store.files.uri}/nowhere"]) == 2
    assert "must be a store, but has no rows, models or pictures" in capsys.readouterr().err


@for_each(
    ("path", "command"),
    [
        (path, command)
        for path in ("reports", "heatmaps", "models", "models/sweep=grid", "requests/grid", "reports/grid.html")
        for command in (["rm", "grid", "--yes"], ["rm", "grid:digits", "--yes"], ["merge"])
        if (path, command[1:2]) != ("requests/grid", ["grid:digits"])  # the request is not there
    ],
)
def test_nothing_is_changed_where_a_folder_is_a_link(
    path: str, command: Sequence[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    store = filled(tmp_path / "store")
    store.files.write(model_path("grid", "a"), b"weights")
    store.files.write("reports/grid.html", b"page")
    place = tmp_path / "store" / path
    place.parent.mkdir(exist_ok=True)
    if place.exists():
        place.rename(tmp_path / "moved")
    place.symlink_to(tmp_path / "moved")
    kept = {each: each.is_file() and each.read_bytes() for each in tmp_path.rglob("*")}
    (name, *rest), other = command, filled(tmp_path.parent / f"other{tmp_path.name}")
    places = [other.files.uri, store.files.uri] if name == "merge" else [*rest, "--store", store.files.uri]
    assert run(name, places) == 2
    error = capsys.readouterr().err
    assert f"error: store {store.files.uri}: '{path}' is a link" in error
    assert {each: each.is_file() and each.read_bytes() for each in tmp_path.rglob("*")} == kept


def test_a_request_is_removed_only_when_it_is_confirmed_and_no_driver_runs(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = ["grid:digits", "--store", store.files.uri]
    assert run("rm", wanted) == 3 and set(store.statuses("grid")) == {"a", "b", "c"}
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith(f"request 'digits' of grid in {store.files.uri}: 1 trials, ")
    assert first.endswith("; 1 trials that other requests have stay") and last == rm.NOT_REMOVED
    lease = Lease(store.files, "grid", "digits")
    lease.open()
    with contextlib.closing(lease):
        assert run("rm", [*wanted, "--yes"]) == 2
    assert "a sweep that is removed must not run, but another driver runs it" in capsys.readouterr().err
    assert run("rm", [*wanted, "--yes"]) == 0 and set(store.statuses("grid")) == {"b", "c"}
    store.files.write(run_log_path("grid", "20260101T000000.000000Z"), b"a line")
    assert run("rm", ["grid", "--store", store.files.uri, "--yes"]) == 0
    assert (
        store.files.list("logs/runs") == []
        and store.statuses("grid") == {}
        and store.files.list("requests") == []
        and not store.files.sizes(".drivers")
    )
    assert run("rm", ["grid", "--store", store.files.uri]) == 2
    assert f"store {store.files.uri}: nothing of sweep 'grid' is there" in capsys.readouterr().err


@for_each("name", ["grid", "grid:digits"])
def test_removing_needs_no_room_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """A disk that takes no byte more than the store has."""
    store = filled(tmp_path / "store")
    for trial in "abc":
        store.files.write(model_path("grid", trial), bytes(10_000))

    def size() -> int:
        return sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())

    capacity, write = size(), local_disk.replace

    def replace(path: Path, data: bytes) -> None:
        if size() + len(data) > capacity:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(path, data)

    monkeypatch.setattr(local_disk, "replace", replace)
    monkeypatch.setenv("SWEEPER_STORE_TIMEOUT", "0")
    assert run("rm", [name, "--store", store.files.uri, "--yes"]) == 0, capsys.readouterr().err
    assert set(store.statuses("grid")) == ({"b", "c"} if ":" in name else set())
    assert [*store.files.list("models/sweep=grid")] == (["b.safetensors", "c.safetensors"] if ":" in name else [])


def test_a_store_is_merged_into_another_but_not_into_itself_or_beside_a_driver(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = Store(tmp_path / "other")
    other.prepare("grid", COLUMNS)
    other.write("grid", "c0", [row("a"), row("c", auroc=0.1)], COLUMNS)
    wanted = [store.files.uri, other.files.uri]
    assert run("merge", [wanted[0], wanted[0]]) == 2
    assert "A and B must be two stores, but both are" in capsys.readouterr().err
    lease = Lease(store.files, "grid", "digits")
    lease.open()
    with contextlib.closing(lease):
        assert run("merge", wanted) == 2 and set(other.statuses("grid")) == {"a", "c"}
    assert "a sweep that is merged must not run, but another driver runs it" in capsys.readouterr().err
    assert run("merge", wanted) == 0 and set(other.statuses("grid")) == {"a", "b", "c"}
    line = "grid: 1 rows added, 1 equal, 1 with another result in B, which stays (c), 0 models added"
    assert capsys.readouterr().out.splitlines()[0] == line
    assert other.files.list("requests/grid") == ["digits, epochs=5.parquet", "digits.parquet"]
