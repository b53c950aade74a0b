"""The page of a sweep as one HTML file, which loads nothing: scripts, styles and data are in it.

Data and library are compressed. Its Content-Security-Policy lets only the scripts and the style run that were written
here, by their hashes, and no text of a row is ever interpreted as HTML.
"""

import base64
import functools
import gzip
import hashlib
import html
import json
from dataclasses import dataclass
from importlib import resources
from string import Template
from typing import Any

from sweeper.report.page.contents import Contents
from sweeper.report.page.library import compressed_library

SCRIPTS = (
    *("data.js", "formats.js", "elements.js", "charts.js", "cells.js", "axes.js", "heatmap.js", "trials.js"),
    *("rows.js", "findings.js", "search.js", "page.js"),
)
"""In the order in which they are joined to one script."""


@dataclass(frozen=True)
class PageData:
    """The data of a page, as it has them."""

    name: str
    """The sweep's."""
    report: str
    """The values of `Contents.report` as JSON, compressed, in base64."""
    curves: str
    """The values of `Contents.curves`, compressed, in base64."""
    version: str
    """Equal for equal data."""


def page_data(contents: Contents, known: PageData | None = None) -> PageData:
    """Return the data of a page; `known`, which were returned earlier, if they are the same."""
    report = json.dumps(contents.report, separators=(",", ":"), allow_nan=False).encode()
    version = hashlib.sha256(report + contents.curves).hexdigest()[:16]
    if known and known.version == version:
        return known
    return PageData(str(contents.report["name"]), _compressed(report), _compressed(contents.curves), version)


def document(data: PageData, *, live: bool = False) -> bytes:
    """Return the HTML file. With `live` it asks the server that it comes from for newer data, and no other."""
    library, script, style = compressed_library(), _joined(SCRIPTS), _asset("page.css")
    hashes = " ".join(_hash(text) for text in (script.encode(), gzip.decompress(library)))
    policy = f"default-src 'none'; script-src {hashes}; style-src {_hash(style.encode())}; img-src data:"
    policy += f"; connect-src {chr(39)}{'self' if live else 'none'}{chr(39)}; base-uri 'none'; form-action 'none'"
    page = Template(_asset("page.html")).substitute(
        title=html.escape(data.name),
        policy=html.escape(policy),
        style=style,
        script=script,
        library=base64.b64encode(library).decode(),
        live="live" if live else "",
        report=data.report,
        curves=data.curves,
        version=data.version,
    )
    return page.encode()


def static_document(template: str, **texts: Any) -> bytes:
    """Return an HTML file without scripts. `texts` are HTML already."""
    style = _asset("page.css")
    policy = f"default-src 'none'; style-src {_hash(style.encode())}; base-uri 'none'; form-action 'none'"
    return Template(_asset(template)).substitute(policy=html.escape(policy), style=style, **texts).encode()


def _compressed(content: bytes) -> str:
    return base64.b64encode(gzip.compress(content, 6, mtime=0)).decode()


def _hash(content: bytes) -> str:
    """The source expression of a Content-Security-Policy for an inline script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(content).digest()).decode()}'"


def _joined(names: tuple[str, ...]) -> str:
    return "\n".join(map(_asset, names))


@functools.cache
def _asset(name: str) -> str:
    return (resources.files("sweeper.report.page") / "browser" / name).read_text(encoding="utf-8")
