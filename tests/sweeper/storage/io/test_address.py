"""Addresses of stores: which are valid, and how they are shown without secrets."""

import os
from pathlib import Path

import pytest

from sweeper.errors import StoreError
from sweeper.storage.files import Files
from sweeper.storage.filesystems import AddressError, join_address, parse_address


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
