"""Image files as a data set that is never all in memory: decoded when asked for, by a pool of threads.

Shapes: N images, B images of a batch, S the length of a side.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from trainables.data.errors import DataError
from trainables.data.geometry import draw_boxes

RESIZE = 256 / 224
"""The shorter side of an evaluated image before its central crop, over the side of that crop."""

Crop = Callable[[Image.Image], list[Image.Image]]


@dataclass(frozen=True, eq=False)
class Folder:
    """Image files that stand for a uint8 tensor `[N, 3, S, S]`, pixels in 0..255. It can be pickled."""

    root: Path
    """Where the files are."""

    names: NDArray[np.bytes_]
    """`[N]`, their paths below `root`, encoded for the file system: 40 MB for a million."""

    side: int
    """S."""

    threads: int = 0
    """How many decode at a time; 0 for one a processor. Changes no result."""

    def __len__(self) -> int:
        return len(self.names)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return len(self), 3, self.side, self.side

    def __getitem__(self, indices: slice | Tensor) -> Tensor:
        """uint8 `[B, 3, S, S]`: the shorter side resized to 256/224 S, then the central square of S, as torchvision's
        Resize and CenterCrop make it. DataError for a file that cannot be decoded."""
        names = self._names(indices)
        return self._decode(names, [partial(_central, side=self.side)] * len(names), 1).result()[0]

    def crops(
        self,
        indices_B: Tensor,
        generators: Sequence[torch.Generator],
        count: int,
        crop_scale: float,
        crop_ratio: float,
    ) -> Future[list[Tensor]]:
        """`count` random resized crops of each image, each uint8 `[B, 3, S, S]`; each file is decoded once.

        An image's boxes come from its own generator and its own height and width, by `draw_boxes`. With a `crop_scale`
        of 1 nothing is drawn and each is the central crop. The future raises DataError for the first file of the batch
        that cannot be decoded. ValueError unless there is one generator, and no other's, for each image.
        """
        names = self._names(indices_B)
        if len(set(map(id, generators))) != len(names) or len(generators) != len(names):
            raise ValueError(f"each of the {len(names)} images needs a generator of its own, but got {len(generators)}")
        if crop_scale == 1:
            return self._decode(names, [partial(_central, side=self.side)] * len(names), count)
        boxes = partial(_random, side=self.side, count=count, crop_scale=crop_scale, crop_ratio=crop_ratio)
        return self._decode(names, [partial(boxes, generator=generator) for generator in generators], count)

    def only(self, mask_N: Tensor) -> Folder:
        """The images where `mask` (bool) is True, in their order."""
        return replace(self, names=self.names[mask_N.numpy()])

    def paths(self) -> list[str]:
        """Every file's path."""
        return [self._path(name) for name in self.names]

    def _names(self, indices: slice | Tensor) -> NDArray[np.bytes_]:
        return self.names[indices if isinstance(indices, slice) else indices.cpu().numpy()]

    def _path(self, name: bytes) -> str:
        return os.path.join(self.root, os.fsdecode(name))

    def _decode(self, names: NDArray[np.bytes_], crops: Sequence[Crop], count: int) -> Future[list[Tensor]]:
        """`count` batches, from `count` crops of each file, or one crop for all of them."""
        batches = [np.empty((len(names), 3, self.side, self.side), dtype=np.uint8) for _ in range(count)]

        def fill(place: int) -> None:
            made = _crops(self._path(names[place]), crops[place])
            for i, batch_B3SS in enumerate(batches):
                batch_B3SS[place] = np.asarray(made[i % len(made)]).transpose(2, 0, 1)

        return _together(_pool(self.threads), fill, len(names), [torch.from_numpy(batch) for batch in batches])


def _crops(path: str, crop: Crop) -> list[Image.Image]:
    """DataError, one line, where any of what may be wrong with a file is."""
    try:
        with Image.open(path) as image:
            return crop(rgb(image))
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"the image {path} cannot be decoded ({reason}); remove or replace it") from error


def rgb(image: Image.Image) -> Image.Image:
    """An image of any mode with red, green and blue; what is transparent becomes opaque."""
    if image.mode == "P":
        image = image.convert("RGBA")  # the same colours, without a warning where the palette is transparent
    return image.convert("RGB")


def _central(image: Image.Image, side: int) -> list[Image.Image]:
    """torchvision's Resize to 256/224 of `side`, rounded, and CenterCrop to `side`."""
    short = round(side * RESIZE)
    width, height = (max(short, int(short * length / min(image.size))) for length in image.size)
    left, top = round((width - side) / 2), round((height - side) / 2)
    whole = image.resize((width, height), Image.Resampling.BILINEAR)
    return [whole.crop((left, top, left + side, top + side))]


def _random(
    image: Image.Image, side: int, count: int, crop_scale: float, crop_ratio: float, generator: torch.Generator
) -> list[Image.Image]:
    """torchvision's `resized_crop` of `count` boxes."""
    boxes = draw_boxes(generator, count, image.height, image.width, crop_scale, crop_ratio)
    return [
        image.crop((left, top, left + width, top + height)).resize((side, side), Image.Resampling.BILINEAR)
        for top, left, height, width in zip(*(value.int().tolist() for value in boxes), strict=True)
    ]


@lru_cache
def _pool(threads: int) -> ThreadPoolExecutor:
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return ThreadPoolExecutor(threads or processors, thread_name_prefix="decode")


def _together(
    pool: ThreadPoolExecutor, task: Callable[[int], None], tasks: int, result: list[Tensor]
) -> Future[list[Tensor]]:
    """A future of `result` that is done when `task(0..tasks - 1)` are. It occupies no thread of the pool to wait."""
    done: Future[list[Tensor]] = Future()
    done.set_running_or_notify_cancel()
    if not tasks:
        done.set_result(result)
        return done
    left, lock = tasks, threading.Lock()

    def finished(_: Future[None]) -> None:
        nonlocal left
        with lock:
            left -= 1
            if left:
                return
        error = next(filter(None, (future.exception() for future in futures)), None)
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)
        futures.clear()  # else they and this function, which hold each other, would keep the images

    futures = [pool.submit(task, place) for place in range(tasks)]
    for future in futures:
        future.add_done_callback(finished)
    return done
