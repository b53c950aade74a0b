"""The names of a picture's curves: each at its end, moved so that none overlap, or in a legend."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sweeper.report.heatmap import INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SMALL = 9.0
"""Points of a line's name."""


def name_ends(axis: "Axes", height: float, gutter: float) -> None:
    """Each line's name right of the panel and its gutter, as high as the line ends or as near as names do not overlap.

    `height` of the panel in inches, `gutter` in widths of the panel.
    """
    import matplotlib.colors

    drawn: list[Any] = axis.get_lines()
    lines = sorted(drawn, key=lambda line: line.get_ydata()[-1])
    (left, right), (bottom, top) = axis.get_xlim(), axis.get_ylim()
    gap = SMALL * 1.3 / 72 / height * (top - bottom)
    ends = [float(line.get_ydata()[-1]) for line in lines]
    for line, end, place in zip(lines, ends, spread(ends, gap, bottom, top), strict=True):
        ink = tuple(0.72 * part for part in matplotlib.colors.to_rgb(line.get_color()))
        start = (line.get_xdata()[-1] - left) / (right - left)
        across = axis.get_yaxis_transform()
        axis.plot(
            [start, 1.035 + gutter],
            [end, place],
            color=line.get_color(),
            lw=0.8,
            alpha=0.6 if not gutter else 0.35,
            transform=across,
            clip_on=False,
            scalex=False,
            scaley=False,
        )
        axis.text(1.045 + gutter, place, line.get_label(), transform=across, va="center", fontsize=SMALL, color=ink)


def spread(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Ascending places, moved least (in squares) to lie `gap` apart, within [low, high] if they fit."""
    blocks: list[list[float]] = []
    for index, place in enumerate(places):  # pool adjacent violators: the isotonic fit of what exceeds the gaps
        blocks.append([place - index * gap, 1.0])
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            mean, count = blocks.pop()
            before, others = blocks[-1]
            blocks[-1] = [(mean * count + before * others) / (count + others), count + others]
    fitted = [mean for mean, count in blocks for _ in range(int(count))]
    most = high - (len(places) - 1) * gap
    return [max(low, min(most, mean)) + index * gap for index, mean in enumerate(fitted)]


def legend(panels: Sequence["Axes"], by: str, gutter: float) -> None:
    handles: dict[Any, Any] = {line.get_label(): line for axis in panels for line in axis.get_lines()}
    legend = panels[-1].legend(
        list(handles.values()),
        list(handles),
        title=by,
        loc="upper left",
        bbox_to_anchor=(1.03 + gutter, 1.03),
        frameon=False,
        fontsize=SMALL,
        labelcolor=INK,
        alignment="left",
        ncols=1 + (len(handles) - 1) // 16,
    )
    legend.get_title().set(fontsize=SMALL, weight="bold", color=INK)


def widest(figure: "Figure", names: Sequence[str]) -> float:
    """Inches of the longest name."""
    texts = [figure.text(0, 0, name, fontsize=SMALL) for name in names]
    inches = [text.get_window_extent().width / figure.dpi for text in texts]
    for text in texts:
        text.remove()
    return max(inches, default=0.0)
