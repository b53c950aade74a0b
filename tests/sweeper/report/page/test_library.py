import gzip
import hashlib
from pathlib import Path

import pytest

from sweeper.report.page import document as module
from sweeper.report.page.document import compressed_library
from trainables.cache import cache_folder

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
