"""A pool of placement groups that works around a leak in Ray (ray-project/ray issue 64693).

If a placement group is removed in the milliseconds in which it is being placed, Ray's control store forgets it, and the
node keeps its cores and GPUs reserved for ever. Tune does just that: the resources that one trial frees go to the group
requested for the next trial; a moment later that trial takes a cached actor, and its request is cancelled.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import ray
import ray.tune.tune
from ray.air.execution.resources.placement_group import PlacementGroupAcquiredResources, PlacementGroupResourceManager
from ray.air.execution.resources.request import AcquiredResources, ResourceRequest
from ray.util.placement_group import remove_placement_group

from sweeper.execution.driver.replaced_attribute import replaced

SPARE_SECONDS = 5.0
"""Seconds for which a spare group is kept. Not longer, because a pending group makes an autoscaler start nodes."""
SETTLING_SECONDS = 2.0
"""Seconds after which freed resources have gone to a pending group or stay free; Ray looks once a second."""


class PlacementGroupPool(PlacementGroupResourceManager):
    """Keeps a pending group whose request is cancelled as a spare for the next equal request.

    A spare group that is not requested for `SPARE_SECONDS` is removed. If it is still pending, it is not removed within
    `SETTLING_SECONDS` after resources were freed here, when it may be being placed. The leak remains possible if a node
    joins, or another program frees a core, in those very milliseconds.
    """

    def __init__(self, update_interval_s: float = 0.1, cluster_ends: Callable[[], bool] = lambda: False) -> None:
        """`cluster_ends` says whether Ray is shut down next, so that no core can stay reserved."""
        super().__init__(update_interval_s)
        self._cluster_ends = cluster_ends
        self._spare: dict[ResourceRequest, list[float]] = defaultdict(list)
        """Request -> when each of its spare groups was cancelled, ascending. Equal groups are not told apart."""
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

    def free_resources(self, acquired_resource: AcquiredResources) -> None:
        self._freed = time.monotonic()
        super().free_resources(cast(PlacementGroupAcquiredResources, acquired_resource))

    def get_resource_futures(self) -> list[ray.ObjectRef]:
        """Return the futures of the pending groups, and remove old spare ones: Tune calls this at each of its steps."""
        now = time.monotonic()
        for request, cancelled_at in self._spare.items():
            while cancelled_at and cancelled_at[0] < now - SPARE_SECONDS and self._remove_spare(request, now):
                del cancelled_at[0]
        return super().get_resource_futures()

    def clear(self) -> None:
        """Remove all groups. First wait for pending ones, which may be getting the resources of the last actors, unless
        the cluster ends with them."""
        if self._staging_future_to_pg and ray.is_initialized() and not self._cluster_ends():
            pending = list(self._staging_future_to_pg)
            ray.wait(pending, num_returns=len(pending), timeout=SETTLING_SECONDS)
        super().clear()

    def _remove_spare(self, request: ResourceRequest, now: float) -> bool:
        """Remove one spare group of a request; return False if none can be removed at this moment."""
        if len(self._request_to_staged_pgs[request]) < len(self._spare[request]):
            group = self._request_to_ready_pgs[request].pop()
            self._pg_to_request.pop(group)
            remove_placement_group(group)
        elif now > self._freed + SETTLING_SECONDS:
            super().cancel_resource_request(request)
        else:
            return False
        return True


@contextmanager
def patched_placement_groups(cluster_ends: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Context in which Tune uses a `PlacementGroupPool`."""
    module: Any = ray.tune.tune
    pool = partial(PlacementGroupPool, cluster_ends=cluster_ends)
    with replaced(module, "TuneController", partial(module.TuneController, resource_manager_factory=pool)):
        yield
