"""`--plan`: what would run, on which devices, for how long and at what cost."""

import json
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

from sweeper.cli.other_drivers import describe_driver
from sweeper.cli.outline import outline_plan, outline_text
from sweeper.errors import DAMAGED, ClusterError
from sweeper.execution.session import check_address, connected
from sweeper.execution.signals import StopSignal
from sweeper.packing.allocate import Allocation, allocate
from sweeper.packing.cluster import is_local, profile_devices, read_devices, write_devices
from sweeper.packing.compilation import requested_steps
from sweeper.packing.cuts import describe_cuts, settled_cuts
from sweeper.plan import cohorts
from sweeper.plan.plan import GridPlan, Plan
from sweeper.search.search_plan import SearchPlan
from sweeper.spec import SpecError
from sweeper.spec.node_price import NodePrice
from sweeper.spec.request import Request
from sweeper.storage.archive import ArchiveSummary
from sweeper.storage.lease import Drivers
from sweeper.storage.store import Store, check_writable


def show(
    request: Request, plan: Plan, store: Store, address: str | None, archived: ArchiveSummary | None = None
) -> str:
    """Return the plan as text or JSON. Nothing is trained; `--probe` measures on the devices.

    `archived` is what a run with `--fresh` would set aside.
    """
    share = "one" if request.fraction is None else f"{request.fraction:g} of a"
    groups = plan.groups if isinstance(plan, GridPlan) else [[plan.trials]]
    workers = sorted({cohorts.worker_count(group) for group in groups})
    per = "a cohort" if workers == [1] else f"for each of {' or '.join(map(str, workers))} workers a cohort"
    resources = f"{share} GPU (without GPUs: CPU core) {per}"
    state: dict[str, Any] = {}
    if archived:
        state["set_aside"] = {"rows": archived.rows, "files": archived.files, "text": archived.text}
    if others := Drivers(store.files, plan.name).living():
        state["drivers"] = list(map(describe_driver, others))
    if not isinstance(plan, GridPlan):
        if request.probe:
            raise SpecError(
                f"--probe requires a grid, but {plan.name} ({plan.preset}) is a search, which needs no measurement"
            )
        assert isinstance(plan, SearchPlan)
        steps = {run.id: requested_steps(request, store.files, plan.name, run.id) for run in plan.study_runs}
        outline = outline_plan(plan, None, resources, steps) | state
        return json.dumps(outline) if request.json else outline_text(outline)
    allocate_on = _on_measured_devices if request.probe else _on_recorded_devices
    allocation = None if plan.unsized else allocate_on(request, plan, store, address)
    outline = outline_plan(plan, allocation.cuts if allocation else settled_cuts(request, plan, store), resources)
    outline |= state | expectation(allocation, plan, request.node_price)
    if request.json:
        return json.dumps(outline)
    return "\n".join([outline_text(outline), *_expectation_lines(outline, request.node_price)])


def print_damaged(store: Store) -> None:
    """Print which files a run would move away. `--plan` itself writes nothing."""
    for path, reason in store.damaged.items():
        print(
            f"'{path}' is damaged: {reason}; a run moves it to '{DAMAGED}' and trains its trials again", file=sys.stderr
        )


def expectation(allocation: Allocation | None, plan: GridPlan, price: NodePrice | None) -> dict[str, Any]:
    """Describe an allocation in plain values.

    `hours` and `cost` are those of the trials that are left, None if they are unknown; those of eager steps unless
    `compiled_measured`. `price` is per node and hour.
    """
    share_left = plan.trials_left / max(1, plan.total)
    placement = allocation.placement if allocation and allocation.time_known else None
    cost = placement.cost if placement else None
    return {
        "places": allocation and [
            {"resources": dict(slot.resources), "at_a_time": slot.count, "memory": slot.memory}
            for slot in allocation.slots[min(allocation.slots)].by_kind
        ],
        "devices": allocation and list(allocation.device_names),
        "devices_counted_upon": allocation and allocation.placement and [
            devices.count for devices in allocation.placement.devices
        ],
        "at_a_time": allocation and allocation.slots[min(allocation.slots)].count,
        "cuts": allocation and describe_cuts(allocation.cuts),
        "stack_widths": allocation and sorted({cut.width for cut in allocation.cuts}),
        "hours": placement and placement.packing.hours * share_left,
        "compiled_measured": allocation and allocation.compiled_time_known,
        "node_price": price.plain if price else None,
        "cost": None if cost is None else cost * share_left,
    }  # fmt: skip


def _expectation_lines(plain: Mapping[str, Any], price: NodePrice | None) -> list[str]:
    unknown = "  expected   not measured yet; --plan --probe measures now"
    if not plain["places"]:
        return [unknown]
    lines = [
        f"  place      {_share(slot['resources'])} of {device}, {slot['at_a_time']} at a time"
        f", {slot['memory'] / 2**30:.1f} GiB each"
        for slot, device in zip(plain["places"], plain["devices"], strict=True)
    ]
    if (devices := sum(plain["devices_counted_upon"] or ())) > plain["at_a_time"]:
        lines.append(f"  nodes      come when cohorts wait; {devices} devices are counted upon")
    lines.append(f"  cut        {' or '.join(plain['cuts'])}")
    if plain["hours"] is None:
        return [*lines, unknown]
    cost = f", {plain['cost']:.2f} at {price.text} a node hour" if price and plain["cost"] is not None else ""
    eager = "" if plain["compiled_measured"] else "; less with compiled steps, which are not measured yet"
    return [*lines, f"  expected   {_hours(plain['hours'])} of training{cost}{eager}"]


def _share(resources: Mapping[str, float]) -> str:
    """Text such as `one GPU`, `1/4 GPU` or `2 core`."""
    gpu = resources.get("GPU")
    if gpu is None:
        return f"{resources['CPU']:g} core"
    return "one GPU" if gpu == 1 else f"1/{1 / gpu:.0f} GPU"


def _hours(hours: float) -> str:
    return f"{hours:.1f} hours" if hours >= 1 else f"{hours * 60:.1f} minutes ({hours:.3f} hours)"


def _on_recorded_devices(request: Request, plan: GridPlan, store: Store, address: str | None) -> Allocation | None:
    """Allocation on the devices that an earlier run recorded in the store.

    None if no devices are recorded, they are too few for the workers, or a measurement is missing.
    """
    devices = read_devices(store.files, address)
    if not devices:
        return None
    try:
        return allocate(request, plan, store, devices, local=is_local(address))
    except ClusterError:  # too few devices for the workers: a run reports it, or finds other devices
        return None


def _on_measured_devices(request: Request, plan: GridPlan, store: Store, address: str | None) -> Allocation | None:
    """Allocation on the devices there are now, after measuring what the store does not know yet."""
    check_address(address)
    check_writable(store.files)
    stopping = StopSignal()
    with stopping.on_signals(), connected(address):
        from sweeper.execution import ray_backend  # here: it imports Ray, whose environment `connected` sets

        log = partial(print, file=sys.stderr, flush=True)
        cluster = ray_backend.ray_cluster(address, request.data, stopping, log)
        devices = profile_devices(cluster)
        write_devices(store.files, address, devices)
        return allocate(request, plan, store, devices, local=cluster.local, measure=cluster.measure)
