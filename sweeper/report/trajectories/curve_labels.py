"""Names of the curves in a figure: each at the end of its curve, without overlaps, or all in a legend."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from sweeper.report.style import INK

FONT_SIZE = 9.0
"""Font size of a curve's name, in points."""


def label_line_ends(axis: Axes, height: float, gutter: float) -> None:
    """Write each line's name to the right of the panel, at the height of the line's end or close to it.

    Names are moved as little as needed so that they do not overlap. A thin line connects each name to its curve.
    `height` is that of the panel in inches. `gutter` is the space between the panel and the names, in widths of the
    panel.
    """
    lines: list[Any] = sorted(axis.get_lines(), key=lambda line: line.get_ydata()[-1])
    (left, right), (bottom, top) = axis.get_xlim(), axis.get_ylim()
    gap = FONT_SIZE * 1.3 / 72 / height * (top - bottom)
    ends = [float(line.get_ydata()[-1]) for line in lines]
    outside: dict[str, Any] = {"transform": axis.get_yaxis_transform()}  # x in widths of the panel, y in data
    connector: dict[str, Any] = {
        "lw": 0.8,
        "alpha": 0.35 if gutter else 0.6,
        "clip_on": False,
        "scalex": False,
        "scaley": False,
    }
    for line, end, label_y in zip(lines, ends, spread(ends, gap, bottom, top), strict=True):
        ink = tuple(0.72 * channel for channel in to_rgb(line.get_color()))
        start = (line.get_xdata()[-1] - left) / (right - left)
        axis.plot([start, 1.035 + gutter], [end, label_y], color=line.get_color(), **connector, **outside)
        axis.text(1.045 + gutter, label_y, line.get_label(), va="center", fontsize=FONT_SIZE, color=ink, **outside)


def spread(positions: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move ascending positions so that neighbours are at least `gap` apart, within [low, high] if they fit.

    The sum of the squared moves is minimal: this is isotonic regression of `positions[i] - i * gap`.
    """
    if not positions:
        return []
    offsets = gap * np.arange(len(positions))
    fitted = isotonic_regression(np.asarray(positions) - offsets)
    return list(np.maximum(low, np.minimum(high - offsets[-1], fitted)) + offsets)


def isotonic_regression(values: Iterable[float]) -> list[float]:
    """Return the ascending sequence with the least sum of squared distances from the values.

    Pool adjacent violators: values that descend are replaced by their mean. Libraries have it, too, but take half a
    second to import.
    """
    pools: list[tuple[float, int]] = []  # sum and number of the values that share a mean
    for value in values:
        pools.append((float(value), 1))
        while len(pools) > 1 and pools[-2][0] * pools[-1][1] > pools[-1][0] * pools[-2][1]:
            (last, last_count), (total, count) = pools.pop(), pools.pop()
            pools.append((total + last, count + last_count))
    return [total / count for total, count in pools for _ in range(count)]


def legend(panels: Sequence[Axes], by: str, gutter: float) -> None:
    """Draw a legend of the lines of all panels, titled `by`, to the right of the last panel and its gutter."""
    lines: dict[Any, Any] = {line.get_label(): line for axis in panels for line in axis.get_lines()}
    place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.03 + gutter, 1.03), "alignment": "left"}
    style: dict[str, Any] = {"frameon": False, "fontsize": FONT_SIZE, "labelcolor": INK}
    columns = 1 + (len(lines) - 1) // 16
    legend = panels[-1].legend(list(lines.values()), list(lines), title=by, ncols=columns, **place, **style)
    legend.get_title().set(fontsize=FONT_SIZE, weight="bold", color=INK)


def max_text_width(figure: Figure, names: Sequence[str]) -> float:
    """Return the width of the longest name in inches."""
    texts = [figure.text(0, 0, name, fontsize=FONT_SIZE) for name in names]
    inches = [text.get_window_extent().width / figure.dpi for text in texts]
    for text in texts:
        text.remove()
    return max(inches, default=0.0)
