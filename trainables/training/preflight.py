"""Checks before anything trains: each trial against the declaration of its data set, then against the data, which must
exist, be readable and be large enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainables.config.trial import TrialConfig
from trainables.data.datasets.catalog import check, load
from trainables.data.datasets.dataset import Dataset
from trainables.data.datasets.declarations import DECLARATIONS, stand_in
from trainables.data.outliers import check as check_outliers
from trainables.data.outliers import outliers
from trainables.data.splits import Split
from trainables.learners.streams import splits, steps_per_epoch
from trainables.training.metric_names import metric_names

CheckOutliers = Callable[[str, Dataset, Split], object]


@dataclass(frozen=True)
class Prospect:
    """What is known of a trial before it trains."""

    steps: int
    """Steps an epoch; 0 where `sized` is False."""
    metrics: tuple[str, ...]
    """All metrics that its reports can hold."""
    during: tuple[str, ...]
    """The metrics that reports before the last one hold, too."""
    sized: bool = True
    """Whether the number of images is known. For a data set of image folders only the files tell."""


def _declared(configs: Sequence[TrialConfig]) -> list[Prospect]:
    """The prospect of each trial, by the declaration of its data set."""
    stand_ins = {name: stand_in(name) for name in {config.data.dataset for config in configs}}
    sized = iter(
        _prospects(
            [(config, dataset) for config in configs if (dataset := stand_ins[config.data.dataset])], check_outliers
        )
    )
    return [next(sized) if stand_ins[config.data.dataset] else _unsized(config) for config in configs]


def prospects(configs: Sequence[TrialConfig], data: Path | None) -> list[Prospect]:
    """The prospect of each trial, by its data set in the folder `data`. A missing data set is downloaded if possible.

    With `data=None` only the declarations of the data sets are used: no file is read and nothing is downloaded. Raises
    DataError or ValueError, with a one-line message, for the first trial that its data set cannot serve. The
    declarations are checked first, before any file is read.
    """
    declared = _declared(configs)
    if data is None:
        return declared
    loaded = {name: load(name, data) for name in dict.fromkeys(config.data.dataset for config in configs)}
    for dataset in loaded.values():
        check(dataset)
    return _prospects(
        [(config, loaded[config.data.dataset]) for config in configs],
        lambda name, dataset, parts: outliers(name, dataset, parts, data),
    )


def _prospects(trials: Sequence[tuple[TrialConfig, Dataset]], check_outliers: CheckOutliers) -> list[Prospect]:
    """The prospect of each trial on its data set. Splits and outliers are made once for all trials that share them."""
    counts: dict[object, tuple[int, int]] = {}
    prospects = []
    for config, dataset in trials:
        outlier_sets = config.evaluation.outlier_sets
        key = (config.data, outlier_sets)
        if key not in counts:
            parts = splits(dataset, config.data)
            for name in outlier_sets:
                check_outliers(name, dataset, parts.test)
            counts[key] = len(parts.test.train_images), len(parts.test.labelled_labels)
        images, labelled = counts[key]
        if config.evaluation.knn > labelled:
            raise ValueError(
                f"knn must not exceed the {labelled} labelled training images of {dataset.name}, but got "
                f"knn={config.evaluation.knn}"
            )
        prospects.append(_prospect(config, steps_per_epoch(config, images), len(dataset.classes)))
    return prospects


def _prospect(config: TrialConfig, steps: int, classes: int, sized: bool = True) -> Prospect:
    return Prospect(steps, metric_names(config, classes), metric_names(config, classes, last=False), sized)


def _unsized(config: TrialConfig) -> Prospect:
    """The prospect of a trial whose number of images is unknown; its metrics are those of the declared classes."""
    declared = DECLARATIONS.get(config.data.dataset)
    return _prospect(config, 0, declared.classes if declared else 0, sized=False)
