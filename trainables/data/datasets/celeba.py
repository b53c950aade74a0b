"""CelebA: faces with binary attributes, read by torchvision, decoded once and cached. Attributes use torchvision's
names in lower case.

Shapes: N images, A hair colours.
"""

import os
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainables.data.datasets.dataset import UNLABELLED, Attribute, Dataset, Declaration, Source, channel_statistics
from trainables.data.datasets.downloads import cached_tensors, check_regular
from trainables.data.errors import DataError

SIDE = 64
"""Height and width of an image, in pixels, as models see it."""
CROP = 178
"""Side, in pixels, of a file's central square, which is scaled down to an image."""
ARCHIVE, IMAGES = "img_align_celeba.zip", "img_align_celeba"
"""The published archive of images, and the folder inside it."""
CACHE = f"central{CROP}_side{SIDE}.pt"
"""The decoded images and their binary attributes, 2.3 GB, in the folder of the other files."""
SITE = "https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html"
BLOCK = 256
"""Number of images that a thread decodes at a time."""
CONTENT = "male"
"""The binary attribute that defines the classes."""
HAIR = ("bald", "black_hair", "blond_hair", "brown_hair", "gray_hair")
"""The binary attributes that form the attribute `hair`, in the order of its values."""
BINARY = (
    *("5_o_clock_shadow", "bags_under_eyes", "bangs", "big_lips", "big_nose", "bushy_eyebrows", "eyeglasses"),
    *("heavy_makeup", "high_cheekbones", "male", "mouth_slightly_open", "no_beard", "oval_face", "pointy_nose"),
    *("smiling", "straight_hair", "wavy_hair", "wearing_earrings", "wearing_lipstick", "young"),
)
"""The 20 binary attributes that are separate labels."""
ATTRIBUTES: Mapping[str, int] = {"hair": len(HAIR), **dict.fromkeys(BINARY, 2)}
"""Name of each attribute of the data set -> its number of classes."""


def celeba(root: Path) -> Dataset:
    """CelebA: 162,770 training and 19,962 test images of faces, 3x64x64: the central square of 178 pixels, scaled to
    64. The classes are female and male. Attributes are hair colour, if exactly one is given, and 20 binary attributes.
    The files are not downloaded. They are decoded once into a file beside them."""
    folder = root / "celeba"
    try:
        tensors = cached_tensors(folder / CACHE, root / ".celeba.lock", partial(_decode, root, folder))
    except OSError as error:
        raise DataError(
            f"celeba cannot be decoded into {folder} ({error}); it must be writable and have 4 GB free"
        ) from error
    train, test = _labels(tensors, "train"), _labels(tensors, "test")
    return Dataset(
        name="celeba",
        train_images=tensors["train"],
        train_labels=train[CONTENT],
        test_images=tensors["test"],
        test_labels=test[CONTENT],
        classes=("female", "male"),
        levels=255,
        mean=tuple(tensors["mean"].tolist()),
        std=tuple(tensors["std"].tolist()),
        attributes={name: Attribute(train[name], test[name], classes) for name, classes in ATTRIBUTES.items()},
    )


def _labels(tensors: Mapping[str, Tensor], part: str) -> dict[str, Tensor]:
    """Name of each attribute -> the labels of a part's images, int64 `[N]`."""
    binary = {name: tensors[f"{part} {name}"].long() for name in (*HAIR, *BINARY)}
    return {"hair": hair_colour(torch.stack([binary[name] for name in HAIR], dim=1)), **binary}


def hair_colour(positive_NA: Tensor) -> Tensor:
    """The hair colour, int64 `[N]`: the single positive attribute of an image (`[N, A]`, 0 or 1), or UNLABELLED if none
    or several are positive."""
    return torch.where(positive_NA.sum(dim=1) == 1, positive_NA.long().argmax(dim=1), UNLABELLED)


def _decode(root: Path, folder: Path) -> Mapping[str, Tensor]:
    """Images, uint8 `[N, 3, 64, 64]`, and binary attributes, uint8 `[N]`, of both parts, with the mean and standard
    deviation of each channel of the training images. Raises DataError if a file is absent or corrupt."""
    from torchvision.datasets import CelebA
    from torchvision.transforms.v2 import CenterCrop, Compose, PILToTensor, Resize

    _check_files(folder)
    tensors = {}
    for part in ("train", "test"):
        source = CelebA(root, part, transform=Compose([CenterCrop(CROP), Resize(SIDE), PILToTensor()]))
        tensors[part] = _images(source, folder / IMAGES)
        tensors |= {
            f"{part} {name.lower()}": source.attr[:, i].byte() for i, name in enumerate(source.attr_names) if name
        }
    tensors["mean"], tensors["std"] = channel_statistics(tensors["train"])
    return tensors


def _check_files(folder: Path) -> None:
    """Unpack the archive of images if needed. Raises DataError if a file is missing or differs from its published
    checksum."""
    from torchvision.datasets import CelebA
    from torchvision.datasets.utils import check_integrity, extract_archive

    unpacked = (folder / IMAGES).is_dir()
    files = {file: md5 for _, md5, file in CelebA.file_list if not (unpacked and file == ARCHIVE)}
    if absent := [file for file in files if not (folder / file).exists()]:
        raise DataError(
            f"celeba is incomplete and is not downloaded; put {', '.join(absent)} into {folder}, from {SITE}"
        )
    check_regular(folder / file for file in files)
    for file, md5 in files.items():
        if not check_integrity(folder / file, md5):
            raise DataError(
                f"celeba is corrupt: {folder / file} does not have its published checksum; replace it, from {SITE}"
            )
    if not unpacked:
        with tempfile.TemporaryDirectory(dir=folder, prefix=".unpack-") as staging:
            extract_archive(folder / ARCHIVE, staging)
            os.replace(Path(staging, IMAGES), folder / IMAGES)


def _images(source: Any, folder: Path) -> Tensor:
    """All images of torchvision's data set, decoded in parallel."""
    count = len(source)
    images_N3SS = torch.empty((count, 3, SIDE, SIDE), dtype=torch.uint8)

    def fill(start: int) -> None:
        for i in range(start, min(start + BLOCK, count)):
            try:
                images_N3SS[i] = source[i][0]
            except Exception as error:
                reason = " ".join(str(error).split()) or type(error).__name__
                path = folder / source.filename[i]
                raise DataError(f"the image {path} cannot be decoded ({reason}); replace it") from error

    with ThreadPoolExecutor() as pool:
        list(pool.map(fill, range(0, count, BLOCK)))
    return images_N3SS


DATASETS = {
    "celeba": Source(
        celeba,
        Declaration((3, SIDE, SIDE), 2, train=(94_509, 68_261), test=(12_247, 7_715), attributes=ATTRIBUTES),
        f"DATA/celeba/, never fetched: {ARCHIVE} (or the folder in it) and the .txt files beside it",
    )
}
