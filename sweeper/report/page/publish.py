"""Writes `STORE/reports/NAME.html`, the page of a sweep, `STORE/reports/index.html`, the list of all sweeps, and
`STORE/reports/claims.html`, the page of all claims.

The list has a card for each sweep, made from the summary of a few kilobytes that its page leaves, so it reads no rows.
A sweep without a summary, as of an earlier version or with a damaged file, is listed with its trials counted from its
rows.
"""

import html
import itertools
import math
import threading
from collections.abc import Collection, Sequence
from datetime import UTC, datetime

from sweeper.errors import StoreError
from sweeper.names import is_name
from sweeper.report.kinds import read_figures
from sweeper.report.page.contents import Summary, Thumbnail, collect, read_summary, write_summary
from sweeper.report.page.document import claims_document, document, page_data, static_document
from sweeper.storage.files import Files
from sweeper.storage.layout import CLAIMS, CLAIMS_PAGE, HISTORIES, INDEX, REPORTS, TRIALS, report_path, sweeps_in
from sweeper.storage.requests import short_name
from sweeper.storage.rows import STATUSES
from sweeper.storage.store import StoreReader

LAST_WAIT = 15.0
"""Longest time, in seconds, that a page waits for an earlier one of this process to be written."""

_numbers = itertools.count(1)
_written: dict[str, int] = {}
"""Address of a page -> the number of the last one that this process has written there."""
_writing = threading.Lock()


def write(files: Files, name: str) -> str:
    """Write the page of a sweep, its summary, and the index. Returns the path of the page in the store.

    Several threads may write a page: the one that began to read last wins. A page with older rows that comes after it
    is dropped.
    """
    path = report_path(name)
    address, number = files.uri_of(path), next(_numbers)
    contents = collect(files, name)
    page = document(page_data(contents))
    if not _writing.acquire(timeout=LAST_WAIT):
        raise StoreError(f"store {files.display_uri}: an earlier '{path}' is still being written")
    try:
        if number > _written.get(address, 0):
            files.write(path, page)
            _written[address] = number
            write_summary(files, name, contents.summary)
            write_index(files)
    finally:
        _writing.release()
    return path


CELL, PICTURE = (34, 22), (300, 132)
"""Largest width and height of a cell, and of the whole heatmap, in pixels."""
VIRIDIS = (
    *("#440154", "#481a6c", "#472f7d", "#414487", "#39568c", "#31688e", "#2a788e", "#23888e"),
    *("#1f988b", "#22a884", "#35b779", "#54c568", "#7ad151", "#a5db36", "#d2e21b", "#fde725"),
)
"""Colours from the lowest to the highest shade, those of the heatmaps of the pages."""


def write_index(files: Files) -> None:
    """Write the list of all sweeps."""
    files.write(INDEX, list_of_sweeps(files, files.list(REPORTS)))


def write_claims(files: Files) -> str | None:
    """Write the page of all claims that were judged in a store. Returns its path; None if none was."""
    page = page_of_claims(files)
    if page is None:
        return None
    files.write(CLAIMS_PAGE, page)
    return CLAIMS_PAGE


def page_of_claims(files: Files) -> bytes | None:
    """Return the page of all claims that were judged in a store, as an HTML file; None if none was."""
    if not sweeps_in(files.list(CLAIMS)):
        return None
    from sweeper.claims import hook  # here: a store without verdicts does not need it

    report = hook.all_claims(files)
    return None if report is None else claims_document(report)


def list_of_sweeps(files: Files, pages: Collection[str] | None = None) -> bytes:
    """Return the list of all sweeps of a store as an HTML file, with links to those of their `pages` that exist: the
    sweep with the latest result first, and those of which that is not known last."""
    sweeps = [(name, *_summary(files, name)) for name in sweep_names(files)]
    sweeps.sort(key=lambda sweep: math.inf if sweep[1].last is None else -sweep[1].last)
    cards = "".join(
        _card(name, summary, problem, link if pages is None or link in pages else None)
        for name, summary, problem in sweeps
        for link in [f"{name}.html"]
    )
    text = cards or '<p class="note">There are no sweeps yet.</p>'
    if CLAIMS_PAGE.removeprefix(f"{REPORTS}/") in (files.list(REPORTS) if pages is None else pages):
        text = f'<p><a href="claims.html">What the papers claim, and what the rows say of it</a></p>{text}'
    return static_document("index.html", "Sweeps", store=html.escape(files.display_uri), cards=text)


