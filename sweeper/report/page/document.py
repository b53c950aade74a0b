"""The page of a sweep as one HTML file, which loads nothing: scripts, styles, data and chart library are in it.

Data and library are compressed. Its Content-Security-Policy lets only the scripts and the style run that were written
here, by their hashes, and no text of a row is ever interpreted as HTML. The library is Vega-Embed with Vega and
Vega-Lite, bundled by vl-convert and cached on this machine.
"""

import base64
import contextlib
import functools
import gzip
import hashlib
import html
import json
import os
import sys
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata, resources
from pathlib import Path
from string import Template
from typing import Any

from sweeper.printing import LAYOUT, print, printable, printable_values
from sweeper.report import charts, study_charts
from sweeper.report.kinds import KINDS
from sweeper.report.page.contents import Contents
from sweeper.storage import local_disk
from trainables.cache import OpenFolderError, cache_folder, check_closed, make_closed

SCRIPTS = (
    *("data.js", "formats.js", "elements.js", "charts.js", "cells.js", "axes.js", "heatmap.js", "trials.js"),
    *("rows.js", "figures.js", "findings.js", "claims.js", "search.js", "page.js"),
)
"""In the order in which they are joined to one script."""
CLAIMS_SCRIPTS = ("data.js", "formats.js", "elements.js", "claims.js", "claims_page.js")
"""Those of the page of all claims, which has no charts."""
LARGE = 16_000_000
"""Size in bytes from which data, such as all trials of a large sweep, are compressed less, in a fifth of the time."""


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
    report = _json(contents.report)
    version = hashlib.sha256(report + contents.curves).hexdigest()[:16]
    if known and known.version == version:
        return known
    return PageData(str(contents.report["name"]), _compressed(report), _compressed(contents.curves), version)


def document(data: PageData, *, live: bool = False) -> bytes:
    """Return the HTML file. With `live` it asks the server that it comes from for newer data, and no other."""
    library, script = compressed_library(), _joined(SCRIPTS)
    hashes = " ".join(_hash(text) for text in (script.encode(), gzip.decompress(library)))
    policy = f"script-src {hashes}; connect-src {chr(39)}{'self' if live else 'none'}{chr(39)}"
    return _page(
        "page.html",
        data.name,
        policy,
        script=script,
        library=base64.b64encode(library).decode(),
        charts=_charts(),
        live="live" if live else "",
        report=data.report,
        curves=data.curves,
        version=data.version,
    )


def claims_document(report: Mapping[str, Any]) -> bytes:
    """Return the page of all claims as an HTML file, from values for JSON."""
    script = _joined(CLAIMS_SCRIPTS)
    data = _compressed(_json(report))
    return _page("claims.html", "Claims", f"script-src {_hash(script.encode())}", script=script, report=data)


def view_document() -> tuple[bytes, str]:
    """Return the page that a server answers to requests without its token, as an HTML file without any data; and its
    Content-Security-Policy, which allows what the pages need that it shows in its place."""
    script = _asset("view.js")
    texts = [text.encode() for text in (script, _joined(SCRIPTS), _joined(CLAIMS_SCRIPTS))]
    hashes = map(_hash, [*texts, gzip.decompress(compressed_library())])
    policy = f"script-src {' '.join(hashes)}; connect-src 'self'"
    return _page("view.html", "sweeper", policy, script=script), f"{_policy(policy)}; frame-ancestors 'none'"


def static_document(template: str, title: str, **texts: str) -> bytes:
    """Return an HTML file without scripts. `texts` are HTML already."""
    return _page(template, title, "", **{name: printable(text, keep=LAYOUT) for name, text in texts.items()})


def _page(template: str, title: str, policy: str, **texts: Any) -> bytes:
    """Return an HTML file with the shared head, and a body of `texts`. `policy` allows what scripts need."""
    style, allowed = _style(), html.escape(_policy(policy))
    page = Template(_asset("head.html") + _asset(template))
    return page.substitute(policy=allowed, title=printable(html.escape(title)), style=style, **texts).encode()


