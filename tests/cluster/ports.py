"""Ports at which processes listen, and which of them serve Ray's metrics without a token."""

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
    """All ports at which the processes listen."""
    listeners: set[Listener] = set()
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            for connection in process.net_connections(kind="inet"):
                if connection.status == psutil.CONN_LISTEN:
                    address, port = connection.laddr
                    listeners.add(Listener(process.name(), address.removeprefix("::ffff:"), port))
    return listeners


def tells_metrics(port: int) -> bool:
    """Whether this port of the loopback serves Ray's metrics without a token."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):  # a gRPC port, or closed meanwhile
        return False
    finally:
        connection.close()
