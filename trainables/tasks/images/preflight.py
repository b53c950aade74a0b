"""Load the data of trials on images, by name or from the user's own folder, and check them before anything trains.

Trials are first checked against the declaration of their data set, then against the data, which must exist, be readable
and be large enough.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path

import torch
from torch import Tensor

from trainables.contract import ImageMethod
from trainables.data.datasets.catalog import DATASETS, check_dataset, load
from trainables.data.datasets.class_folders import FOLDER, load_folder
from trainables.data.datasets.dataset import Dataset, listed, placeholder
from trainables.data.datasets.own_data import forget_own_data, is_own_data, load_own_data
from trainables.data.image_files import Images, prefetched
from trainables.data.outliers import check_outliers, load_outliers
from trainables.data.own_views import check_own_views
from trainables.data.splits import Split
from trainables.data.views import contrast_range, scale_pixels
from trainables.image_trial import Data, Folder, ImageTrial
from trainables.metrics.sample_quality import check_fid
from trainables.synonyms import letters
from trainables.tasks.images.stream import TrialSplits, make_splits, steps_per_epoch
from trainables.tasks.task import TrialSize
from trainables.validation import nearest

MOST_NAMED = 10
"""Most classes that a line for the user names."""
LEAST_MISSPELT = 4
"""Fewest letters of the longer of two names that may be one with a wrong letter: `ok` and `nok` are not."""
BLOCK = 1024
"""Number of training images whose contrast is measured at a time."""


def check_image_trials(configs: Sequence[ImageTrial], data: Path | None) -> list[TrialSize]:
    """The size of each trial; see `Task.preflight`. The declarations are checked first, before any file is read."""
    examples = {(config.data.dataset, config.folder): config for config in configs}
    declared = _check_on(configs, {key: placeholder_for(config) for key, config in examples.items()}, check_outliers)
    for name, shape in {(config.pixel_views.augmentation, config.declaration.shape) for config in configs}:
        if name:
            check_own_views(name, shape)
    if data is None:
        return declared
    for weights in dict.fromkeys(config.generation.fid_weights for config in configs):
        if weights:
            check_fid(Path(weights))
    for config in {config.networks: config for config in configs if config.pretrained.weights}.values():
        replace(config.networks, initial=True).build(config.declaration.shape)
    loaded = {key: load_dataset(*key, data) for key in examples}
    for dataset in loaded.values():
        check_dataset(dataset)
    sizes = _check_on(configs, loaded, partial(load_outliers, root=data))
    forget_own_data()
    return sizes


def _check_on(
    configs: Sequence[ImageTrial],
    datasets: Mapping[tuple[str, Folder], Dataset | None],
    check_outliers: Callable[[str, Dataset, Split], object],
) -> list[TrialSize]:
    """The size of each trial on its data set. A data set is None if its number of images is unknown. Splits and
    outliers are made once for all trials that share them."""
    counts: dict[object, tuple[int, int, int, int | None, str]] = {}
    sizes = []
    for config in configs:
        dataset, outlier_sets = datasets[config.data.dataset, config.folder], config.evaluation.outlier_sets
        if dataset is None:
            sizes.append(TrialSize(0, config.declaration.classes, known=False))
            continue
        key = (config.data, config.folder, outlier_sets)
        if key not in counts:
            _check_numbers(config.data, dataset)
            splits = make_splits(dataset, config.data)  # any seed: it does not change the number of images
            _check_outlier_classes(splits, dataset, config.data)
            split = splits.test
            for name in outlier_sets:
                check_outliers(name, dataset, split)
            counts[key] = len(split.train_images), *_labelled(split), _held_out(splits), _note(split)
        images, labelled, fewest, held_out, note = counts[key]
        _check_labelled(config, dataset, labelled, fewest)
        steps = steps_per_epoch(config, images)
        sizes.append(TrialSize(steps, len(dataset.classes), held_out=held_out, note=note))
    return sizes


def _check_numbers(data: Data, dataset: Dataset) -> None:
    """Raise ValueError for a trial that gives classes by number if these numbers are names of other classes."""
    if data.normal_class is None and not data.held_out:
        return
    for index, name in enumerate(dataset.classes):
        if name.isdecimal() and int(name) != index:
            raise ValueError(
                "a class whose name is a number must have that index, so that normal_class and held_out are "
                f"unambiguous, but class {index} of {dataset.name} is named {name}; name the classes from 0 on, or by "
                "words"
            )


def _note(split: Split) -> str:
    """One line that warns about unusual images of a trial; empty if nothing is unusual."""
    for noun, images in (("training", split.train_images), ("test", split.test_images)):
        if _all_equal(images):
            return f"warning: all {len(images)} {noun} images of {split.name} are equal, so they carry no information"
    untrained = {*split.test_labels.tolist()} - {*split.train_labels.tolist()}
    if split.outlier is not None or not split.classes or not untrained:
        return ""
    named = ", ".join(split.classes[label] for label in sorted(untrained)[:MOST_NAMED])
    more = f" and {len(untrained) - MOST_NAMED} more" if len(untrained) > MOST_NAMED else ""
    return (
        f"warning: {split.name} has test images of classes without training images ({named}{more}), which no "
        "classifier can recognise"
    )


def _all_equal(images: Images) -> bool:
    """Whether several images are all equal; for images that are decoded on demand, only the first `BLOCK` are
    compared."""
    if len(images) < 2 or not images.shape[-1]:
        return False
    count = len(images) if isinstance(images, Tensor) else min(BLOCK, len(images))
    return all(torch.equal(images[index : index + 1], images[:1]) for index in range(1, count))


def _labelled(split: Split) -> tuple[int, int]:
    """Number of labelled training images, in total and in the smallest class."""
    by_class = split.labelled_labels.unique(return_counts=True)[1]
    return len(split.labelled_labels), min(by_class.tolist(), default=0)


def _check_labelled(config: ImageTrial, dataset: Dataset, labelled: int, fewest: int) -> None:
    """Raise ValueError if metrics need more labelled training images than the data set has."""
    if config.embeddings.few_labels > fewest:
        raise ValueError(
            f"few_labels must not exceed the {fewest} labelled training images of a class of {dataset.name}, but "
            f"got few_labels={config.embeddings.few_labels}"
        )
    for name, neighbours in (("knn", config.evaluation.knn), ("content_knn", config.content.content_knn)):
        if neighbours > labelled:
            raise ValueError(
                f"{name} must not exceed the {labelled} labelled training images of {dataset.name}, but got "
                f"{name}={neighbours}"
            )


def check_classes(config: ImageTrial, method: type[ImageMethod], classes: int, dataset: Dataset) -> None:
    """Raise ValueError if a trial refers to classes, by a key or because its method classifies, and the data set's
    number of classes differs from the model's `classes`."""
    for key, value in (
        ("normal_class", config.data.normal_class),
        ("held_out", config.data.held_out or None),
        ("method", config.method if method.needs_labels() else None),
    ):
        if value is not None and len(dataset.classes) != classes:
            raise ValueError(
                f"{key}={value} refers to the {classes} classes on which the model was trained, but {dataset.name} has "
                f"{len(dataset.classes)}"
            )


