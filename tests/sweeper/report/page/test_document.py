import base64
import gzip
import hashlib
import html
import json
import re
from pathlib import Path

import pytest

from sweeper.report.page import document as pages
from sweeper.report.page.contents import collect
from sweeper.report.page.document import document, page_data, static_document
from tests.sweeper.report.page.stored import NAME, fill

LIBRARY = b'(() => {"use strict";window.vegaEmbed = null;})();'


@pytest.fixture(autouse=True)
def small_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "compressed_library", lambda: gzip.compress(LIBRARY))


def policy(page: str) -> str:
    found = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert found
    return html.unescape(found[1])


def digest(content: bytes) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content).digest()).decode()}'"


def test_only_what_is_in_the_page_may_run(tmp_path: Path) -> None:
    page = document(page_data(collect(fill(tmp_path).files, NAME))).decode()
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    allowed = policy(page)
    assert "unsafe" not in allowed and "default-src 'none'" in allowed and "connect-src 'none'" in allowed
    assert all(digest(content) in allowed for content in (script.encode(), LIBRARY, style.encode()))
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", page.replace("https://vega.github.io/schema", ""))


def test_a_served_page_may_ask_its_server_alone(tmp_path: Path) -> None:
    page = document(page_data(collect(fill(tmp_path).files, NAME)), live=True).decode()
    assert "connect-src 'self'" in policy(page) and 'data-live="live"' in page


def test_rows_are_data_and_their_text_is_never_html(tmp_path: Path) -> None:
    page = document(page_data(collect(fill(tmp_path).files, NAME))).decode()
    assert "attacked" not in page and "<b>three</b>" not in page
    encoded = re.search(r'<script id="report" type="text/plain">(.*?)</script>', page)
    assert encoded and json.loads(gzip.decompress(base64.b64decode(encoded[1])))["count"] == 18


def test_equal_data_have_an_equal_version_and_are_not_made_twice(tmp_path: Path) -> None:
    store = fill(tmp_path)
    data = page_data(collect(store.files, NAME))
    assert page_data(collect(store.files, NAME), data) is data
    store.write_history(NAME, "c1", [("training", 9, "loss", 0.01)])
    newer = page_data(collect(store.files, NAME), data)
    assert newer.version != data.version and newer.report != data.report


def test_the_first_word_of_rows_says_what_they_are(tmp_path: Path) -> None:
    page = document(page_data(collect(fill(tmp_path).files, NAME))).decode()
    assert "Reading the rows: the results of each trial that has ended are one row</p>" in page


def test_a_page_without_scripts_allows_none() -> None:
    page = static_document("index.html", store="s3://bucket", cards="").decode()
    assert "script-src" not in policy(page) and "default-src 'none'" in policy(page)
