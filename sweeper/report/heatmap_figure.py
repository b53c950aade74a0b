"""Numbers as outlines of glyphs: hundreds of them are drawn as one collection, and each glyph is laid out once.

Sizes and places in the figure of a heatmap, from the widths of its texts: so nothing is cut off, and nothing has to
be drawn to find out. All lengths are in inches, all places from the figure's lower left corner.

Draws a heatmap: coloured cells with their numbers, a bar of colours, and texts around them. Places are in inches.
"""

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from matplotlib import colormaps
from matplotlib.collections import LineCollection, PathCollection, PolyCollection
from matplotlib.colors import Colormap, Normalize, to_rgba_array
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.ft2font import LoadFlags
from matplotlib.patches import Rectangle
from matplotlib.path import Path
from numpy.typing import NDArray

from sweeper.report.formatting import ValueText, plain_text
from sweeper.report.heatmaps import cell_texts, colour_scale, decimals_of, heading, noise_text, ticks
from sweeper.report.style import DOTS, INK, MUTED, PAD, PALE, Weight, text_width
from sweeper.spec.views import Heatmap

Slant = Literal["normal", "italic"]
EM = 100.0
"""Size at which a glyph is read, in points."""
CAPITAL = 0.73
"""Height of a digit, in ems."""
LINE = 1.3
"""Height of a line, in ems."""


class Glyph(NamedTuple):
    vertices: NDArray[np.float64]
    """`[V, 2]`, in ems from the glyph's origin on the baseline."""
    codes: NDArray[np.uint8]
    """`[V]`, of `matplotlib.path.Path`."""
    advance: float
    """Distance to the origin of the next glyph, in ems."""


class Line(NamedTuple):
    """A line of text."""

    outline: Path
    """In inches, from the beginning of its baseline."""
    width: float
    """In inches."""
    height: float
    """Distance to the next line, in inches."""


@cache
def glyph(character: str, weight: Weight = "normal", slant: Slant = "normal") -> Glyph:
    """Return a character of Matplotlib's default font, without hinting."""
    font = get_font(findfont(FontProperties(weight=weight, style=slant)))
    font.set_size(EM, 72)
    advance = font.load_char(ord(character), flags=LoadFlags.NO_HINTING).linearHoriAdvance / 65536 / EM
    vertices, codes = font.get_path()
    return Glyph(np.asarray(vertices, "float64") / EM, np.asarray(codes, Path.code_type), advance)


def line(text: str, size: float, weight: Weight = "normal", slant: Slant = "normal") -> Line:
    """Return a text of `size` points, which is not empty. Kerning is not applied; numbers have none."""
    glyphs = [glyph(character, weight, slant) for character in text]
    origins = np.cumsum([0.0, *(item.advance for item in glyphs)])
    starts = [np.array([x, 0.0]) for x in origins[:-1]]
    vertices = np.concatenate([item.vertices + start for item, start in zip(glyphs, starts, strict=True)])
    codes, inches = np.concatenate([item.codes for item in glyphs]), size / 72
    return Line(Path(inches * vertices, codes), inches * float(origins[-1]), LINE * inches)


def line_paths(lines: Sequence[Line], centre: tuple[float, float]) -> list[Path]:
    """Return the outlines of lines below each other, around a place in inches. Each begins at a whole dot, which makes
    baselines sharp and pictures smaller."""
    paths, top = list[Path](), centre[1] + sum(item.height for item in lines) / 2
    for item in lines:
        baseline = top - (1 + CAPITAL / LINE) / 2 * item.height
        start = np.round(DOTS * np.array([centre[0] - item.width / 2, baseline])) / DOTS
        paths.append(Path(np.asarray(item.outline.vertices) + start, item.outline.codes))
        top -= item.height
    return paths


