"""Draws a heatmap: coloured cells with their numbers, a bar of colours, and texts around them. Places are in inches."""

import textwrap
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.collections import LineCollection, PathCollection, PolyCollection
from matplotlib.colors import Colormap, Normalize, to_rgba_array
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from sweeper.report.class_names import ValueText, plain_text
from sweeper.report.heatmaps import layout as sizes
from sweeper.report.heatmaps.captions import cell_texts, decimals_of, heading, noise_text, ticks
from sweeper.report.heatmaps.colour_scale import colour_scale
from sweeper.report.heatmaps.glyph_outlines import Line, line, line_paths
from sweeper.report.heatmaps.layout import HeatmapTexts, Layout, lay_out
from sweeper.report.style import INK, MUTED, PALE
from sweeper.spec.views import Heatmap

SEPARATOR = 2 / 72
"""Space between two cells, in inches."""
FRAME_INSET = 0.024
"""Distance of the frame of the best cell from the cell's edges, in inches."""
CAPTION = 90
"""Most characters of a line about the best setting."""
STEPS, MAX_TICKS = 256, 7
"""Colours of the bar, and most values beside it."""
Floats = NDArray[np.float64]


def draw(
    cells: pd.DataFrame,
    heatmap: Heatmap,
    *,
    over: str = "trials",
    about: str = "",
    value_text: ValueText = plain_text,
    framed: Sequence[int] = (),
    best: Sequence[str] = (),
) -> Figure:
    """Draw the cells as a coloured table. Bright is better, a cell without a value is grey.

    `framed` are the positions of the cells with the best settings, and `best` the sentences about these. The range of
    the colours takes the noise within the cells into account (see `colour_scale`), which a caption states.
    """
    metric, axes = heatmap.metric, heatmap.axes
    if metric.percent:
        cells = cells.assign(**{name: 100 * cells[name] for name in ("mean", "std", "published") if name in cells})
    means = cells["mean"].to_numpy("float64")
    is_finite, digits, scale = np.isfinite(means), decimals_of(means), colour_scale(cells, metric.bounds)
    rows, columns = ([value_text(axis, value) for value in cells[axis].drop_duplicates()] for axis in axes)
    scale_ticks = ticks(scale, min(MAX_TICKS, 2 + 2 * len(rows))) if is_finite.any() else {}
    lines = [line for sentence in best for line in textwrap.wrap(sentence, CAPTION, break_long_words=False)]
    chosen = "\n".join(lines) or "no value yet"
    captions = (heading(cells, metric.label, over), about, chosen, noise_text(scale, cells))
    better = f"{metric.better} is better"
    texts = HeatmapTexts(rows, columns, axes, list(scale_ticks.values()), f"{metric.label}\n({better})", captions)
    numbers = [_lines(cell_texts(cell, digits)) for cell in cells.to_dict("records")]
    layout = lay_out(texts, numbers)

    figure = Figure(figsize=(layout.width, layout.height))
    colours = colormaps["viridis" if metric.better == "higher" else "viridis_r"]
    norm = Normalize(scale.low, scale.high)
    shades = np.where(is_finite[:, None], colours(norm(np.where(is_finite, means, scale.low))), to_rgba_array(PALE))
    inks = [_ink(shade) if known else MUTED for shade, known in zip(shades, is_finite, strict=True)]
    _draw_cells(figure, layout, shades)
    _draw_numbers(figure, layout, numbers, inks)
    for position in framed:
        _draw_frame(figure, layout, position)
    if scale_ticks:
        heights = {text: float(norm(value)) for value, text in scale_ticks.items()}
        _draw_bar(figure, layout, colours, heights, texts.bar_label)
    _draw_texts(figure, layout, texts)
    return figure


def _lines(texts: Sequence[str]) -> list[Line]:
    """Return the lines of a cell: the mean is large, the paper's figure is in italics."""
    mean, *others = texts
    small = [line(text, 8.0, slant="italic" if text.startswith("paper") else "normal") for text in others]
    return [line(mean, 11.5, "bold"), *small]


def _draw_cells(figure: Figure, layout: Layout, shades: Floats) -> None:
    x, y = (np.asarray(places) for places in zip(*layout.centres, strict=True))
    right, up = (size / 2 - SEPARATOR / 2 for size in layout.cell)
    corners = ((-right, -up), (right, -up), (right, up), (-right, up))
    boxes = np.stack([np.column_stack([x + across, y + along]) for across, along in corners], axis=1)
    inches: dict[str, Any] = {"transform": figure.dpi_scale_trans}
    figure.add_artist(PolyCollection(list(boxes), facecolors=shades, antialiaseds=False, zorder=1, **inches))