def check_splits(config: ImageTrial, dataset: Dataset, splits: TrialSplits) -> None:
    """Raise ValueError if the metrics of a trial cannot be computed on these images."""
    _check_outlier_classes(splits, dataset, config.data)
    _check_labelled(config, dataset, *_labelled(splits.test))


def _held_out(splits: TrialSplits) -> int | None:
    """Number of held-out normal images; None unless one class is normal."""
    if splits.test.outlier is None:
        return None
    outlier = splits.validation.outlier if splits.validation else None
    return 0 if outlier is None else int((~outlier).sum())


def _check_outlier_classes(splits: TrialSplits, dataset: Dataset, data: Data) -> None:
    """Raise ValueError if a one-class trial lacks training images of its class or test images."""
    if data.normal_class is not None and not len(splits.test.train_images):
        trained = [dataset.classes[label] for label in dataset.train_labels.unique().tolist()]
        raise ValueError(
            f"the normal class must have training images, but {dataset.classes[data.normal_class]} of {dataset.name} "
            f"(normal_class={data.normal_class}) has none{nearest(dataset.classes[data.normal_class], trained)}; "
            f"classes with training images are: {', '.join(trained)}"
        )
    outlier = splits.test.outlier
    if outlier is not None and (outlier.all() or not outlier.any()):
        assert data.normal_class is not None
        normal = dataset.classes[data.normal_class]
        tested = [dataset.classes[label] for label in splits.test.test_labels.unique().tolist()]
        got = (
            f"none of it{nearest(normal, tested)}; there are: {', '.join(tested)}"
            if outlier.all()
            else "none of others"
        )
        raise ValueError(
            "test images must be of the normal class and of others, but for "
            f"normal_class={normal} {dataset.name} has {got}"
        )
    if data.normal_class is not None:
        _check_misnamed(dataset.classes[data.normal_class], dataset)


