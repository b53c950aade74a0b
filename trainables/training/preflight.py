"""Checks before anything trains: each trial against the declaration of its data set, then against the data, which must
exist, be readable and be large enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainables.config.trial import TrialConfig
from trainables.data.datasets.catalog import check_dataset, load
from trainables.data.datasets.dataset import Dataset
from trainables.data.datasets.declarations import DECLARATIONS, placeholder
from trainables.data.outliers import check_outliers, load_outliers
from trainables.data.splits import Split
from trainables.learners.streams import make_splits, steps_per_epoch
from trainables.training.metric_names import metric_names

CheckOutliers = Callable[[str, Dataset, Split], object]


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
    """Whether the number of images is known. For a data set of image folders only the files tell."""


def _check_on_declarations(configs: Sequence[TrialConfig]) -> list[PreflightResult]:
    """The result of each trial, by the declaration of its data set."""
    placeholders = {name: placeholder(name) for name in {config.data.dataset for config in configs}}
    sized = iter(
        _check_on_data(
            [(config, dataset) for config in configs if (dataset := placeholders[config.data.dataset])], check_outliers
        )
    )
    return [next(sized) if placeholders[config.data.dataset] else _unsized_result(config) for config in configs]


def check_trials(configs: Sequence[TrialConfig], data: Path | None) -> list[PreflightResult]:
    """The result of each trial, by its data set in the folder `data`. A missing data set is downloaded if possible.

    With `data=None` only the declarations of the data sets are used: no file is read and nothing is downloaded. Raises
    DataError or ValueError, with a one-line message, for the first trial that its data set cannot serve. The
    declarations are checked first, before any file is read.
    """
    declared = _check_on_declarations(configs)
    if data is None:
        return declared
    loaded = {name: load(name, data) for name in dict.fromkeys(config.data.dataset for config in configs)}
    for dataset in loaded.values():
        check_dataset(dataset)
    return _check_on_data(
        [(config, loaded[config.data.dataset]) for config in configs],
        lambda name, dataset, parts: load_outliers(name, dataset, parts, data),
    )


def _check_on_data(
    trials: Sequence[tuple[TrialConfig, Dataset]], check_outliers: CheckOutliers
) -> list[PreflightResult]:
    """The result of each trial on its data set. Splits and outliers are made once for all trials that share them."""
    counts: dict[object, tuple[int, int]] = {}
    results = []
    for config, dataset in trials:
        outlier_sets = config.evaluation.outlier_sets
        key = (config.data, outlier_sets)
        if key not in counts:
            parts = make_splits(dataset, config.data)
            for name in outlier_sets:
                check_outliers(name, dataset, parts.test)
            counts[key] = len(parts.test.train_images), len(parts.test.labelled_labels)
        images, labelled = counts[key]
        if config.evaluation.knn > labelled:
            raise ValueError(
                f"knn must not exceed the {labelled} labelled training images of {dataset.name}, but got "
                f"knn={config.evaluation.knn}"
            )
        results.append(_result(config, steps_per_epoch(config, images), len(dataset.classes)))
    return results


def _result(config: TrialConfig, steps: int, classes: int, size_known: bool = True) -> PreflightResult:
    return PreflightResult(steps, metric_names(config, classes), metric_names(config, classes, last=False), size_known)


def _unsized_result(config: TrialConfig) -> PreflightResult:
    """The result of a trial whose number of images is unknown; its metrics are those of the declared classes."""
    declared = DECLARATIONS.get(config.data.dataset)
    return _result(config, 0, declared.classes if declared else 0, size_known=False)
