"""Training or test images as a user has them, as tensors, arrays or a map-style data set, read as one kind of thing.

The rule for axes: a tensor has its channels first. Of a NumPy array the channels, 1 to 16, are first or last; both are
tried, with sides of at least 4 pixels. If both fit, the way counts in which images are squares; a shape where that says
nothing is refused. Pictures of Pillow have their own order.

Shapes: N images, B images of a batch, C channels, H rows, W columns.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from trainables.data.datasets.dataset import UNLABELLED
from trainables.data.errors import DataError
from trainables.data.image_files import Images, LazyImages

MAX_BYTES = 4 << 30
"""Largest size of all images of a part in memory; those of a larger one are read when they are needed."""
MOST_CHANNELS, LEAST_SIDE = 16, 4
LABELS = ("targets", "labels")
"""Attributes, of which a data set may have one, that give all labels without an image."""
BLOCK = 256
"""Images that are read at a time."""

Read = Callable[[NDArray[np.int64]], Tensor]


class Part:
    """The images of one split, and what is known of each."""

    def __init__(
        self,
        name: str,
        count: int,
        read: Read,
        labels: Callable[[], object],
        *,
        labelled_by_images: bool = False,
        attributes: Mapping[str, object] | None = None,
        groups: object = None,
        classes: Sequence[str] = (),
    ) -> None:
        """`name`: such as "the training images of my_data:Cells". `read` returns images `[B, C, H, W]`, uint8 or
        float32; `labels` all labels, or None if there are none. `labelled_by_images`: each image has to be read for
        its label. Raises DataError, with one line, for what is no image or no label."""
        self.name, self.count, self._read = name, count, read
        if not count:
            raise DataError(f"{name} must be at least one, but there are none")
        first_1CHW = self.read(np.zeros(1, dtype=np.int64))
        self.image_shape = _image_shape(first_1CHW)
        self.dtype = first_1CHW.dtype
        self._labels, self.labelled_by_images = labels, labelled_by_images
        self.classes = tuple(map(str, classes))
        self.groups = None if groups is None else _integers(f"the groups of {name}", groups, count)
        self.attributes = {
            str(key): _integers(f"the attribute {key} of {name}", values, count)
            for key, values in (attributes or {}).items()
        }

    @cached_property
    def labels(self) -> Tensor | None:
        """int64 `[N]`; None if there are none. All images are read for it where only they tell."""
        if self.labelled_by_images and self.fits:
            _ = self.images  # kept, so that they are read once
        found = self._labels()
        return None if found is None else _integers(f"the labels of {self.name}", found, self.count)

    @property
    def fits(self) -> bool:
        """Whether all images are kept in memory."""
        return self.count * int(np.prod(self.image_shape)) * self.dtype.itemsize <= MAX_BYTES

    @cached_property
    def images(self) -> Images:
        """All images in memory, or images that are read when they are needed."""
        if not self.fits:
            return LazyImages(self.read, np.arange(self.count), self.image_shape)
        blocks = [self.read(block) for block in np.array_split(np.arange(self.count), -(-self.count // BLOCK))]
        return torch.cat(blocks)

    def read(self, indices: NDArray[np.int64]) -> Tensor:
        """Images `[B, C, H, W]` of these indices. Raises DataError if one has another shape or type than the first, or
        a pixel that is not in [0, 1]."""
        images = self._read(indices)
        if images.is_floating_point():
            low, high = (value.item() for value in images.aminmax()) if images.numel() else (0.0, 0.0)
            if not (low >= 0 and high <= 1):
                faulty = int((~((images >= 0) & (images <= 1))).flatten(1).any(1).nonzero()[0])
                kind = "NaN or infinity" if not images[faulty].isfinite().all() else f"{low:g} to {high:g}"
                raise DataError(
                    f"{self.name} must be uint8, or floats in [0, 1], but image {int(indices[faulty])} has {kind}; "
                    "scale the pixels first"
                )
        return images


def part_of(name: str, value: Any) -> Part:
    """What a user gives as the images of one split. It is one of

    - a tensor or an array of images
    - a pair (images, labels) of these
    - a mapping with `images`, and with `labels`, `groups`, `attributes` (name -> labels) and `classes` where there are
      any
    - a map-style data set, whose items are images or pairs (image, label), and which may have all but the images as
      attributes of these names

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
"""Names that a mapping may have."""


def _of_arrays(name: str, given: Mapping[str, Any]) -> Part:
    if unknown := [key for key in given if key not in FIELDS]:
        raise DataError(f"{name} must have the names {', '.join(FIELDS)} only, but have {unknown[0]!r}")
    images = given.get("images")
    if not isinstance(images, Tensor | np.ndarray):
        raise DataError(f"{name} must be a tensor or an array, but are of type {type(images).__name__}")
    permuted = _permutation(name, images)
    shape = _shape_of(images, permuted)

    def read(indices: NDArray[np.int64]) -> Tensor:
        chosen = images[torch.from_numpy(indices) if isinstance(images, Tensor) else indices]
        tensor = torch.as_tensor(chosen)
        return _pixels(name, tensor if permuted is None else tensor.permute(permuted)).reshape(-1, *shape).contiguous()

    labels = given.get("labels")
    return Part(
        *(name, len(images), read, lambda: labels),
        attributes=given.get("attributes"),
        groups=given.get("groups"),
        classes=given.get("classes") or (),
    )


