"""Training or test images that a user supplies as tensors, arrays or a map-style data set, behind one interface.

The rule for axes: a tensor has its channels first. A NumPy array has its 1 to 16 channels first or last; both are
tried, with sides of at least 4 pixels. If both fit, the layout with square images is used; a shape that remains
ambiguous is refused. Pillow pictures have their own order.

Labels come from the items if a data set returns images and labels together. An attribute with all labels saves reading
all images, if it agrees with the labels of the items that are sampled.

Shapes: N images, B images of a batch, C channels, H rows, W columns, K classes.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence, Sized
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from trainables.data.datasets.dataset import UNLABELLED
from trainables.data.errors import DataError
from trainables.data.image_files import Images, LazyImages, rgb
from trainables.own_code import reason
from trainables.validation import LARGEST_INTEGER

MAX_BYTES = 4 << 30
"""Maximum size of a part whose images are all kept in memory; images of larger parts are read on demand."""
SAMPLED = 256
"""Maximum number of images per split in the digest and, if not all are in memory, in the check before training."""
MAX_IMAGE_BYTES = 16 << 20
"""Maximum size of an image; `SAMPLED` images are in memory at a time."""
MOST_IMAGES = 100_000_000
"""Maximum number of images of a part, whose labels are all in memory."""
MOST_CLASSES = 1 << 16
"""Maximum number of class names, and of entries in a vector label."""
MOST_CHANNELS, LEAST_SIDE = 16, 4
ROUNDING = 1e-3
"""How far a pixel may lie outside [0, 1] (float16 rounding). It is then clipped."""
LABELS = ("targets", "labels")
"""Attributes that may contain all labels of a data set, so that no image needs to be read."""
BLOCK = 256
"""Number of images that are read at a time."""

Read = Callable[[NDArray[np.int64]], Tensor]


class Part:
    """The images of one split, with labels, groups and attributes."""

    def __init__(
        self,
        name: str,
        count: int,
        read: Read,
        labels: object,
        *,
        items: _Items | None = None,
        attributes: Mapping[str, object] | None = None,
        groups: object = None,
        classes: Sequence[str] = (),
    ) -> None:
        """`name`: for messages, such as "the training images of my_data:Cells". `read` returns images `[B, C, H, W]`,
        uint8 or float32; `labels` are all labels, or None if only the `items` may contain them. Raises DataError, with
        one line, for invalid images or labels."""
        self.name, self.count, self._read = name, count, read
        if not count:
            raise DataError(f"{name} must be at least one, but there are 0")
        if count > MOST_IMAGES:
            raise DataError(f"{name} must be at most {MOST_IMAGES}, but there are {count}")
        first_1CHW = self.read(np.zeros(1, dtype=np.int64))
        self.image_shape = _image_shape(first_1CHW)
        self.dtype = first_1CHW.dtype
        self._labels, self._items = labels, items
        self.classes = tuple(map(str, islice(classes, MOST_CLASSES + 1)))
        if len(self.classes) > MOST_CLASSES:
            raise DataError(f"the classes of {name} must be at most {MOST_CLASSES}, but there are more")
        self.groups = None if groups is None else _integers(f"the groups of {name}", groups, count)
        self.attributes = {
            str(key): _integers(f"the attribute {key} of {name}", values, count)
            for key, values in (attributes or {}).items()
        }

    @cached_property
    def sample(self) -> Tensor:
        """At most `SAMPLED` images, evenly spaced."""
        return self.read(spaced(self.count, SAMPLED))

    @property
    def labels(self) -> Tensor | None:
        """int64 `[N]`; None without labels. If only the items contain labels, all images are read."""
        return self._read_labels[0]

    @property
    def one_hot(self) -> bool:
        """Whether labels are vectors with a single 1, whose index is the class."""
        return self._read_labels[1]

    @cached_property
    def _read_labels(self) -> tuple[Tensor | None, bool]:
        """Read `labels` and `one_hot`."""
        name, found = f"the labels of {self.name}", self._labels
        _ = self.sample
        if self._items and not self._items.agree(name, found):
            if self.fits:
                _ = self.images  # cached, so that they are read once
            found = self._items.labels()
        return (None, False) if found is None else (_integers(name, found, self.count), _is_one_hot(found))

    @property
    def image_bytes(self) -> int:
        """Size of an image in bytes."""
        return int(np.prod(self.image_shape)) * self.dtype.itemsize

    @property
    def fits(self) -> bool:
        """Whether all images are kept in memory."""
        return self.count * self.image_bytes <= MAX_BYTES

    @cached_property
    def images(self) -> Images:
        """All images in memory, or images that are read on demand."""
        if not self.fits:
            return LazyImages(self.read, np.arange(self.count), self.image_shape)
        blocks = [self.read(block) for block in np.array_split(np.arange(self.count), -(-self.count // BLOCK))]
        return torch.cat(blocks)

    def read(self, indices: NDArray[np.int64]) -> Tensor:
        """Images `[B, C, H, W]` with these indices. Raises DataError if an image differs from the first in shape or
        type, or has a pixel outside [0, 1]."""
        images = self._read(indices)
        if images.is_floating_point():
            low, high = (value.item() for value in images.aminmax()) if images.numel() else (0.0, 0.0)
            if not (low >= -ROUNDING and high <= 1 + ROUNDING):
                legal = (images >= -ROUNDING) & (images <= 1 + ROUNDING)
                faulty = int((~legal).flatten(1).any(1).nonzero()[0])
                low, high = (value.item() for value in images[faulty].aminmax())
                kind = "NaN or infinity" if not images[faulty].isfinite().all() else f"{low:g} to {high:g}"
                raise DataError(
                    f"{self.name} must be uint8, or floats in [0, 1], but image {int(indices[faulty])} has {kind}; "
                    "scale the pixels first"
                )
            if low < 0 or high > 1:
                return images.clamp(0, 1)
        return images


def part_of(name: str, value: Any) -> Part:
    """Build a part from a user's images of one split, which are one of

    - a tensor or an array of images
    - a pair (images, labels) of these
    - a mapping with `images` and optionally `labels`, `groups`, `attributes` (name -> labels) and `classes`
    - a map-style data set, whose items are images or pairs (image, label), and which may have attributes with the other
      names above

    Raises DataError, with one line, for anything else."""
    if isinstance(value, Mapping):
        return _of_arrays(name, value)
    if isinstance(value, tuple | list) and len(value) == 2:
        return _of_arrays(name, {"images": value[0], "labels": value[1]})
    if isinstance(value, Tensor | np.ndarray):
        return _of_arrays(name, {"images": value})
    if hasattr(value, "__getitem__") and hasattr(value, "__len__") and not isinstance(value, str):
        return _of_items(name, value)
    raise DataError(
        f"{name} must be a map-style data set (with __len__ and __getitem__), a tensor, or a pair (images, labels), "
        f"but are of type {type(value).__name__}"
    )


FIELDS = ("images", "labels", "groups", "attributes", "classes")
"""Keys that a mapping may have."""


def _of_arrays(name: str, given: Mapping[str, Any]) -> Part:
    if unknown := [key for key in given if key not in FIELDS]:
        raise DataError(f"{name} may only have the keys {', '.join(FIELDS)}, but have {unknown[0]!r}")
    images = given.get("images")
    if not isinstance(images, Tensor | np.ndarray):
        raise DataError(f"{name} must be a tensor or an array, but are of type {type(images).__name__}")
    permuted = _permutation(name, images)
    shape = _shape_of(images, permuted)
    _check_bytes(name, 0, shape, images.dtype)

    def read(indices: NDArray[np.int64]) -> Tensor:
        chosen = images[torch.from_numpy(indices) if isinstance(images, Tensor) else indices]
        tensor = torch.as_tensor(chosen)
        return _pixels(name, tensor if permuted is None else tensor.permute(permuted)).reshape(-1, *shape).contiguous()

    return Part(
        *(name, len(images), read, given.get("labels")),
        attributes=given.get("attributes"),
        groups=given.get("groups"),
        classes=given.get("classes") or (),
    )


class _Items:
    """The items of a map-style data set."""

    def __init__(self, name: str, value: Any) -> None:
        self._name, self._value, self._count = name, value, len(value)
        self._labels: dict[int, Any] = {}
        """The labels of items that were read; None for items without a label."""
        self._lock = threading.Lock()  # a user's data set may share one open file
        self._known: Tensor | None = None
        """All labels, once some items have confirmed them."""

    def agree(self, name: str, known: object) -> bool:
        """Whether labels that were found without images agree with the labels of the items that were read, if those
        have any."""
        indices = [index for index, label in self._labels.items() if label is not None]
        carried = _plain([self._labels[index] for index in indices])
        if known is None:
            _check_short(name, carried)
        if known is None or not indices or not _may_be_labels(carried):
            return known is not None or not indices
        known_N = _integers(name, known, self._count)
        if not torch.equal(_integers(name, carried, len(indices)), known_N[indices]):
            return False
        self._known = known_N
        return True

    def read(self, indices: NDArray[np.int64]) -> Tensor:
        with self._lock:
            images = [self._image(int(index)) for index in indices]
        first = images[0]
        for index, image in zip(indices, images, strict=True):
            if image.shape != first.shape or image.dtype != first.dtype:
                raise DataError(
                    f"{self._name} must have one shape and type, but image {index} is {_said(image)} and image "
                    f"{indices[0]} {_said(first)}"
                )
        return torch.stack(images)

    def _image(self, index: int) -> Tensor:
        try:
            item = self._value[index]
            image, *others = item if isinstance(item, tuple | list) else (item,)
            pixels = None
            if isinstance(image, Image.Image):
                _check_bytes(self._name, index, *_outline(image))
                pixels = _picture(image)  # may decode only now
        except DataError:
            raise
        except Exception as error:
            raise DataError(f"image {index} of {self._name} cannot be read: {reason(error, '')}") from error
        label = others[0] if others else None
        before = self._labels.get(index) if self._known is None else self._known[index].item()
        if _differ(label, before):
            raise DataError(
                f"{self._name} must have one label each, but image {index} has {label!r:.40} and {before!r:.40} when "
                f"it is read again or in the attribute {' or '.join(LABELS)}"
            )
        self._labels[index] = label
        return _image_tensor(self._name, index, image) if pixels is None else _pixels(self._name, pixels)

    def labels(self) -> object:
        """All labels as returned by the items, or None."""
        for index in range(self._count):
            if self._labels.get(index) is None:
                with self._lock:
                    self._image(index)
                if self._labels[index] is None:
                    return None
        return _plain([self._labels[index] for index in range(self._count)])


def _plain(labels: Sequence[Any]) -> list[Any]:
    """The labels of items as numbers or vectors of numbers; values that are too long for a label stay unchanged."""
    arrays = [label if _length(label) > MOST_CLASSES else np.asarray(label) for label in labels]
    return [array.item() if isinstance(array, np.ndarray) and array.size == 1 else array for array in arrays]


def _differ(*labels: Any) -> bool:
    """Whether two labels of an image, in any given form, mean different classes."""
    plain = _plain(labels)
    if not all(_may_be_labels([label]) for label in plain):
        return False
    first, second = (label.argmax() if isinstance(label, np.ndarray) else label for label in plain)
    return bool(first != second)


def _may_be_labels(carried: Sequence[Any]) -> bool:
    """Whether the values that items return besides images are labels: numbers, or vectors with a single 1."""
    if any(isinstance(each, np.ndarray) for each in carried):
        return _is_one_hot(carried)
    return all(isinstance(each, int | float) for each in carried)


def _of_items(name: str, value: Any) -> Part:
    items = _Items(name, value)
    return Part(
        *(name, len(value), items.read),
        next((getattr(value, key) for key in LABELS if getattr(value, key, None) is not None), None),
        items=items,
        attributes=_mapping(name, getattr(value, "attributes", None)),
        groups=getattr(value, "groups", None),
        classes=getattr(value, "classes", None) or (),
    )


def _mapping(name: str, attributes: Any) -> Mapping[str, object]:
    if attributes is not None and not isinstance(attributes, Mapping):
        raise DataError(f"the attributes of {name} must map names to labels, but are {attributes!r:.60}")
    return attributes or {}


PLAIN_MODES = ("L", "LA", "RGB", "RGBA", "I;16", "I", "F")
"""Picture modes whose values are pixels of channels. Other modes, such as palettes, are converted."""


def _outline(picture: Image.Image) -> tuple[tuple[int, int, int], str]:
    """Shape `[C, H, W]` and pixel type of a picture, without decoding it."""
    channels = len(picture.getbands()) if picture.mode in (*PLAIN_MODES, "1") else 3
    return (channels, picture.height, picture.width), "float32" if picture.mode in ("I", "F") else "uint8"


def _picture(picture: Image.Image) -> Tensor:
    """The pixels `[C, H, W]` of a picture, which this decodes."""
    if picture.mode not in PLAIN_MODES:
        picture = picture.convert("L") if picture.mode == "1" else rgb(picture)
    pixels = np.array(picture)
    return torch.from_numpy(pixels[:, :, None] if pixels.ndim == 2 else pixels).permute(2, 0, 1).contiguous()


def _image_tensor(name: str, index: int, image: Any) -> Tensor:
    """One image `[C, H, W]` from a tensor, an array or a picture."""
    if not isinstance(image, Tensor | np.ndarray):
        raise DataError(
            f"{name} must be tensors, arrays or Pillow pictures, but image {index} is of type {type(image).__name__}"
        )
    batch = image[None]
    permuted = _permutation(name, batch)
    shape = _shape_of(batch, permuted)
    _check_bytes(name, index, shape, image.dtype)
    tensor = batch if isinstance(batch, Tensor) else torch.from_numpy(np.ascontiguousarray(batch))
    tensor = tensor if permuted is None else tensor.permute(permuted).contiguous()
    return _pixels(name, tensor.reshape(shape))


def _check_bytes(name: str, index: int, shape: tuple[int, int, int], dtype: object) -> None:
    """Raise DataError for an image `[C, H, W]` that takes too much memory, before it is read or copied."""
    if math.prod(shape) * (1 if _type(dtype) == "uint8" else 4) > MAX_IMAGE_BYTES:
        raise DataError(
            f"{name} must take at most {MAX_IMAGE_BYTES >> 20} MiB each, but image {index} is {size_of(shape)} of "
            f"{_type(dtype)}; make them smaller first"
        )


def _permutation(name: str, images: Tensor | NDArray[Any]) -> tuple[int, ...] | None:
    """The permutation of axes of images `[N, ...]` that puts channels first; None if they are first. Raises DataError
    for shapes that are not images or are ambiguous."""
    shape = tuple(images.shape)
    law = (
        f"{name} must be [N, channels, height, width], or as a NumPy array [N, height, width, channels], with 1 to "
        f"{MOST_CHANNELS} channels and sides of at least {LEAST_SIDE} pixels, or [N, height, width]"
    )
    if len(shape) == 3 and min(shape[1:]) >= LEAST_SIDE:
        return None
    if len(shape) != 4:
        raise DataError(f"{law}, but have the shape {[*shape]}")
    first = 1 <= shape[1] <= MOST_CHANNELS and min(shape[2:]) >= LEAST_SIDE
    last = 1 <= shape[3] <= MOST_CHANNELS and min(shape[1:3]) >= LEAST_SIDE and not isinstance(images, Tensor)
    if first and last and (shape[2] == shape[3]) != (shape[1] == shape[2]):
        first, last = shape[2] == shape[3], shape[1] == shape[2]
    if first and last:
        raise DataError(
            f"{name} must have unambiguous axes, but {[*shape]} can have its channels first or last; pass "
            "torch.from_numpy(...), which has them first, from your own data set"
        )
    if not (first or last):
        raise DataError(f"{law}, but have the shape {[*shape]}")
    return None if first else (0, 3, 1, 2)


def _shape_of(images: Tensor | NDArray[Any], permuted: tuple[int, ...] | None) -> tuple[int, int, int]:
    """`(C, H, W)` of images of shape `[N, ...]`."""
    shape = tuple(images.shape)
    if len(shape) == 3:
        return 1, shape[1], shape[2]
    return (shape[1], shape[2], shape[3]) if permuted is None else (shape[3], shape[1], shape[2])


def _pixels(name: str, images: Tensor) -> Tensor:
    """The images as uint8 or float32, on the CPU."""
    if images.is_floating_point():
        return images.detach().cpu().float()
    if images.dtype == torch.uint8:
        return images.cpu()
    raise DataError(f"{name} must be uint8, or floats in [0, 1], but are {_type(images.dtype)}")


def _integers(name: str, values: object, count: int) -> Tensor:
    """Labels `[N]`, int64, from numbers or from vectors `[N, K]` with a single 1. Raises DataError unless there is one
    integer per image."""
    law = f"{name} must be as many as the images, [{count}]"
    if isinstance(values, Sequence) and len(values) != count:
        raise DataError(f"{law}, but have the shape [{len(values)}]")
    array = _array(name, values)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    elif _is_one_hot(array):
        array = array.argmax(axis=1)
    if array.dtype.kind not in "iubf":
        shown = next(iter(array.flat), None) if array.ndim else values
        raise DataError(f"{name} must be whole numbers from 0 on, but are of type {array.dtype}, such as {shown!r:.40}")
    if array.shape != (count,):
        raise DataError(f"{law}, but have the shape {[*array.shape]}")
    law = f"{name} must be whole numbers from 0 on, or -1 for none"
    legal = (array >= UNLABELLED) & (array < LARGEST_INTEGER) & (array == np.trunc(array))
    if not legal.all():
        index = int(np.argmin(legal))
        raise DataError(f"{law}, but image {index} has {array[index].item()!r:.40}")
    return torch.from_numpy(array.astype(np.int64))


def _length(label: object) -> int:
    """Number of entries of a label."""
    if isinstance(label, int | float):
        return 1
    if isinstance(label, Tensor | np.ndarray):
        return math.prod(label.shape)
    return len(label) if isinstance(label, Sized) else 1


def _too_long(labels: object) -> tuple[int, int] | None:
    """Index and length of a label that is longer than a vector may be. Nothing is copied."""
    if isinstance(labels, Tensor | np.ndarray):
        length = math.prod(labels.shape[1:])
        return (0, length) if length > MOST_CLASSES else None
    lengths = map(_length, labels) if isinstance(labels, list | tuple) else ()
    return next(((index, length) for index, length in enumerate(lengths) if length > MOST_CLASSES), None)


def _check_short(name: str, labels: object) -> None:
    if found := _too_long(labels):
        raise DataError(
            f"{name} must be numbers, or vectors of at most {MOST_CLASSES} classes, but label {found[0]} has {found[1]}"
        )


def _array(name: str, values: object) -> NDArray[Any]:
    _check_short(name, values)
    try:
        return np.asarray(values)
    except Exception as error:
        raise DataError(f"{name} must be whole numbers, but cannot be read: {reason(error, '')}") from error


def _is_one_hot(values: object) -> bool:
    """Whether labels are vectors `[N, K]` of at least two entries, all 0 except for a single 1."""
    if _too_long(values):
        return False
    try:
        array = np.asarray(values)
    except Exception:
        return False
    if array.ndim != 2 or array.shape[1] < 2 or array.dtype.kind not in "iubf":
        return False
    return bool((((array == 0) | (array == 1)).all(axis=1) & ((array == 1).sum(axis=1) == 1)).all())


def _image_shape(images_BCHW: Tensor) -> tuple[int, int, int]:
    _, channels, height, width = images_BCHW.shape
    return channels, height, width


def spaced(count: int, most: int) -> NDArray[np.int64]:
    """Indices of at most `most` of `count` images, evenly spaced, including the first and the last."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.int64))


def size_of(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape))


def _type(dtype: object) -> str:
    return str(dtype).removeprefix("torch.")


def _said(image: Tensor) -> str:
    return f"{size_of(image.shape)} of {_type(image.dtype)}"
