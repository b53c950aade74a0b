"""What can be known before anything trains: the data are there, and large enough for every trial."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trainables.config import TrialConfig
from trainables.data.datasets import load
from trainables.streams import split, steps_per_epoch, stream_key


def steps_of(configs: Sequence[TrialConfig], data: Path) -> list[int]:
    """Steps an epoch of each trial. DataError or ValueError, one line, for the first that the data cannot serve."""
    images: dict[tuple[object, ...], int] = {}
    steps = []
    loaded = {name: load(name, data) for name in dict.fromkeys(config.data.dataset for config in configs)}
    for config in configs:
        key = stream_key(config)[:2]
        if key not in images:
            images[key] = len(split(loaded[config.data.dataset], config.data.normal_class).train_images)
        steps.append(steps_per_epoch(config, images[key]))
    return steps
