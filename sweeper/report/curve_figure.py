"""Names of the curves in a figure: each at the end of its curve, without overlaps, or all in a legend.

A panel of a figure of curves: its axes, its lines, and their standard deviations.

A figure of curves over epochs, with a panel for each metric and a line for each value of a hyperparameter.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from sweeper.report.formatting import ValueText, plain_text
from sweeper.report.style import INK, MUTED, PALE
from sweeper.spec.metric import BETTER, Metric
from sweeper.spec.views import Trajectory

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


OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""The Okabe-Ito palette, safe for colour-blind readers, without its yellow, which is too light for a line."""
DASHES = ("solid", "dashed", "dotted", "dashdot")
MARKERS = "osD^v<>p"
LINE: dict[str, Any] = {"linewidth": 1.8, "markersize": 5.5, "markeredgecolor": "white", "markeredgewidth": 0.7}
SIDE_BAR = "side bar"
"""Group id (`gid`) that marks the bars beside a panel."""
TICK_STEPS = (1, 2, 5, 10)
"""Distances between ticks, up to a power of ten."""


def draw_lines(
    axis: Axes, points: pd.DataFrame, by: str, names: Mapping[Any, str], *, banded: bool, side_by_side: bool
) -> None:
    """Draw a line and its standard deviation for each value of the column `by`. `names` maps the values to names.

    Standard deviations are bands if `banded`, otherwise bars, which `place_bars` moves beside the panel. The lines of a
    single epoch are points, which are drawn `side_by_side`.
    """
    for index, (value, name) in enumerate(names.items()):
        line = points[points[by].isna() if pd.isna(value) else points[by] == value].sort_values("epoch")
        if side_by_side:
            line = line.assign(epoch=line["epoch"] + 0.8 * ((index + 0.5) / len(names) - 0.5))
        if len(line):
            color = OKABE_ITO[index % len(OKABE_ITO)]
            dashes = DASHES[index // len(OKABE_ITO) % len(DASHES)]  # they change when the colours repeat
            _draw_line(axis, line, label=name, color=color, linestyle=dashes, marker=MARKERS[index % len(MARKERS)])
            _draw_spread(axis, line, color, banded)


def style_panel(axis: Axes, metric: Metric, first: bool) -> None:
    """Draw the axes and the heading of a panel. Only the first of panels with a shared axis has its tick labels."""
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
    axis.spines["bottom"].set_color(MUTED)
    axis.grid(color=PALE, linewidth=0.8)
    axis.set_axisbelow(True)
    axis.tick_params(length=0, labelsize=9, labelcolor=INK, labelleft=first)
    axis.tick_params(axis="x", length=3, color=MUTED)
    axis.xaxis.set_major_locator(MaxNLocator(7, integer=True, steps=TICK_STEPS))
    axis.yaxis.set_major_locator(MaxNLocator(6, steps=TICK_STEPS))
    if metric.percent:
        axis.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:.4g}%"))
    axis.set_xlabel("epoch", fontsize=10, color=INK)
    axis.annotate(
        metric.name, (0, 1), (0, 9), "axes fraction", "offset points", fontsize=10.5, weight="bold", color=INK
    )
    better = f"{BETTER[metric.direction]} is better" if metric.direction else ""
    axis.annotate(better, (1, 1), (0, 9), "axes fraction", "offset points", ha="right", fontsize=8.5, color=MUTED)


