"""Where processes take connections, and which of their ports tell Ray's metrics to everybody."""

from __future__ import annotations

import contextlib
import http.client
from collections.abc import Iterable
from typing import NamedTuple

import psutil


class Listener(NamedTuple):
    process: str
    address: str
    port: int


def listening(processes: Iterable[psutil.Process]) -> set[Listener]:
    """Every port at which one of them takes connections."""
    found: set[Listener] = set()
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            for one in process.net_connections(kind="inet"):
                if one.status == psutil.CONN_LISTEN:
                    found.add(Listener(process.name(), one.laddr.ip.removeprefix("::ffff:"), one.laddr.port))
    return found


def tells_metrics(port: int) -> bool:
    """Whether this port of the loopback tells Ray's metrics to somebody without a token."""
    asked = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        asked.request("GET", "/metrics")
        return asked.getresponse().status == 200
    except (OSError, http.client.HTTPException):  # gRPC, or gone
        return False
    finally:
        asked.close()
