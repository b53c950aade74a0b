import errno
import os
import pickle
import signal
import time
from pathlib import Path

import pytest

from sweeper.errors import StoreError
from sweeper.storage.io import local_disk as disk
from sweeper.storage.io.files import Files
from sweeper.storage.io.local_disk import STALE_SECONDS
from sweeper.storage.io.retry import RetryPolicy
from sweeper.storage.parquet_folder import contents_of


def test_absent_is_none_and_written_reads_back(tmp_path):
    files = Files(tmp_path / "new" / "store")
    assert files.read("a/b.bin") is None
    files.write("a/b.bin", b"one")
    files.write("a/b.bin", b"two")
    assert files.read("a/b.bin") == b"two"
    files.delete("a/b.bin")
    files.delete("a/b.bin")
    assert files.read("a/b.bin") is None


def test_a_folder_that_is_made_while_it_is_listed_is_as_good_as_empty(tmp_path, monkeypatch):
    """PyArrow then lists a missing folder, checks whether it is missing, finds it, and raises FileNotFoundError."""

    class Late:
        def get_file_info(self, selector):
            assert selector.allow_not_found
            raise FileNotFoundError(errno.ENOENT, f"Cannot list directory '{selector.base_dir}'")

    monkeypatch.setattr(Files, "_at", lambda self, path: (Late(), str(tmp_path / path)))
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


def test_a_folder_goes_with_all_that_is_in_it(tmp_path):
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
def test_others_are_told_where_to_find_a_file(uri, address):
    assert Files(uri).address("a/b") == address


def test_a_relative_folder_survives_another_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    files = Files("results")
    files.write("x", b"1")
    monkeypatch.chdir("/")
    assert pickle.loads(pickle.dumps(files)).read("x") == b"1"


def test_check_writable_leaves_nothing(tmp_path):
    Files(tmp_path).check_writable()
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_place_of_the_folder(tmp_path):
    (tmp_path / "store").write_text("no folder")
    with pytest.raises(StoreError, match=r"store .*store: cannot write .*") as caught:
        Files(tmp_path / "store").check_writable()
    assert "\n" not in str(caught.value)
    with pytest.raises(StoreError):
        Files(tmp_path / "store" / "deeper").check_writable()


@pytest.mark.parametrize("uri", ["nosuch://bucket/x", "s3://"])
def test_an_address_that_is_none(uri):
    with pytest.raises(StoreError, match="cannot be opened"):
        Files(uri).check_writable()


def test_a_full_disk_keeps_the_old_file_and_leaves_no_other(tmp_path, monkeypatch):
    files = Files(tmp_path)
    files.write("x", b"old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="cannot write 'x': No space left on device"):
        files.write("x", b"new")
    assert files.read("x") == b"old" and os.listdir(tmp_path) == ["x"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_disk_that_is_full_indeed(tmp_path, monkeypatch):
    """The write itself fails, as opposed to a patched function."""
    files = Files(tmp_path)
    plain = Path.open
    monkeypatch.setattr(Path, "open", lambda path, mode: plain(Path("/dev/full"), "wb"))
    with pytest.raises(StoreError, match="No space left on device"):
        files.write("x", b"new")
    assert files.list() == []


def test_tidy_removes_only_what_is_stale(tmp_path):
    files = Files(tmp_path)
    files.write("a/keep.parquet", b"")
    for name, age in ((".old.1.tmp", STALE_SECONDS + 60), (".young.2.tmp", 0.0)):
        (tmp_path / "a" / name).write_bytes(b"half")
        os.utime(tmp_path / "a" / name, (time.time() - age,) * 2)
    files.tidy()
    assert sorted(os.listdir(tmp_path / "a")) == [".young.2.tmp", "keep.parquet"]


def test_free_bytes_of_a_folder_that_is_not_there_yet(tmp_path):
    assert (Files(tmp_path / "a" / "b").free_bytes() or 0) > 0


def test_credentials_are_not_shown():
    files = Files("s3://KEY:SECRET@bucket/store?endpoint_override=localhost%3A1&scheme=http")
    assert files.shown == "s3://bucket/store?endpoint_override=localhost%3A1&scheme=http"
    assert "SECRET" not in repr(files)


SOON = RetryPolicy(5.0, first_wait=0.001)


def test_what_fails_for_a_while_is_waited_for_and_said_once(tmp_path, monkeypatch):
    said, left = list[str](), [errno.ENOSPC, errno.EIO, errno.ESTALE]
    files, sync = Files(tmp_path).patient(SOON, said.append), os.fsync

    def full(number: int) -> None:
        if left:
            raise OSError(left[0], os.strerror(left.pop(0)))
        sync(number)

    monkeypatch.setattr(os, "fsync", full)
    files.write("x", b"new")
    assert files.read("x") == b"new" and os.listdir(tmp_path) == ["x"] and not left
    waits, goes_on = said
    assert waits.endswith("cannot write 'x': No space left on device; trying again for 5 s")
    assert goes_on == f"store {tmp_path} works again, after 0 s"


@pytest.mark.parametrize("act", [lambda files: files.write("x", b""), lambda files: contents_of(files, "folder")])
def test_an_interrupt_ends_the_wait_at_once(tmp_path, monkeypatch, act):
    def refuse(*_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.05)  # it fires while the next attempt is waited for
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/x.parquet").write_bytes(b"")
    monkeypatch.setattr(os, "fsync", refuse)
    monkeypatch.setattr(Path, "read_bytes", refuse)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            act(Files(tmp_path, RetryPolicy(60.0)))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def test_what_cannot_pass_is_an_error_at_once(tmp_path):
    said = list[str]()
    (tmp_path / "a").write_text("no folder")
    with pytest.raises(StoreError, match=r"File exists|Not a directory"):
        Files(tmp_path).patient(RetryPolicy(60.0), said.append).write("a/b", b"")
    assert said == []


def test_patience_goes_to_a_worker_and_what_listens_stays(tmp_path):
    files = pickle.loads(pickle.dumps(Files(tmp_path).patient(SOON, lambda line: None)))
    assert files.patience == SOON
    files.write("x", b"1")


def test_only_what_was_read_is_deleted(tmp_path):
    """What another writer has put there since stays, possibly under a new name."""
    files = Files(tmp_path)
    for name in ("same", "gone", "other"):
        files.write(f"a/{name}.parquet", b"read")
    files.delete("a/gone.parquet")
    files.write("a/other.parquet", b"written since")
    for name in ("same", "gone", "other"):
        files.delete_same(f"a/{name}.parquet", b"read")
    (left,) = files.list("a")
    assert files.read(f"a/{left}") == b"written since" and left.startswith("other-") and left.endswith(".parquet")


def test_what_a_killed_writer_set_aside_comes_back(tmp_path, monkeypatch):
    files = Files(tmp_path)
    files.write("a/c0.parquet", b"rows")
    with monkeypatch.context() as patch:
        for name in ("read_bytes", "unlink"):
            patch.setattr(Path, name, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        patch.setattr(disk, "_bring_back", lambda _: None)
        with pytest.raises(KeyboardInterrupt):
            files.delete_same("a/c0.parquet", b"rows")
    files.tidy()
    assert files.list("a") == []
    monkeypatch.setattr(disk, "STALE_SECONDS", -1.0)
    files.tidy()
    (back,) = files.list("a")
    assert files.read(f"a/{back}") == b"rows" and back.startswith("c0-") and back.endswith(".parquet")
