"""A user's own images on disk: `train/CLASS/*` and `test/CLASS/*`, files of several kinds, sizes and shapes."""

from pathlib import Path

import numpy as np
from PIL import Image

ENDINGS = ("png", "jpg", "PNG", "jpeg", "bmp")


def write_own_images(
    root: Path, classes: tuple[str, ...] = ("cat", "dog", "fox"), train: int = 6, test: int = 3, seed: int = 0
) -> Path:
    """Write `train` and `test` images of each class, some grey, at odd sizes. A class differs by its brightness.
    Returns `root`."""
    rng = np.random.default_rng(seed)
    for split, count in (("train", train), ("test", test)):
        for index, class_ in enumerate(classes):
            folder = root / split / class_
            folder.mkdir(parents=True)
            for number in range(count):
                height, width = rng.integers(9, 40, 2)
                noise = rng.integers(0, 60, (height, width, 3)) + 70 * index
                image = Image.fromarray(noise.astype(np.uint8)).convert("L" if number % 3 else "RGB")
                image.save(folder / f"{number}.{ENDINGS[number % len(ENDINGS)]}")
    return root
