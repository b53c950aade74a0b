"""Images of data sets that exceed memory, decoded on demand by threads ahead of use. They are image files, all of which
are checked before anything expensive starts, or images of one size that the user's own code reads.

Shapes: N images, B images of a batch, C channels, H rows, W columns, S pixels along a side.
"""

from __future__ import annotations

import os
import stat
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from trainables.data.augmentation import draw_boxes
from trainables.data.errors import DataError

RESIZE = 256 / 224
"""For evaluation: length of an image's shorter side before the central crop, divided by the side of the crop."""

FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
"""Formats of image files."""
MAX_PIXELS = 178_956_970
"""Maximum number of pixels of an image, Pillow's own limit."""
JPEG, PNG = "JPEG", "PNG"
warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # for images that `open_image` lets pass
ENDS = {JPEG: (b"\xff\xd8\xff", b"\xff\xd9"), PNG: (b"\x89PNG\r\n\x1a\n", b"IEND\xaeB`\x82")}
"""The first and last bytes of a JPEG and of a PNG."""
BACKGROUND = (255, 255, 255, 255)
"""The colour behind transparent pixels: white."""
PAGED = ("GIF", "PNG", "TIFF", "WEBP")
"""Formats whose files can have several pages or frames. Previews that cameras embed in a JPEG do not count."""
LARGE = 1 << 18
"""Size in bytes from which a JPEG may have more than `MAX_PIXELS`."""
TAIL = 64
"""Bytes read from the end of a file. Zero padding at the end is ignored."""
CHUNK = 1024
"""Files that a thread checks at a time."""
THREADS = 32
"""A large number, because threads mostly wait for the disk or the network."""
R = TypeVar("R")
Crop = Callable[[Image.Image], list[Image.Image]]
Decoding = Callable[[], list[Tensor]]
"""Waits until batches of images are decoded and returns them. Raises DataError for the first file that cannot be
decoded."""


@dataclass(frozen=True, eq=False)
class ImageFiles:
    """Picklable image files that can be indexed like a uint8 tensor `[N, 3, S, S]` with pixels in 0..255."""

    root: Path
    """Folder of the files."""
    names: NDArray[np.bytes_]
    """Paths `[N]` below `root`, encoded for the file system. A million paths take about 40 MB."""
    side: int
    """Side S of an image in pixels."""
    threads: int = 0
    """Number of decoding threads; 0 for one per processor. Results do not depend on it."""

    def __len__(self) -> int:
        return len(self.names)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return len(self), 3, self.side, self.side

    def __getitem__(self, indices: slice | Tensor) -> Tensor:
        """Decode images to uint8 `[B, 3, S, S]`: the shorter side is resized to 256/224 S, then the central square of
        side S is cropped, as by torchvision's Resize and CenterCrop. Raises DataError for a file that cannot be
        decoded."""
        names = self._names(indices)
        return self._decode(names, [partial(_central, side=self.side)] * len(names), 1)()[0]

    def crops(
        self, indices_B: Tensor, generators: Sequence[torch.Generator], count: int, crop_scale: float, crop_ratio: float
    ) -> Decoding:
        """Start to decode `count` random resized crops of each image: `count` tensors, each uint8 `[B, 3, S, S]`.

        Each file is decoded once. Each image's boxes are drawn by `draw_boxes` from the image's own generator, for its
        own height and width. With a `crop_scale` of 1 all crops are central and nothing is drawn. Raises ValueError
        unless each image has its own generator.
        """
        names = self._names(indices_B)
        if len(set(map(id, generators))) != len(names) or len(generators) != len(names):
            raise ValueError(f"each of the {len(names)} images needs its own generator, but got {len(generators)}")
        if crop_scale == 1:
            return self._decode(names, [partial(_central, side=self.side)] * len(names), count)
        boxes = partial(_random, side=self.side, count=count, crop_scale=crop_scale, crop_ratio=crop_ratio)
        return self._decode(names, [partial(boxes, generator=generator) for generator in generators], count)

    def select(self, mask_N: Tensor) -> ImageFiles:
        """The images where `mask` (bool `[N]`) is True, in their order."""
        return replace(self, names=self.names[mask_N.numpy()])

    def paths(self) -> list[str]:
        """Paths of all files."""
        return [self._path(name) for name in self.names]

    def _names(self, indices: slice | Tensor) -> NDArray[np.bytes_]:
        return self.names[indices if isinstance(indices, slice) else indices.cpu().numpy()]

    def _path(self, name: bytes) -> str:
        return os.path.join(self.root, os.fsdecode(name))

    def _decode(self, names: NDArray[np.bytes_], crops: Sequence[Crop], count: int) -> Decoding:
        """Start to decode `count` batches. If a file yields a single crop, all batches get it."""
        batches = [np.empty((len(names), 3, self.side, self.side), dtype=np.uint8) for _ in range(count)]

        def fill(row: int) -> None:
            cropped = decode_file(self._path(names[row]), crops[row])
            for i, batch_B3SS in enumerate(batches):
                batch_B3SS[row] = np.asarray(cropped[i % len(cropped)]).transpose(2, 0, 1)

        decoding = [_pool(self.threads).submit(fill, row) for row in range(len(names))]

        def wait() -> list[Tensor]:
            for future in decoding:
                future.result()
            return [torch.from_numpy(batch) for batch in batches]

        return wait


