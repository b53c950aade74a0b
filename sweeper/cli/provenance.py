"""Columns of a row that say where and with what its trial ran, and what it took."""

from collections.abc import Mapping
from dataclasses import asdict

from sweeper.spec.node_price import NodePrice
from trainables.worker.messages import Origin

HOUR = 3600.0
"""Seconds per hour."""


def provenance(origin: Origin | None) -> Mapping[str, object]:
    """Return the columns of the process that trained a cohort; none without a process, as its last one was lost."""
    if origin is None:
        return {}
    environment = asdict(origin.environment) if origin.environment else {}
    return {"device": origin.device, "host": origin.host, "compiled": origin.compiled, **environment}


def consumption(seconds: float, origin: Origin | None, node_price: NodePrice | None) -> Mapping[str, float | None]:
    """Return the device seconds of a trial and their cost. `seconds` is its share of the cohort's training time.

    A node's price is divided equally among its devices, so trials pay for the part of the node that they reserve.
    """
    if origin is None:
        return {}
    share = origin.share
    device_seconds = seconds * share.devices
    price = node_price.of(share.kind) if node_price else None
    cost = None if price is None else price / HOUR * device_seconds / share.node_devices
    return {"device_seconds": device_seconds, "cost": cost}
