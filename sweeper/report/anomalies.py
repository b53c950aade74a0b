"""The sample grid of a trial on one class: the most and the least anomalous test images by its chosen score.

Shapes: N test images, A that are shown, M held-out normal images.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from sweeper.report.charts import CATEGORIES
from sweeper.report.formatting import format_significant
from sweeper.report.sample_grids import INK, MUTED, PALE, png, read_arrays
from sweeper.results.estimates import over_images
from sweeper.storage.files import Files
from sweeper.storage.layout import figure_path, sample_grid_path
from trainables.metrics.roc import alarm_threshold, auroc_margin, mann_whitney

FILE = "anomalies.npz"
"""Name of a trial's sample grid with its test images."""
ABREAST = 10
"""Images in a line."""
SIDE, BELOW, BETWEEN, TOP = 0.8, 0.36, 0.3, 0.95
"""Side of an image, height of the text below it and of the title above each half, and space above both, in inches."""
LONGEST_NAME = 12
"""Most characters that are shown of the name of a class."""
HOTTEST = 0.999
"""Share of the pixels of the hottest image below which heat has shades of its own."""
FLAGGED = CATEGORIES[1]
"""Colour of the frame of an image that is flagged."""


class Anomalies(NamedTuple):
    """What a trial hands over (see `trainables.metrics.sample_grids.anomaly_data`)."""

    shown: NDArray[np.uint8]
    """[A, H, W, C], the most anomalous first."""
    places: NDArray[np.int64]
    """[A], which of the test images they are."""
    scores: NDArray[np.float64]
    """[N]."""
    labels: NDArray[np.int64]
    outlier: NDArray[np.bool_]
    held_out: NDArray[np.float64]
    """[M]."""
    classes: tuple[str, ...]
    score: str


def write(files: Files, name: str, folder: str, dataset: str, trial: str, title: str, alarm_rate: float | None) -> None:
    """Write `sheets/FOLDER/DATASET-anomalies.png` of a trial, if it has one. Images above the threshold of
    `alarm_rate` have a frame."""
    anomalies = read_arrays(files, sample_grid_path(name, trial, FILE), _parse)
    if anomalies:
        files.write(figure_path("sheets", folder, f"{dataset}-anomalies.png"), png(draw(anomalies, title, alarm_rate)))


class SheetImage(NamedTuple):
    """An image on a sheet."""

    image: NDArray[np.uint8]
    """[H, W, C]."""
    name: str
    score: float
    flagged: bool
    """Whether it has a frame."""
    bold: bool = False
    heat: NDArray[np.float32] | None = None
    """[H, W], how anomalous each pixel is, at least 0. Its root is drawn to the right of the image, in shades that all
    images share; None draws the image alone."""


def draw(anomalies: Anomalies, title: str, alarm_rate: float | None = None) -> Figure:
    """Draw the images with the name of their class and their score below, in two halves."""
    threshold, *about = _threshold(anomalies, alarm_rate)
    samples = []
    for image, place in zip(anomalies.shown, anomalies.places, strict=True):
        score, name = float(anomalies.scores[place]), anomalies.classes[anomalies.labels[place]]
        samples.append(SheetImage(image, name, score, score > threshold, not anomalies.outlier[place]))
    half = len(samples) // 2
    return draw_images(title, about, {"most anomalous": samples[:half], "least anomalous": samples[half:][::-1]})


