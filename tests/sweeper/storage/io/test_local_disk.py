import errno
import os
import time
from pathlib import Path

import pytest

from sweeper.errors import StoreError
from sweeper.storage import local_disk
from sweeper.storage.files import Files
from sweeper.storage.local_disk import STALE_SECONDS


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
def test_a_write_to_a_full_device_is_an_error(tmp_path, monkeypatch):
    """The write itself fails, as opposed to a patched function."""
    files = Files(tmp_path)
    plain = Path.open
    monkeypatch.setattr(Path, "open", lambda path, mode: plain(Path("/dev/full"), "wb"))
    with pytest.raises(StoreError, match="No space left on device"):
        files.write("x", b"new")
    assert files.list() == []


def test_tidy_removes_stale_files_only(tmp_path):
    files = Files(tmp_path)
    files.write("a/keep.parquet", b"")
    for name, age in (
        (".old.1.tmp", STALE_SECONDS + 60),
        (".young.2.tmp", 0.0),
        (".probe-1", STALE_SECONDS + 60),
        (".probe-2", 0.0),
    ):
        (tmp_path / "a" / name).write_bytes(b"half")
        os.utime(tmp_path / "a" / name, (time.time() - age,) * 2)
    files.clean_up()
    assert sorted(os.listdir(tmp_path / "a")) == [".probe-2", ".young.2.tmp", "keep.parquet"]


def test_a_file_is_deleted_only_as_it_was_read(tmp_path):
    """What another writer has put there since stays, possibly under a new name."""
    files = Files(tmp_path)
    for name in ("same", "gone", "other"):
        files.write(f"a/{name}.parquet", b"read")
    files.delete("a/gone.parquet")
    files.write("a/other.parquet", b"written since")
    for name in ("same", "gone", "other"):
        files.delete_if_unchanged(f"a/{name}.parquet", b"read")
    (left,) = files.list("a")
    assert files.read(f"a/{left}") == b"written since" and left.startswith("other-") and left.endswith(".parquet")


def test_a_file_that_a_killed_writer_set_aside_is_restored(tmp_path, monkeypatch):
    files = Files(tmp_path)
    files.write("a/c0.parquet", b"rows")
    with monkeypatch.context() as patch:
        for name in ("read_bytes", "unlink"):
            patch.setattr(Path, name, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        patch.setattr(local_disk, "_restore", lambda _: None)
        with pytest.raises(KeyboardInterrupt):
            files.delete_if_unchanged("a/c0.parquet", b"rows")
    files.clean_up()
    assert files.list("a") == []
    monkeypatch.setattr(local_disk, "STALE_SECONDS", -1.0)
    files.clean_up()
    (back,) = files.list("a")
    assert files.read(f"a/{back}") == b"rows" and back.startswith("c0-") and back.endswith(".parquet")
