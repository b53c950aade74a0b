"""Sizes and places in the figure of a heatmap, from the widths of its texts: so nothing is cut off, and nothing has to
be drawn to find out. All lengths are in inches, all places from the figure's lower left corner."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sweeper.report.heatmaps.glyph_outlines import Line
from sweeper.report.style import INK, MUTED, PAD, Weight, text_width

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
