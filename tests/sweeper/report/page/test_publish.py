import gzip
import threading
from pathlib import Path

import pytest

from sweeper.errors import StoreError
from sweeper.report.page import document, publish
from sweeper.report.page.document import PageData
from tests.sweeper.report.page.stored import NAME, fill


@pytest.fixture(autouse=True)
def small_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "compressed_library", lambda: gzip.compress(b"(() => {})();", mtime=0))


def test_a_page_for_the_sweep_and_a_list_of_all_sweeps(tmp_path: Path) -> None:
    store = fill(tmp_path)
    fill(tmp_path, name="other")
    assert publish.write(store.files, NAME) == "reports/grid.html"
    index = (tmp_path / "reports/index.html").read_text()
    assert '<a href="grid.html">grid</a>' in index and "other.html" not in index


def test_the_same_rows_make_the_same_page(tmp_path: Path) -> None:
    store = fill(tmp_path)
    publish.write(store.files, NAME)
    first = (tmp_path / "reports/grid.html").read_bytes()
    publish.write(store.files, NAME)
    assert (tmp_path / "reports/grid.html").read_bytes() == first


def test_a_page_that_comes_late_does_not_replace_a_newer_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, make = fill(tmp_path), publish.document
    old_read, new_written = threading.Event(), threading.Event()

    def slow_document(data: PageData) -> bytes:
        if threading.current_thread() is thread:
            old_read.set()
            assert new_written.wait(20)
        return make(data)

    monkeypatch.setattr(publish, "document", slow_document)
    thread = threading.Thread(target=publish.write, args=(store.files, NAME))
    thread.start()
    assert old_read.wait(20)
    store.write_history(NAME, "c1", [("training", 9, "loss", 0.01)])
    publish.write(store.files, NAME)
    newer = (tmp_path / "reports/grid.html").read_bytes()
    new_written.set()
    thread.join()
    assert (tmp_path / "reports/grid.html").read_bytes() == newer


def test_a_page_that_hangs_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish, "LAST_WAIT", 0.01)
    with publish._writing, pytest.raises(StoreError, match=r"an earlier 'reports/grid.html' is still being written"):
        publish.write(fill(tmp_path).files, NAME)
