"""Evaluate a trained model on other data with the metrics of its trial, without training."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from trainables.catalog import task_of
from trainables.config import resolve
from trainables.sections import TrialConfig, Value
from trainables.training.model_file import TrainedModel
from trainables.training.stacks import build_stack


def evaluated_config(
    values: Mapping[str, Value], shape: Sequence[int], known: Mapping[str, Value], found: Sequence[int] | None
) -> TrialConfig:
    """The config of a trained trial with these `values`, with its data set replaced by the one in the keys `known`.
    `shape`: (C, H, W) of the model's images; `found`: that of the data set's images, None if images are resized to
    `shape`. Raises ValueError, with one line, if the model or the metrics do not suit these data."""
    if found is not None and tuple(found) != tuple(shape):
        raise ValueError(f"images must have the shape of the model's images, {_by(shape)}, but have {_by(found)}")
    resized = {} if found else {"image_channels": shape[0], "image_size": shape[1]}
    own = {key: value for key, value in values.items() if key != "dataset" and not key.startswith("image_")}
    return resolve({**own, **resized, **known})


def _by(shape: Sequence[int]) -> str:
    """A shape as `3 x 32 x 32`."""
    return " x ".join(map(str, shape))


def evaluate(
    trained: TrainedModel, config: TrialConfig, data: Path, device: torch.device | str = "cpu"
) -> dict[str, float | None]:
    """Return the metrics of a trained model on the data of `config` in the folder `data`: the metrics of its trial's
    last report, None if undefined. Images are normalised as in training. Raises ModelError, DataError or ValueError,
    with one line, if they cannot be computed."""
    task, device = task_of(config.method), torch.device(device)
    method, evaluator = task.evaluator(config, trained.build(), data, device)
    stack = build_stack([method], [config], [0], device)
    found = evaluator.metrics([stack], [0], last=True)
    values = {name: float(value_K[0]) for name, value_K in found.items()}
    return {name: value if math.isfinite(value) else None for name, value in values.items()}
