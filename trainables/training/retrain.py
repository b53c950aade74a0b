"""Train one trial again, alone and without a sweep: its model is equal to that of the sweep, up to rounding."""

from pathlib import Path

import torch

from trainables.config.trial_config import TrialConfig
from trainables.reports import ModelError
from trainables.training.model_file import TrainedModel
from trainables.training.train import train


def retrain(config: TrialConfig, data: Path, device: torch.device | str = "cpu") -> TrainedModel:
    """Train a trial on data in the folder `data`. Raises ModelError if it diverges or was trained by several processes,
    and DataError or ValueError if the data cannot be loaded."""
    if config.training.processes > 1:
        raise ModelError(
            f"it was trained by {config.training.processes} processes together, which one alone cannot repeat"
        )
    models: list[TrainedModel] = []
    for report in train([config], data, device=device, keep=lambda _, model: models.append(model)):
        last = report
    if not models:
        raise ModelError(f"it has no final weights: {last.members[0].error}")
    return models[0]


def check_device(device: torch.device | str) -> None:
    """Raise ValueError, with one line, if this machine has no such device."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # the latter from a torch without CUDA
        gpus = torch.cuda.device_count()
        has = f"{gpus} GPU{'s' * (gpus > 1)}" if gpus else "no GPU"
        raise ValueError(f"the device must be one that torch finds here, with {has}, but got '{device}'") from error
