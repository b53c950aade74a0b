"""Where a plan's trials are cut into cohorts: as asked, as the sweep was begun, or as is best here."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict

from sweeper import cohorts
from sweeper.cluster import Slots
from sweeper.cohorts import Cut, Group
from sweeper.command import Request
from sweeper.plan import GridPlan, record_cut, recorded_cut
from sweeper.store import Store

MEASURED = 64
"""Members of a group that are measured together at most."""


def asked_cut(request: Request) -> Cut | None:
    """What `--cohort` and `--stack` say."""
    return Cut(request.cohort, request.stack or request.cohort) if request.cohort else None


def grid_cuts(request: Request, plan: GridPlan, store: Store, places: Mapping[int, Slots]) -> list[Cut]:
    """How to cut each group: as asked, else as it was begun, else as is fastest by measurement; and keep it.

    `places`: by how many workers train a trial.
    """
    asked, measured = asked_cut(request), None
    if asked:
        cuts = [asked] * len(plan.groups)
    elif recorded := recorded_cut(store.files, plan):
        return recorded
    else:
        from sweeper.dispatch import measure  # here: it imports Ray

        samples = [[trial.config for stream in group for trial in stream][:MEASURED] for group in plan.groups]
        measured = measure(samples, os.path.abspath(request.data), next(iter(places.values())))
        if recorded := recorded_cut(store.files, plan):  # the same sweep begun twice at once: one cut for both
            return recorded
        cuts = [
            cohorts.choose(speeds, group, steps, places[cohorts.workers(group)].count, memory)
            for (speeds, memory), group, steps in zip(measured, plan.groups, plan.steps, strict=True)
        ]
    record_cut(store.files, plan, cuts, measured and [[asdict(speed) for speed in speeds] for speeds, _ in measured])
    return cuts


def wave_cut(request: Request, slots: int, studies: int) -> Callable[[Sequence[Group], bool], list[Cut]]:
    """How to cut the groups of a wave: as asked, else so that no cohort has more than one slot's part of the wave.

    Nothing is measured, so that a seed gives the same search again, to the last bit. `studies` share the `slots`. The
    second argument of the cut says whether groups must stay whole, as a population must, whose members copy each other.
    """
    asked = asked_cut(request)

    def cut(groups: Sequence[Group], whole: bool) -> list[Cut]:
        sizes = [sum(map(len, group)) for group in groups]
        if whole:
            return [Cut(size, min(size, asked.width) if asked else size) for size in sizes]
        if asked:
            return [asked] * len(groups)
        part = math.ceil(sum(sizes) / max(1, slots // studies))
        return [Cut(part, part if cohorts.workers(group) == 1 else 1) for group in groups]

    return cut


def widths(cuts: Sequence[Cut]) -> list[str]:
    """How the cohorts of each cut step, in words."""
    words = [
        f"up to {cut.size} trials each, " + (f"{cut.width} stacked as one" if cut.width > 1 else "stepped in turn")
        for cut in cuts
    ]
    return list(dict.fromkeys(words))
