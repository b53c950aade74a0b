"""Checks before anything trains: each trial against what its task knows of its data."""

from collections.abc import Sequence
from pathlib import Path

from trainables.catalog import METHODS, TASKS
from trainables.config.trial_config import TrialConfig
from trainables.tasks.task import PreflightResult
from trainables.training.metric_names import metric_names


def check_trials(configs: Sequence[TrialConfig], data: Path | None) -> list[PreflightResult]:
    """What is known of each trial before it trains, by its data set in the folder `data`. A missing data set is
    downloaded if possible.

    With `data=None` only the declarations of the data sets are used: no file is read and nothing is downloaded. Raises
    DataError or ValueError, with a one-line message, for the first trial that its data set cannot serve.
    """
    results: dict[int, PreflightResult] = {}
    for name, task in TASKS.items():
        indices = [index for index, config in enumerate(configs) if METHODS[config.method].task == name]
        checked = task.preflight([configs[index] for index in indices], data, metric_names)
        results |= dict(zip(indices, checked, strict=True))
    return [results[index] for index in range(len(configs))]
