import gzip
import re
from pathlib import Path

import pandas as pd
import pytest

from sweeper.report.page import document, publish
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
    assert (
        '<th scope="row">other</th><td>a grid of &lt;b&gt;three&lt;/b&gt; axes</td><td class="number">17</td>' in index
    )
    assert '<a href="other.html">' in publish.index(store.files).decode()


def test_what_is_no_sweep_of_ours_does_not_hide_the_others(tmp_path: Path) -> None:
    store = fill(tmp_path)
    (tmp_path / "trials/sweep=<i>name").mkdir(parents=True)
    (tmp_path / "trials/sweep=foreign").mkdir(parents=True)
    pd.DataFrame({"trial_id": ["a"], "status": ["<i>"]}).to_parquet(tmp_path / "trials/sweep=foreign/a.parquet")
    index = publish.index(store.files).decode()
    assert '<a href="grid.html">grid</a>' in index and "<i>" not in index
    assert re.search(r'<th scope="row">.*foreign</a></th><td>.*(another schema|damaged)', index)


def test_the_same_rows_make_the_same_page(tmp_path: Path) -> None:
    store = fill(tmp_path)
    publish.write(store.files, NAME)
    first = (tmp_path / "reports/grid.html").read_bytes()
    publish.write(store.files, NAME)
    assert (tmp_path / "reports/grid.html").read_bytes() == first
