"""Addresses of stores, and the filesystems that open them."""

import os
from pathlib import Path

import pytest
from pyarrow import fs

from sweeper.errors import StoreError
from sweeper.storage.files import Files
from sweeper.storage.filesystems import AddressError, join_address, move, open_filesystem, parse_address


@pytest.mark.parametrize(
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


@pytest.mark.parametrize("name", ["what?", "a?b=c", "50%", "a@b", "x://y", "ä ö", "a#b"])
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
