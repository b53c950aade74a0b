import shutil
from types import SimpleNamespace

import pytest

from sweeper.errors import StoreError
from sweeper.storage.files import Files
from sweeper.storage.store import MIN_FREE_BYTES, check_free_space, check_writable


def test_check_writable_leaves_nothing(tmp_path):
    check_writable(Files(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_place_of_the_folder(tmp_path):
    (tmp_path / "store").write_text("no folder")
    with pytest.raises(StoreError, match=r"store .*store: cannot write .*") as caught:
        check_writable(Files(tmp_path / "store"))
    assert "\n" not in str(caught.value)
    with pytest.raises(StoreError):
        check_writable(Files(tmp_path / "store" / "deeper"))


@pytest.mark.parametrize("uri", ["nosuch://bucket/x", "s3://"])
def test_an_address_that_is_none(uri):
    with pytest.raises(StoreError, match="cannot be opened"):
        check_writable(Files(uri))


def test_free_space_is_that_of_the_disk_of_a_folder_that_does_not_exist_yet(tmp_path, monkeypatch):
    files = Files(tmp_path / "a" / "b")
    check_free_space(files)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=MIN_FREE_BYTES - 1))
    with pytest.raises(StoreError, match="must have 64 MiB free, but has 63"):
        check_free_space(files)
