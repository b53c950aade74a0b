"""Checks before anything trains: each trial against the declaration of its data set, then against the data, which must
exist, be readable and be large enough."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from trainables.config.trial import TrialConfig
from trainables.data.datasets.catalog import check_dataset, load
from trainables.data.datasets.dataset import Dataset
from trainables.data.datasets.declarations import DECLARATIONS, placeholder
from trainables.data.outliers import check_outliers, load_outliers
from trainables.data.splits import Split
from trainables.learners.streams import make_splits, steps_per_epoch
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
    """Whether the number of images is known. For a data set of image folders only the files tell."""


def check_trials(configs: Sequence[TrialConfig], data: Path | None) -> list[PreflightResult]:
    """The result of each trial, by its data set in the folder `data`. A missing data set is downloaded if possible.

    With `data=None` only the declarations of the data sets are used: no file is read and nothing is downloaded. Raises
    DataError or ValueError, with a one-line message, for the first trial that its data set cannot serve. The
    declarations are checked first, before any file is read.
    """
    names = dict.fromkeys(config.data.dataset for config in configs)
    declared = _check_on(configs, {name: placeholder(name) for name in names}, check_outliers)
    if data is None:
        return declared
    loaded = {name: load(name, data) for name in names}
    for dataset in loaded.values():
        check_dataset(dataset)
    return _check_on(configs, loaded, partial(load_outliers, root=data))


def _check_on(
    configs: Sequence[TrialConfig],
    datasets: Mapping[str, Dataset | None],
    check_outliers: Callable[[str, Dataset, Split], object],
) -> list[PreflightResult]:
    """The result of each trial on its data set; None is one whose number of images is unknown. Splits and outliers are
    made once for all trials that share them."""
    counts: dict[object, tuple[int, int]] = {}
    results = []
    for config in configs:
        dataset, outlier_sets = datasets[config.data.dataset], config.evaluation.outlier_sets
        if dataset is None:
            declared = DECLARATIONS.get(config.data.dataset)
            results.append(_result(config, 0, declared.classes if declared else 0, size_known=False))
            continue
        key = (config.data, outlier_sets)
        if key not in counts:
            split = make_splits(dataset, config.data).test
            for name in outlier_sets:
                check_outliers(name, dataset, split)
            counts[key] = len(split.train_images), len(split.labelled_labels)
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