def _check_misnamed(normal: str, dataset: Dataset) -> None:
    """Raise ValueError for a class of test images alone that is named nearly as the normal class of image files: its
    images would be taken for anomalies."""
    trained = {*dataset.train_labels.tolist()}
    for label in sorted({*dataset.test_labels.tolist()} - trained):
        name = dataset.classes[label]
        if dataset.name == FOLDER and is_misspelt(name, normal):
            raise ValueError(
                f"test/{name} has no training images and is named nearly as the normal class '{normal}': rename it to "
                f"test/{normal} if its images are normal, or to a name that differs more if they are anomalies"
            )


def is_misspelt(name: str, normal: str) -> bool:
    """Whether two names differ in upper case, blanks, hyphens and underscores alone, or of at least four letters in one
    that is wrong, missing or too many. `abnormal` is another word than `normal`, and `type2` another than `type1`."""
    first, second = sorted((letters(name), letters(normal)), key=len)
    of_digits = [[char for char in each if char.isdigit()] for each in (first, second)]
    if len(second) - len(first) > 1 or len(second) < LEAST_MISSPELT or of_digits[0] != of_digits[1]:
        return first == second
    same = next((index for index, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), len(first))
    return first[same + (len(first) == len(second)) :] == second[same + 1 :]


def dataset_of(config: ImageTrial, data: Path) -> Dataset:
    """Load a data set and cache it, because one process trains many cohorts on the same data set. If the trial
    normalises contrast, the smallest value and the range replace the mean and the standard deviation."""
    dataset = load_kept(config, data)
    return _in_contrast(dataset) if config.pixel_views.contrast_normalise else dataset


def load_kept(config: ImageTrial, data: Path) -> Dataset:
    """Load a data set and cache it, always with the mean and standard deviation of its pixels."""
    return _kept(config.data.dataset, config.folder, data)


@lru_cache(maxsize=1)
def _in_contrast(dataset: Dataset) -> Dataset:
    """The same images, with the range of their contrast (see `PixelViews.contrast_normalise`)."""
    images, channels = dataset.train_images, len(dataset.mean)
    parts = [slice(start, start + BLOCK) for start in range(0, len(images), BLOCK)]
    low, span = contrast_range(scale_pixels(pixels, dataset.levels) for pixels in prefetched(images, parts))
    return replace(dataset, mean=(low,) * channels, std=(span,) * channels)


def load_dataset(name: str, folder: Folder, data: Path) -> Dataset:
    """Load the data set with this name; `folder` describes the user's own images."""
    if name == FOLDER:
        return load_folder(data, folder.image_digest, folder.image_size, folder.image_channels)
    if is_own_data(name):
        return load_own_data(name, data, folder.image_digest, folder.shape)
    return load(name, data)


_kept = lru_cache(maxsize=1)(load_dataset)


def placeholder_for(config: ImageTrial) -> Dataset | None:
    """The data set with empty images; None if its number of images is known only from its files."""
    if config.data.dataset in DATASETS:
        return placeholder(config.data.dataset, config.declaration)
    listing = listed(config.folder.image_digest)
    if listing is None:
        return None
    return listing.outline or placeholder(config.data.dataset, config.declaration, listing.classes)
