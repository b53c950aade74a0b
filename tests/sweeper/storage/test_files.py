"""Files of a store, on a local disk and at a URI, and the JSON records among them.

Addresses of stores, and the filesystems that open them.
"""

import errno
import os
import pickle
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyarrow import fs

from sweeper.errors import DamagedError, StoreError
from sweeper.storage import files as files_module
from sweeper.storage import layout, local_disk
from sweeper.storage.files import MOST_LINES, Files, read_record
from sweeper.storage.filesystems import AddressError, join_address, move, open_filesystem, parse_address
from sweeper.storage.layout import checkpoint_path, history_folder, trials_folder
from sweeper.storage.parquet_files import contents_of
from sweeper.storage.retry import LONG_RETRIES, RetryPolicy
from tests.cases import for_each
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


@for_each("is_local", [True, False])
def test_of_a_large_file_the_start_or_the_end_is_read(is_local: bool, tmp_path, monkeypatch) -> None:
    if not is_local:
        remote = fs.SubTreeFileSystem("/", fs.LocalFileSystem())
        monkeypatch.setattr(files_module, "open_filesystem", lambda uri: (remote, str(tmp_path)))
    files = Files(tmp_path)
    (tmp_path / "log").write_bytes(b"0123456789")
    assert (files.local_folder is not None) == is_local
    assert (files.read_start("log", 3), files.read_end("log", 3)) == (b"012", b"789")
    assert files.read_end("log", 10) == files.read_end("log", 99) == b"0123456789" and files.read_end("none", 3) is None
    with pytest.raises(DamagedError, match="it must have at most"):
        files.read("log", 9)


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


def test_files_with_other_retries_use_the_same_connection(tmp_path, monkeypatch) -> None:
    opened: list[str] = []

    def opens(uri: str) -> tuple[fs.FileSystem, str]:
        opened.append(uri)
        return open_filesystem(uri)

    monkeypatch.setattr(files_module, "open_filesystem", opens)
    files = Files(tmp_path)
    assert files.list() == files.with_retries(LONG_RETRIES).list() == []
    assert len(opened) == 1


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
    assert "count: must be int >= 1" in lines[1] and "a folder" in lines[2] and "a named pipe" in lines[3]


def test_only_files_and_folders_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.json").write_text("1")
    (tmp_path / "b.json").mkdir()
    os.mkfifo(tmp_path / "c.json")
    assert Files(tmp_path).list() == ["a.json", "b.json"] and Files(tmp_path).list_files("", ".json") == ["a.json"]
    assert [name in capsys.readouterr().err for name in ("b.json' must be a file",)] == [True]


def test_of_many_files_that_are_left_out_the_first_are_named_and_the_others_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(100):
        (tmp_path / f"{number:02}.json").symlink_to(".")
    for _ in range(2):
        assert Files(tmp_path).list() == [] and Files(tmp_path).sizes() == {}
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == MOST_LINES + 1 and "'00.json' must be a file or a folder, but is a link" in lines[0]
    assert lines[-1] == "... and 95 more lines like the last one"


def test_of_many_damaged_records_the_first_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(100):
        (tmp_path / f"{number}.json").write_text("{")
        for _ in range(2):
            assert read_record(Files(tmp_path), f"{number}.json", Counted) is None
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == MOST_LINES + 1 and "'0.json' is damaged" in lines[0] and "has more such files" in lines[-1]


