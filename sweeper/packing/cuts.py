"""Cuts that need no measurement: as requested, as recorded, or of the wave of a search."""

import math
from collections.abc import Callable, Sequence

from sweeper.packing.recorded_cuts import recorded_cuts
from sweeper.plan import cohorts
from sweeper.plan.cohorts import Cut, Group
from sweeper.plan.plan import GridPlan
from sweeper.spec.request import Request
from sweeper.storage.store import Store


def requested_cut(request: Request) -> Cut | None:
    """Return the cut that `--cohort` and `--stack` request; None without `--cohort`."""
    return Cut(request.cohort, request.stack or request.cohort) if request.cohort else None


def settled_cuts(request: Request, plan: GridPlan, store: Store) -> list[Cut] | None:
    """Return the cut of each group as requested, else as the sweep was begun; None if neither settles it."""
    requested = requested_cut(request)
    return [requested] * len(plan.groups) if requested else recorded_cuts(store.files, plan)


def wave_cut(request: Request, slots: int, studies: int) -> Callable[[Sequence[Group], bool], list[Cut]]:
    """Return a function that cuts the groups of a wave: as requested, else to at most one slot's part of its trials.

    One slot's part is the number of trials divided by the slots of one study; the `studies` share the `slots` equally.
    Groups are not joined, so several groups may give more cohorts than there are slots. Nothing is measured, so that a
    seed gives the same search again, to the last bit.

    The second argument of the returned function says whether groups must stay whole, as a population must, because its
    members copy each other.
    """
    requested = requested_cut(request)

    def cut(groups: Sequence[Group], whole: bool) -> list[Cut]:
        sizes = [sum(map(len, group)) for group in groups]
        if whole:
            return [Cut(size, min(size, requested.width) if requested else size) for size in sizes]
        if requested:
            return [requested] * len(groups)
        part = math.ceil(sum(sizes) / max(1, slots // studies))
        return [Cut(part, part if cohorts.worker_count(group) == 1 else 1) for group in groups]

    return cut


def describe_cuts(cuts: Sequence[Cut]) -> list[str]:
    """Describe each different cut in words, e.g. "up to 56 trials each, 8 stacked as one"."""
    descriptions = [
        f"up to {cut.size} trials each, " + (f"{cut.width} stacked as one" if cut.width > 1 else "stepped in turn")
        for cut in cuts
    ]
    return list(dict.fromkeys(descriptions))
