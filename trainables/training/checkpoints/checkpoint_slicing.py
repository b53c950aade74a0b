"""Cut a cohort's checkpoint into one for some of its members, or for stacks of another width.

Shapes: K members of the cohort that are still running.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from trainables.config.trial_config import TrialConfig
from trainables.reports import Report
from trainables.training.checkpoints.checkpoint import pack, unpack
from trainables.training.checks.stacking import split_into_stacks, stack_width
from trainables.training.progress import Progress


def slice_checkpoint(
    data: bytes,
    whole_configs: Sequence[TrialConfig],
    whole_width: int | None,
    configs: Sequence[TrialConfig],
    width: int | None,
    notify: Callable[[str], None] = lambda line: None,
    *,
    whole_compiled: bool = False,
    compiled: bool = False,
) -> bytes | None:
    """Make a checkpoint of the members `configs` from `data`, a checkpoint of the cohort `whole_configs`; widths are of
    stacks, whose steps are compiled or not.

    Returns None in three cases:

    - `data` is damaged or of another format, about which `notify` is called with one line, or is of other configs
    - a config is not among those of the whole cohort
    - members of a population have moved, and `configs` are not the whole cohort in the same order: a member's weights
      then depend on members that would be missing
    """
    unpacked = unpack(data, whole_configs, whole_width, notify, whole_compiled)
    indices = [whole_configs.index(config) if config in whole_configs else -1 for config in configs]
    if unpacked is None or -1 in indices:
        return None
    progress, state = unpacked
    if any(progress.schedules) and indices != list(range(len(whole_configs))):
        return None
    slots = [progress.running.index(index) for index in indices if index in progress.running]
    size = stack_width(configs, width)
    try:
        stacks = [_cut_stack(state, stacked) for stacked in split_into_stacks(slots, size, compiled)]
    except Exception as error:  # a checkpoint with a valid digest can still hold anything in place of its tensors
        notify(f"its checkpoint cannot be used: its tensors are of another kind ({type(error).__name__})")
        return None
    return pack(configs, width, _restricted(progress, indices, slots), stacks, compiled)


def _restricted(progress: Progress, indices: Sequence[int], slots: Sequence[int]) -> Progress:
    """The progress of the members with these indices alone; those that are still running are in `slots`."""
    shares = tuple(progress.shares[index] for index in indices)
    ended = tuple(progress.ended[index] for index in indices)
    reports = []
    for report in progress.reports:
        members = tuple(report.members[index] for index in indices)
        reports.append(replace(report, members=members, seconds=sum(member.seconds for member in members)))
    if not slots:  # the last report is that of the epoch in which the last member ended
        members = tuple(member for member in ended if member)
        epoch = max(member.epochs_run for member in members)
        reports = [report for report in reports if report.epoch < epoch]
        reports.append(Report(epoch, members, sum(shares), done=True))
    return replace(
        progress,
        seconds=sum(shares),
        shares=shares,
        ended=ended,
        schedules=tuple(progress.schedules[index] for index in indices),
        reports=tuple(reports),
        sums={name: sum_K[list(slots)] for name, sum_K in progress.sums.items()},
    )


def _cut_stack(state: Sequence[Mapping[str, Mapping[str, Tensor]]], slots: Sequence[int]) -> dict[str, Any]:
    """The state of one stack: these slots, counted over all stacks, of the tensors `[K, ...]`."""
    return {
        kind: {name: torch.cat([stack[kind][name] for stack in state])[list(slots)] for name in tensors}
        for kind, tensors in state[0].items()
    }
