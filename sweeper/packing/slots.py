"""Where cohorts run: the parts of devices that they take, and the kinds of devices that have room for each cohort."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from sweeper.errors import ClusterError


@dataclass(frozen=True)
class SlotResources:
    """What one process takes of a kind of device."""

    resources: Mapping[str, float]
    """Ray resources, e.g. `{"GPU": 0.5, "CPU": 4.0}`."""
    count: int
    """Processes that run at once on the devices that are there now."""
    memory: int | None = None
    """Bytes that the process may use: its part of the device, or of the machine; None if unknown."""


@dataclass(frozen=True)
class Slots:
    """What a cohort takes of a cluster, and how many cohorts run at once on what is there now."""

    by_kind: tuple[SlotResources, ...]
    """What each worker of a cohort takes, by kind of device; only kinds that are used."""
    local: bool
    """True if no node can come to the cluster, see `Cluster.local`."""
    workers: int = 1
    """Processes that train one cohort together."""
    fitting_kinds: Mapping[str, Collection[int]] = field(default_factory=dict)
    """trial_id -> indices in `by_kind` of the kinds that have room for its cohort. A trial that is not a key fits all
    kinds."""

    @property
    def resources(self) -> dict[str, float]:
        """Ray resources of a worker on the first kind of device."""
        return dict(self.by_kind[0].resources)

    @property
    def count(self) -> int:
        """Cohorts that run at once, at least 1. An autoscaling cluster may grow beyond it."""
        return max(1, sum(kind.count for kind in self.by_kind) // self.workers)

    def for_workers(self, workers: int) -> Slots:
        """Return the slots of cohorts that several `workers` train, all of them on the first kind of device.

        Raises ClusterError if several workers would share a GPU, or if the machine has too few devices and cannot grow.
        """
        if workers > 1 and self.resources.get("GPU", 1.0) < 1:
            raise ClusterError(
                f"each of several workers must have a GPU of its own, but got workers={workers} with "
                f"{self.resources['GPU']:g} of a GPU each; leave out --gpu-fraction"
            )
        if workers > self.count and self.local:
            raise ClusterError(
                f"workers must not exceed {self.count}, the processes that this machine has devices for, but got "
                f"workers={workers}; choose fewer with --set workers=N, or pass the --address of a cluster"
            )
        return replace(self, by_kind=self.by_kind if workers == 1 else self.by_kind[:1], workers=workers)
