"""`sweeper view [STORE]`: shows the pages of a store in a browser, with newer data while a sweep runs."""

import contextlib
import json
import re
import secrets
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any
from urllib.parse import unquote, urlsplit

from sweeper.commands.command_line import EXIT_INTERRUPTED, EXIT_OK, Parser, command_line
from sweeper.errors import SpecError, StoreError, error_text
from sweeper.execution.signals import StopSignal
from sweeper.option_values import whole
from sweeper.printing import print
from sweeper.report.page import publish
from sweeper.report.page.contents import collect
from sweeper.report.page.document import PageData, document, page_data, view_document
from sweeper.storage.files import Files
from sweeper.storage.layout import TRIALS

HTML, TEXT = "text/html; charset=utf-8", "text/plain; charset=utf-8"
LOOPBACK = "127.0.0.1"
PORT = 8642
"""The default port."""
FRESH_SECONDS, FRESH_SHARE = 2.0, 5.0
"""How long data that were read are served: so many seconds, or so many times as long as it took to read them."""
REQUEST_SECONDS, SEND_SECONDS = 10.0, 60.0
"""Longest time, in seconds, until the request of a connection is complete, and until a part of the answer is taken."""
MOST_CONNECTIONS = 32
"""Most connections at a time."""
PART = 1 << 16
"""Size of the parts in which an answer is sent, in bytes."""
HOST = re.compile(r"(?P<name>[\w.-]*|\[[\da-f:.]+\])(:(?P<port>\d{1,5}))?", re.ASCII | re.IGNORECASE)
"""A value of the header `Host`: a name or an address without a user, and a port."""
LARGEST_PORT = 65535
NO_HEADERS: Mapping[str, str] = MappingProxyType({})
NO_TOKEN = b"open the link that sweeper view has printed: it ends in #token=...\n"
SECURITY: Mapping[str, str] = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}
"""Headers of every answer: no other page may show it in a frame, or read it."""


@command_line()
def main(arguments: Sequence[str]) -> int:
    """Serve until Ctrl-C. Returns the exit status: 130 after it, 2 if the request was wrong."""
    parser = Parser("view", "Show the pages of a store in a browser.")
    parser.add_argument("store", nargs="?", default="results", metavar="STORE", help="folder or URI (s3, gs)")
    port = partial(whole, "--port", least=0)
    parser.add_argument("--port", type=port, default=PORT, help="0: any (default: %(default)s)")
    options = parser.parse_args(arguments)
    files = _existing(options.store)
    server = _server(Site(files), options.port)
    with server, StopSignal().on_signals():
        try:
            print(f"{files.display_uri} is shown at {server.link}; Ctrl-C ends this", flush=True, mask=False)
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            return EXIT_INTERRUPTED
    return EXIT_OK


@dataclass(frozen=True)
class Response:
    media_type: str
    content: bytes
    version: str = ""
    """Equal for equal data of a sweep; empty if the answer is no data."""


@dataclass(frozen=True)
class Reading:
    """What was read of a sweep."""

    data: PageData
    answer: Response
    """The data for a page that is open."""
    until: float
    """Time on the monotonic clock until which it is served, in seconds."""


