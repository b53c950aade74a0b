"""`--plan`: what would run, on what, for how long and at what cost."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from sweeper.cli.outline import describe, text
from sweeper.errors import ClusterError
from sweeper.execution.connection import check_address, connected
from sweeper.execution.stop_signal import StopSignal
from sweeper.packing.allocate import Allocation, allocate, settled_cuts, widths
from sweeper.packing.measurements import read_seen, write_seen
from sweeper.packing.profiler import profile_devices
from sweeper.plan import cohorts
from sweeper.plan.plan import GridPlan, Plan
from sweeper.spec import SpecError
from sweeper.spec.request import Request
from sweeper.storage.replaced_rows import SetAside
from sweeper.storage.store import Store


def show(request: Request, plan: Plan, store: Store, address: str | None, again: SetAside | None = None) -> str:
    """The plan in words, or as JSON. Starts nothing, but with `--probe` measures. `again`: what a fresh run would set
    aside."""
    share = "one" if request.fraction is None else f"{request.fraction:g} of a"
    groups = plan.groups if isinstance(plan, GridPlan) else [[plan.trials]]
    workers = sorted({cohorts.workers(group) for group in groups})
    each = "a cohort" if workers == [1] else f"for each of {' or '.join(map(str, workers))} workers a cohort"
    resources = f"{share} GPU (without GPUs: CPU core) {each}"
    if not isinstance(plan, GridPlan):
        if request.probe:
            raise SpecError(
                f"--probe is for grids, but {plan.name} ({plan.preset}) is a search, which nothing is measured for"
            )
        plain = describe(plan, None, resources) | _set_aside(again)
        return json.dumps(plain) if request.json else text(plain)
    found = None if plan.unsized else (_measured if request.probe else _as_seen)(request, plan, store, address)
    plain = describe(plan, found.cuts if found else settled_cuts(request, plan, store), resources)
    plain |= _set_aside(again)
    plain |= expectation(found, plan, request.node_price)
    return json.dumps(plain) if request.json else "\n".join([text(plain), *_lines(plain)])


def _set_aside(again: SetAside | None) -> dict[str, Any]:
    return {"set_aside": {"rows": again.rows, "files": again.files, "text": again.text}} if again else {}


def expectation(found: Allocation | None, plan: GridPlan, price: float | None) -> dict[str, Any]:
    """The choice in plain values; `hours` and `cost` are of the trials that are left, and None where they cannot be
    known."""
    part = plan.left / max(1, plan.total)
    placed = found.placed if found and found.timed else None
    cost = placed.cost if placed else None
    return {
        "places": found and [
            {"resources": dict(share.resources), "at_a_time": share.count, "memory": share.memory}
            for share in found.places[min(found.places)].shares
        ],
        "devices": found and list(found.devices),
        "devices_counted_upon": found and found.placed and [one.count for one in found.placed.devices],
        "at_a_time": found and found.places[min(found.places)].count,
        "cuts": found and widths(found.cuts),
        "stack_widths": found and sorted({cut.width for cut in found.cuts}),
        "hours": placed and placed.packing.hours * part,
        "node_price": price,
        "cost": None if cost is None else cost * part,
    }  # fmt: skip


def _lines(plain: Mapping[str, Any]) -> list[str]:
    """What `expectation` returned, for a person."""
    unknown = "  expected   not measured yet; --plan --probe measures now"
    if not plain["places"]:
        return [unknown]
    lines = [
        f"  place      {_share(place['resources'])} of {device}, {place['at_a_time']} at a time"
        + f", {place['memory'] / 2**30:.1f} GiB each"
        for place, device in zip(plain["places"], plain["devices"], strict=True)
    ]
    if plain["devices_counted_upon"] and sum(plain["devices_counted_upon"]) > plain["at_a_time"]:
        lines.append(
            f"  nodes      come when cohorts wait; {sum(plain['devices_counted_upon'])} devices are counted upon"
        )
    lines.append(f"  cut        {' or '.join(plain['cuts'])}")
    if plain["hours"] is None:
        return [*lines, unknown]
    cost = "" if plain["cost"] is None else f", {plain['cost']:.2f} at {plain['node_price']:g} a node hour"
    return [*lines, f"  expected   {_hours(plain['hours'])} of training{cost}"]


def _share(resources: Mapping[str, float]) -> str:
    gpu = resources.get("GPU")
    if gpu is None:
        return f"{resources['CPU']:g} core"
    return "one GPU" if gpu == 1 else f"1/{1 / gpu:.0f} GPU"


def _hours(hours: float) -> str:
    return f"{hours:.1f} hours" if hours >= 1 else f"{hours * 60:.1f} minutes ({hours:.3f} hours)"


def _as_seen(request: Request, plan: GridPlan, store: Store, address: str | None) -> Allocation | None:
    """On the devices that were seen the last time, if they were."""
    seen, grows = read_seen(store.files, address), address not in (None, "local")
    if not seen:
        return None
    try:
        return allocate(request, plan, store, seen, here=not grows and not seen[0].kind.gpus, grows=grows)
    except ClusterError:  # too small for its workers: a run will say so, or be elsewhere
        return None


def _measured(request: Request, plan: GridPlan, store: Store, address: str | None) -> Allocation | None:
    """On the devices there are, with what is not known yet measured now."""
    check_address(address)
    store.files.check_writable()
    stopping = StopSignal()
    with stopping.on_signals(), connected(address):
        from sweeper.execution.remote_profiler import site  # here: it imports Ray, whose environment `connected` sets

        there = site(address, request.data, stopping, say=lambda line: print(line, file=sys.stderr, flush=True))
        seen = profile_devices(there)
        write_seen(store.files, address, seen)
        return allocate(request, plan, store, seen, here=there.here, grows=there.grows, measure=there.measure)