def _draw_numbers(figure: Figure, layout: Layout, numbers: Sequence[Sequence[Line]], inks: Sequence[str]) -> None:
    """Draw the lines of each cell below each other, around its middle."""
    paths = [line_paths(lines, centre) for lines, centre in zip(numbers, layout.centres, strict=True)]
    inks = [ink for ink, of_cell in zip(inks, paths, strict=True) for _ in of_cell]
    flat = [path for of_cell in paths for path in of_cell]
    artist = PathCollection(flat, facecolors=inks, linewidths=0, transform=figure.dpi_scale_trans, zorder=2)
    figure.add_artist(artist)


def _draw_frame(figure: Figure, layout: Layout, position: int) -> None:
    """Draw a frame around a cell that is visible on dark and on bright cells."""
    (x, y), (width, height) = layout.centres[position], layout.cell
    for colour, points in (("white", 5.0), ("#d6283c", 2.6)):
        corner = x - width / 2 + FRAME_INSET, y - height / 2 + FRAME_INSET
        size = width - 2 * FRAME_INSET, height - 2 * FRAME_INSET
        style: dict[str, Any] = {"fill": False, "edgecolor": colour, "linewidth": points, "zorder": 3}
        figure.add_artist(Rectangle(corner, *size, transform=figure.dpi_scale_trans, **style))


def _draw_bar(figure: Figure, layout: Layout, colours: Colormap, ticks: dict[str, float], label: str) -> None:
    """Draw the bar of colours. `ticks` are their texts and heights, in heights of the bar."""
    left, height = layout.left + layout.grid[0] + sizes.BAR_GAP, layout.grid[1]
    right, edges = left + sizes.BAR_WIDTH, layout.bottom + height * np.linspace(0, 1, STEPS + 1)
    strips = [[(left, low), (right, low), (right, high), (left, high)] for low, high in pairwise(edges)]
    inches: dict[str, Any] = {"transform": figure.dpi_scale_trans}
    bar = PolyCollection(strips, facecolors=colours(np.arange(STEPS) / (STEPS - 1)), antialiaseds=False, **inches)
    figure.add_artist(bar)
    places = {text: layout.bottom + height * share for text, share in ticks.items()}
    marks = [[(right, y), (right + 0.4 * sizes.GAP, y)] for y in places.values()]
    figure.add_artist(LineCollection(marks, colors=MUTED, linewidths=0.8, **inches))
    for text, y in places.items():
        _write(figure, right + sizes.GAP, y, text, sizes.TICK, va="center_baseline")
    middle = layout.bottom + height / 2
    _write(figure, layout.bar_label_x, middle, label, sizes.BAR_LABEL, rotation=90, ha="left", va="center", ma="center")


def _draw_texts(figure: Figure, layout: Layout, texts: HeatmapTexts) -> None:
    """Write labels and names of the axes, and the lines above the grid."""
    across, up = layout.left + layout.grid[0] / 2, layout.bottom + layout.grid[1] / 2
    for row, text in enumerate(texts.rows):
        y = layout.centres[row * len(texts.columns)][1]
        _write(figure, layout.left - sizes.GAP, y, text, sizes.LABEL, ha="right", va="center_baseline")
    slanted: dict[str, Any] = {"rotation": sizes.SLANT, "rotation_mode": "anchor", "ha": "right"}
    for (x, _), text in zip(layout.centres, texts.columns, strict=False):
        placed = slanted if layout.slanted else {"ha": "center"}
        _write(figure, x, layout.bottom - sizes.GAP, text, sizes.LABEL, va="top", **placed)
    _write(figure, layout.row_name_x, up, texts.axes[0], sizes.NAME, rotation=90, ha="right", va="center")
    _write(figure, across, layout.column_name_y, texts.axes[1], sizes.NAME, ha="center", va="top")
    for text, y, (size, weight, ink) in zip(texts.above, layout.above_y, sizes.ABOVE, strict=True):
        if text:
            _write(figure, layout.left, y, text, size, weight=weight, color=ink, va="bottom", linespacing=1.3)


def _write(figure: Figure, x: float, y: float, text: str, size: float, **style: Any) -> None:
    # without `parse_math` the name of a class might be taken for a formula
    inches = {"transform": figure.dpi_scale_trans, "parse_math": False}
    figure.text(x, y, text, fontsize=size, **{"color": INK, **inches, **style})


def _ink(shade: Floats) -> str:
    """Return the colour of text on a shade of red, green, blue in [0, 1]."""
    linear = np.where(shade[:3] <= 0.04045, shade[:3] / 12.92, ((shade[:3] + 0.055) / 1.055) ** 2.4)
    luminance = float(linear @ (0.2126, 0.7152, 0.0722))  # relative luminance of an sRGB colour (WCAG 2)
    return INK if luminance > 0.21 else "white"