@dataclass(frozen=True, eq=False)
class LazyImages:
    """Images of one size, uint8 or float32, that are read on demand and can be indexed like a tensor `[N, C, H, W]`."""

    read: Callable[[NDArray[np.int64]], Tensor]
    """Returns the images `[B, C, H, W]` with these indices. Called by one thread at a time."""
    indices: NDArray[np.int64]
    """Index that `read` takes for each of the N images."""
    image_shape: tuple[int, int, int]
    """`(C, H, W)`."""
    reader: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, thread_name_prefix="read"))

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return len(self), *self.image_shape

    def __getitem__(self, indices: slice | Tensor) -> Tensor:
        return self.decode(indices)()[0]

    def decode(self, indices: slice | Tensor) -> Decoding:
        """Start to read a single batch."""
        chosen = self.indices[indices if isinstance(indices, slice) else indices.cpu().numpy()]
        reading = self.reader.submit(self.read, chosen)
        return lambda: [reading.result()]

    def select(self, mask_N: Tensor) -> LazyImages:
        """The images where `mask` (bool `[N]`) is True, in their order."""
        return replace(self, indices=self.indices[mask_N.numpy()])


Images: TypeAlias = Tensor | ImageFiles | LazyImages
"""`[N, C, H, W]`, uint8, or float32 in [0, 1] for the user's own images: a tensor in memory, or images decoded on
demand."""


def to_device(images: Images, device: torch.device) -> Images:
    """Move a tensor to the device. Images that are decoded on demand are returned unchanged."""
    return images.to(device) if isinstance(images, Tensor) else images


def prefetched(images: Images, parts: Sequence[slice]) -> Iterator[Tensor]:
    """Yield the images of each part. The next part is decoded while the caller works on the current one."""
    if isinstance(images, Tensor):
        yield from (images[part] for part in parts)
        return
    with ThreadPoolExecutor(1) as reader:
        previous: Future[Tensor] | None = None
        for part in parts:
            current = reader.submit(images.__getitem__, part)
            if previous:
                yield previous.result()
            previous = current
        if previous:
            yield previous.result()


def decode_file(path: str, crop: Crop) -> list[Image.Image]:
    """The crops of one file, as RGB. Raises DataError, with a one-line message, if the file cannot be decoded."""
    return _of_image(path, lambda image: crop(rgb(image)))


class Header(NamedTuple):
    """Properties of an image that are known from its file's header."""

    paged: bool
    """Whether the file has several pages or frames; only the first is decoded."""
    transparent: bool
    """Whether pixels may be transparent."""


def read_header(path: str) -> Header:
    """The header of one file. Raises DataError as `decode_file`."""
    return _of_image(
        path,
        lambda image: Header(
            image.format in PAGED and getattr(image, "is_animated", False), image.has_transparency_data
        ),
    )


def _of_image(path: str, read: Callable[[Image.Image], R]) -> R:
    """Return the result of `read` for an image file. Raises DataError, with a one-line message that names the file."""
    try:
        with open_image(path) as image:
            return read(image)
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DataError(f"the image {path} cannot be decoded ({reason}); remove or replace it") from error


