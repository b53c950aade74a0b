"""The initial models of a cohort."""

import copy
from collections.abc import Sequence

import torch

from trainables.catalog import method_of, task_of
from trainables.config.trial import stream_key
from trainables.config.trial_config import TrialConfig
from trainables.contract import Method, Shapes
from trainables.learners.noise import seeded_generator


@torch.no_grad()
def build_models(configs: Sequence[TrialConfig], shapes: Shapes) -> list[Method]:
    """One model per member, for batches of these shapes. Members of one stream start with the same weights, except for
    their own fusible hyperparameters. The state of torch's global generator is unchanged."""
    templates: dict[tuple[object, ...], Method] = {}
    models = []
    for config in configs:
        key = stream_key(config)
        if key not in templates:
            with torch.random.fork_rng(devices=[]):
                torch.default_generator.manual_seed(seeded_generator("weights", key).initial_seed())
                networks = task_of(config.method).networks(config)
                templates[key] = method_of(config.method)(config.options, networks, shapes)
        model = copy.deepcopy(templates[key])
        for name in model.fusible:
            model.get_buffer(name).fill_(getattr(config.options, name))
        models.append(model)
    return models
