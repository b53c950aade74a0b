"""Writes `STORE/reports/NAME.html`, the page of a sweep, and `STORE/reports/index.html`, the list of all sweeps."""

import html
import itertools
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sweeper.errors import StoreError
from sweeper.names import is_name
from sweeper.report.page.contents import collect
from sweeper.report.page.document import document, page_data, static_document
from sweeper.report.page.preset_views import read_views
from sweeper.storage.io.files import Files
from sweeper.storage.layout import INDEX, report_path
from sweeper.storage.parquet.schema import STATUSES
from sweeper.storage.store_reader import StoreReader

LAST_WAIT = 15.0
"""Longest time, in seconds, that a page waits for an earlier one of this process to be written."""

_numbers = itertools.count(1)
_written: dict[str, int] = {}
"""Address of a page -> the number of the last one that this process has written there."""
_writing = threading.Lock()


@dataclass(frozen=True)
class StoredSweep:
    """A sweep of which a store has rows or history."""

    name: str
    about: str
    counts: Mapping[str, int]
    """Status -> number of trials."""
    problem: str
    """Why its rows cannot be read; empty if they can."""


def write(files: Files, name: str) -> str:
    """Write the page of a sweep, and the index. Returns the path of the page in the store.

    Several threads may write a page: the one that began to read last wins. A page with older rows that comes after it
    is dropped.
    """
    path = report_path(name)
    address, number = files.uri_of(path), next(_numbers)
    page = document(page_data(collect(files, name)))
    if not _writing.acquire(timeout=LAST_WAIT):
        raise StoreError(f"store {files.display_uri}: an earlier '{path}' is still being written")
    try:
        if number > _written.get(address, 0):
            files.write(path, page)
            _written[address] = number
            files.write(INDEX, index(files, files.list("reports")))
    finally:
        _writing.release()
    return path


def index(files: Files, pages: Collection[str] | None = None) -> bytes:
    """Return the list of all sweeps of a store as an HTML file, with links to those of their `pages` that exist."""
    rows = "".join(
        _index_row(sweep, link if pages is None or link in pages else None)
        for sweep in stored_sweeps(files)
        for link in [f"{sweep.name}.html"]
    )
    statuses = "".join(f'<th scope="col" class="number">{status}</th>' for status in STATUSES)
    return static_document("index.html", store=html.escape(files.display_uri), statuses=statuses, rows=rows)


def stored_sweeps(files: Files) -> list[StoredSweep]:
    """Return the sweeps of which the store has rows or history, by name."""
    return [_stored_sweep(files, name) for name in sweep_names(files)]


def sweep_names(files: Files) -> list[str]:
    """Return the names of the sweeps of which the store has rows or history."""
    entries = {entry for kind in ("trials", "history") for entry in files.list(kind)}
    names = sorted(entry.removeprefix("sweep=") for entry in entries if entry.startswith("sweep="))
    return [name for name in names if is_name(name)]


def _stored_sweep(files: Files, name: str) -> StoredSweep:
    views, _ = read_views(files, name)
    counts, problem = dict.fromkeys(STATUSES, 0), ""
    try:
        for status in StoreReader(files).statuses(name, check_history=False).values():
            counts[status] += 1
    except StoreError as error:
        problem = str(error)
    return StoredSweep(name, next((preset.about for preset in views.values()), ""), counts, problem)


def _index_row(sweep: StoredSweep, link: str | None) -> str:
    name = html.escape(sweep.name)
    title = f'<a href="{html.escape(link)}">{name}</a>' if link else name
    about = html.escape(sweep.problem or sweep.about)
    counts = "".join(f'<td class="number">{count or ""}</td>' for count in sweep.counts.values())
    return f'<tr><th scope="row">{title}</th><td>{about}</td>{counts}</tr>\n'
