"""Checks before anything trains: each trial against its data, which must exist, be readable and be large enough."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainables.catalog import METHODS, TASKS
from trainables.config.trial_config import TrialConfig
from trainables.tasks.task import TrialSize
from trainables.training.metric_names import metric_names


@dataclass(frozen=True)
class PreflightResult:
    """What is known of a trial before it trains."""

    steps: int
    """Steps an epoch; 0 where `size_known` is False."""
    metrics: tuple[str, ...]
    """All metrics that its reports can hold."""
    metrics_during_training: tuple[str, ...]
    """The metrics that reports before the last one hold, too."""
    size_known: bool = True
    """Whether the number of examples is known. For a data set of image folders only the files tell."""


def check_trials(configs: Sequence[TrialConfig], data: Path | None) -> list[PreflightResult]:
    """What is known of each trial, by its data set in the folder `data`. A missing data set is downloaded if possible.

    With `data=None` only the declarations of the data sets are used: no file is read and nothing is downloaded. Raises
    DataError or ValueError, with a one-line message, for the first trial that its data set cannot serve.
    """
    sizes: dict[int, TrialSize] = {}
    for name, task in TASKS.items():
        indices = [index for index, config in enumerate(configs) if METHODS[config.method].task == name]
        sizes |= dict(zip(indices, task.preflight([configs[index] for index in indices], data), strict=True))
    return [_result(config, sizes[index]) for index, config in enumerate(configs)]


def _result(config: TrialConfig, size: TrialSize) -> PreflightResult:
    names, names_before = (metric_names(config, size.classes, last) for last in (True, False))
    return PreflightResult(size.steps, names, names_before, size.known)
