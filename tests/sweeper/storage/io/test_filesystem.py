from pathlib import Path

import pytest
from pyarrow import fs

from sweeper.storage.filesystems import move, open_filesystem


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
