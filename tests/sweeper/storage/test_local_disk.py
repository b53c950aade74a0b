"""Files on a local disk, and the identity of a store's folder."""

import errno
import os
import pickle
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sweeper.errors import StoreError
from sweeper.storage import local_disk
from sweeper.storage.files import Files
from sweeper.storage.local_disk import MARKER, StoreIdentity
from sweeper.storage.retry import RetryPolicy
from sweeper.storage.store import Store, check_writable
from tests.sweeper.storage.rows import COLUMNS, row


def test_a_full_disk_keeps_the_old_file_and_leaves_no_other(tmp_path, monkeypatch):
    files = Files(tmp_path)
    files.write("x", b"old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="cannot write 'x': No space left on device"):
        files.write("x", b"new")
    assert files.read("x") == b"old" and os.listdir(tmp_path) == ["x"]


def test_when_a_write_returns_the_disk_has_the_file_and_its_name(tmp_path, monkeypatch):
    fsync, rename, done = os.fsync, os.replace, []

    def synced(descriptor: int) -> None:
        done.append(os.readlink(f"/proc/self/fd/{descriptor}").removeprefix(f"{tmp_path}"))
        fsync(descriptor)

    def renamed(old: Path, new: Path) -> None:
        done.append("rename")
        rename(old, new)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    Files(tmp_path).write("a/b/x", b"new")
    content, *names = done
    assert content.startswith("/a/b/.x.") and names == ["rename", "/a/b", "/a", ""]
    done.clear()
    Files(tmp_path).write("a/b/x", b"newer")
    assert done[1:] == ["rename", "/a/b"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_write_to_a_full_device_is_an_error(tmp_path, monkeypatch):
    """The write itself fails, as opposed to a patched function."""
    files = Files(tmp_path)
    plain = Path.open
    monkeypatch.setattr(Path, "open", lambda path, mode: plain(Path("/dev/full"), "wb"))
    with pytest.raises(StoreError, match="No space left on device"):
        files.write("x", b"new")
    assert files.list() == []


def test_tidy_removes_stale_files_only(tmp_path, monkeypatch):
    files, unique, folder = Files(tmp_path), "0123456789abcdef" * 2, tmp_path / "a"
    stale = [f".old.{unique}.tmp", f".write-check-{unique}"]
    young = [f".young.{unique}.tmp", f".write-check-{unique[::-1]}"]
    foreign = [".x.tmp", ".write-check-x", ".foo.aside", f".{unique}.aside", f"..{unique}.aside", ".b.1.tmp"]
    folders = [f".f.{unique}.tmp", f".f.{unique}.aside", f".write-check-{'f' * 32}", f"g-{unique}.x"]
    for name in folders:
        (folder / name / "kept").mkdir(parents=True)
    for name in (*stale, *young, *foreign, f".g.x.{unique}.aside"):
        (folder / name).write_bytes(b"half")
    (folder / f".link.{unique}.tmp").symlink_to("nowhere")
    left = {*os.listdir(folder)}.difference(stale)
    for name in left.difference(young, [f".link.{unique}.tmp"]).union(stale):
        os.utime(folder / name, (1, 1))
    files.clean_up()
    assert {*os.listdir(folder)} == left
    monkeypatch.setattr(local_disk, "STALE_SECONDS", -1.0)
    files.clean_up()
    assert {*os.listdir(folder)} == left.difference(young)


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


def test_a_file_that_a_killed_writer_moved_is_restored(tmp_path, monkeypatch):
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


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "store")
    store.prepare("grid", COLUMNS)
    return store


@pytest.mark.parametrize("replaced", [False, True])
def test_nothing_is_written_where_the_folder_was(store: Store, tmp_path: Path, replaced: bool) -> None:
    store.write("grid", "c0", [row("a")], COLUMNS)
    (tmp_path / "store").rename(tmp_path / "away")
    if replaced:
        (tmp_path / "store").mkdir()
    files = store.files
    for act in (
        lambda: store.write("grid", "c1", [row("b")], COLUMNS),
        lambda: files.write("x", b""),
        lambda: files.read("x"),
        lambda: files.list("trials"),
        lambda: files.delete("x"),
        lambda: files.move("trials", "y"),
        lambda: Store(files).statuses("grid"),
        lambda: store.prepare("grid", COLUMNS),
    ):
        with pytest.raises(StoreError, match=r"(folder is gone|another folder is in its place) \(was its file system"):
            act()
    assert not replaced or os.listdir(tmp_path / "store") == []
    assert replaced or not (tmp_path / "store").exists()


def test_another_store_in_its_place_is_not_used(store: Store, tmp_path: Path) -> None:
    (tmp_path / "store").rename(tmp_path / "away")
    other = Store(tmp_path / "store")
    other.prepare("grid", COLUMNS)
    with pytest.raises(StoreError, match="another store is in its place"):
        store.write("grid", "c0", [row("a")], COLUMNS)
    assert other.statuses("grid") == {}


def test_writing_continues_when_the_folder_is_back(tmp_path: Path) -> None:
    """The folder comes back as a copy: it has another inode, as after mounting again, but the same marker."""
    lines: list[str] = []
    away = tmp_path / "away"

    def log(line: str) -> None:
        lines.append(line)
        if "trying again" in line:
            subprocess.run(["cp", "-r", away, tmp_path / "store"], check=True)

    store = Store(Files(tmp_path / "store", RetryPolicy(30.0, first_wait=0.001), log))
    store.prepare("grid", COLUMNS)
    store.write("grid", "c0", [row("a")], COLUMNS)
    (tmp_path / "store").rename(away)
    store.write("grid", "c1", [row("b")], COLUMNS)
    assert Store(tmp_path / "store").statuses("grid") == {"a": "finished", "b": "finished"}
    assert "its folder is gone" in lines[0] and "works again" in lines[1] and len(lines) == 2


def test_a_write_during_which_the_folder_vanished_is_an_error(tmp_path: Path) -> None:
    """A lazy unmount happens between the check and the write."""
    root, away = tmp_path / "store", tmp_path / "away"
    root.mkdir()
    identity, calls = StoreIdentity.of(root), list[int]()

    def act() -> str:
        calls.append(1)
        root.rename(away)
        root.mkdir()
        return "done"

    with pytest.raises(OSError, match="gone meanwhile") as caught:
        identity.guard(root, act)
    assert caught.value.errno == errno.ENOTCONN and calls == [1]


def test_a_failure_in_another_folder_is_the_folders(tmp_path: Path) -> None:
    root = tmp_path / "store"
    root.mkdir()

    def act() -> None:
        root.rename(tmp_path / "away")
        raise NotADirectoryError(errno.ENOTDIR, "Not a directory")

    with pytest.raises(OSError, match="gone meanwhile"):
        StoreIdentity.of(root).guard(root, act)


@pytest.mark.parametrize("there", ["nothing", "a folder", "another store"])
def test_a_node_that_does_not_share_the_folder_is_told_at_once(
    store: Store, tmp_path: Path, there: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = pickle.dumps(store.files.with_retries(RetryPolicy(60.0)))
    (tmp_path / "store").rename(tmp_path / "away")
    if there == "a folder":
        (tmp_path / "store").mkdir()
    elif there == "another store":
        Store(tmp_path / "store").prepare("grid", COLUMNS)
    driver = socket.gethostname()
    monkeypatch.setattr(socket, "gethostname", lambda: "node2")
    with pytest.raises(StoreError, match=f"must be on all nodes, but it is on {driver} and not on node2; use a folder"):
        pickle.loads(sent).read("x")


def test_a_pickled_store_refuses_another_folder_in_its_place(store: Store, tmp_path: Path) -> None:
    files: Files = pickle.loads(pickle.dumps(store.files.with_retries(RetryPolicy(0.0))))
    files.write("checkpoints/x", b"1")
    (tmp_path / "store").rename(tmp_path / "away")
    (tmp_path / "store").mkdir()
    fresh: Files = pickle.loads(pickle.dumps(store.files))
    for copy in (files, fresh):
        with pytest.raises(StoreError, match="another folder is in its place"):
            copy.write("checkpoints/x", b"2")


def test_the_marker_is_hidden_and_made_once(store: Store, tmp_path: Path) -> None:
    marker = (tmp_path / "store" / MARKER).read_text()
    assert len(marker) == 32 and store.files.list() == []
    Store(tmp_path / "store").prepare("grid", COLUMNS)
    assert (tmp_path / "store" / MARKER).read_text() == marker
    assert [name for name in os.listdir(tmp_path / "store") if name.endswith(".tmp")] == []


@pytest.mark.parametrize("links", [True, False])
def test_drivers_that_start_together_agree_on_the_marker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    if not links:
        monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(OSError(errno.EPERM, "no links")))
        StoreIdentity.of(tmp_path)
    identities: list[StoreIdentity] = []
    threads = [threading.Thread(target=lambda: identities.append(StoreIdentity.of(tmp_path))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({vars(identity)["_marker"] for identity in identities}) == 1 and len(identities) == 8


def test_a_read_only_store_is_refused_at_once_and_waited_for_later(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class ReadOnly:
        f_flag = os.ST_RDONLY

    monkeypatch.setattr(os, "statvfs", lambda _: ReadOnly)
    with pytest.raises(StoreError, match="cannot write: Read-only file system"):
        check_writable(Files(tmp_path / "store", RetryPolicy(60.0)))
    left, sync = [errno.EROFS] * 3, os.fsync

    def remounted(number: int) -> None:
        if left:
            raise OSError(left[0], os.strerror(left.pop()))
        sync(number)

    monkeypatch.setattr(os, "fsync", remounted)
    Store(store.files.with_retries(RetryPolicy(30.0, first_wait=0.001))).prepare("grid", COLUMNS)
    assert not left


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs, mounted for the test. Skips the test where that is not permitted."""
    folder = tmp_path / "mount"
    folder.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], capture_output=True, text=True)
    if mount.returncode:
        pytest.skip(f"only root can mount a tmpfs: {mount.stderr.strip()}")
    yield folder
    subprocess.run(["umount", folder], capture_output=True)


@pytest.mark.parametrize("deeper", ["", "store"])
def test_an_unmounted_store_leaves_the_disk_beneath_alone(mounted: Path, deeper: str) -> None:
    store = Store(mounted / deeper)
    store.prepare("grid", COLUMNS)
    store.write("grid", "c0", [row("a")], COLUMNS)
    subprocess.run(["umount", mounted], check=True)
    with pytest.raises(StoreError, match="was its file system unmounted"):
        store.write("grid", "c1", [row("b")], COLUMNS)
    assert list(mounted.iterdir()) == []


def test_a_store_that_is_remounted_read_only_is_waited_for(mounted: Path) -> None:
    def log(line: str) -> None:
        if "trying again" in line:
            assert "Read-only file system" in line
            subprocess.run(["mount", "-o", "remount,rw", mounted], check=True)

    store = Store(Files(mounted, RetryPolicy(30.0, first_wait=0.001), log))
    store.prepare("grid", COLUMNS)
    subprocess.run(["mount", "-o", "remount,ro", mounted], check=True)
    store.write("grid", "c0", [row("a")], COLUMNS)
    assert Store(mounted).statuses("grid") == {"a": "finished"}