def open_image(path: str) -> Image.Image:
    """Open an image file of one of the `FORMATS`, without decoding it. Raises OSError or ValueError for anything else:
    some of Pillow's other formats start programs, such as Ghostscript, and opening a named pipe would block."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise ValueError("it must be a file, but is a folder, named pipe, device or socket")
    image = Image.open(path, formats=FORMATS)
    if image.width * image.height > MAX_PIXELS:
        image.close()
        raise ValueError(f"it must have at most {MAX_PIXELS} pixels, but has {image.width} x {image.height}")
    return image


def rgb(image: Image.Image) -> Image.Image:
    """Convert an image of any mode to RGB, with transparent pixels on the `BACKGROUND`. Raises ValueError if a channel
    has more than 8 bits, which Pillow would truncate."""
    if image.mode[0] in "IF":
        raise ValueError(f"its mode is {image.mode}, but a channel must have 8 bits")
    if not image.has_transparency_data:
        return image.convert("RGB")
    opaque = Image.alpha_composite(Image.new("RGBA", image.size, BACKGROUND), image.convert("RGBA")).convert("RGB")
    opaque.info = {key: value for key, value in image.info.items() if key != "transparency"}  # how the camera was held
    return opaque


def _central(image: Image.Image, side: int) -> list[Image.Image]:
    """The central crop: torchvision's Resize to 256/224 of `side`, rounded, then CenterCrop to `side`."""
    shorter_side = round(side * RESIZE)
    width, height = (max(shorter_side, int(shorter_side * length / min(image.size))) for length in image.size)
    left, top = round((width - side) / 2), round((height - side) / 2)
    resized = image.resize((width, height), Image.Resampling.BILINEAR)
    return [resized.crop((left, top, left + side, top + side))]


def _random(
    image: Image.Image, side: int, count: int, crop_scale: float, crop_ratio: float, generator: torch.Generator
) -> list[Image.Image]:
    """`count` random crops, each as in torchvision's `resized_crop`."""
    boxes = draw_boxes(generator, count, image.height, image.width, crop_scale, crop_ratio)
    return [
        image.crop((left, top, left + width, top + height)).resize((side, side), Image.Resampling.BILINEAR)
        for top, left, height, width in zip(*(value.int().tolist() for value in boxes), strict=True)
    ]


@lru_cache
def _pool(threads: int) -> ThreadPoolExecutor:
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return ThreadPoolExecutor(threads or processors, thread_name_prefix="decode")


def check_image_files(name: str, paths: Sequence[str]) -> None:
    """Raises DataError if image files of the data set `name` are incomplete, judged by their first and last bytes. The
    one-line message gives their number, and the first file with the reason.

    A file that begins and ends like a JPEG or PNG passes if its size is legal. All other files are decoded, so that no
    readable file is refused. Damage in the middle of a file is not detected.
    """
    with ThreadPoolExecutor(THREADS) as pool:
        chunks = [paths[start : start + CHUNK] for start in range(0, len(paths), CHUNK)]
        faults = [fault for chunk in pool.map(lambda chunk: [*map(_fault, chunk)], chunks) for fault in chunk]
    broken = [(path, fault) for path, fault in zip(paths, faults, strict=True) if fault]
    if broken:
        path, reason = broken[0]
        raise DataError(
            f"{len(broken)} of {len(paths)} images of {name} cannot be read, the first is {path} ({reason}); "
            "remove or replace them"
        )


def _fault(path: str) -> str | None:
    """The reason why a file cannot be read; None if it can."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return "not a file"
        ends_well, size = _ends_well(path), os.path.getsize(path)
        if ends_well == JPEG and size < LARGE:
            return None
        if not size:
            return "empty"
        with open_image(path) as image:
            if not ends_well:
                rgb(image)
    except UnidentifiedImageError:
        return "not an image"
    except OSError as error:
        return error.strerror or "cut off"
    except Exception as error:
        return " ".join(str(error).split()) or type(error).__name__
    return None


def _ends_well(path: str) -> str:
    """The format, JPEG or PNG, whose first and last bytes the file has; empty if neither."""
    with open(path, "rb", buffering=0) as file:
        head = os.pread(file.fileno(), 8, 0)
        tail = os.pread(file.fileno(), TAIL, max(0, os.fstat(file.fileno()).st_size - TAIL)).rstrip(b"\0")
    formats = (name for name, (first, last) in ENDS.items() if head.startswith(first) and tail.endswith(last))
    return next(formats, "")