@for_each("place", ["link", "link/below"])
def test_a_store_that_is_a_link_to_nowhere_is_named(place: str, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    law = f"store {tmp_path}/{place} cannot be opened: .*is a link to 'nowhere', which does not exist"
    for act in (Files.list, Files.sizes, lambda files: files.write("x", b"")):
        with pytest.raises(StoreError, match=law):
            act(Files(tmp_path / place))
    (tmp_path / "nowhere").mkdir()
    Files(tmp_path / place).write("x", b"1")
    assert Files(tmp_path / place).read("x") == b"1"


def test_a_store_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for act in (Files.list, Files.sizes, lambda files: files.write("x", b"")):
        with pytest.raises(StoreError, match=r"cannot be opened: it must be a folder, but is a file$"):
            act(Files(tmp_path / "file"))


@for_each("name", ["", "_x", ".x", "a/b", "../a", "a b"])
@for_each("path_of", [trials_folder, history_folder, lambda name: checkpoint_path("grid", name)])
def test_a_name_that_readers_would_not_see_is_refused(path_of, name):
    with pytest.raises(ValueError, match="a name in the store"):
        path_of(name)


def test_a_checkpoint_is_named_by_its_cohort():
    assert checkpoint_path("grid", "c0") == "checkpoints/sweep=grid/c0.pt"


def test_a_request_has_a_file_name_that_every_file_system_takes() -> None:
    assert layout.file_name("digits, epochs=5 nu=0.5,inf") == "digits, epochs=5 nu=0.5,inf"
    odd = [layout.file_name(f"digits, terms={text}") for text in ("a/b:c*", "a\\b:c*")]
    assert all("/" not in name and ":" not in name and "*" not in name for name in odd) and odd[0] != odd[1]
    many = [layout.file_name(f"digits, seed={','.join(map(str, range(count)))}") for count in (200, 201)]
    assert many[0] != many[1] and all(len(name) < 140 for name in many)


@for_each(
    ("text", "law"),
    [
        ("s3:/typo", r"a store must be a folder or a URI with ://, but got 's3:/typo'; write s3://\.\.\."),
        ("s3:x", r"or './s3:x' for a folder of that name"),
        ("S3:x", r"write s3://\.\.\."),
        ("results:1/x", "a store must be a folder or a URI"),
        ("foo://x", "must begin with one of file, s3, gs, gcs, abfs, abfss, hdfs, viewfs, but got foo://"),
        ("http://x", "but got http://"),
        ("s3:KEY:PASS/WORD@bucket/x", "but got 's3:bucket/x'"),
        ("a\0b", "must not contain NUL"),
        ("a\udcff", "must be valid UTF-8"),
    ],
)
def test_an_address_that_is_neither_a_folder_nor_a_uri_is_refused(
    text: str, law: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AddressError, match=law):
        parse_address(text)
    with pytest.raises(StoreError, match="cannot be opened") as refused:
        Files(text)
    assert "WORD" not in str(refused.value)
    assert os.listdir(tmp_path) == []


def test_a_folder_is_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/x")
    assert parse_address("a/../b") == str(tmp_path / "b") and parse_address("~/s") == "/home/x/s"
    assert parse_address("./s3:x") == str(tmp_path / "s3:x")
    for uri in ("s3://bucket/x?region=r", "gs://b", "file:///x"):
        assert parse_address(uri) == uri


@for_each("name", ["what?", "a?b=c", "50%", "a@b", "x://y", "ä ö", "a#b"])
def test_a_folder_of_any_name_is_used_and_shown_whole(name: str, tmp_path: Path) -> None:
    files = Files(tmp_path / name)
    files.write("a/b", b"1")
    assert (tmp_path / name / "a/b").read_bytes() == b"1" and files.list("a") == ["b"] and files.read("a/b") == b"1"
    assert files.display_uri == str(tmp_path / name) and files.display_uri_of("a/b") == str(tmp_path / name / "a/b")


def test_options_stay_at_the_end() -> None:
    assert join_address("s3://b/x?region=r", "t/y") == "s3://b/x/t/y?region=r"
    assert join_address("/a?b", "t") == "/a?b/t"


def test_a_secret_is_in_no_error() -> None:
    with pytest.raises(StoreError) as caught:
        Files("s3://KEY:SEC/RET@bucket/x?nonsense=SECRET").list()
    for error in (caught.value, caught.value.__cause__):  # a traceback shows both
        assert not any(word in str(error) for word in ("KEY", "SEC/", "RET@", "SECRET")), error


@pytest.fixture(params=["local", "other"])
def filesystem(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[fs.FileSystem, str]:
    """A filesystem and a folder in it. The second one is not taken for a local one, like an object store."""
    if request.param == "local":
        return fs.LocalFileSystem(), str(tmp_path)
    return fs.SubTreeFileSystem("/", fs.LocalFileSystem()), str(tmp_path)


@pytest.mark.parametrize("uri", ["/a b/store", "file:///store"])
def test_a_folder_and_a_file_uri_are_local(uri: str) -> None:
    filesystem, root = open_filesystem(uri)
    assert isinstance(filesystem, fs.LocalFileSystem) and root == uri.removeprefix("file://")


def test_a_bucket_on_s3_is_opened_with_the_options_of_its_uri() -> None:
    for option in ("", "&allow_delayed_open=false"):
        filesystem, root = open_filesystem(f"s3://key:word@bucket/x?region=eu-west-1{option}")
        assert isinstance(filesystem, fs.S3FileSystem) and filesystem.region == "eu-west-1" and root == "bucket/x"


def test_a_file_is_moved(filesystem: tuple[fs.FileSystem, str], tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    assert move(filesystem[0], f"{filesystem[1]}/a", f"{filesystem[1]}/b")
    assert (tmp_path / "b").read_bytes() == b"1" and not (tmp_path / "a").exists()


def test_an_absent_file_is_not_moved(filesystem: tuple[fs.FileSystem, str], tmp_path: Path) -> None:
    assert not move(filesystem[0], f"{filesystem[1]}/a", f"{filesystem[1]}/b")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_moved_with_its_content(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/c").write_bytes(b"1")
    assert move(fs.LocalFileSystem(), f"{tmp_path}/a", f"{tmp_path}/x/y")
    assert (tmp_path / "x/y/b/c").read_bytes() == b"1" and not (tmp_path / "a").exists()
