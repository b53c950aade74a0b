"""Heatmaps: the cells of two axes (`sweeper.report.heatmaps.heatmap_cells`) as Parquet and as a figure."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from sweeper.report.formatting import DASH, format_metric, format_value
from sweeper.report.heatmaps.colour_scale import STANDARD_ERRORS, ColourScale, colour_scale
from sweeper.report.heatmaps.heatmap_cells import best, pivot, selection_metric
from sweeper.report.style import INK, MUTED, PALE, png
from sweeper.spec.metric import BETTER
from sweeper.spec.views import Heatmap
from sweeper.storage.io.files import Files

CELL = (1.02, 0.74)
"""Width and height of a cell, in inches."""


def write(
    files: Files,
    folder: str,
    rows: pd.DataFrame,
    heatmap: Heatmap,
    preset: str,
    *,
    over: str = "trials",
    about: str = "",
) -> pd.DataFrame:
    """Write `heatmaps/FOLDER/METRIC.parquet` and `.png`. Returns the cells.

    If the paper has figures for the preset, the cells have a column `published`, which is a share in [0, 1] if the
    metric is `percent`. If the rows have the metric on validation images, too, the cells have a column `validation`,
    its mean. `over` names what the mean is over, e.g. "classes". `about` is a line below the title.
    """
    cells = pivot(rows, heatmap.metric.name, heatmap.axes)
    if published := heatmap.published.get(preset):
        keys = zip(cells[heatmap.rows], cells[heatmap.columns], strict=True)
        cells["published"] = pd.array([published.get(key) for key in keys], dtype="float64")
        if heatmap.metric.percent:
            cells["published"] /= 100.0
    if (criterion := selection_metric(rows, heatmap.metric.name)) != heatmap.metric.name:
        cells["validation"] = pivot(rows, criterion, heatmap.axes)["mean"]
    path = f"heatmaps/{folder}/{heatmap.metric.name}"
    files.write(f"{path}.parquet", cells.to_parquet(index=False))
    files.write(f"{path}.png", png(draw(cells, heatmap, over=over, about=about)))
    return cells


def draw(cells: pd.DataFrame, heatmap: Heatmap, *, over: str = "trials", about: str = "") -> Figure:
    """Draw the cells as a coloured table. Bright is better, the best cell is framed, a cell without a value is grey.

    The best cell is the one with the best `validation` if there is such a column, else the one with the best `mean`.
    The range of the colours takes the noise within the cells into account (see `colour_scale`), which a caption states.
    """
    metric, axes = heatmap.metric, heatmap.axes
    if metric.percent:
        cells = cells.assign(**{name: 100 * cells[name] for name in ("mean", "std", "published") if name in cells})
    rows, columns = ([format_value(value) for value in cells[axis].drop_duplicates()] for axis in axes)
    means = cells["mean"].to_numpy("float64").reshape(len(rows), len(columns))
    published_height = 0.2 if "published" in cells and cells["published"].notna().any() else 0.0
    grid = np.array([len(columns) * CELL[0], len(rows) * (CELL[1] + published_height)])
    left, bottom = 1.0, 0.8
    width, height = grid[0] + left + 1.2, grid[1] + bottom + 1.5
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    axis = figure.add_axes((left / width, bottom / height, grid[0] / width, grid[1] / height))
    bar = figure.add_axes(((left + grid[0] + 0.25) / width, bottom / height, 0.16 / width, grid[1] / height))

    scale = colour_scale(cells, metric.bounds)
    colours = "viridis" if metric.ranking_direction == "maximize" else "viridis_r"
    image = axis.imshow(np.ma.masked_invalid(means), cmap=colours, vmin=scale.low, vmax=scale.high, aspect="auto")
    axis.set_facecolor(PALE)
    _style_axes(axis, rows, columns, axes)
    figure.colorbar(image, cax=bar)
    finite = means[np.isfinite(means)]
    better = f"{BETTER[metric.ranking_direction]} is better"
    bar.set_ylabel(f"{metric.label}\n({better})", color=INK, fontsize=9, linespacing=1.3, labelpad=7)
    bar.set_visible(bool(finite.size))
    bar.tick_params(labelsize=8, length=2, color=MUTED, labelcolor=INK)
    bar.spines["outline"].set_visible(False)

    digits = _digits(finite)
    for index, cell in enumerate(cells.to_dict("records")):
        row, column = divmod(index, len(columns))
        shade = image.cmap(image.norm(means[row, column])) if np.isfinite(means[row, column]) else None
        ink = MUTED if shade is None else INK if _luminance(np.asarray(shade)) > 0.21 else "white"
        _annotate(axis, column, row, cell, digits, ink, grid[1] / len(rows))
    criterion = "validation" if "validation" in cells else "mean"
    best_cell = best(cells, metric.ranking_direction, criterion)
    if best_cell is not None:
        _draw_frame(axis, *reversed(divmod(best_cell["position"], len(columns))))
    lines = [_heading(cells, metric.label, over), about, _best_text(best_cell, axes, digits), _noise_text(scale, cells)]
    _draw_title(figure, axis, lines)
    return figure


def _style_axes(axis: Axes, rows: list[str], columns: list[str], names: tuple[str, str]) -> None:
    axis.set_yticks(range(len(rows)), rows)
    axis.set_xticks(range(len(columns)), columns)
    if max(map(len, columns), default=0) > 11:
        for tick in axis.get_xticklabels():
            tick.set(rotation=25, rotation_mode="anchor", ha="right")
    axis.set_ylabel(names[0], fontsize=11, color=INK)
    axis.set_xlabel(names[1], fontsize=11, color=INK)
    axis.tick_params(length=0, labelsize=10, labelcolor=INK)
    for spine in axis.spines.values():
        spine.set_visible(False)
    axis.set_xticks(np.arange(1, len(columns)) - 0.5, minor=True)
    axis.set_yticks(np.arange(1, len(rows)) - 0.5, minor=True)
    axis.grid(which="minor", color="white", linewidth=2)
    axis.tick_params(which="minor", length=0)


def _annotate(axis: Axes, x: int, y: int, cell: dict, digits: int, ink: str, inches: float) -> None:
    """Write mean, standard deviation and the paper's figure into the cell of column `x` and row `y`, `inches` high."""
    mean, std, published = cell["mean"], cell["std"], cell.get("published", math.nan)
    lines = [(DASH if pd.isna(mean) else format_metric(mean, digits), 11.5, "bold")]
    if not pd.isna(std):
        lines.append((f"± {format_metric(std, digits)}", 8.0, "normal"))
    if not pd.isna(published):
        lines.append((f"paper {format_metric(published, digits)}", 8.0, "normal"))
    heights = [size / 72 * 1.3 for _, size, _ in lines]
    top = -sum(heights) / 2
    for (text, size, weight), height in zip(lines, heights, strict=True):
        style = "italic" if text.startswith("paper") else "normal"
        centre = y + (top + height / 2) / inches
        axis.text(x, centre, text, ha="center", va="center", fontsize=size, weight=weight, style=style, color=ink)
        top += height


