"""The initial models of a cohort, and stacks of them with the method's learner."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from trainables.catalog import method_of, task_of
from trainables.config import stream_key
from trainables.contract import Method, Shapes
from trainables.learners.compiled import FindLibrary
from trainables.learners.data_parallel import SINGLE_PROCESS, Peers, seeded_generator
from trainables.learners.members import FittedMembers, StackedMembers
from trainables.learners.optimisers import Rates, StackedAdam, StackedLARS, StackedSGD
from trainables.learners.stack import CompiledStack, MakeOptimiser, Stack
from trainables.networks.heads import frozen_for_training
from trainables.sections import TrialConfig


@torch.no_grad()
def build_models(configs: Sequence[TrialConfig], shapes: Shapes) -> list[Method]:
    """The model of each member, for batches of these shapes. Members of one stream share one model with the fusible
    hyperparameters of the first member; `build_stack` sets each member's own. Weights that `__init__` or `train()`
    freezes with `requires_grad_(False)` become buffers. torch's global generator keeps its state."""
    models: dict[tuple[object, ...], Method] = {}
    keys = [stream_key(config) for config in configs]
    for key, config in zip(keys, configs, strict=True):
        if key not in models:
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(seeded_generator("weights", key).initial_seed())
                networks = task_of(config.method).networks(config, initial=True)
                model = models[key] = method_of(config.method)(config.options, networks, shapes)
                frozen_for_training(model)
    return [models[key] for key in keys]


def build_stack(
    models: Sequence[Method],
    configs: Sequence[TrialConfig],
    streams: Sequence[int],
    device: torch.device,
    peers: Peers = SINGLE_PROCESS,
    find_library: FindLibrary | None = None,
) -> StackedMembers:
    """Stack initial models of these configs, with the fusible hyperparameters of each. `streams`: the index of each
    member's data stream. With `find_library`, steps of members that learn by gradients are compiled."""
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
    """As `build_stack`, with the hyperparameters of the models."""
    first = configs[0]
    common: dict[str, Any] = {"streams": streams, "device": device, "peers": peers}
    if models[0].fitted():
        return FittedMembers(models, **common)
    options = common | {
        "rates": Rates(*([getattr(config.gradient, name) for config in configs] for name in Rates._fields)),
        "accumulate": first.gradient.accumulate,
        "make_optimiser": _optimiser(first),
        "autocast": torch.bfloat16 if first.gradient.precision == "bfloat16" else None,
    }
    return CompiledStack(models, find_library=find_library, **options) if find_library else Stack(models, **options)


def _optimiser(config: TrialConfig) -> MakeOptimiser:
    """The optimiser that a trial's config defines."""
    name = config.optimiser.optimiser
    if name in ("adam", "adamw"):
        return partial(StackedAdam, epsilon=config.optimiser.adam_epsilon, decoupled=name == "adamw")
    return partial(StackedLARS if name == "lars" else StackedSGD, momentum=config.gradient.momentum)
