"""Maps of latents: samples of each density among the representations of test images, placed by t-SNE in training."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from sweeper.report.formatting import MINUS, format_significant
from sweeper.report.sheets.arrays import read_arrays
from sweeper.report.sheets.pictures import first_trials
from sweeper.report.style import INK, MUTED, PALE, png
from sweeper.storage.files import Files
from sweeper.storage.layout import sheet_path

FILE = "tsne.npz"
"""A trial's map, in the folder of its sheets."""
PANEL, GAP, TITLE = 3.0, 0.25, 0.45
"""Side of a panel, space between two, and height of the title above each, in inches."""
TOP, BOTTOM = 0.95, 0.55
"""Space above and below the panels, in inches."""
ABREAST = 4
"""Most panels beside each other."""


@dataclass(frozen=True)
class LatentMap:
    """Places on a trial's map, `[N, 2]`."""

    samples: NDArray[np.float32]
    test: NDArray[np.float32]
    labels: NDArray[np.int16]
    """Class of each test image, below 0 if it is unknown."""
    dimensions: int
    """Dimensions of the latents."""
    components: int
    """Gaussians of the density."""


def write(files: Files, name: str, folder: str, rows: pd.DataFrame, about: str = "") -> None:
    """Write `sheets/FOLDER/DATASET-tsne.png` for each data set, with a panel for the first trial of each method and
    density that has a map. `about` is a line below the title."""
    for dataset, trials in first_trials(files, name, rows).items():
        paths = {title: sheet_path(name, trial, FILE) for title, trial in trials.items()}
        maps = {title: latent_map for title, path in paths.items() if (latent_map := _read(files, path))}
        if maps:
            metrics = {title: rows[rows["trial_id"] == trials[title]].iloc[0] for title in maps}
            files.write(f"sheets/{folder}/{dataset}-tsne.png", png(draw(maps, metrics, about)))


def draw(maps: Mapping[str, LatentMap], metrics: Mapping[str, pd.Series], about: str = "") -> Figure:
    """Draw a panel for each map, with its density's volume and spread, if these are in `metrics`, below its title."""
    columns = min(ABREAST, len(maps))
    lines = -(-len(maps) // columns)
    figure = Figure((columns * (PANEL + GAP) - GAP, TOP + lines * (PANEL + TITLE + GAP) - GAP + BOTTOM))
    FigureCanvasAgg(figure)
    width, height = figure.get_size_inches()
    for index, (title, latent_map) in enumerate(maps.items()):
        row, column = divmod(index, columns)
        top = TOP + row * (PANEL + TITLE + GAP) + TITLE
        box = (column * (PANEL + GAP) / width, 1 - (top + PANEL) / height, PANEL / width, PANEL / height)
        axis = figure.add_axes(box)
        _draw_panel(axis, latent_map)
        axis.text(0, 1.085, title, transform=axis.transAxes, fontsize=10, weight="bold", color=INK)
        axis.text(0, 1.02, _measured(metrics[title]), transform=axis.transAxes, fontsize=8.5, color=MUTED)
    first = next(iter(maps.values()))
    texts = (("samples among representations of test images", 12.5, "bold", 0.22), (about, 10, "normal", 0.48))
    for text, size, weight, below in texts:
        figure.text(0, 1 - below / height, text, fontsize=size, weight=weight, color=INK, va="center")
    figure.text(0, 1 - 0.72 / height, caption(maps), fontsize=9, color=INK, va="center")
    _add_legend(figure, first)
    return figure


def caption(maps: Mapping[str, LatentMap]) -> str:
    """What the points are, and the largest volume and spread that unit vectors can have."""
    sizes = {(latent_map.dimensions, len(latent_map.samples), len(latent_map.test)) for latent_map in maps.values()}
    (dimensions, samples, test) = max(sizes)
    volume = format_significant(dimensions * math.log(dimensions))
    counts = sorted({latent_map.components for latent_map in maps.values()} - {1})
    spreads = [f"{format_significant(math.sqrt(2 * count / (count - 1)))} (K = {count})" for count in counts]
    limits = f"ceilings for unit vectors: volume {MINUS}D log D = {MINUS}{volume} (D = {dimensions})"
    spread = f", spread sqrt(2K/(K{MINUS}1)) = {' and '.join(spreads)}" if spreads else ""
    return f"t-SNE of {samples} samples and {test} images; {limits}{spread}"


def _draw_panel(axis: Axes, latent_map: LatentMap) -> None:
    axis.set(xticks=[], yticks=[])
    for spine in axis.spines.values():
        spine.set_color(PALE)
    known = latent_map.labels >= 0
    colours = np.array([*map(_colour, latent_map.labels)])
    unknown, shown, samples = latent_map.test[~known], latent_map.test[known], latent_map.samples
    axis.scatter(unknown[:, 0], unknown[:, 1], s=5, c=PALE, linewidths=0)
    axis.scatter(shown[:, 0], shown[:, 1], s=5, c=colours[known], linewidths=0, alpha=0.75)
    axis.scatter(samples[:, 0], samples[:, 1], s=13, c=INK, marker="x", linewidths=0.8)


def _colour(label: int) -> tuple[float, float, float]:
    """The colour of a class; from the eleventh class on they repeat."""
    red, green, blue, _ = colormaps["tab10"](int(label) % 10)
    return float(red), float(green), float(blue)


def _add_legend(figure: Figure, latent_map: LatentMap) -> None:
    labels = [int(label) for label in np.unique(latent_map.labels) if 0 <= label < 10]
    style: dict[str, Any] = {"linestyle": "", "markersize": 5}
    handles = [Line2D([], [], marker="o", color=_colour(label), label=str(label), **style) for label in labels]
    handles.append(Line2D([], [], marker="x", color=INK, label="sample", **style))
    figure.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(0, 0),
        ncols=len(handles),
        frameon=False,
        fontsize=9,
        handletextpad=0.1,
        columnspacing=1.0,
        borderaxespad=0,
    )


def _measured(row: pd.Series) -> str:
    """The volume and the spread of a trial, as far as it has them."""
    shown = {"volume": row.get("density_volume"), "spread": row.get("spread"), "sure": row.get("sample_confident")}
    known = {name: float(value) for name, value in shown.items() if value is not None and not pd.isna(value)}
    return ", ".join(f"{name} {format_significant(value)}" for name, value in known.items())


def _read(files: Files, path: str) -> LatentMap | None:
    """The map at `path`, or None if there is none, or if it is damaged."""

    def parse(parts: Mapping[str, Any]) -> LatentMap:
        return LatentMap(
            parts["samples"], parts["test"], parts["labels"], int(parts["dimensions"]), int(parts["components"])
        )

    return read_arrays(files, path, parse)
