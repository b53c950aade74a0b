"""Members go on without the cohort that they were part of, or as narrower stacks, from its checkpoint.

Shapes: K members of the cohort that are still there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from trainables.config.trial import TrialConfig
from trainables.contract import Report
from trainables.training.checkpoint import pack, unpack
from trainables.training.standing import Standing


def part(
    data: bytes,
    then: Sequence[TrialConfig],
    then_width: int | None,
    now: Sequence[TrialConfig],
    now_width: int | None,
    say: Callable[[str], None] = lambda line: None,
) -> bytes | None:
    """A checkpoint of `now`, some or all members of `then`, whose checkpoint `data` is; widths are those of stacks.

    None where `data` is no checkpoint of `then`, of which `say` is told in one line, and where it says nothing of all
    of `now`: members that were not there, or that have taken over weights of others who now are not.
    """
    found = unpack(data, then, then_width, say)
    flat = [config.flat() for config in then]
    places = [flat.index(one) if one in flat else -1 for one in (config.flat() for config in now)]
    if found is None or -1 in places:
        return None
    before, state = found
    if any(before.schedules) and places != list(range(len(then))):
        return None
    standing = _standing(before, places)
    running = [before.running.index(place) for place in places if place in before.running]
    width = now_width or len(now)
    try:
        stacks = [_taken(state, running[start : start + width]) for start in range(0, len(running), width)]
    except Exception as error:  # a sealed checkpoint can still hold anything in the place of its tensors
        say(f"its checkpoint cannot be used: its tensors are of another kind ({type(error).__name__})")
        return None
    return pack(now, now_width, standing, stacks)


def _standing(before: Standing, places: Sequence[int]) -> Standing:
    """Of these members alone."""
    running = [before.running.index(place) for place in places if place in before.running]
    now = replace(
        before,
        seconds=sum(before.shares[place] for place in places),
        shares=tuple(before.shares[place] for place in places),
        ended=tuple(before.ended[place] for place in places),
        schedules=tuple(before.schedules[place] for place in places),
        reports=tuple(_report(one, places) for one in before.reports),
        sums={name: sum_K[running] for name, sum_K in before.sums.items()},
    )
    return now if running else replace(now, reports=_concluded(now))


def _report(report: Report, places: Sequence[int]) -> Report:
    members = tuple(report.members[place] for place in places)
    return replace(report, members=members, seconds=sum(member.seconds for member in members))


def _concluded(now: Standing) -> tuple[Report, ...]:
    """The reports of members that have all ended, the last of which is that of the epoch in which the last one did."""
    members = tuple(member for member in now.ended if member)
    epoch = max(member.epochs_run for member in members)
    earlier = tuple(report for report in now.reports if report.epoch < epoch)
    return (*earlier, Report(epoch, members, now.seconds, done=True))


def _taken(state: Sequence[Mapping[str, Mapping[str, Tensor]]], running: Sequence[int]) -> dict[str, Any]:
    """The stack of these, by their place among the K, of all stacks' tensors `[K, ...]`."""
    return {
        kind: {name: torch.cat([stack[kind][name] for stack in state])[list(running)] for name in tensors}
        for kind, tensors in state[0].items()
    }
