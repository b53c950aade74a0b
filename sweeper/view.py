"""`python -m sweeper.view [STORE]`: shows the pages of a store in a browser, with newer data while a sweep runs."""

import contextlib
import json
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import BaseServer
from typing import Any
from urllib.parse import unquote, urlsplit

from sweeper.cli.arguments import EXIT_INTERRUPTED, EXIT_OK, EXIT_WRONG, Parser, error_line
from sweeper.cli.option_values import whole
from sweeper.errors import SpecError, StoreError
from sweeper.execution.process.stop_signal import StopSignal, ignore_signals
from sweeper.report.page import publish
from sweeper.report.page.contents import collect
from sweeper.report.page.document import PageData, document, page_data
from sweeper.storage.io.files import Files

HTML = "text/html; charset=utf-8"
LOOPBACK = "127.0.0.1"
PORT = 8642
"""The default port."""
FRESH_SECONDS, FRESH_SHARE = 2.0, 5.0
"""How long data that were read are served: so many seconds, or so many times as long as it took to read them."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until Ctrl-C. Returns the exit status: 130 after it, 2 if the request was wrong."""
    parser = Parser(prog="python -m sweeper.view", description="Show the pages of a store in a browser.")
    parser.add_argument("store", nargs="?", default="results", metavar="STORE", help="folder or URI (s3, gs)")
    parser.add_argument("--port", type=partial(whole, "--port", 0), default=PORT, help="0: any (default: %(default)s)")
    try:
        options = parser.parse_args(sys.argv[1:] if arguments is None else arguments)
        files = _existing(options.store)
        server = _server(Site(files), options.port)
    except (SpecError, StoreError) as error:
        print(error_line(error), file=sys.stderr)
        return EXIT_WRONG
    with server, StopSignal().on_signals():
        try:
            address = f"http://{LOOPBACK}:{server.server_address[1]}/"
            print(f"{files.display_uri} is shown at {address}; Ctrl-C ends this", flush=True)
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            return EXIT_INTERRUPTED
    return EXIT_OK


@dataclass(frozen=True)
class Answer:
    media_type: str
    content: bytes
    version: str = ""
    """Equal for equal data of a sweep; empty if the answer is no data."""


@dataclass(frozen=True)
class Reading:
    """What was read of a sweep."""

    data: PageData
    answer: Answer
    """The data for a page that is open."""
    until: float
    """Time on the monotonic clock until which it is served, in seconds."""


class Site:
    """The pages of a store by the path in their address."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self._readings: dict[str, Reading] = {}
        self._locks: dict[str, threading.Lock] = {}

    def answer(self, path: str) -> Answer | None:
        """Return what is at `path`; None if there is nothing. Raises StoreError."""
        if path in ("/", "/index.html"):
            return Answer(HTML, publish.index(self.files))
        name, _, kind = path.removeprefix("/").rpartition(".")
        reading = self._read(name) if kind in ("html", "json") else None
        if reading is None:
            return None
        return reading.answer if kind == "json" else Answer(HTML, document(reading.data, live=True))

    def _read(self, name: str) -> Reading | None:
        """Return a recent reading of a sweep; None if there is none of this name."""
        known = self._readings.get(name)
        if known and time.monotonic() < known.until:
            return known
        if name not in publish.sweep_names(self.files):
            return None
        with self._locks.setdefault(name, threading.Lock()):  # several tabs wait for one reading of their sweep
            known, begun = self._readings.get(name), time.monotonic()
            if known and begun < known.until:
                return known
            contents = collect(self.files, name)
            data = page_data(contents, known.data if known else None)
            answer = known.answer if known and data is known.data else _answer(data)
            ended = time.monotonic()
            until = ended + max(FRESH_SECONDS, FRESH_SHARE * (ended - begun))
            self._readings[name] = Reading(data, answer, until)
            return self._readings[name]


class Handler(BaseHTTPRequestHandler):
    """Answers requests of this machine's browsers."""

    server_version, sys_version = "sweeper", ""

    def __init__(self, site: Site, request: Any, client_address: Any, server: BaseServer) -> None:
        self._site = site
        super().__init__(request, client_address, server)  # which answers

    def do_GET(self) -> None:
        host = urlsplit(f"//{self.headers.get('Host', '')}").hostname
        if host not in (LOOPBACK, "localhost"):  # a foreign page whose name resolves to the loopback
            return self._send(HTTPStatus.FORBIDDEN, "text/plain", b"open this page at 127.0.0.1\n")
        try:
            answer = self._site.answer(unquote(urlsplit(self.path).path))
        except StoreError as error:
            return self._send(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain; charset=utf-8", f"{error}\n".encode())
        if answer is None:
            return self._send(HTTPStatus.NOT_FOUND, "text/plain", b"there is no such page\n")
        if answer.version and self.headers.get("If-None-Match") == f'"{answer.version}"':
            return self._send(HTTPStatus.NOT_MODIFIED)
        self._send(HTTPStatus.OK, answer.media_type, answer.content, answer.version)

    do_HEAD = do_GET

    def _send(self, status: HTTPStatus, media_type: str = "", content: bytes = b"", version: str = "") -> None:
        with contextlib.suppress(ConnectionError):  # the browser has gone
            self.send_response(status)
            if media_type:
                self.send_header("Content-Type", media_type)
                self.send_header("Content-Length", str(len(content)))
            if version:
                self.send_header("ETag", f'"{version}"')
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.send_header("Cross-Origin-Resource-Policy", "same-origin")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

    def log_message(self, format: str, *arguments: object) -> None:
        """Print nothing: a page asks every few seconds."""


def _answer(data: PageData) -> Answer:
    """The data of a sweep for a page that is open."""
    fields = {"report": data.report, "curves": data.curves, "version": data.version}
    return Answer("application/json", json.dumps(fields).encode(), data.version)


def _existing(store: str) -> Files:
    """Return the store's files. Raises StoreError if there is no such folder, or if it cannot be read."""
    files = Files(store)
    folder = files.local_folder
    if folder is not None and not folder.is_dir():
        raise StoreError(f"store {files.display_uri}: there is no such folder")
    files.list("trials")
    return files


def _server(site: Site, port: int) -> ThreadingHTTPServer:
    try:
        return ThreadingHTTPServer((LOOPBACK, port), partial(Handler, site))
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SpecError(f"port {port} of {LOOPBACK} cannot be used: {reason}; --port 0 takes a free one") from error


if __name__ == "__main__":
    status = main()
    ignore_signals()
    sys.exit(status)