def draw_images(title: str, about: Sequence[str], parts: Mapping[str, Sequence[SheetImage]]) -> Figure:
    """Draw parts below each other, each with its name above and its images in lines of `ABREAST`. `about` has at most
    two lines, which stand below the title."""
    heats = [sample.heat for samples in parts.values() for sample in samples if sample.heat is not None]
    hottest = max((float(np.quantile(heat, HOTTEST)) for heat in heats), default=1.0)
    typical = float(np.median(heats)) if heats else 0.0  # most pixels are normal: what they have is dark
    wide = 2 if heats else 1
    lines = [max(1, -(-len(samples) * wide // ABREAST)) for samples in parts.values()]
    height = TOP + sum(BETWEEN + count * (SIDE + BELOW) for count in lines)
    figure = Figure((ABREAST * SIDE * 1.08, height))
    FigureCanvasAgg(figure)
    texts = zip((title, *about), (12.5, 9, 9), ("bold", "normal", "normal"), (0.16, 0.45, 0.68), strict=False)
    for text, size, weight, below in texts:
        style: dict[str, Any] = {"fontsize": size, "weight": weight, "parse_math": False}
        figure.text(0, 1 - below / height, text, color=INK, va="center", **style)
    top = TOP
    for (name, samples), count in zip(parts.items(), lines, strict=True):
        figure.text(0, 1 - (top + 0.12) / height, name, fontsize=9, color=MUTED, va="center")
        for position, sample in enumerate(samples):
            row, column = divmod(position * wide, ABREAST)
            bottom = top + BETWEEN + row * (SIDE + BELOW) + SIDE
            box = (column / ABREAST, 1 - bottom / height, 1 / (1.08 * ABREAST), SIDE / height)
            _draw_image(figure.add_axes(box), sample)
            if sample.heat is not None:
                axis = figure.add_axes(((column + 0.94) / ABREAST, *box[1:]))
                axis.imshow(
                    np.sqrt(sample.heat), cmap="inferno", vmin=math.sqrt(typical), vmax=math.sqrt(hottest) or 1.0
                )
                axis.set(xticks=[], yticks=[])
                axis.spines[:].set_visible(False)
        top += BETWEEN + count * (SIDE + BELOW)
    return figure


def _draw_image(axis: Axes, sample: SheetImage) -> None:
    """One image, with its name and its score below, and a frame if it is flagged."""
    axis.imshow(sample.image if sample.image.shape[-1] == 3 else sample.image[..., 0], cmap="gray", vmin=0, vmax=255)
    axis.set(xticks=[], yticks=[])
    for spine in axis.spines.values():
        spine.set(color=FLAGGED if sample.flagged else PALE, linewidth=2.5 if sample.flagged else 0.8)
    label = sample.name if len(sample.name) <= LONGEST_NAME else f"{sample.name[: LONGEST_NAME - 1]}…"
    style: dict[str, Any] = {"transform": axis.transAxes, "ha": "center", "va": "top", "parse_math": False}
    axis.text(0.5, -0.05, label, fontsize=7.5, color=INK, weight="bold" if sample.bold else "normal", **style)
    axis.text(0.5, -0.22, format_significant(sample.score), fontsize=7.5, color=MUTED, **style)


def _threshold(anomalies: Anomalies, alarm_rate: float | None) -> tuple[float, *tuple[str, ...]]:
    """The threshold, infinite without a rate, a line about the score, and one about the threshold."""
    normal, others = (anomalies.scores[anomalies.outlier == is_outlier] for is_outlier in (False, True))
    counts = f"{len(normal)} normal (bold) and {len(others)} other test images"
    area = mann_whitney(normal, others)
    low, high = over_images(area, auroc_margin(normal, others))
    beside = "" if math.isnan(low) else f" [{low:.3f}, {high:.3f}] (95 % interval over images)"
    line = f"score {anomalies.score}, AUROC {area:.3f}{beside}: {counts}"
    if alarm_rate is None:
        return np.inf, line
    threshold = alarm_threshold(anomalies.held_out, alarm_rate)
    shares = [f"{100 * float((scores > threshold).mean()):.1f} %" for scores in (normal, others)]
    flagged = f"flagged (framed) are {shares[0]} of the normal and {shares[1]} of the others, above the threshold"
    of_rate = f"{format_significant(threshold)} of the false-alarm rate {alarm_rate:g}"
    return threshold, line, f"{flagged} {of_rate}"


def _parse(arrays: Mapping[str, Any]) -> Anomalies:
    """Read the arrays. Raises ValueError if they do not suit each other."""
    anomalies = Anomalies(
        arrays["shown"],
        arrays["places"],
        arrays["scores"].astype(np.float64),
        arrays["labels"].astype(np.int64),
        arrays["outlier"],
        arrays["held_out"].astype(np.float64),
        tuple(map(str, arrays["classes"])),
        str(arrays["score"]),
    )
    count, shown = len(anomalies.scores), anomalies.shown
    if not len(anomalies.labels) == len(anomalies.outlier) == count or len(shown) != len(anomalies.places):
        raise ValueError("its arrays must be of the same images")
    if shown.ndim != 4 or shown.shape[-1] not in (1, 3) or not np.isin(anomalies.places, np.arange(count)).all():
        raise ValueError("it must show images of one or three channels that are among the test images")
    if not np.isin(anomalies.labels, np.arange(len(anomalies.classes))).all() or len(set(anomalies.outlier)) < 2:
        raise ValueError("its images must be of known classes, normal ones and others")
    return anomalies