def sweep_names(files: Files) -> list[str]:
    """Return the names of the sweeps of which the store has rows or history."""
    names = {name for kind in (TRIALS, HISTORIES) for name in sweeps_in(files.list(kind))}
    return sorted(filter(is_name, names))


def _summary(files: Files, name: str) -> tuple[Summary, str]:
    """Return the summary that the page of a sweep wrote, or the number of its trials; and why its rows cannot be read,
    empty if they can."""
    if (known := read_summary(files, name)) is not None:
        return known, ""
    presets, _ = read_figures(files, name)
    counts, problem = dict.fromkeys(STATUSES, 0), ""
    try:
        for status in StoreReader(files).statuses(name, check_history=False).values():
            counts[status] += 1
    except StoreError as error:
        problem = str(error)
    return Summary(next((preset.about for preset in presets.values()), ""), counts), problem


def _card(name: str, summary: Summary, problem: str, link: str | None) -> str:
    """Return the card of a sweep as HTML. Every text is escaped."""
    title = f'<a href="{html.escape(link)}">{html.escape(name)}</a>' if link else html.escape(name)
    parts = [
        f"<h2>{title}</h2>",
        _paragraph(summary.about),
        _paragraph(problem, "note"),
        _drawing(summary.heatmap) if summary.heatmap else "",
        _progress(summary),
        *(_paragraph(sentence) for sentence in summary.best),
        _paragraph(_state(summary, bool(problem)), "quiet"),
    ]
    return f'<article class="card">{"".join(parts)}</article>\n'


def _progress(summary: Summary) -> str:
    """The request, and how much of it is done."""
    if not summary.request:
        return ""
    of_all = "" if summary.total is None else f"{summary.done:,} of "
    count = summary.done if summary.total is None else summary.total
    text = _paragraph(f"{short_name(summary.request)}: {of_all}{count:,} trial{'s' * (count != 1)}", "status")
    if summary.total is None or summary.done == summary.total:
        return text
    return f'{text}<progress aria-label="trials that ended" max="{summary.total}" value="{summary.done}"></progress>'


def _state(summary: Summary, unread: bool) -> str:
    """The trials of all requests by status, and the time of the last result."""
    counts = ", ".join(f"{count:,} {status}" for status in STATUSES if (count := summary.counts.get(status, 0)))
    several = f"all {summary.requests} requests: " if summary.requests > 1 else ""
    parts = [f"{several}{counts}" if counts else "" if unread else "no trial has ended yet"]
    if summary.last is not None:
        parts.append(f"last result {datetime.fromtimestamp(summary.last, UTC):%Y-%m-%d %H:%M} UTC")
    return "; ".join(filter(None, parts))


def _drawing(heatmap: Thumbnail) -> str:
    """Return a heatmap as a drawing with its caption. Neighbours in a row that have one colour are one rectangle."""
    across, down = len(heatmap.shades[0]), len(heatmap.shades)
    width, height = (min(most, size / count) for most, size, count in zip(CELL, PICTURE, (across, down), strict=True))
    cells = "".join(
        f'<rect x="{start}" y="{row}" width="{stop - start}" height="1"{colour}/>'
        for row, shades in enumerate(heatmap.shades)
        for start, stop, colour in _runs([_colour(shade) for shade in shades])
    )
    size = f'width="{across * width:.0f}" height="{down * height:.0f}"'
    box = f'viewBox="0 0 {across} {down}" preserveAspectRatio="none" shape-rendering="crispEdges"'
    caption = html.escape(heatmap.caption)
    drawing = f'<svg role="img" aria-label="heatmap: {caption}" {size} {box}>{cells}</svg>'
    return f'<figure>{drawing}<figcaption class="quiet">{caption}</figcaption></figure>'


def _colour(shade: float | None) -> str:
    """The attribute of a cell's colour; that of an empty cell is in the style of the page."""
    return ' class="empty"' if shade is None else f' fill="{VIRIDIS[min(int(shade * len(VIRIDIS)), len(VIRIDIS) - 1)]}"'


def _runs(colours: Sequence[str]) -> list[tuple[int, int, str]]:
    """Return the first position, the one after the last, and the colour of each run of equal colours."""
    starts = [place for place, colour in enumerate(colours) if place == 0 or colours[place - 1] != colour]
    stops = [*starts[1:], len(colours)]
    return [(start, stop, colours[start]) for start, stop in zip(starts, stops, strict=True)]


def _paragraph(text: str, kind: str = "") -> str:
    kind = f' class="{kind}"' if kind else ""
    return f"<p{kind}>{html.escape(text)}</p>" if text else ""