CELL = (1.02, 0.74)
"""Smallest width and height of a cell."""
CELL_MARGIN = 0.4
"""Space above and below the lines of a cell together."""
BAR_GAP, BAR_WIDTH = 0.25, 0.16
"""Distance of the bar of colours from the grid, and its width."""
GAP = 0.07
"""Space between a label and what it belongs to."""
LABEL, NAME, TICK, BAR_LABEL = 10.0, 11.0, 8.0, 9.0
"""Font sizes in points: values of the axes, their names, values along the colours, and the metric's name there."""
TITLE_GAP = 0.12
"""Space between the grid and the lines above it."""
SLANT = 25.0
"""Angle of column labels that are wider than a cell, in degrees."""
ABOVE: tuple[tuple[float, Weight, str], ...] = (
    (12.5, "bold", INK), (10.5, "normal", INK), (10.5, "normal", INK), (9.0, "normal", MUTED),
)  # fmt: skip
"""Font size, weight and colour of the lines above the grid."""


@dataclass(frozen=True)
class HeatmapTexts:
    """All texts of a heatmap, but for the numbers in its cells."""

    rows: Sequence[str]
    """Labels of the rows, from top to bottom."""
    columns: Sequence[str]
    axes: tuple[str, str]
    """Names of what differs between rows, and between columns."""
    ticks: Sequence[str]
    """Texts along the bar of colours. Without any there is no bar."""
    bar_label: str
    above: Sequence[str]
    """Four lines above the grid, from top to bottom. Empty ones are left out; one may have two lines."""


@dataclass(frozen=True)
class Layout:
    """Where a heatmap's figure has what."""

    width: float
    height: float
    left: float
    """Left edge of the grid of cells."""
    bottom: float
    """Lower edge of the grid of cells."""
    cell: tuple[float, float]
    """Width and height of a cell."""
    grid: tuple[float, float]
    """Width and height of the grid of cells."""
    slanted: bool
    """Whether the labels of columns are slanted."""
    row_name_x: float
    """Right edge of the rotated name of the rows."""
    column_name_y: float
    """Upper edge of the name of the columns."""
    bar_label_x: float
    """Left edge of the rotated text beside the bar of colours."""
    above_y: tuple[float, ...]
    """Lower edges of the lines above the grid."""
    centres: Sequence[tuple[float, float]]
    """Middles of the cells, row by row from the top."""


def lay_out(texts: HeatmapTexts, numbers: Sequence[Sequence[Line]]) -> Layout:
    """Return the layout for these texts and the lines of each cell. Cells grow with their numbers, and so that the grid
    is as wide and as high as the names beside it."""
    bar_label = text_width(texts.bar_label, BAR_LABEL) if texts.ticks else 0.0
    cell = (
        max(CELL[0], _widest(numbers) + 3 * GAP, text_width(texts.axes[1], NAME) / len(texts.columns)),
        max(
            CELL[1], _highest(numbers) + CELL_MARGIN, max(bar_label, text_width(texts.axes[0], NAME)) / len(texts.rows)
        ),
    )
    grid = len(texts.columns) * cell[0], len(texts.rows) * cell[1]
    labels = [text_width(text, LABEL) for text in texts.columns]
    slanted = max(labels) > cell[0] - GAP
    sine, cosine = (math.sin(math.radians(SLANT)), math.cos(math.radians(SLANT))) if slanted else (0.0, 0.5)
    label_height = max(labels) * sine + line_height(LABEL)
    outside = max(width * cosine - (index + 0.5) * cell[0] for index, width in enumerate(labels))

    row_labels = max(text_width(text, LABEL) for text in texts.rows) + 2 * GAP
    left = PAD + max(row_labels + line_height(NAME), outside)
    bottom = PAD + GAP + label_height + GAP + line_height(NAME)
    bar_label_x = (
        left + grid[0] + BAR_GAP + BAR_WIDTH + max(text_width(text, TICK) for text in (*texts.ticks, "")) + 2 * GAP
    )
    above_y, top = _stack_lines(texts.above, bottom + grid[1] + TITLE_GAP)
    widths = [text_width(text, size, weight) for text, (size, weight, _) in zip(texts.above, ABOVE, strict=True)]
    right = bar_label_x + line_height(BAR_LABEL) * (1 + texts.bar_label.count("\n")) if texts.ticks else left + grid[0]
    return Layout(
        width=max(right, left + max(widths)) + PAD,
        height=top + PAD,
        left=left,
        bottom=bottom,
        cell=cell,
        grid=grid,
        slanted=slanted,
        row_name_x=left - row_labels,
        column_name_y=bottom - GAP - label_height - GAP,
        bar_label_x=bar_label_x,
        above_y=above_y,
        centres=[
            (left + (column + 0.5) * cell[0], bottom + grid[1] - (row + 0.5) * cell[1])
            for row in range(len(texts.rows))
            for column in range(len(texts.columns))
        ],
    )


