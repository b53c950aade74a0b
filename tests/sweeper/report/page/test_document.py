import base64
import gzip
import hashlib
import html
import json
import re
from pathlib import Path

import pytest

from sweeper.report.page import document as module
from sweeper.report.page import document as pages
from sweeper.report.page.contents import collect
from sweeper.report.page.document import compressed_library, document, page_data, static_document
from tests.sweeper.report.page.stored import NAME, fill
from trainables.cache import cache_folder

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
    page = static_document("index.html", "Sweeps", store="s3://bucket", cards="").decode()
    assert "script-src" not in policy(page) and "default-src 'none'" in policy(page)


PLANTED = gzip.compress(b"(() => {fetch('//evil')})();", mtime=0)
LIBRARY = b'(() => {"use strict";const el = 1; window.vegaEmbed = vegaEmbed;})();'


class Bundler:
    """Stands for `vl_convert`, which takes seconds. Counts the bundles that it made."""

    def __init__(self) -> None:
        self.made = 0

    def javascript_bundle(self, snippet: str) -> str:
        self.made += 1
        return f"const el = 1; {snippet}"


@pytest.fixture
def bundler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bundler:
    bundler = Bundler()
    monkeypatch.setitem(__import__("sys").modules, "vl_convert", bundler)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    digest = hashlib.sha256(LIBRARY).hexdigest()
    monkeypatch.setattr(module, "DIGESTS", {module.metadata.version("vl-convert-python"): digest})
    return bundler


def library() -> bytes:
    compressed_library.cache_clear()
    try:
        return gzip.decompress(compressed_library())
    finally:
        compressed_library.cache_clear()


def test_the_names_of_the_library_are_its_own(bundler: Bundler) -> None:
    """Bundles have functions of one or two letters, which as globals would replace those of the page."""
    assert library() == b'(() => {"use strict";const el = 1; window.vegaEmbed = vegaEmbed;})();'


def test_it_is_bundled_once_a_machine(bundler: Bundler) -> None:
    assert library() == library() and bundler.made == 1


@pytest.mark.parametrize("damage", [b"", b"no gzip", gzip.compress(b"half a libr", mtime=0), PLANTED])
def test_a_damaged_cache_is_made_again(bundler: Bundler, damage: bytes) -> None:
    whole = library()
    (cached,) = cache_folder().iterdir()
    cached.write_bytes(damage)
    assert library() == whole and bundler.made == 2


def test_a_folder_that_cannot_be_written_costs_time_only(
    bundler: Bundler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert library().endswith(b"})();")


def test_a_library_of_a_version_that_is_not_known_is_never_taken_from_the_cache(
    bundler: Bundler, monkeypatch: pytest.MonkeyPatch
) -> None:
    library()
    monkeypatch.setattr(module, "DIGESTS", {})
    (cached,) = cache_folder().iterdir()
    cached.write_bytes(PLANTED)
    assert library() == LIBRARY and bundler.made == 2


def test_a_folder_that_others_can_write_is_neither_read_nor_written(
    bundler: Bundler, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tmp_path.chmod(0o777)
    assert library() == library() == LIBRARY and bundler.made == 2 and not list(tmp_path.iterdir())
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2 and said[0].startswith("the chart library of pages is bundled anew in each process: ")
    assert f"but {tmp_path} has mode 0777; use `chmod +t {tmp_path}`" in said[0]