def _draw_line(axis: Axes, line: pd.DataFrame, **style: Any) -> None:
    """Draw the means over the epochs, with at most 31 markers, one of them at the last epoch."""
    step = max(1, len(line) // 16)
    marked = slice((len(line) - 1) % step, None, step)
    epoch, mean = (line[key].to_numpy("float64") for key in ("epoch", "mean"))
    axis.plot(epoch, mean, markevery=marked, zorder=3, **LINE, **style)


def _draw_spread(axis: Axes, line: pd.DataFrame, color: str, banded: bool) -> None:
    """Draw the standard deviation as a band, or as a bar at the last epoch, which `place_bars` moves later."""
    epoch, mean, std = (line[key].to_numpy("float64") for key in ("epoch", "mean", "std"))
    low, high = mean - std, mean + std
    if len(line) == 1:  # a band of one epoch would have no width
        axis.vlines(epoch, low, high, color=color, alpha=0.4, linewidth=3, zorder=2)
    elif banded:
        dashes = DASHES[(len(axis.get_lines()) - 1) % len(DASHES)]
        axis.fill_between(epoch, low, high, color=color, alpha=0.1, linewidth=0, zorder=2)
        edges = [np.column_stack([epoch, values]) for values in (low, high)]
        outline = LineCollection(edges, colors=[color], linestyles=dashes, linewidths=0.9, alpha=0.6, zorder=2)
        axis.add_collection(outline, autolim=False)
    elif math.isfinite(std[-1]):
        ends = [(epoch[-1], low[-1]), (epoch[-1], high[-1])]
        axis.add_collection(LineCollection([ends], colors=[color], linewidths=3, gid=SIDE_BAR))
        axis.autoscale_view()


def place_bars(axis: Axes, gutter: float) -> None:
    """Move the bars beside the panel, cut to its limits. `gutter` is their total width, in widths of the panel."""
    bars = [item for item in axis.collections if isinstance(item, LineCollection) and item.get_gid() == SIDE_BAR]
    bottom, top = axis.get_ylim()
    for index, bar in enumerate(bars):
        ((_, low), (_, high)) = bar.get_segments()[0]
        x = 1.0 + gutter * (index + 1) / (len(bars) + 1)
        bar.set_segments([np.array([(x, max(low, bottom)), (x, min(high, top))])])
        bar.set(transform=axis.get_yaxis_transform(), clip_on=False, alpha=0.75)


def set_limits(axis: Axes, metric: Metric) -> None:
    """Set the limits to what is drawn. Bands of a share are cut at 0 and 1. An empty panel says "no value yet"."""
    lines: list[Any] = axis.get_lines()
    if not lines:
        axis.text(0.5, 0.5, "no value yet", transform=axis.transAxes, ha="center", va="center", color=MUTED)
        axis.tick_params(bottom=False, labelbottom=False, labelleft=False)
        axis.grid(visible=False)
        return
    epochs, means = (np.concatenate(values) for values in zip(*(line.get_data() for line in lines), strict=True))
    low, high = float(epochs.min()), float(epochs.max())
    if round(low) == round(high):
        low, high = round(low) - 0.7, round(high) + 0.7
        axis.set_xticks([round(epochs[0])])
    margin = (high - low) * 0.03
    axis.set_xlim(low - margin, high + margin)
    bottom, top = axis.get_ylim()
    if metric.percent and means.min() >= 0.0 and means.max() <= 1.0:
        axis.set_ylim(max(bottom, -0.01), min(top, 1.01))


PANEL = (4.4, 3.3)
"""Width and height of a panel, in inches."""
LEFT, BOTTOM, TOP = 0.8, 0.6, 1.3
"""Space around the panels, in inches."""
MAX_BANDS = 3
"""Maximum number of lines whose standard deviation is drawn as a band. With more, overlapping bands could not be told
apart, so each line has a bar beside the panel instead: its standard deviation at the last epoch."""
BAR_SPACING, MAX_BARS_WIDTH = 0.09, 1.1
"""Distance between two such bars, and maximum width of all bars together, in inches."""
MAX_END_LABELS = 8
"""Maximum number of lines that are named at their ends; with more there is a legend."""
MAX_END_LABEL_WIDTH = 2.2
"""Maximum width in inches of a name at the end of a line; with a longer one there is a legend."""
MAX_RANGE_RATIO = 2.5
"""Panels share their vertical axis if the range of all metrics is at most this times that of the narrowest metric."""


def draw(points: pd.DataFrame, trajectory: Trajectory, about: str = "", value_text: ValueText = plain_text) -> Figure:
    """Draw a panel for each metric, with a line for each value of `by` and its standard deviation.

    `points` are those of `trajectory.average`. `about` is a line below the title, e.g. the sweep and its data sets.
    """
    figure = Figure()
    FigureCanvasAgg(figure)
    metrics, values = trajectory.metrics, points[trajectory.key].drop_duplicates()
    names = {value: value_text(trajectory.key, value) for value in values}
    name_width = max_text_width(figure, list(names.values()))
    labelled = len(names) <= MAX_END_LABELS and name_width <= MAX_END_LABEL_WIDTH
    banded, single_epoch = len(names) <= MAX_BANDS, points["epoch"].nunique() == 1
    barred = not banded and not single_epoch and bool(points["std"].notna().any())
    bars_width = min(MAX_BARS_WIDTH, BAR_SPACING * (len(names) + 1)) if barred else 0.0
    shared = all(metric.percent for metric in metrics) and _have_similar_ranges(points)
    step = PANEL[0] + bars_width + (name_width + 0.25 if labelled else 0.0) + (0.35 if shared else 0.8)
    figure.set_size_inches(LEFT + step * len(metrics), BOTTOM + PANEL[1] + TOP)

    panels = _add_panels(figure, trajectory, step, shared)
    for axis, metric in zip(panels, metrics, strict=True):
        shown = points[(points["metric"] == metric.name) & np.isfinite(points["mean"])]
        draw_lines(axis, shown, trajectory.key, names, banded=banded, side_by_side=single_epoch)
    for axis, metric in zip(panels, metrics, strict=True):
        set_limits(axis, metric)
    gutter = bars_width / PANEL[0]
    for axis in panels:  # once the limits of all panels are set, because panels may share an axis
        place_bars(axis, gutter)
        if labelled:
            label_line_ends(axis, PANEL[1], gutter)
    if not labelled:
        legend(panels, trajectory.key, gutter)
    bars = "" if not gutter else "bars" if labelled else "bars in the order of the legend"
    _draw_title(figure, panels[0], (trajectory.name, about, _caption(points, trajectory, bars)))
    return figure


def _add_panels(figure: Figure, trajectory: Trajectory, step: float, shared: bool) -> list[Axes]:
    """Add an empty panel for each metric. `step` is the distance between their left edges, in inches."""
    width, height = figure.get_size_inches()
    panels: list[Axes] = []
    for index, metric in enumerate(trajectory.metrics):
        box = ((LEFT + index * step) / width, BOTTOM / height, PANEL[0] / width, PANEL[1] / height)
        axis = figure.add_axes(box, sharey=panels[0] if panels and shared else None)
        style_panel(axis, metric, first=index == 0 or not shared)
        panels.append(axis)
    return panels


def _have_similar_ranges(points: pd.DataFrame) -> bool:
    ranges = points.groupby("metric")["mean"].agg(["min", "max"])
    narrowest = (ranges["max"] - ranges["min"]).min()
    return bool(narrowest * MAX_RANGE_RATIO >= ranges["max"].max() - ranges["min"].min())


def _caption(points: pd.DataFrame, trajectory: Trajectory, bars: str) -> str:
    """Return what the lines average over. `bars` names the bars beside the panels; "" without any."""
    counts = points["count"][points["count"] > 0]
    caption = f"by {trajectory.key}"
    if counts.max() > 1:
        caption += f", mean of {'up to ' if counts.min() < counts.max() else ''}{counts.max()} trials"
        caption += f"; {bars}: ± standard deviation at the end" if bars else " ± standard deviation"
    return caption


def _draw_title(figure: Figure, axis: Axes, lines: tuple[str, str, str]) -> None:
    box, height = axis.get_position(), figure.get_size_inches()[1]
    styles = ((12.5, "bold", 0.98), (10, "normal", 0.72), (10, "normal", 0.48))
    for text, (size, weight, above) in zip(lines, styles, strict=True):
        figure.text(box.x0, box.y1 + above / height, text, fontsize=size, weight=weight, color=INK, va="bottom")
