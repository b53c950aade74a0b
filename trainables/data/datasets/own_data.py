"""The user's own data sets: a class or function `package.module:NAME`, folders of NumPy arrays, and Hugging Face data
sets saved to disk.

Folders are those of `--data`. A data set is identified by its content: a hash of its shape, counts, labels, groups and
attributes, and of the pixels of at most `SAMPLED` evenly spaced images per split.

Shapes: N images, C channels, H rows, W columns.
"""

import hashlib
import inspect
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainables.data.datasets.dataset import UNLABELLED, Attribute, Dataset, ImageListing, channel_statistics, remember
from trainables.data.datasets.downloads import check_regular
from trainables.data.datasets.parts import BLOCK, MAX_BYTES, SAMPLED, Part, part_of, size_of, spaced
from trainables.data.errors import DataError
from trainables.data.image_files import Images, LazyImages
from trainables.own_code import KINDS, imported_own, reason
from trainables.validation import is_own

ARRAYS, HUGGINGFACE = "arrays", "huggingface"
"""Names of the data sets that are read from folders."""
MEASURED = 1024
"""Maximum number of training images for the mean and standard deviation if not all images are in memory."""
MOST_NAMED = 20
"""Maximum number of classes that a line for the user names."""
SPLITS = ("train", "test")
ARRAY_KEYS = ("images", "labels", "groups", "attributes")
"""Endings of the names of a split's NumPy files."""


def own_function(root: Path, name: str) -> tuple[Any, Any]:
    """Training and test images from your own class or function. A class is called with `train=True` and `train=False`;
    a function without this parameter is called once and returns both. The parameter `root`, if present, receives the
    folder of `--data`."""
    made = imported_own(KINDS["dataset"], name)
    if not callable(made):
        raise DataError(f"the data set {name} must be a class or a function, but is of type {type(made).__name__}")
    try:
        parameters = inspect.signature(made).parameters
    except (TypeError, ValueError) as error:
        raise DataError(f"the data set {name} must have a signature that Python can inspect") from error
    given = {"root": str(root)} if "root" in parameters else {}
    if inspect.isclass(made) and "train" not in parameters:
        own = ", ".join(parameters) or "none"
        raise DataError(f"the class {name} must have a parameter `train`, True or False, but its parameters are: {own}")
    try:
        if "train" in parameters:
            return made(train=True, **given), made(train=False, **given)
        both = made(**given)
    except Exception as error:
        raise DataError(f"the data set {name} raises {reason(error, name.partition(':')[0])}") from error
    if not isinstance(both, tuple | list) or len(both) != 2:
        raise DataError(
            f"the function {name} must return two parts, (training images, test images), each images or a pair "
            f"(images, labels), but returns {type(both).__name__}"
        )
    return both[0], both[1]


def arrays(root: Path, name: str = ARRAYS) -> tuple[Any, Any]:
    """NumPy files: `train_images.npy` and `test_images.npy`, with `train_labels.npy` and `test_labels.npy`, and
    optionally `train_groups.npy` and `train_attributes.npy` (integers `[N, A]`, or an array with named fields). They
    are mapped into memory. Images are uint8 or floats in [0, 1], `[N, H, W, C]`, `[N, C, H, W]` or `[N, H, W]`."""
    check_regular(root / f"{split}_{key}.npy" for split in SPLITS for key in ARRAY_KEYS)
    absent = [f"{split}_images.npy" for split in SPLITS if not (root / f"{split}_images.npy").is_file()]
    if absent:
        advice = "" if len(absent) == 2 else "; put some images that are not used for training into a separate file"
        raise DataError(f"dataset={name} needs {' and '.join(absent)} in {root}, but found none{advice}")
    return _arrays_of(root, "train"), _arrays_of(root, "test")


def _arrays_of(root: Path, split: str) -> Mapping[str, Any]:
    found = {key: _array(path) for key in ARRAY_KEYS if (path := root / f"{split}_{key}.npy").is_file()}
    if (table := found.pop("attributes", None)) is not None:
        columns = table.reshape(len(table), -1) if table.dtype.names is None else table
        names = table.dtype.names or [f"attribute{index}" for index in range(columns.shape[1])]
        found["attributes"] = {
            key: columns[key] if table.dtype.names else columns[:, index] for index, key in enumerate(names)
        }
    return found