def _json(values: Mapping[str, Any]) -> bytes:
    """Return values as JSON, in which all text is printable."""
    return json.dumps(printable_values(values, keep=LAYOUT), separators=(",", ":"), allow_nan=False).encode()


def _policy(scripts: str) -> str:
    """The Content-Security-Policy of a page, with what its scripts need."""
    style = f"style-src {_hash(_style().encode())}"
    rules = ["default-src 'none'", scripts, style, "img-src data:", "base-uri 'none'", "form-action 'none'"]
    return "; ".join(filter(None, rules))


@functools.cache
def _charts() -> str:
    """The descriptions of the charts and their colours as JSON, in which nothing ends a script."""
    of_kinds = {name: chart for kind in KINDS.values() for name, chart in kind.CHARTS.items()}
    plain = {"charts": {**charts.CHARTS, **study_charts.CHARTS, **of_kinds}, "colours": charts.COLOURS}
    return json.dumps(plain, separators=(",", ":")).replace("<", "\\u003c")


@functools.cache
def _style() -> str:
    """The style of the page, with the colours of the charts as variables."""
    light, dark = (
        ":root {" + "".join(f" --{name}: {colour};" for name, colour in charts.COLOURS[scheme].items()) + " }"
        for scheme in ("light", "dark")
    )
    return f"{light}\n@media screen and (prefers-color-scheme: dark) {{ {dark} }}\n{_asset('page.css')}"


def _compressed(content: bytes) -> str:
    level = 6 if len(content) < LARGE else 1
    return base64.b64encode(gzip.compress(content, level, mtime=0)).decode()


def _hash(content: bytes) -> str:
    """The source expression of a Content-Security-Policy for an inline script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(content).digest()).decode()}'"


def _joined(names: tuple[str, ...]) -> str:
    return "\n".join(map(_asset, names))


@functools.cache
def _asset(name: str) -> str:
    return (resources.files("sweeper.report.page") / "browser" / name).read_text(encoding="utf-8")


SNIPPET = "window.vegaEmbed = vegaEmbed;"
"""What the bundle exports."""
DIGESTS: Mapping[str, str] = {"1.9.0.post1": "94d067fef37adf4266ff263b1bdee2ac1b2eada0cf50b7261fc58cfe28a825e1"}
"""Version of vl-convert -> SHA-256 of its library. It runs in the page, so a cached one that differs is not used,
and that of another version is bundled anew in each process."""


@functools.cache
def compressed_library() -> bytes:
    """Return the JavaScript of the library, compressed by gzip: 300 kB for 900 kB.

    Bundling takes seconds, so the bundle is kept in the user's cache folder, one file for each version in `DIGESTS`.
    """
    version = metadata.version("vl-convert-python")
    folder = Path(os.path.realpath(cache_folder()))
    cached, kept = folder / f"vega-{version}.js.gz", version in DIGESTS and _is_closed(folder)
    with contextlib.suppress(OSError, EOFError, zlib.error):
        data = cached.read_bytes() if kept else b""
        if hashlib.sha256(gzip.decompress(data)).hexdigest() == DIGESTS.get(version):
            return data
    import vl_convert  # here: only pages need it, and it is large

    bundle = vl_convert.javascript_bundle(SNIPPET)  # a module, whose functions have short names that would be global
    data = gzip.compress(f'(() => {{"use strict";{bundle}}})();'.encode(), 9, mtime=0)
    if kept:
        with contextlib.suppress(OSError, OpenFolderError):  # a folder that cannot be written costs the seconds again
            make_closed(folder)
            local_disk.replace(cached, data)
    return data


def _is_closed(folder: Path) -> bool:
    """Whether no other user can change what is in the folder; if one can, a line says so."""
    try:
        check_closed(folder)
    except OpenFolderError as error:
        print(f"the chart library of pages is bundled anew in each process: {error}", file=sys.stderr)
        return False
    except OSError:
        return False
    return True
