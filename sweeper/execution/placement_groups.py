"""Placement groups given back to Ray without losing what they hold.

Ray's control store forgets a group that is removed in the milliseconds in which it is being placed, and the node keeps
its cores and GPUs reserved for ever (ray-project/ray issue 64693). Tune does just that: what one trial leaves free goes
to the group requested for the next, and a moment later that trial takes a cached actor and its request is cancelled.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import ray
import ray.tune.tune
from ray.air.execution.resources.placement_group import PlacementGroupAcquiredResources, PlacementGroupResourceManager
from ray.air.execution.resources.request import ResourceRequest
from ray.util.placement_group import remove_placement_group

KEPT = 5.0
"""Seconds for which a group that nobody asks for is kept: a pending one makes an autoscaler start nodes."""
SETTLED = 2.0
"""Seconds after which what was given back has gone to a pending group, or stays free: Ray looks once a second."""


class PlacementGroupPool(PlacementGroupResourceManager):
    """Keeps a group whose request is cancelled while it is pending, for the next equal request.

    One that nobody wants for `KEPT` seconds is removed; where it still pends, not within `SETTLED` seconds of anything
    given back here. A node that comes, or a core that another program gives back, in those very milliseconds is lost as
    before.
    """

    def __init__(self, update_interval_s: float = 0.1) -> None:
        super().__init__(update_interval_s)
        self._spare: dict[ResourceRequest, list[float]] = defaultdict(list)
        """When each group that is too many for the request was cancelled; which of the equal ones it is, is open."""
        self._freed = float("-inf")

    def request_resources(self, resource_request: ResourceRequest) -> None:
        if self._spare[resource_request]:
            self._spare[resource_request].pop()
        else:
            super().request_resources(resource_request)

    def cancel_resource_request(self, resource_request: ResourceRequest) -> None:
        if self._request_to_staged_pgs[resource_request]:
            self._spare[resource_request].append(time.monotonic())
        else:
            super().cancel_resource_request(resource_request)

    def free_resources(self, acquired_resource: PlacementGroupAcquiredResources) -> None:  # type: ignore[override]
        self._freed = time.monotonic()
        super().free_resources(acquired_resource)

    def get_resource_futures(self) -> list[ray.ObjectRef]:
        """Of the groups that are pending. Tune asks at each of its steps, so here old ones are removed."""
        now = time.monotonic()
        for request, since in self._spare.items():
            while since and since[0] < now - KEPT and self._removed_one(request, now):
                del since[0]
        return super().get_resource_futures()

    def clear(self) -> None:
        """Remove all; what the last actors left may be going to those that are pending, which is awaited."""
        if self._staging_future_to_pg and ray.is_initialized():
            pending = list(self._staging_future_to_pg)
            ray.wait(pending, num_returns=len(pending), timeout=SETTLED)
        super().clear()

    def _removed_one(self, request: ResourceRequest, now: float) -> bool:
        """One too many of this request; False where none can be at this moment."""
        if len(self._request_to_staged_pgs[request]) < len(self._spare[request]):
            group = self._request_to_ready_pgs[request].pop()
            self._pg_to_request.pop(group)
            remove_placement_group(group)
        elif now > self._freed + SETTLED:
            super().cancel_resource_request(request)
        else:
            return False
        return True


@contextmanager
def patched_placement_groups() -> Iterator[None]:
    """Tune uses `PlacementGroupPool` for whatever it runs inside."""
    running: Any = ray.tune.tune
    usual = running.TuneController
    running.TuneController = partial(usual, resource_manager_factory=PlacementGroupPool)
    try:
        yield
    finally:
        running.TuneController = usual