class _Items:
    """The items of a map-style data set."""

    def __init__(self, name: str, value: Any) -> None:
        self._name, self._value, self._count = name, value, len(value)
        self._labels: list[Any] = [None] * self._count
        self._lock = threading.Lock()  # a data set of the user's may have one open file
        self.known = next((getattr(value, key) for key in LABELS if getattr(value, key, None) is not None), None)
        """All labels, where the data set has them without its images."""

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
        except Exception as error:
            reason = " ".join(str(error).split())[:200]
            raise DataError(
                f"image {index} of {self._name} cannot be read: {type(error).__name__}: {reason}"
            ) from error
        if isinstance(item, tuple | list):
            image, self._labels[index] = item[0], item[1] if len(item) > 1 else None
        else:
            image = item
        return _image_tensor(self._name, index, image)

    def labels(self) -> object:
        """All labels, or None."""
        if self.known is not None:
            return self.known
        for index in range(self._count):
            if self._labels[index] is None:
                with self._lock:
                    self._image(index)
                if self._labels[index] is None:
                    return None
        return [label.item() if hasattr(label, "item") else label for label in self._labels]


def _of_items(name: str, value: Any) -> Part:
    items = _Items(name, value)
    return Part(
        *(name, len(value), items.read, items.labels),
        labelled_by_images=items.known is None,
        attributes=_mapping(name, getattr(value, "attributes", None)),
        groups=getattr(value, "groups", None),
        classes=getattr(value, "classes", None) or (),
    )


def _mapping(name: str, attributes: Any) -> Mapping[str, object]:
    if attributes is not None and not isinstance(attributes, Mapping):
        raise DataError(f"the attributes of {name} must be a mapping from names to labels, but are {attributes!r:.60}")
    return attributes or {}


def _image_tensor(name: str, index: int, image: Any) -> Tensor:
    """One image `[C, H, W]`."""
    if isinstance(image, Image.Image):
        image = np.asarray(image)
        image = image[:, :, None] if image.ndim == 2 else image
        return _pixels(name, torch.from_numpy(image.copy()).permute(2, 0, 1).contiguous())
    if not isinstance(image, Tensor | np.ndarray):
        raise DataError(
            f"{name} must be tensors, arrays or pictures of Pillow, but image {index} is of type {type(image).__name__}"
        )
    batch = image[None]
    permuted = _permutation(name, batch)
    tensor = batch if isinstance(batch, Tensor) else torch.from_numpy(np.ascontiguousarray(batch))
    tensor = tensor if permuted is None else tensor.permute(permuted).contiguous()
    return _pixels(name, tensor.reshape(_shape_of(batch, permuted)))


def _permutation(name: str, images: Tensor | NDArray[Any]) -> tuple[int, ...] | None:
    """How the axes of images `[N, ...]` are permuted to have the channels first; None if they have. Raises DataError
    for a shape that is none of images, or that can be read in two ways."""
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
            f"{name} must have axes that can be read in one way, but {[*shape]} can have its channels first or last; "
            "torch.from_numpy(...) of a data set of your own has them first"
        )
    if not (first or last):
        raise DataError(f"{law}, but have the shape {[*shape]}")
    return None if first else (0, 3, 1, 2)


def _shape_of(images: Tensor | NDArray[Any], permuted: tuple[int, ...] | None) -> tuple[int, int, int]:
    """`(C, H, W)` of images `[N, ...]`."""
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
    raise DataError(f"{name} must be uint8, or floats in [0, 1], but are {str(images.dtype).removeprefix('torch.')}")


def _integers(name: str, values: object, count: int) -> Tensor:
    """Labels `[N]`, int64. Raises DataError unless they are as many whole numbers as there are images."""
    try:
        array = np.asarray(values)
    except Exception as error:
        raise DataError(f"{name} must be whole numbers, but cannot be read: {error!s:.100}") from error
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.dtype.kind not in "iub":
        shown = next(iter(array.flat), None) if array.ndim else values
        raise DataError(f"{name} must be whole numbers from 0 on, but are of type {array.dtype}, such as {shown!r:.40}")
    if array.shape != (count,):
        raise DataError(f"{name} must be as many as the images, [{count}], but have the shape {[*array.shape]}")
    labels_N = torch.from_numpy(array.astype(np.int64))
    if int(labels_N.min()) < UNLABELLED:
        raise DataError(f"{name} must be whole numbers from 0 on, or -1 for none, but have {int(labels_N.min())}")
    return labels_N


def _image_shape(images_BCHW: Tensor) -> tuple[int, int, int]:
    _, channels, height, width = images_BCHW.shape
    return channels, height, width


def _said(image: Tensor) -> str:
    return f"{'x'.join(map(str, image.shape))} of {str(image.dtype).removeprefix('torch.')}"
