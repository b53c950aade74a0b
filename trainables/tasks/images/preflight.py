"""Checks of trials on images before anything trains: each against the declaration of its data set, then against the
data, which must exist, be readable and be large enough."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from trainables.config.trial_config import TrialConfig
from trainables.data.datasets.catalog import check_dataset, load
from trainables.data.datasets.dataset import Dataset
from trainables.data.datasets.declarations import DECLARATIONS, placeholder
from trainables.data.outliers import check_outliers, load_outliers
from trainables.data.splits import Split
from trainables.tasks.images.config import ImageTrial
from trainables.tasks.images.stream import make_splits, steps_per_epoch
from trainables.tasks.task import PreflightResult

MetricNames = Callable[[TrialConfig, int, bool], tuple[str, ...]]
"""Names the metrics of a trial, on data of so many classes, at its last report or before."""


def check_image_trials(
    configs: Sequence[ImageTrial], data: Path | None, metric_names: MetricNames
) -> list[PreflightResult]:
    """The result of each trial; see `Task.preflight`. The declarations are checked first, before any file is read."""
    names = dict.fromkeys(config.data.dataset for config in configs)
    declared = _check_on(configs, metric_names, {name: placeholder(name) for name in names}, check_outliers)
    if data is None:
        return declared
    loaded = {name: load(name, data) for name in names}
    for dataset in loaded.values():
        check_dataset(dataset)
    return _check_on(configs, metric_names, loaded, partial(load_outliers, root=data))


def _check_on(
    configs: Sequence[ImageTrial],
    metric_names: MetricNames,
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
            results.append(_result(config, metric_names, 0, declared.classes if declared else 0, size_known=False))
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
        results.append(_result(config, metric_names, steps_per_epoch(config, images), len(dataset.classes)))
    return results


def _result(
    config: ImageTrial, metric_names: MetricNames, steps: int, classes: int, size_known: bool = True
) -> PreflightResult:
    names, names_before = metric_names(config, classes, True), metric_names(config, classes, False)
    return PreflightResult(steps, names, names_before, size_known)
