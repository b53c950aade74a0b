"""What a server answers is bounded in size and time, whatever library reads it."""

import itertools
import threading
import time
from collections.abc import Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import requests

from sweeper import servers
from sweeper.record.mlflow import MLflow
from sweeper.servers import LONGEST_ANSWER, bound_answers
from tests.cases import for_each

ANSWERS: dict[str, Iterable[bytes]] = {"endless": itertools.repeat(bytes(1 << 16)), "whole": [b"answer"]}
"""Path -> the parts of an answer without a length. All other paths are endless."""


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/endless")
            self.end_headers()
            return
        self.send_response(200)
        self.end_headers()
        try:
            for part in ANSWERS.get(self.path[1:], ANSWERS["endless"]):
                self.wfile.write(part)
        except OSError:
            pass

    do_POST = do_GET

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    bound_answers()
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@for_each("path", ["endless", "moved"])
def test_an_answer_without_end_is_refused(address: str, path: str) -> None:
    with pytest.raises(requests.ConnectionError, match="at most 64 MiB"):
        requests.get(f"{address}/{path}")


def test_an_answer_within_the_bounds_or_read_in_parts_is_whole(address: str) -> None:
    assert requests.get(f"{address}/whole").content == b"answer"
    with requests.get(f"{address}/endless", stream=True) as answer:
        read = itertools.accumulate(map(len, answer.iter_content(1 << 20)))
        assert next(size for size in read if size > LONGEST_ANSWER)


def test_an_answer_that_trickles_is_refused(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = itertools.count(step=servers.ANSWER_SECONDS)
    monkeypatch.setattr(time, "monotonic", lambda: float(next(seconds)))
    with pytest.raises(requests.Timeout, match="complete within"):
        requests.get(f"{address}/endless")


def test_mlflow_reads_within_the_bounds(address: str) -> None:
    with pytest.raises(Exception, match="at most 64 MiB"):
        MLflow(address, "sweep")