def _widest(numbers: Sequence[Sequence[Line]]) -> float:
    return max(line.width for lines in numbers for line in lines)


def _highest(numbers: Sequence[Sequence[Line]]) -> float:
    return max(sum(line.height for line in lines) for lines in numbers)


def line_height(size: float) -> float:
    """Return the height of a line of text of `size` points."""
    return 1.3 * size / 72


def _stack_lines(lines: Sequence[str], bottom: float) -> tuple[tuple[float, ...], float]:
    """Return the lower edges of the lines, the last of which is at `bottom`, and the upper edge of all."""
    edges = [bottom]
    for text, (size, *_) in reversed(list(zip(lines, ABOVE, strict=True))):
        edges.append(edges[-1] + (1.6 + 1.3 * text.count("\n")) * size / 72 if text else edges[-1])
    return tuple(reversed(edges[:-1])), edges[-1]


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
    left, height = layout.left + layout.grid[0] + BAR_GAP, layout.grid[1]
    right, edges = left + BAR_WIDTH, layout.bottom + height * np.linspace(0, 1, STEPS + 1)
    strips = [[(left, low), (right, low), (right, high), (left, high)] for low, high in pairwise(edges)]
    inches: dict[str, Any] = {"transform": figure.dpi_scale_trans}
    bar = PolyCollection(strips, facecolors=colours(np.arange(STEPS) / (STEPS - 1)), antialiaseds=False, **inches)
    figure.add_artist(bar)
    places = {text: layout.bottom + height * share for text, share in ticks.items()}
    marks = [[(right, y), (right + 0.4 * GAP, y)] for y in places.values()]
    figure.add_artist(LineCollection(marks, colors=MUTED, linewidths=0.8, **inches))
    for text, y in places.items():
        _write(figure, right + GAP, y, text, TICK, va="center_baseline")
    middle = layout.bottom + height / 2
    _write(figure, layout.bar_label_x, middle, label, BAR_LABEL, rotation=90, ha="left", va="center", ma="center")


def _draw_texts(figure: Figure, layout: Layout, texts: HeatmapTexts) -> None:
    """Write labels and names of the axes, and the lines above the grid."""
    across, up = layout.left + layout.grid[0] / 2, layout.bottom + layout.grid[1] / 2
    for row, text in enumerate(texts.rows):
        y = layout.centres[row * len(texts.columns)][1]
        _write(figure, layout.left - GAP, y, text, LABEL, ha="right", va="center_baseline")
    slanted: dict[str, Any] = {"rotation": SLANT, "rotation_mode": "anchor", "ha": "right"}
    for (x, _), text in zip(layout.centres, texts.columns, strict=False):
        placed = slanted if layout.slanted else {"ha": "center"}
        _write(figure, x, layout.bottom - GAP, text, LABEL, va="top", **placed)
    _write(figure, layout.row_name_x, up, texts.axes[0], NAME, rotation=90, ha="right", va="center")
    _write(figure, across, layout.column_name_y, texts.axes[1], NAME, ha="center", va="top")
    for text, y, (size, weight, ink) in zip(texts.above, layout.above_y, ABOVE, strict=True):
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
