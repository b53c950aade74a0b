"""Bounds of what is read from a server: a library that reads an answer whole takes any amount of memory and time."""

import functools
import time
from collections.abc import Iterator
from typing import Any

from requests import PreparedRequest, Response
from requests.adapters import HTTPAdapter
from requests.exceptions import ConnectionError, Timeout

LONGEST_ANSWER = 64 << 20
"""Most bytes of an answer, once it is decompressed."""
SILENT_SECONDS, ANSWER_SECONDS = 60.0, 300.0
"""Longest time until a server sends something, where the library has no limit, and until its answer is complete."""


@functools.cache
def bound_answers() -> None:
    """From now on `requests` raises ConnectionError for an answer beyond `LONGEST_ANSWER`, and Timeout for one that is
    silent or not complete within `ANSWER_SECONDS`. Answers that are read as a stream are not bounded."""
    HTTPAdapter.send = _bounded(HTTPAdapter.send)  # type: ignore[method-assign]


def _bounded(send: Any) -> Any:
    @functools.wraps(send)
    def bounded(self: HTTPAdapter, request: PreparedRequest, stream: bool = False, **options: Any) -> Response:
        if stream:
            return send(self, request, stream, **options)
        options["timeout"] = options.get("timeout") or SILENT_SECONDS
        response: Response = send(self, request, stream, **options)
        response.raw.stream = functools.partial(_parts, response, response.raw.stream)
        return response

    return bounded


def _parts(response: Response, stream: Any, *arguments: Any, **options: Any) -> Iterator[bytes]:
    """Yield the parts of an answer within the bounds."""
    size, deadline = 0, time.monotonic() + ANSWER_SECONDS
    for part in stream(*arguments, **options):
        size += len(part)
        if size > LONGEST_ANSWER:
            response.close()
            raise ConnectionError(f"an answer must have at most {LONGEST_ANSWER >> 20} MiB, but this one has more")
        if time.monotonic() > deadline:
            response.close()
            raise Timeout(f"an answer must be complete within {ANSWER_SECONDS:.0f} s")
        yield part
