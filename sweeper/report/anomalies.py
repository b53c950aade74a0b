"""The sheet of a trial on one class: the most and the least anomalous test images by its chosen score.

Shapes: N test images, A that are shown, M held-out normal images.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from sweeper.report.charts import CATEGORIES
from sweeper.report.formatting import format_significant
from sweeper.report.sheets import INK, MUTED, PALE, png, read_arrays
from sweeper.results.estimates import over_images
from sweeper.storage.files import Files
from sweeper.storage.layout import figure_path, sheet_path
from trainables.metrics.roc import alarm_threshold, auroc_margin, mann_whitney

FILE = "anomalies.npz"
"""Name of a trial's sheet with its test images."""
ABREAST = 10
"""Images in a line."""
SIDE, BELOW, BETWEEN, TOP = 0.8, 0.36, 0.3, 0.95
"""Side of an image, height of the text below it and of the title above each half, and space above both, in inches."""
LONGEST_NAME = 12
"""Most characters that are shown of the name of a class."""
FLAGGED = CATEGORIES[1]
"""Colour of the frame of an image that is flagged."""


class Anomalies(NamedTuple):
    """What a trial hands over (see `trainables.metrics.sheets.anomaly_data`)."""

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
    """Write `sheets/FOLDER/DATASET-anomalies.png` of a trial, if it has such a sheet. Images above the threshold of
    `alarm_rate` have a frame."""
    anomalies = read_arrays(files, sheet_path(name, trial, FILE), _parse)
    if anomalies:
        files.write(figure_path("sheets", folder, f"{dataset}-anomalies.png"), png(draw(anomalies, title, alarm_rate)))


def draw(anomalies: Anomalies, title: str, alarm_rate: float | None = None) -> Figure:
    """Draw the images with the name of their class and their score below, in two halves."""
    threshold, *about = _threshold(anomalies, alarm_rate)
    half, shown = len(anomalies.places) // 2, len(anomalies.places)
    halves = {"most anomalous": range(half), "least anomalous": range(shown - 1, half - 1, -1)}
    lines = max(1, -(-half // ABREAST))
    height = TOP + 2 * (BETWEEN + lines * (SIDE + BELOW))
    figure = Figure((ABREAST * SIDE * 1.08, height))
    FigureCanvasAgg(figure)
    texts = zip((title, *about), (12.5, 9, 9), ("bold", "normal", "normal"), (0.16, 0.45, 0.68), strict=False)
    for text, size, weight, below in texts:
        style: dict[str, Any] = {"fontsize": size, "weight": weight, "parse_math": False}
        figure.text(0, 1 - below / height, text, color=INK, va="center", **style)
    for number, (name, places) in enumerate(halves.items()):
        top = TOP + number * (BETWEEN + lines * (SIDE + BELOW))
        figure.text(0, 1 - (top + 0.12) / height, name, fontsize=9, color=MUTED, va="center")
        for position, index in enumerate(places):
            row, column = divmod(position, ABREAST)
            bottom = top + BETWEEN + row * (SIDE + BELOW) + SIDE
            box = (column / ABREAST, 1 - bottom / height, 1 / (1.08 * ABREAST), SIDE / height)
            _draw_image(figure.add_axes(box), anomalies, index, threshold)
    return figure


def _draw_image(axis: Axes, anomalies: Anomalies, index: int, threshold: float) -> None:
    """One image, with its class and its score below, and a frame if its score is above the threshold."""
    image, place = anomalies.shown[index], anomalies.places[index]
    score, normal = float(anomalies.scores[place]), not anomalies.outlier[place]
    axis.imshow(image if image.shape[-1] == 3 else image[..., 0], cmap="gray", vmin=0, vmax=255)
    axis.set(xticks=[], yticks=[])
    for spine in axis.spines.values():
        spine.set(color=FLAGGED if score > threshold else PALE, linewidth=2.5 if score > threshold else 0.8)
    label = anomalies.classes[anomalies.labels[place]]
    label = label if len(label) <= LONGEST_NAME else f"{label[: LONGEST_NAME - 1]}…"
    style: dict[str, Any] = {"transform": axis.transAxes, "ha": "center", "va": "top", "parse_math": False}
    axis.text(0.5, -0.05, label, fontsize=7.5, color=INK, weight="bold" if normal else "normal", **style)
    axis.text(0.5, -0.22, format_significant(score), fontsize=7.5, color=MUTED, **style)


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
