"""Figures of conditional densities: the mixture that each model predicts over x, above the pairs and the true branches.

Shapes: G points of x, M components, F branches, N pairs.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Polygon
from numpy.typing import NDArray

from sweeper.report.charts import CATEGORIES
from sweeper.report.formatting import DASH, format_value
from sweeper.report.sample_grids import INK, MUTED, PALE, png, read_arrays
from sweeper.storage.files import Files
from sweeper.storage.layout import figure_path, sample_grid_path, sample_grids_folder

FILE = "density.npz"
"""Name of a trial's sample grid with its density."""
ABREAST = 4
"""Most panels beside each other."""
PANEL = (3.1, 2.5)
"""Width and height of a panel, in inches."""
COLOURED = 5
"""Most components with a colour each; more have one colour. Parameters are drawn for mixtures of 2 to so many."""
BAND = 0.35
"""Opacity of the band of a component of weight 1."""
DASHED = (0, (4, 3))
COMPONENT = (
    Line2D([], [], color=CATEGORIES[0], linewidth=1.8, label="mean of a component"),
    Patch(color=CATEGORIES[0], alpha=BAND, linewidth=0, label="2 standard deviations (opacity: weight)"),
)
TRUE_BRANCH = Line2D([], [], color=INK, linewidth=0.9, linestyle=DASHED, label="truth")
PAIR = Line2D([], [], color=MUTED, marker="o", markersize=3, linewidth=0, label="training pair")
"""What legends show."""
Floats = NDArray[np.float64]


class Density(NamedTuple):
    """What a trial hands over: its mixture on a grid of x, the true branches and the standard deviation around them,
    and some training pairs."""

    x: Floats
    weights: Floats
    means: Floats
    sigmas: Floats
    branches: Floats
    noise: Floats
    pair_x: Floats
    pair_y: Floats

    @property
    def colours(self) -> Sequence[str]:
        """A colour for each component."""
        count = self.means.shape[1]
        return CATEGORIES[:count] if count <= COLOURED else CATEGORIES[:1] * count


def write(files: Files, name: str, folder: str, rows: pd.DataFrame, by: Sequence[str], about: str = "") -> None:
    """Write `sheets/FOLDER/DATASET-densities.png` and `DATASET-parameters.png` for each data set.

    They show a model for each combination of the values of `by`: its first trial, by seed, that has a density. The
    second figure has the mixtures of 2 to `COLOURED` components. Nothing is written for trials without densities.
    """
    trials = files.list(sample_grids_folder(name))
    if not trials:
        return
    rows = rows[rows["trial_id"].isin(trials)].sort_values("seed", kind="stable")
    models = rows.drop_duplicates(["dataset", *by]).sort_index()
    for dataset, shown in models.groupby("dataset", sort=False):
        labels = [_label(values) for values in shown[list(by)].itertuples(index=False)]
        read = {
            label: _read(files, sample_grid_path(name, trial, FILE))
            for label, trial in zip(labels, shown["trial_id"], strict=True)
        }
        densities = {label: density for label, density in read.items() if density}
        mixtures = {label: density for label, density in densities.items() if 1 < density.means.shape[1] <= COLOURED}
        for kind, drawn, draw in (("densities", densities, draw_densities), ("parameters", mixtures, draw_parameters)):
            if drawn:
                seeds = ", ".join(map(str, dict.fromkeys(shown["seed"])))
                title = f"{about or name}: {dataset}, seed {seeds}"
                files.write(figure_path("sheets", folder, f"{dataset}-{kind}.png"), png(draw(drawn, title)))


def draw_densities(densities: Mapping[str, Density], title: str) -> Figure:
    """Draw a panel for each model: means and bands of two standard deviations, whose opacity is the weight."""
    columns = min(ABREAST, len(densities))
    lines = math.ceil(len(densities) / columns)
    figure, panels = _panels(lines, columns, title, [*COMPONENT, TRUE_BRANCH, PAIR])
    limits = _limits(densities.values())
    for axis, (label, density) in zip(panels, densities.items(), strict=False):
        _style(axis, label)
        axis.scatter(density.pair_x, density.pair_y, s=3, color=MUTED, alpha=0.35, linewidths=0, zorder=1)
        _draw_components(axis, density, limits)
        axis.plot(density.x, density.branches, color=INK, linewidth=0.9, linestyle=DASHED, zorder=4)
        axis.set_xlim(-1, 1)
        axis.set_ylim(*limits)
    for axis in panels[len(densities) :]:
        axis.set_visible(False)
    return figure