def _array(path: Path) -> Any:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # damaged files can raise anything
        raise DataError(f"{path} must be a NumPy array, but cannot be read: {error!s:.200}") from error


def huggingface(root: Path, name: str = HUGGINGFACE) -> tuple[Any, Any]:
    """A Hugging Face data set with the splits `train` and `test`, as written by `DatasetDict.save_to_disk`. Images are
    the only column of type `Image`, or the column named `image`; labels are the only column of type `ClassLabel`, or
    the column named `label`. Other `ClassLabel` columns are attributes. Nothing is downloaded."""
    try:
        from datasets import load_from_disk  # imported here: optional and slow to import
    except ImportError as error:
        raise DataError(f"dataset={name} needs the package datasets: pip install 'sweeper[huggingface]'") from error
    check_regular(path for depth in ("*", "*/*") for path in root.glob(depth) if not path.is_dir())
    try:
        found: Any = load_from_disk(str(root))
    except Exception as error:  # damaged folders can raise anything
        why = " ".join(str(error).split())[:200]
        raise DataError(f"{root} must be a data set written by save_to_disk, but cannot be read: {why}") from error
    splits = found.keys() if isinstance(found, Mapping) else ()
    if absent := [split for split in SPLITS if split not in splits]:
        raise DataError(
            f"dataset={name} needs the splits train and test in {root}, but there is no {absent[0]}; there are: "
            f"{', '.join(splits) or 'none: save a DatasetDict, of train_test_split'}"
        )
    return _HubSplit(found["train"]), _HubSplit(found["test"])


class _HubSplit:
    """A Hugging Face split as a map-style data set of pictures."""

    def __init__(self, rows: Any) -> None:
        self._rows = rows
        self._image = self._column("Image", "image")
        label = self._column("ClassLabel", "label")
        if self._image is None:
            raise DataError("a Hugging Face data set must have a column of type Image, but has none")
        self.targets = None if label is None else list(rows[label])
        self.classes = () if label is None else tuple(rows.features[label].names)
        others = [key for key in self._columns("ClassLabel") if key != label]
        self.attributes = {key: list(rows[key]) for key in others}

    def _columns(self, kind: str) -> list[str]:
        return [key for key, feature in self._rows.features.items() if type(feature).__name__ == kind]

    def _column(self, kind: str, usual: str) -> str | None:
        """The only column of this type, or the column with the usual name."""
        columns = self._columns(kind)
        if len(columns) > 1 and usual not in columns:
            raise DataError(
                f"with several columns of type {kind} one must be named {usual!r}, but they are: {', '.join(columns)}; "
                "use rename_column"
            )
        return next((key for key in columns if key == usual), columns[0] if columns else None)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Any:
        return self._rows[index][self._image]


SOURCES = {ARRAYS: arrays, HUGGINGFACE: huggingface}
"""Name of a data set that is read from a folder -> function that finds its two parts."""


def is_own_data(name: str) -> bool:
    """Whether this module reads a data set."""
    return name in SOURCES or is_own(name)


@lru_cache(maxsize=1)
def _parts(name: str, root: Path) -> tuple[Part, Part]:
    """The training and the test images, each as one part. Raises DataError, with one line, if they are not images."""
    found = SOURCES[name](root) if name in SOURCES else own_function(root, name)
    nouns = ("training", "test")
    try:
        train, test = (part_of(f"the {noun} images of {name}", value) for noun, value in zip(nouns, found, strict=True))
        _check_alike(name, train, test)
        return train, test
    except DataError:
        raise
    except Exception as error:  # attributes of a user's data set may raise anything
        raise DataError(f"the data set {name} raises {reason(error, name.partition(':')[0])}") from error


def forget_own_data() -> None:
    """Clear the cache of the images that were read last."""
    _parts.cache_clear()


