"""Cut a cohort's checkpoint into one for some of its members, or for stacks of another width.

Shapes: K members of the cohort that are still running.
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
from trainables.training.progress import Progress


def slice_checkpoint(
    data: bytes,
    then: Sequence[TrialConfig],
    then_width: int | None,
    now: Sequence[TrialConfig],
    now_width: int | None,
    say: Callable[[str], None] = lambda line: None,
) -> bytes | None:
    """Make a checkpoint of the members `now` from `data`, a checkpoint of the cohort `then`; widths are of stacks.

    Returns None in three cases:

    - `data` is damaged or of another format, about which `say` is called with one line, or is of other configs
    - a config of `now` is not among those of `then`
    - members of a population have moved, and `now` is not all of `then` in the same order: a member's weights then
      depend on members that would be missing
    """
    unpacked = unpack(data, then, then_width, say)
    flat_then = [config.flat() for config in then]
    indices = [flat_then.index(flat) if flat in flat_then else -1 for flat in (config.flat() for config in now)]
    if unpacked is None or -1 in indices:
        return None
    before, state = unpacked
    if any(before.schedules) and indices != list(range(len(then))):
        return None
    standing = _restricted_standing(before, indices)
    slices = [before.running.index(index) for index in indices if index in before.running]
    width = now_width or len(now)
    try:
        stacks = [_cut_stack(state, slices[start : start + width]) for start in range(0, len(slices), width)]
    except Exception as error:  # a checkpoint with a valid digest can still hold anything in place of its tensors
        say(f"its checkpoint cannot be used: its tensors are of another kind ({type(error).__name__})")
        return None
    return pack(now, now_width, standing, stacks)


def _restricted_standing(before: Progress, indices: Sequence[int]) -> Progress:
    """The standing of the members with these indices alone."""
    slices = [before.running.index(index) for index in indices if index in before.running]
    now = replace(
        before,
        seconds=sum(before.shares[index] for index in indices),
        shares=tuple(before.shares[index] for index in indices),
        ended=tuple(before.ended[index] for index in indices),
        schedules=tuple(before.schedules[index] for index in indices),
        reports=tuple(_restricted_report(report, indices) for report in before.reports),
        sums={name: sum_K[slices] for name, sum_K in before.sums.items()},
    )
    return now if slices else replace(now, reports=_concluded(now))


def _restricted_report(report: Report, indices: Sequence[int]) -> Report:
    members = tuple(report.members[index] for index in indices)
    return replace(report, members=members, seconds=sum(member.seconds for member in members))


def _concluded(now: Progress) -> tuple[Report, ...]:
    """The reports of members that have all ended. The last report is that of the epoch in which the last member did."""
    members = tuple(member for member in now.ended if member)
    epoch = max(member.epochs_run for member in members)
    earlier = tuple(report for report in now.reports if report.epoch < epoch)
    return (*earlier, Report(epoch, members, now.seconds, done=True))


def _cut_stack(state: Sequence[Mapping[str, Mapping[str, Tensor]]], slices: Sequence[int]) -> dict[str, Any]:
    """The state of one stack: these slices, counted over all stacks, of the tensors `[K, ...]`."""
    return {
        kind: {name: torch.cat([stack[kind][name] for stack in state])[list(slices)] for name in tensors}
        for kind, tensors in state[0].items()
    }