def draw_parameters(densities: Mapping[str, Density], title: str) -> Figure:
    """Draw weights, means and standard deviations over x: a row of panels for each model."""
    most = max(density.means.shape[1] for density in densities.values())
    components = [
        Line2D([], [], color=colour, linewidth=1.8, label=f"component {index + 1}")
        for index, colour in enumerate(CATEGORIES[:most])
    ]
    figure, panels = _panels(len(densities), 3, title, [*components, TRUE_BRANCH])
    limits = _limits(densities.values())
    for line, (label, density) in enumerate(densities.items()):
        weight, mean, sigma = panels[3 * line : 3 * line + 3]
        for axis, values, name in (
            (weight, density.weights, "weights"), (mean, density.means, "means"),
            (sigma, density.sigmas, "standard deviations"),
        ):  # fmt: skip
            _style(axis, f"{label}: {name}")
            for values_G, colour in zip(values.T, density.colours, strict=True):
                axis.plot(density.x, values_G, color=colour, linewidth=1.6)
            axis.set_xlim(-1, 1)
        mean.plot(density.x, density.branches, color=INK, linewidth=0.9, linestyle=DASHED, zorder=4)
        mean.set_ylim(*limits)
        weight.set_ylim(-0.03, 1.03)
        weight.axhline(1 / density.branches.shape[1], color=INK, linewidth=0.9, linestyle=DASHED)
        sigma.axhline(float(density.noise), color=INK, linewidth=0.9, linestyle=DASHED)
        sigma.set_ylim(0, 1.15 * max(float(density.sigmas.max()), float(density.noise)))
    return figure


def _draw_components(axis: Axes, density: Density, limits: tuple[float, float]) -> None:
    """Draw means and bands with an opacity that changes with x."""
    for weights_G, means_G, sigmas_G, colour in zip(
        density.weights.T, density.means.T, density.sigmas.T, density.colours, strict=True
    ):
        edges = np.concatenate([means_G + 2 * sigmas_G, (means_G - 2 * sigmas_G)[::-1]])
        band = Polygon(np.column_stack([np.r_[density.x, density.x[::-1]], edges]), transform=axis.transData)
        shade = axis.imshow(
            _shaded(colour, BAND * weights_G)[None],
            extent=(density.x[0], density.x[-1], *limits),
            aspect="auto",
            interpolation="bilinear",
            zorder=2,
        )
        shade.set_clip_path(band)
        points = np.column_stack([density.x, means_G])
        pieces = np.stack([points[:-1], points[1:]], axis=1)
        opacity = np.sqrt((weights_G[1:] + weights_G[:-1]) / 2)
        lines = LineCollection(list(pieces), colors=_shaded(colour, opacity), linewidths=1.8, zorder=3)
        axis.add_collection(lines)


def _shaded(colour: str, opacity: Floats) -> Floats:
    """The colour with each of these opacities, as rows of red, green, blue and opacity."""
    return np.column_stack([np.tile(to_rgb(colour), (len(opacity), 1)), np.clip(opacity, 0, 1)])


def _panels(lines: int, columns: int, title: str, legend: Sequence[Artist]) -> tuple[Figure, list[Axes]]:
    """A figure with a title and so many panels, line by line."""
    width, height = columns * PANEL[0], lines * PANEL[1]
    figure = Figure(figsize=(width, height + 0.8))
    FigureCanvasAgg(figure)
    panels = figure.subplots(lines, columns, squeeze=False).ravel().tolist()
    figure.subplots_adjust(
        left=0.4 / width, right=1, bottom=0.35 / (height + 0.8), top=1 - 0.85 / (height + 0.8), wspace=0.17, hspace=0.36
    )
    figure.text(0.4 / width, 1 - 0.12 / (height + 0.8), title, fontsize=11, weight="bold", color=INK, va="top")
    figure.legend(
        handles=list(legend), ncols=len(legend), loc="upper left", frameon=False, fontsize=8.5, labelcolor=INK,
        bbox_to_anchor=(0.32 / width, 1 - 0.3 / (height + 0.8)), borderaxespad=0, handlelength=1.8,
    )  # fmt: skip
    return figure, panels


def _style(axis: Axes, label: str) -> None:
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
    axis.spines["bottom"].set_color(MUTED)
    axis.grid(color=PALE, linewidth=0.8)
    axis.set_axisbelow(True)
    axis.tick_params(length=0, labelsize=8, labelcolor=INK)
    axis.set_xticks([-1, -0.5, 0, 0.5, 1])
    axis.set_title(label, fontsize=9.5, loc="left", color=INK)


def _limits(densities: Iterable[Density]) -> tuple[float, float]:
    """Limits of y that show all pairs of the densities, and some room around them."""
    values = np.concatenate([density.pair_y for density in densities])
    margin = 0.15 * float(np.ptp(values))
    return float(values.min()) - margin, float(values.max()) + margin


def _label(values: tuple[object, ...]) -> str:
    return ", ".join(text for text in map(format_value, values) if text != DASH)


def _read(files: Files, path: str) -> Density | None:
    """The density at `path`, or None if there is none, or if it is damaged."""

    def parse(arrays: Mapping[str, Any]) -> Density:
        return Density(*(arrays[name].astype(np.float64) for name in Density._fields))

    return read_arrays(files, path, parse)
