"""Folders of images on disk: a small ImageNet, a user's own images, and files of all kinds, whole and broken."""

import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = ("n01440764", "n01443537", "n01484850")


ENDINGS = ("png", "jpg", "PNG", "jpeg", "bmp")


def write_imagenet(root: Path, train: int = 4, val: int = 2) -> Path:
    """Write `root/imagenet/{train,val}/CLASS/*`, `train` and `val` images of each of three classes: JPEG, some of them
    grey, and PNG. Returns `root/imagenet`."""
    rng = np.random.default_rng(4)
    for split, n in (("train", train), ("val", val)):
        for k, class_name in enumerate(CLASSES):
            folder = root / "imagenet" / split / class_name
            folder.mkdir(parents=True)
            for i in range(n):
                height, width = (60 + 10 * k, 80) if i % 2 else (90, 70 + 10 * k)
                image = picture(rng, height, width).convert("L" if i == 1 else "RGB")
                image.save(folder / (f"{class_name}_{i}.png" if i == 2 else f"{class_name}_{i}.JPEG"))
    return root / "imagenet"


def picture(rng: np.random.Generator, height: int, width: int) -> Image.Image:
    """Smooth colours, as photographs have them."""
    coarse = rng.integers(0, 256, (6, 8, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)


def write_modes(folder: Path) -> list[Path]:
    """Whole files of every kind: grey, palette (plain, transparent), CMYK, RGBA, grey with alpha, JPEG named PNG, and a
    JPEG padded with zeros, one with bytes after its end, and a GIF."""
    folder.mkdir(parents=True, exist_ok=True)
    image = picture(np.random.default_rng(5), 40, 50)
    image.convert("L").save(folder / "grey.jpg")
    image.quantize(16).save(folder / "palette.png")
    image.quantize(16).save(folder / "transparent.png", transparency=bytes([0, 128, *[255] * 14]))
    image.convert("CMYK").save(folder / "cmyk.jpg")
    image.convert("RGBA").save(folder / "rgba.png")
    image.convert("LA").save(folder / "alpha.png")
    image.save(folder / "misnamed.png", "JPEG")
    image.save(folder / "colour.jpg")
    whole = (folder / "colour.jpg").read_bytes()
    (folder / "padded.jpg").write_bytes(whole + bytes(100))
    (folder / "tail.jpg").write_bytes(whole + b"and more" * 20)
    image.save(folder / "animation.gif")
    return sorted(folder.iterdir())


def write_broken(folder: Path) -> dict[str, str]:
    """Files that cannot be read: name -> what is wrong with each."""
    folder.mkdir(parents=True, exist_ok=True)
    image = picture(np.random.default_rng(6), 60, 50)
    for ending in ("jpg", "png"):
        image.save(folder / f"cut.{ending}")
        whole = (folder / f"cut.{ending}").read_bytes()
        (folder / f"cut.{ending}").write_bytes(whole[: len(whole) // 2])
    image.save(folder / "last.jpg")
    whole = (folder / "last.jpg").read_bytes()
    (folder / "last.jpg").write_bytes(whole[:-2])
    (folder / "headless.jpg").write_bytes(whole[100:])
    (folder / "nothing.jpg").write_bytes(b"")
    (folder / "text.jpg").write_text("<html>404 Not Found</html>")
    return {
        "cut.jpg": "cut off", "cut.png": "cut off", "headless.jpg": "not an image", "last.jpg": "cut off",
        "nothing.jpg": "empty", "text.jpg": "not an image",
    }  # fmt: skip


def write_huge(path: Path, side: int = 40_000) -> None:
    """Write a PNG of so many pixels a side, in a few bytes."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header, pixels = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0), zlib.compress(bytes(100))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b""))


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