def _draw_frame(axis: Axes, x: int, y: int) -> None:
    """Draw a frame around a cell that is visible on dark and on bright cells."""
    for colour, width in (("white", 5.0), ("#d6283c", 2.6)):
        corner = (x - 0.475, y - 0.475)
        axis.add_patch(Rectangle(corner, 0.95, 0.95, fill=False, edgecolor=colour, linewidth=width, zorder=5))


def _draw_title(figure: Figure, axis: Axes, lines: Sequence[str]) -> None:
    """Write four lines above the grid: the metric, `about`, the best cell, and the noise. Empty lines are skipped."""
    box, height = axis.get_position(), figure.get_size_inches()[1]
    styles = ((12.5, "bold", INK), (10.5, "normal", INK), (10.5, "normal", INK), (9.0, "normal", MUTED))
    above = 0.12
    for text, (size, weight, ink) in reversed(list(zip(lines, styles, strict=True))):
        if text:
            y = box.y1 + above / height
            figure.text(box.x0, y, text, fontsize=size, weight=weight, color=ink, va="bottom", linespacing=1.3)
            above += (1.6 + 1.3 * text.count("\n")) * size / 72


def _heading(cells: pd.DataFrame, metric: str, over: str) -> str:
    """Return e.g. `auroc_joint, mean of up to 10 classes`."""
    counts = cells["count"][cells["count"] > 0]
    if counts.empty or counts.max() == 1:
        return metric
    return f"{metric}, mean of {'up to ' if counts.min() < counts.max() else ''}{counts.max()} {over}"


def _best_text(best_cell: dict[str, Any] | None, axes: tuple[str, str], digits: int) -> str:
    """Return e.g. `best 0.982 ± 0.017 at beta=0.5, nu=0.25`, or `chosen on validation images: 0.982 ± ...`."""
    if best_cell is None:
        return "no value yet"
    std = "" if pd.isna(best_cell["std"]) else f" ± {format_metric(best_cell['std'], digits)}"
    axis_values = ", ".join(f"{name}={format_value(best_cell[name])}" for name in axes)
    best_or_chosen = "chosen on validation images:" if "validation" in best_cell else "best"
    return f"{best_or_chosen} {format_metric(best_cell['mean'], digits)}{std} at {axis_values}"


def _noise_text(scale: ColourScale, cells: pd.DataFrame) -> str:
    """Return the noise within a cell, and whether the colours were widened because of it."""
    if math.isnan(scale.std):
        return "" if cells["mean"].isna().all() else "one trial a cell, so what differences are noise is not known"
    noise = f"in a cell: standard deviation {scale.std:.2g}, standard error of its mean {scale.error:.2g} (medians)"
    widened = f"\nthe colours span {STANDARD_ERRORS:g} standard errors, because the means differ by less"
    return noise + widened * scale.widened


def _digits(values: np.ndarray) -> int:
    """Return the number of decimals that shows three or four significant figures of the largest value."""
    largest = float(np.abs(values).max()) if values.size else 1.0
    return 3 if largest == 0 else int(np.clip(3 - math.floor(math.log10(largest)) - (largest < 1), 0, 6))


def _luminance(shade: np.ndarray) -> float:
    """Return the relative luminance of an sRGB colour, in [0, 1] (WCAG 2)."""
    linear = [channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4 for channel in shade[:3]]
    return float(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])
