"""Photographs of screws as an inspector has them: drawn, of odd sizes, with four kinds of defect, of fixed seed."""

import math
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

DEFECTS = ("bent", "missing_head", "scratch", "thread")


def screw(rng: np.random.Generator, defect: str = "") -> Image.Image:
    """A grey screw on a light table, in a photograph of 90 to 180 pixels a side, turned by a few degrees."""
    return _photograph(rng, defect)[0]


def write_screws(
    root: Path, good: int = 200, tested_good: int = 40, each: int = 15, seed: int = 0, *, masks: bool = False
) -> Path:
    """Write `good` photographs of good screws to `root/train/good/`, and to `root/test/` so many good ones and `each`
    of every defect; with `masks` those of defects to `root/ground_truth/DEFECT/NAME_mask.png`, as MVTec's data sets
    have them. Returns `root`."""
    rng = np.random.default_rng(seed)
    counts = {"train/good": good, "test/good": tested_good, **{f"test/{defect}": each for defect in DEFECTS}}
    for folder, count in counts.items():
        (root / folder).mkdir(parents=True)
        defect = folder.removeprefix("test/") if folder.removeprefix("test/") in DEFECTS else ""
        for number in range(count):
            image, mask = _photograph(rng, defect)
            image.save(root / folder / f"{number:03}.png")
            if defect and masks:
                (root / "ground_truth" / defect).mkdir(parents=True, exist_ok=True)
                mask.save(root / "ground_truth" / defect / f"{number:03}_mask.png")
    return root


def _photograph(rng: np.random.Generator, defect: str) -> tuple[Image.Image, Image.Image]:
    """The photograph, and the mask of its defect: white where a good screw would look otherwise."""
    side, seed = int(rng.integers(90, 181)), int(rng.integers(2**32))
    drawn = _drawn(np.random.default_rng(seed), defect)
    whole = _drawn(np.random.default_rng(seed), "") if defect else drawn
    differs = Image.fromarray(((np.asarray(drawn, int) - np.asarray(whole, int)) ** 2 > 200).astype(np.uint8) * 255)
    noise = rng.normal(0, 3, (side, side))
    image = np.asarray(drawn.resize((side, side), Image.Resampling.LANCZOS), float) + noise
    mask = differs.resize((side, side), Image.Resampling.NEAREST).filter(ImageFilter.MaxFilter(3))
    return Image.fromarray(image.clip(0, 255).astype(np.uint8)), mask


def _drawn(rng: np.random.Generator, defect: str) -> Image.Image:
    """360 pixels a side, without noise. Equal generators draw the same screw but for its defect."""
    image = Image.new("L", (360, 360), int(rng.integers(200, 215)))
    draw, x, metal = ImageDraw.Draw(image), 180 + int(rng.integers(-8, 9)), int(rng.integers(80, 95))
    angle, place, length = rng.uniform(-4, 4), int(rng.integers(130, 240)), int(rng.integers(25, 45))
    lean = rng.uniform(0.2, 0.4) if defect == "bent" else 0.0

    def axis(y: float) -> float:
        return x + lean * max(0.0, y - 180)

    for y in range(100, 300):
        width = 22 if y < 270 else 22 * (300 - y) / 30
        draw.line((axis(y) - width, y, axis(y) + width, y), fill=metal + 25)
    for y in range(125, 290, 12):
        reach = 28 if y < 270 else 18
        if not (defect == "thread" and place <= y < place + 36):
            draw.line((axis(y) - reach, y + 6, axis(y) + reach, y - 6), fill=metal - 30, width=5)
    if defect != "missing_head":
        draw.rounded_rectangle((x - 55, 60, x + 55, 104), 12, fill=metal)
        draw.line((x - 12, 82, x + 12, 82), fill=metal - 40, width=6)
    if defect == "scratch":
        ends = [(axis(place) - 14, place), (axis(place) + 10, place + length)]
        draw.line([*ends], fill=metal + 105, width=3)
    turned = image.rotate(angle, Image.Resampling.BICUBIC, fillcolor=image.getpixel((2, 2)))
    return turned.filter(ImageFilter.GaussianBlur(1.2 + math.fabs(angle) / 20))
