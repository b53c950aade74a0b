"""How many members of a cohort are stacked at a time: methods of the user that cannot be stacked train one by one."""

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


def why_not_stacked(config: TrialConfig) -> str:
    """Why members of a trial's method cannot be stacked, in one line; empty if they can. A method of the user is tried.
    Raises ContractError (a ValueError), with one line, if it breaks the contract."""
    if ships(config.method):
        return ""
    return _tried(replace(config, training=replace(config.training, seed=0, epochs=min(1, config.training.epochs))))


_tried = functools.lru_cache(maxsize=64)(check_method)
