"""What can be known before anything trains: the data are there, readable, and large enough for every trial."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainables.config import TrialConfig
from trainables.data.datasets import check, load
from trainables.data.outliers import outliers
from trainables.evaluate import metric_names
from trainables.streams import splits, steps_per_epoch


@dataclass(frozen=True)
class Prospect:
    """What a trial will be."""

    steps: int
    """Steps an epoch."""
    metrics: tuple[str, ...]
    """Every metric that its reports can hold."""
    during: tuple[str, ...]
    """Those that are reported before the end, too."""


def prospects(configs: Sequence[TrialConfig], data: Path) -> list[Prospect]:
    """Of each trial. DataError or ValueError, one line, for the first that the data cannot serve."""
    loaded = {name: load(name, data) for name in dict.fromkeys(config.data.dataset for config in configs)}
    for dataset in loaded.values():
        check(dataset)
    counts: dict[object, tuple[int, int]] = {}
    found = []
    for config in configs:
        dataset, outside = loaded[config.data.dataset], config.evaluation.outlier_sets
        key = (config.data, outside)
        if key not in counts:
            parts = splits(dataset, config.data)
            for name in outside:
                outliers(name, dataset, parts.test, data)
            counts[key] = len(parts.test.train_images), len(parts.test.labelled_labels)
        images, labelled = counts[key]
        if config.evaluation.knn > labelled:
            raise ValueError(
                f"knn must not exceed the {labelled} labelled training images of {dataset.name}, but got "
                f"knn={config.evaluation.knn}"
            )
        classes = len(dataset.classes)
        during = metric_names(config, classes, last=False)
        found.append(Prospect(steps_per_epoch(config, images), metric_names(config, classes), during))
    return found
