"""Where cohorts run: shares of devices, of one kind or of several, and which of them each cohort is given."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from sweeper.errors import ClusterError


@dataclass(frozen=True)
class SlotResources:
    """What one process takes of a device of some kind."""

    resources: Mapping[str, float]
    """Of Ray."""
    count: int
    """So many at once on what is there now."""
    memory: int | None = None
    """Bytes that the process may use at the most: its part of the device, or of the machine; None where unknown."""


@dataclass(frozen=True)
class Slots:
    """What a cohort takes of a cluster, and how many run at once on what is there now."""

    shares: tuple[SlotResources, ...]
    """Of each kind of device that is used; of each worker of a cohort."""
    here: bool
    """True where they run on this machine's cores."""
    grows: bool = False
    """True for a cluster elsewhere, to which nodes may come."""
    workers: int = 1
    """Processes that train one cohort together."""
    only: Mapping[str, Collection[int]] = field(default_factory=dict)
    """trial_id -> the places in `shares` of the kinds that have room for its cohort; all where it is not named."""

    @property
    def resources(self) -> dict[str, float]:
        return dict(self.shares[0].resources)

    @property
    def count(self) -> int:
        """Cohorts at once; an autoscaling cluster may grow beyond it."""
        return max(1, sum(share.count for share in self.shares) // self.workers)

    def of(self, workers: int) -> Slots:
        """The same place for cohorts of so many workers each, of several all on one kind of device. ClusterError where
        it has no room for one."""
        if workers > 1 and self.resources.get("GPU", 1.0) < 1:
            raise ClusterError(
                f"each of several workers must have a GPU of its own, but got workers={workers} on shares"
            )
        if workers > self.count and not self.grows:
            raise ClusterError(
                f"workers must not exceed the {self.count} that this machine has GPUs or else cores for, but got "
                f"workers={workers}; choose fewer with --set workers=N, or give a cluster's --address"
            )
        return replace(self, shares=self.shares if workers == 1 else self.shares[:1], workers=workers)
