"""Writes `STORE/reports/NAME.html`, the page of a sweep, and `STORE/reports/index.html`, the list of all sweeps."""

import itertools
import threading

from sweeper.errors import StoreError
from sweeper.report.page.contents import collect
from sweeper.report.page.document import document, page_data
from sweeper.report.page.index import index
from sweeper.report.page.summaries import write_summary
from sweeper.storage.files import Files
from sweeper.storage.layout import INDEX, report_path

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
            files.write(INDEX, index(files, files.list("reports")))
    finally:
        _writing.release()
    return path
