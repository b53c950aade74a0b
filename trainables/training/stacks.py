"""Stacks of initial models, with the learner that their method needs."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from trainables.config.trial_config import TrialConfig
from trainables.contract import Method
from trainables.learners.compiled.library import FindLibrary
from trainables.learners.compiled.stack import CompiledStack
from trainables.learners.data_parallel import SINGLE_PROCESS, Peers
from trainables.learners.fitted import FittedMembers
from trainables.learners.members import StackedMembers
from trainables.learners.optimisers import StackedAdam, StackedSGD
from trainables.learners.stack import MakeOptimiser, Stack


def build_stack(
    models: Sequence[Method],
    configs: Sequence[TrialConfig],
    streams: Sequence[int],
    device: torch.device,
    peers: Peers = SINGLE_PROCESS,
    find_library: FindLibrary | None = None,
) -> StackedMembers:
    """Stack initial models of these configs, with the fusible hyperparameters of each. `streams`: the index of each
    member's data stream. With `find_library` the steps of members that learn by gradients are compiled."""
    stack = _stack(models, configs, streams, device, peers, find_library)
    for name in models[0].fusible:
        stack.set_hyperparameter(name, [float(getattr(config.options, name)) for config in configs])
    return stack


def _stack(
    models: Sequence[Method],
    configs: Sequence[TrialConfig],
    streams: Sequence[int],
    device: torch.device,
    peers: Peers,
    find_library: FindLibrary | None,
) -> StackedMembers:
    """The same, with the hyperparameters of the models."""
    first = configs[0]
    common: dict[str, Any] = {"streams": streams, "device": device, "peers": peers}
    if models[0].fitted():
        return FittedMembers(models, **common)
    options = common | {
        "lr": [config.gradient.lr for config in configs],
        "weight_decay": [config.gradient.weight_decay for config in configs],
        "make_optimiser": _optimiser(first),
        "autocast": torch.bfloat16 if first.gradient.precision == "bfloat16" else None,
    }
    return CompiledStack(models, find_library=find_library, **options) if find_library else Stack(models, **options)


def _optimiser(config: TrialConfig) -> MakeOptimiser:
    """The optimiser that a trial asks for."""
    if config.optimiser.optimiser == "adam":
        return partial(StackedAdam, epsilon=config.optimiser.adam_epsilon)
    return partial(StackedSGD, momentum=config.gradient.momentum)
