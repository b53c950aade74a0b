"""Names of the curves in a figure: each at the end of its curve, without overlaps, or all in a legend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sweeper.report.style import INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FONT_SIZE = 9.0
"""Font size of a curve's name, in points."""


def label_line_ends(axis: Axes, height: float, gutter: float) -> None:
    """Write each line's name to the right of the panel, at the height of the line's end or close to it.

    Names are moved as little as needed so that they do not overlap. A thin line connects each name to its curve.
    `height` is that of the panel in inches. `gutter` is the space between the panel and the names, in widths of the
    panel.
    """
    import matplotlib.colors

    unsorted: list[Any] = axis.get_lines()
    lines = sorted(unsorted, key=lambda line: line.get_ydata()[-1])
    (left, right), (bottom, top) = axis.get_xlim(), axis.get_ylim()
    gap = FONT_SIZE * 1.3 / 72 / height * (top - bottom)
    ends = [float(line.get_ydata()[-1]) for line in lines]
    for line, end, label_y in zip(lines, ends, spread(ends, gap, bottom, top), strict=True):
        ink = tuple(0.72 * channel for channel in matplotlib.colors.to_rgb(line.get_color()))
        start = (line.get_xdata()[-1] - left) / (right - left)
        transform = axis.get_yaxis_transform()  # x in widths of the panel, y in data
        axis.plot(
            [start, 1.035 + gutter],
            [end, label_y],
            color=line.get_color(),
            lw=0.8,
            alpha=0.6 if not gutter else 0.35,
            transform=transform,
            clip_on=False,
            scalex=False,
            scaley=False,
        )
        axis.text(
            1.045 + gutter, label_y, line.get_label(), transform=transform, va="center", fontsize=FONT_SIZE, color=ink
        )


def spread(positions: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move ascending positions so that neighbours are at least `gap` apart, within [low, high] if they fit.

    The sum of the squared moves is minimal: this is isotonic regression, by pooling adjacent violators, of
    `positions[i] - i * gap`.
    """
    blocks: list[list[float]] = []  # [mean, count] of pooled positions
    for index, position in enumerate(positions):
        blocks.append([position - index * gap, 1.0])
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            mean, count = blocks.pop()
            previous_mean, previous_count = blocks[-1]
            pooled = (mean * count + previous_mean * previous_count) / (count + previous_count)
            blocks[-1] = [pooled, count + previous_count]
    fitted = [mean for mean, count in blocks for _ in range(int(count))]
    highest_first = high - (len(positions) - 1) * gap
    return [max(low, min(highest_first, mean)) + index * gap for index, mean in enumerate(fitted)]


def legend(panels: Sequence[Axes], by: str, gutter: float) -> None:
    """Draw a legend of the lines of all panels, titled `by`, to the right of the last panel and its gutter."""
    handles: dict[Any, Any] = {line.get_label(): line for axis in panels for line in axis.get_lines()}
    legend = panels[-1].legend(
        list(handles.values()),
        list(handles),
        title=by,
        loc="upper left",
        bbox_to_anchor=(1.03 + gutter, 1.03),
        frameon=False,
        fontsize=FONT_SIZE,
        labelcolor=INK,
        alignment="left",
        ncols=1 + (len(handles) - 1) // 16,
    )
    legend.get_title().set(fontsize=FONT_SIZE, weight="bold", color=INK)


def max_text_width(figure: Figure, names: Sequence[str]) -> float:
    """Return the width of the longest name in inches."""
    texts = [figure.text(0, 0, name, fontsize=FONT_SIZE) for name in names]
    inches = [text.get_window_extent().width / figure.dpi for text in texts]
    for text in texts:
        text.remove()
    return max(inches, default=0.0)