def list_own_data(name: str, root: Path, whole: bool) -> ImageListing:
    """List the properties of the user's own data set. `whole`: read and check all images that fit into memory, and
    count test images that are also training images; otherwise read only the images of the digest. Raises DataError,
    with one line, for images or labels that cannot be used."""
    train, test = _parts(name, root)
    _check_repeatable(name, train)
    classes = _classes(name, train, test)
    repeated = _repeated(train.images, test.images) if whole else 0
    outline = _dataset(name, train, test, classes, [_empty(part) for part in (train, test)])
    digest = _digest(outline, [train.sample, test.sample], [train.image_shape, str(train.dtype)])
    return remember(
        ImageListing(
            classes,
            digest,
            train=_counts(outline.train_labels, classes),
            test=_counts(outline.test_labels, classes),
            repeated=repeated,
            shape=train.image_shape,
            outline=outline,
            about=_about(name, train, test, outline),
        )
    )


def _counts(labels_N: Tensor, classes: Sequence[str]) -> tuple[int, ...]:
    """Number of images per class."""
    return tuple(torch.bincount(labels_N[labels_N != UNLABELLED], minlength=len(classes)).tolist())


def load_own_data(name: str, root: Path, digest: str, shape: tuple[int, int, int]) -> Dataset:
    """Load the user's own data set. Raises DataError, with one line, unless its images have this `shape` and `digest`
    (an empty digest matches all)."""
    train, test = _parts(name, root)
    if train.image_shape != shape:
        raise DataError(
            f"image_channels, image_size and image_width must match the images of {name}, which are "
            f"{size_of(train.image_shape)}, but got {size_of(shape)}; leave them out to have them filled in"
        )
    listing = list_own_data(name, root, whole=False)
    if digest and digest != listing.digest:
        raise DataError(
            f"the images of {name} must be the ones that the trials were planned with (image_digest={digest}), but "
            f"have changed (image_digest={listing.digest}); run the command again for trials on the new images"
        )
    return _dataset(name, train, test, listing.classes, [train.images, test.images])


def _dataset(name: str, train: Part, test: Part, classes: tuple[str, ...], images: Sequence[Images]) -> Dataset:
    """The data set with these images; without images the mean is 0 and the standard deviation 1."""
    mean, std = _statistics(images[0])
    values = {key: _count_values(name, key, train, test) for key in train.attributes}
    return Dataset(
        name=name,
        train_images=images[0],
        train_labels=_labels(train),
        test_images=images[1],
        test_labels=_labels(test),
        classes=classes,
        levels=255,
        mean=mean,
        std=std,
        attributes={
            key: Attribute(labels_N, test.attributes[key], values[key]) for key, labels_N in train.attributes.items()
        },
        groups=train.groups,
    )


def _count_values(name: str, key: str, train: Part, test: Part) -> int:
    """Number of values of an attribute. Raises DataError if there are fewer images than values, because probes have an
    output for each value."""
    highest = int(max(part.attributes[key].max() for part in (train, test)))
    if highest >= train.count + test.count:
        raise DataError(
            f"the attribute {key} of {name} must be numbered from 0 on, with fewer values than images, but the largest "
            f"value is {highest}"
        )
    return highest + 1


def _labels(part: Part) -> Tensor:
    return torch.full((part.count,), UNLABELLED) if part.labels is None else part.labels


def _empty(part: Part) -> Tensor:
    return torch.empty((part.count, part.image_shape[0], 0, 0), dtype=part.dtype)