class Site:
    """The pages of a store by the path in their address."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self._had_sweeps = False
        self._readings: dict[tuple[str, bool], Reading] = {}
        """Sweep, and whether all of its trials were read -> the last reading."""
        self._locks: dict[tuple[str, bool], threading.Lock] = {}

    def answer(self, path: str) -> Response | None:
        """Return what is at `path`; None if there is nothing. Raises StoreError."""
        if path in ("/", "/index.html"):
            self._sweep_names()
            return Response(HTML, publish.list_of_sweeps(self.files))
        if path == "/claims.html":
            page = publish.page_of_claims(self.files)
            return None if page is None else Response(HTML, page)
        name, _, kind = path.removeprefix("/").rpartition(".")
        reading = self._read(name, every=kind == "trials") if kind in ("html", "json", "trials") else None
        if reading is None:
            return None
        return Response(HTML, document(reading.data, live=True)) if kind == "html" else reading.answer

    def _sweep_names(self) -> list[str]:
        """Return the names of the store's sweeps. Raises StoreError if the store has vanished: its folder is gone, or
        the file system or the objects in it."""
        names, folder = publish.sweep_names(self.files), self.files.local_folder
        if not names and (self._had_sweeps or (folder is not None and not folder.is_dir())):
            raise StoreError(f"store {self.files.display_uri} has vanished, or its sweeps have; waiting for them")
        self._had_sweeps = self._had_sweeps or bool(names)
        return names

    def _read(self, name: str, *, every: bool) -> Reading | None:
        """Return a recent reading of a sweep, with what its page has, or with `every` trial; None if there is none of
        this name."""
        key = name, every
        known = self._readings.get(key)
        if known and time.monotonic() < known.until:
            return known
        if name not in self._sweep_names():
            return None
        with self._locks.setdefault(key, threading.Lock()):  # several tabs wait for one reading of their sweep
            known, begun = self._readings.get(key), time.monotonic()
            if known and begun < known.until:
                return known
            contents = collect(self.files, name, every=every)
            data = page_data(contents, known.data if known else None)
            answer = known.answer if known and data is known.data else _answer(data)
            ended = time.monotonic()
            until = ended + max(FRESH_SECONDS, FRESH_SHARE * (ended - begun))
            self._readings[key] = Reading(data, answer, until)
            return self._readings[key]


class Server(ThreadingHTTPServer):
    """Answers requests of this user's browsers: whoever knows the token, which is in the printed link.

    It is in the link's fragment, which a browser does not send. The page that everybody gets, without any data, keeps
    it for its tab and its port, and sends it as a header: other ports of this machine never see it, as they would see
    a cookie.

    Every user of the machine can connect. A connection must send its request within `REQUEST_SECONDS`. Beyond
    `MOST_CONNECTIONS`, the one that has waited longest for its request is closed for a new one.
    """

    daemon_threads = True

    def __init__(self, site: Site, port: int) -> None:
        super().__init__((LOOPBACK, port), Handler)
        self.site, self.token = site, secrets.token_urlsafe(32)
        self._open: dict[socket.socket, float | None] = {}
        """Connection -> time on the monotonic clock until which its request must come; None once it has."""
        self._changed = threading.Lock()

    @property
    def link(self) -> str:
        return f"http://{LOOPBACK}:{self.server_address[1]}/#token={self.token}"

    def request_came(self, connection: socket.socket) -> None:
        with self._changed:
            if connection in self._open:
                self._open[connection] = None

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._changed:
            self._open[request] = time.monotonic() + REQUEST_SECONDS
            if len(self._open) > MOST_CONNECTIONS:
                oldest = next(connection for connection, until in self._open.items() if until is not None)
                del self._open[oldest]
                _hang_up(oldest)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._changed:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Called by `serve_forever` several times a second."""
        now = time.monotonic()
        with self._changed:
            for connection, until in self._open.items():
                if until is not None and now > until:
                    _hang_up(connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing of a connection that broke; all else as usual."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


def _hang_up(connection: socket.socket) -> None:
    """Have the thread of a connection see its end."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class Handler(BaseHTTPRequestHandler):
    server: Server
    server_version, sys_version = "sweeper", ""
    default_request_version = "HTTP/1.0"
    """Version until a request's is known: an answer in HTTP/0.9 has no headers."""
    timeout = SEND_SECONDS
    _own_headers = NO_HEADERS
    """Headers of the answer beside `SECURITY`, or in their place."""

    def do_GET(self) -> None:
        self.server.request_came(self.connection)
        hosts = [value for name, value in self.headers.items() if name.lower() == "host"] or [""]
        named = HOST.fullmatch(hosts[0].strip()) if len(hosts) == 1 else None
        try:
            path = unquote(urlsplit(self.path).path)
        except ValueError:  # such as an address of IPv6 without its end
            named = None
        if named is None or int(named["port"] or 0) > LARGEST_PORT:
            return self._send(HTTPStatus.BAD_REQUEST, TEXT, b"the request must have a URL and one host\n")
        host = named["name"].lower()
        if host not in (LOOPBACK, "localhost"):  # a foreign page whose name resolves to the loopback
            return self._send(HTTPStatus.FORBIDDEN, TEXT, b"open this page at 127.0.0.1\n")
        scheme, _, typed = self.headers.get("Authorization", "").partition(" ")
        if scheme != "Bearer" and path.endswith(("/", ".html")):
            page, policy = view_document()
            return self._send(HTTPStatus.OK, HTML, page, {"Content-Security-Policy": policy})
        if scheme != "Bearer" or not secrets.compare_digest(typed.encode(), self.server.token.encode()):
            return self._send(HTTPStatus.FORBIDDEN, TEXT, NO_TOKEN)
        try:
            answer = self.server.site.answer(path)
        except StoreError as error:
            text = f"{error_text(error)}\n".encode()
            return self._send(HTTPStatus.SERVICE_UNAVAILABLE, TEXT, text)
        if answer is None:
            return self._send(HTTPStatus.NOT_FOUND, TEXT, b"there is no such page\n")
        headers = {"ETag": f'"{answer.version}"'} if answer.version else {}
        if answer.version and self.headers.get("If-None-Match") == headers["ETag"]:
            return self._send(HTTPStatus.NOT_MODIFIED, headers=headers)
        self._send(HTTPStatus.OK, answer.media_type, answer.content, headers)

    do_HEAD = do_GET

    def _send(
        self, status: HTTPStatus, media_type: str = "", content: bytes = b"", headers: Mapping[str, str] = NO_HEADERS
    ) -> None:
        with contextlib.suppress(ConnectionError):  # the browser has gone
            self.send_response(status)
            if media_type:
                self.send_header("Content-Type", media_type)
                self.send_header("Content-Length", str(len(content)))
            self._own_headers = headers
            self.end_headers()
            if self.command != "HEAD":
                for start in range(0, len(content), PART):
                    self.wfile.write(content[start : start + PART])

    def end_headers(self) -> None:
        """Add `SECURITY` to every answer, also to those that the library makes itself."""
        for name, value in {**SECURITY, **self._own_headers}.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        """Print nothing: a page asks every few seconds."""


def _answer(data: PageData) -> Response:
    """The data of a sweep for a page that is open."""
    fields = {"report": data.report, "curves": data.curves, "version": data.version}
    return Response("application/json", json.dumps(fields).encode(), data.version)


def _existing(store: str) -> Files:
    """Return the store's files. Raises StoreError if there is no such folder, or if it cannot be read."""
    files = Files(store)
    folder = files.local_folder
    if folder is not None and not folder.is_dir():
        raise StoreError(f"store {files.display_uri}: there is no such folder")
    files.list(TRIALS)
    return files


def _server(site: Site, port: int) -> Server:
    try:
        return Server(site, port)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SpecError(f"port {port} of {LOOPBACK} cannot be used: {reason}; --port 0 takes a free one") from error
