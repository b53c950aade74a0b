"""Which members of a cohort are stacked: methods of the user that cannot be stacked train one by one."""

import functools
from collections.abc import Sequence
from dataclasses import replace

from trainables.catalog import ships
from trainables.config.trial_config import TrialConfig
from trainables.training.checks.method_check import check_method


def stack_width(configs: Sequence[TrialConfig], width: int | None) -> int:
    """Members that are stacked at a time, of the `width` that was asked for (None: all)."""
    width = width or max(1, len(configs))
    return 1 if width > 1 and why_not_stacked(configs[0]) else width


def split_into_stacks(members: Sequence[int], width: int, compiled: bool) -> list[tuple[int, ...]]:
    """The members of each stack, in their order: `width` of them, and the rest in a narrower one. If steps are compiled
    the members of the rest are stepped one at a time, so that a cohort has steps of two shapes at most, however many
    of its members are pruned."""
    whole = len(members) - len(members) % width if compiled else len(members)
    stacks = [tuple(members[start : start + width]) for start in range(0, whole, width)]
    return [*stacks, *((member,) for member in members[whole:])]


def why_not_stacked(config: TrialConfig) -> str:
    """Why members of a trial's method cannot be stacked, in one line; empty if they can. A method of the user is tried.
    Raises ContractError (a ValueError), with one line, if it breaks the contract."""
    if ships(config.method):
        return ""
    return _tried(replace(config, training=replace(config.training, seed=0, epochs=min(1, config.training.epochs))))


_tried = functools.lru_cache(maxsize=64)(check_method)
