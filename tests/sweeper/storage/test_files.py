"""Files of a store, on a local disk and at a URI, and the JSON records among them."""

import errno
import os
import pickle
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest

from sweeper.errors import StoreError
from sweeper.storage import local_disk
from sweeper.storage.files import Files, read_record
from sweeper.storage.parquet_files import contents_of
from sweeper.storage.retry import RetryPolicy
from trainables.json_input import PositiveCount


def test_an_absent_file_is_none_and_a_written_one_is_read_back(tmp_path):
    files = Files(tmp_path / "new" / "store")
    assert files.read("a/b.bin") is None
    files.write("a/b.bin", b"one")
    files.write("a/b.bin", b"two")
    assert files.read("a/b.bin") == b"two"
    files.delete("a/b.bin")
    files.delete("a/b.bin")
    assert files.read("a/b.bin") is None


def test_a_folder_that_is_created_while_it_is_listed_counts_as_empty(tmp_path, monkeypatch):
    """PyArrow then lists a missing folder, checks whether it is missing, finds it, and raises FileNotFoundError."""

    class Late:
        def get_file_info(self, selector):
            assert selector.allow_not_found
            raise FileNotFoundError(errno.ENOENT, f"Cannot list directory '{selector.base_dir}'")

    monkeypatch.setattr(Files, "_resolve", lambda self, path: (Late(), str(tmp_path / path)))
    assert Files(tmp_path).list("new") == []


def test_list_is_sorted_and_hides_hidden(tmp_path):
    files = Files(tmp_path)
    assert files.list("nowhere") == []
    for name in ("b", "a", ".c", "_d"):
        files.write(name, b"")
    files.write("folder/x", b"")
    assert files.list() == ["a", "b", "folder"]


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/etc/passwd", "a\\..\\x", "x\0"])
def test_a_name_cannot_leave_the_folder(tmp_path, path):
    files = Files(tmp_path / "store")
    for act in (files.read, files.delete, files.list, lambda p: files.write(p, b""), lambda p: files.move(p, "y")):
        with pytest.raises(ValueError, match="relative"):
            act(path)
    assert not list(tmp_path.iterdir())


def test_move_a_folder(tmp_path):
    files = Files(tmp_path)
    files.write("a/b/c", b"1")
    assert files.move("a", "_old/z/a")
    assert files.read("_old/z/a/b/c") == b"1" and files.read("a/b/c") is None
    assert not files.move("a", "_old/y")


def test_a_folder_is_deleted_with_its_content(tmp_path):
    files = Files(tmp_path)
    files.write("a/b/c", b"1")
    files.write("a/d", b"2")
    files.delete_folder("a/b")
    files.delete_folder("a/b")
    assert files.list("a") == ["d"] and files.read("a/d") == b"2"


@pytest.mark.parametrize(
    ("uri", "address"),
    [
        ("/store/", "/store/a/b"),
        ("s3://key:word@bucket/x?scheme=http&region=r", "s3://key:word@bucket/x/a/b?scheme=http&region=r"),
        ("file:///store", "file:///store/a/b"),
    ],
)
def test_a_file_has_a_uri_for_other_readers(uri, address):
    assert Files(uri).uri_of("a/b") == address


def test_a_relative_folder_survives_another_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = Files("results")
    files.write("x", b"1")
    monkeypatch.chdir("/")
    assert pickle.loads(pickle.dumps(files)).read("x") == b"1"


def test_credentials_are_not_shown():
    files = Files("s3://KEY:SECRET@bucket/store?endpoint_override=localhost%3A1&scheme=http")
    assert files.display_uri == "s3://bucket/store?endpoint_override=localhost%3A1&scheme=http"
    assert "SECRET" not in repr(files)


SOON = RetryPolicy(5.0, first_wait=0.001)


def test_a_transient_failure_is_waited_for_and_reported_once(tmp_path, monkeypatch):
    lines, left = list[str](), [errno.ENOSPC, errno.EIO, errno.ESTALE]
    files, sync = Files(tmp_path).with_retries(SOON, lines.append), os.fsync

    def full(number: int) -> None:
        if left:
            raise OSError(left[0], os.strerror(left.pop(0)))
        sync(number)

    monkeypatch.setattr(os, "fsync", full)
    files.write("x", b"new")
    assert files.read("x") == b"new" and os.listdir(tmp_path) == ["x"] and not left
    waits, goes_on = lines
    assert waits.endswith("cannot write 'x': No space left on device; trying again for 5 s")
    assert goes_on == f"store {tmp_path} works again, after 0 s"


@pytest.mark.parametrize("act", [lambda files: files.write("x", b""), lambda files: contents_of(files, "folder")])
def test_an_interrupt_ends_the_wait_at_once(tmp_path, monkeypatch, act):
    def refuse(*_: object, **__: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.05)  # it fires while the next attempt is waited for
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/x.parquet").write_bytes(b"")
    monkeypatch.setattr(os, "fsync", refuse)
    monkeypatch.setattr(local_disk, "read", refuse)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            act(Files(tmp_path, RetryPolicy(60.0)))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def test_a_permanent_failure_is_an_error_at_once(tmp_path):
    lines = list[str]()
    (tmp_path / "a").write_text("no folder")
    with pytest.raises(StoreError, match=r"File exists|Not a directory"):
        Files(tmp_path).with_retries(RetryPolicy(60.0), lines.append).write("a/b", b"")
    assert lines == []


def test_pickled_files_keep_the_retry_policy_and_drop_the_callback(tmp_path):
    files = pickle.loads(pickle.dumps(Files(tmp_path).with_retries(SOON, lambda line: None)))
    assert files.retry_policy == SOON
    files.write("x", b"1")


@dataclass(frozen=True)
class Counted:
    count: PositiveCount


def test_a_damaged_file_counts_as_absent_and_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = Files(tmp_path)
    files.write("sound.json", b'{"count": 3}')
    files.write("damaged.json", b'{"count": ')
    files.write("invalid.json", b'{"count": -3}')
    (tmp_path / "folder.json").mkdir()
    os.mkfifo(tmp_path / "pipe.json")
    names = ("sound", "damaged", "invalid", "folder", "pipe", "missing")
    assert [read_record(files, f"{name}.json", Counted) for name in names] == [Counted(3), *[None] * 5]
    lines = capsys.readouterr().err.splitlines()
    assert [line.split("'")[1] for line in lines] == [f"{name}.json" for name in names[1:-1]]
    assert "count must be at least 1" in lines[1] and "a folder" in lines[2] and "a named pipe" in lines[3]


def test_only_files_and_folders_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.json").write_text("1")
    (tmp_path / "b.json").mkdir()
    os.mkfifo(tmp_path / "c.json")
    assert Files(tmp_path).list() == ["a.json", "b.json"] and Files(tmp_path).list_files("", ".json") == ["a.json"]
    assert [name in capsys.readouterr().err for name in ("b.json' must be a file",)] == [True]
