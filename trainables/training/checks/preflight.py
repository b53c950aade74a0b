"""Checks before anything trains: each trial against its data, which must exist, be readable and be large enough."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainables.catalog import TASKS, method_of
from trainables.config.trial_config import TrialConfig
from trainables.tasks.task import TrialSize
from trainables.training.checks.stacking import why_not_stacked
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
    why_not_stacked: str = ""
    """Why the trial cannot be stacked with others, in one line; empty if it can."""


def check_trials(configs: Sequence[TrialConfig], data: Path | None) -> list[PreflightResult]:
    """What is known of each trial, by its data set in the folder `data`. A missing data set is downloaded if possible.

    With `data=None` only the declarations of the data sets are used: no file is read and nothing is downloaded. Raises
    DataError or ValueError, with a one-line message, for the first trial that its data set cannot serve, or whose
    method, one of the user's, breaks the contract.
    """
    sizes: dict[int, TrialSize] = {}
    for name, task in TASKS.items():
        indices = [index for index, config in enumerate(configs) if method_of(config.method).task == name]
        sizes |= dict(zip(indices, task.preflight([configs[index] for index in indices], data), strict=True))
    return [_result(config, sizes[index]) for index, config in enumerate(configs)]


def stacking_notes(configs: Sequence[TrialConfig], results: Sequence[PreflightResult]) -> tuple[str, ...]:
    """One line for each method that cannot be stacked."""
    reasons: dict[str, str] = {}
    for config, result in zip(configs, results, strict=True):
        if result.why_not_stacked:
            reasons.setdefault(config.method, result.why_not_stacked)
    return tuple(
        f"{method} cannot be stacked, so its trials train one by one: {why}" for method, why in reasons.items()
    )


def _result(config: TrialConfig, size: TrialSize) -> PreflightResult:
    names, names_before = (metric_names(config, size.classes, last) for last in (True, False))
    return PreflightResult(size.steps, names, names_before, size.known, why_not_stacked(config))
