"""The initial models of a cohort."""

from collections.abc import Sequence

import torch

from trainables.catalog import method_of, task_of
from trainables.config.trial import stream_key
from trainables.config.trial_config import TrialConfig
from trainables.contract import Method, Shapes
from trainables.learners.noise import seeded_generator


@torch.no_grad()
def build_models(configs: Sequence[TrialConfig], shapes: Shapes) -> list[Method]:
    """The model of each member, for batches of these shapes. Members of one stream share one model, which has the
    fusible hyperparameters of the first of them; `build_stack` gives each member its own. The state of torch's global
    generator is unchanged."""
    models: dict[tuple[object, ...], Method] = {}
    keys = [stream_key(config) for config in configs]
    for key, config in zip(keys, configs, strict=True):
        if key not in models:
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(seeded_generator("weights", key).initial_seed())
                networks = task_of(config.method).networks(config)
                models[key] = method_of(config.method)(config.options, networks, shapes)
    return [models[key] for key in keys]