def _statistics(images: Images) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel, for pixels in [0, 1]."""
    if isinstance(images, LazyImages):
        image_bytes = int(np.prod(images.image_shape)) * torch.float32.itemsize
        images = images[torch.from_numpy(spaced(len(images), max(1, min(MEASURED, MAX_BYTES // image_bytes))))]
    assert isinstance(images, Tensor)
    if not images.numel():
        return (0.0,) * images.shape[1], (1.0,) * images.shape[1]
    if images.is_floating_point():
        count = images.numel() // images.shape[1]
        blocks = images.split(BLOCK)
        mean = torch.stack([block.double().sum((0, 2, 3)) for block in blocks]).sum(0) / count
        square = [(block.double() - mean[:, None, None]).square().sum((0, 2, 3)) for block in blocks]
        std = (torch.stack(square).sum(0) / count).sqrt()
    else:
        mean, std = channel_statistics(images)
    return tuple(mean.tolist()), tuple(std.clamp(min=1 / 255).tolist())  # constant images have a deviation of 0


def _digest(outline: Dataset, samples: Sequence[Tensor], shape: object) -> str:
    """12 hexadecimal digits."""
    attributes = [outline.attributes[key] for key in sorted(outline.attributes)]
    tensors = [outline.train_labels, outline.test_labels]
    tensors += [each.train_labels for each in attributes] + [each.test_labels for each in attributes] + [*samples]
    tensors += [] if outline.groups is None else [outline.groups]
    found = hashlib.sha256(repr([shape, outline.classes, sorted(outline.attributes)]).encode())
    for tensor in tensors:
        found.update(repr(tuple(tensor.shape)).encode())
        found.update(tensor.contiguous().numpy().data)
    return found.hexdigest()[:12]


def _repeated(train: Images, test: Images) -> int:
    """Number of test images that are also training images; 0 if not all images are in memory."""
    if not (isinstance(train, Tensor) and isinstance(test, Tensor)):
        return 0
    known, found = (
        [hashlib.blake2b(image.contiguous().numpy().data, digest_size=16).digest() for image in images]
        for images in (train, test)
    )
    return sum(map(set(known).__contains__, found))


def _check_alike(name: str, train: Part, test: Part) -> None:
    """Raise DataError unless the two parts are compatible."""
    for noun, own, other in (
        ("size", size_of(train.image_shape), size_of(test.image_shape)),
        ("type", train.dtype, test.dtype),
        ("attributes", sorted(train.attributes), sorted(test.attributes)),
    ):
        if own != other:
            raise DataError(f"training and test images of {name} must have the same {noun}, but have {own} and {other}")


def _check_repeatable(name: str, part: Part) -> None:
    """Raise DataError if an image differs when it is read again."""
    first = np.zeros(1, dtype=np.int64)
    if not torch.equal(part.read(first), part.read(first)):
        raise DataError(
            f"{part.name} must be the same each time they are read, but image 0 differs; for random views use keys "
            "such as crop_scale and flip, or your own `augmentation`"
        )


def _classes(name: str, train: Part, test: Part) -> tuple[str, ...]:
    """Names of the classes. Raises DataError unless labels are valid and every class has images."""
    if (train.labels is None) != (test.labels is None):
        missing, other = (train, test) if train.labels is None else (test, train)
        raise DataError(f"{missing.name} must have labels, because {other.name} have some")
    if train.labels is None or test.labels is None:
        return ()
    if (test.labels == UNLABELLED).any():
        raise DataError(f"{test.name} must have labels from 0 on, but {int((test.labels == UNLABELLED).sum())} have -1")
    there = torch.cat([train.labels, test.labels]).unique()
    there = there[there != UNLABELLED]
    highest, names = int(there[-1]), train.classes or test.classes
    count = len(names) or highest + 1
    if highest >= count:
        raise DataError(
            f"labels of {name} must be from 0 to {count - 1}, one of its {count} classes, but the largest is {highest}"
        )
    if len(there) < count:
        absent = next((index for index, label in enumerate(there.tolist()) if label != index), len(there))
        raise DataError(
            f"labels of {name} must contain each of its {count} classes, but class "
            f"{names[absent] if names else absent} has no image; number the classes from 0 on without gaps"
        )
    return names or tuple(map(str, range(count)))


def _about(name: str, train: Part, test: Part, outline: Dataset) -> str:
    """One line for the user."""
    kind = "uint8" if train.dtype == torch.uint8 else "floats"
    if not outline.classes:
        classes = "no labels"
    elif len(outline.classes) > MOST_NAMED or all(map(str.isdecimal, outline.classes)):
        classes = f"{len(outline.classes)} classes"
    else:
        classes = "classes " + ", ".join(f"{index} {each}" for index, each in enumerate(outline.classes))
    more = f", {len(outline.groups.unique())} groups" if outline.groups is not None else ""
    more += f", attributes {', '.join(outline.attributes)}" if outline.attributes else ""
    more += ", one-hot labels" if train.one_hot else ""
    more += "" if train.fits else f", read during training (only {SAMPLED} per split are checked before)"
    return (
        f"dataset={name}: {train.count} training and {test.count} test images of {size_of(train.image_shape)}, {kind}, "
        f"{classes}{more}"
    )
