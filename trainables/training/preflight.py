"""What can be known before anything trains: of a trial by its data set's declaration, and then that the data are there,
readable, and large enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainables.config.trial import TrialConfig
from trainables.data.datasets import Dataset, check, load
from trainables.data.declarations import DECLARATIONS, stand_in
from trainables.data.outliers import check as check_outliers
from trainables.data.outliers import outliers
from trainables.data.splits import Split
from trainables.learners.streams import splits, steps_per_epoch
from trainables.training.evaluators import metric_names

CheckOutliers = Callable[[str, Dataset, Split], object]


@dataclass(frozen=True)
class Prospect:
    """What a trial will be."""

    steps: int
    """Steps an epoch; 0 where `sized` is False."""
    metrics: tuple[str, ...]
    """Every metric that its reports can hold."""
    during: tuple[str, ...]
    """Those that are reported before the end, too."""
    sized: bool = True
    """Whether the number of images is known: only the files say it of a set of image folders."""


def _declared(configs: Sequence[TrialConfig]) -> list[Prospect]:
    """Of each trial, by the published data set's declaration."""
    stand_ins = {name: stand_in(name) for name in {config.data.dataset for config in configs}}
    sized = iter(
        _prospects([(config, found) for config in configs if (found := stand_ins[config.data.dataset])], check_outliers)
    )
    return [next(sized) if stand_ins[config.data.dataset] else _unsized(config) for config in configs]


def prospects(configs: Sequence[TrialConfig], data: Path | None) -> list[Prospect]:
    """Of each trial, by its data set in the folder `data`, which is downloaded where it can be and is not there.

    `data=None` goes by the declarations of the data sets alone: no file is read, nothing is downloaded. DataError or
    ValueError, one line, for the first trial that the data cannot serve. What the declarations refuse is refused before
    anything is read.
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
    """Of each trial on its data set; outliers are checked once for all trials that have the same."""
    counts: dict[object, tuple[int, int]] = {}
    found = []
    for config, dataset in trials:
        outside = config.evaluation.outlier_sets
        key = (config.data, outside)
        if key not in counts:
            parts = splits(dataset, config.data)
            for name in outside:
                check_outliers(name, dataset, parts.test)
            counts[key] = len(parts.test.train_images), len(parts.test.labelled_labels)
        images, labelled = counts[key]
        if config.evaluation.knn > labelled:
            raise ValueError(
                f"knn must not exceed the {labelled} labelled training images of {dataset.name}, but got "
                f"knn={config.evaluation.knn}"
            )
        found.append(_prospect(config, steps_per_epoch(config, images), len(dataset.classes)))
    return found


def _prospect(config: TrialConfig, steps: int, classes: int, sized: bool = True) -> Prospect:
    return Prospect(steps, metric_names(config, classes), metric_names(config, classes, last=False), sized)


def _unsized(config: TrialConfig) -> Prospect:
    """With the metrics of the published set's number of classes."""
    declared = DECLARATIONS.get(config.data.dataset)
    return _prospect(config, 0, declared.classes if declared else 0, sized=False)
