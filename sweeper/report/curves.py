"""A figure of curves over epochs, with a panel for each metric and a line for each value of a hyperparameter."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from sweeper.report.curve_labels import legend, name_ends, widest
from sweeper.report.heatmap import INK, MUTED
from sweeper.report.paper_table import labels
from sweeper.spec import Metric
from sweeper.spec.views import Trajectory

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL = (4.4, 3.3)
"""Width and height of a panel, in inches."""
OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""The Okabe-Ito palette, safe for colour-blind readers, without its yellow, which is too light for a line."""
DASHES = ("solid", "dashed", "dotted", "dashdot")
MARKERS = "osD^v<>p"
BANDS = 3
"""Maximum number of lines whose standard deviation is drawn as a band. With more, overlapping bands could not be told
apart, so each line has a bar beside the panel instead: its standard deviation at the last epoch."""
BAR, BARS = 0.09, 1.1
"""Distance between two such bars, and maximum width of all bars together, in inches."""
NAMED = 8
"""Maximum number of lines that are named at their ends; with more there is a legend."""
LONGEST = 2.2
"""Maximum width in inches of a name at the end of a line; with a longer one there is a legend."""
GRID = "#e4e5e8"
LINE: dict[str, Any] = {"linewidth": 1.8, "markersize": 5.5, "markeredgecolor": "white", "markeredgewidth": 0.7}
TIGHTEST = 2.5
"""Panels share their vertical axis if the range of all metrics is at most this times that of the narrowest metric."""
BESIDE = "beside the panel"
"""Group id (`gid`) that marks the bars beside a panel."""
STEPS = (1, 2, 5, 10)
"""Distances between ticks, up to a power of ten."""


def draw(points: pd.DataFrame, trajectory: Trajectory, about: str = "") -> "Figure":
    """Draw a panel for each metric, with a line for each value of `by` and its standard deviation.

    `points` are those of `trajectory.average`. `about` is a line below the title, e.g. the sweep and its data sets.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    by, metrics = trajectory.key, trajectory.metrics
    values = points[by][~points[by].duplicated()]
    names = labels(values)
    figure = Figure()
    FigureCanvasAgg(figure)
    longest = widest(figure, names)
    named = len(names) <= NAMED and longest <= LONGEST
    shared = all(metric.percent for metric in metrics) and _alike(points)
    banded = len(names) <= BANDS
    single = points["epoch"].nunique() == 1
    gutter = 0.0 if banded or single or points["std"].isna().all() else min(BARS, BAR * (len(names) + 1))
    step = PANEL[0] + gutter + (longest + 0.25 if named else 0.0) + (0.35 if shared else 0.8)
    left, bottom, top = 0.8, 0.6, 1.3
    width, height = left + step * len(metrics), bottom + PANEL[1] + top
    figure.set_size_inches(width, height)

    panels: list[Axes] = []
    for panel, metric in enumerate(metrics):
        box = ((left + panel * step) / width, bottom / height, PANEL[0] / width, PANEL[1] / height)
        axis = figure.add_axes(box, sharey=panels[0] if panels and shared else None)
        _style_panel(axis, metric, first=panel == 0 or not shared)
        shown = points[(points["metric"] == metric.name) & np.isfinite(points["mean"])]
        for index, (value, name, style) in enumerate(zip(values, names, _styles(len(names)), strict=True)):
            line = shown[shown[by].isna() if pd.isna(value) else shown[by] == value].sort_values("epoch")
            if single:  # draw the points of a single epoch side by side
                line = line.assign(epoch=line["epoch"] + 0.8 * ((index + 0.5) / len(names) - 0.5))
            if len(line):
                _draw_line(axis, line, name, style)
                _draw_spread(axis, line, style, banded)
        panels.append(axis)
    for axis, metric in zip(panels, metrics, strict=True):
        _set_limits(axis, metric)
    for axis in panels:  # once the limits of all panels are set, because panels may share an axis
        _place_bars(axis, gutter / PANEL[0])
        if named:
            name_ends(axis, PANEL[1], gutter / PANEL[0])
    if not named:
        legend(panels, by, gutter / PANEL[0])
    bars = "" if not gutter else "bars" if named else "bars in the order of the legend"
    _draw_title(figure, panels[0], points, trajectory, about, bars)
    return figure


def _styles(count: int) -> list[dict[str, Any]]:
    """Return a colour, dashes and a marker for each line. The dashes change when the colours repeat."""
    return [
        {
            "color": OKABE_ITO[index % len(OKABE_ITO)],
            "linestyle": DASHES[index // len(OKABE_ITO) % len(DASHES)],
            "marker": MARKERS[index % len(MARKERS)],
        }
        for index in range(count)
    ]


def _style_panel(axis: "Axes", metric: Metric, first: bool) -> None:
    """Draw the axes and the heading of a panel. Only the first of panels with a shared axis has its tick labels."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
    axis.spines["bottom"].set_color(MUTED)
    axis.grid(color=GRID, linewidth=0.8)
    axis.set_axisbelow(True)
    axis.tick_params(length=0, labelsize=9, labelcolor=INK, labelleft=first)
    axis.tick_params(axis="x", length=3, color=MUTED)
    axis.xaxis.set_major_locator(MaxNLocator(7, integer=True, steps=STEPS))
    axis.yaxis.set_major_locator(MaxNLocator(6, steps=STEPS))
    if metric.percent:
        axis.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:.4g}%"))
    axis.set_xlabel("epoch", fontsize=10, color=INK)
    axis.annotate(
        metric.name, (0, 1), (0, 9), "axes fraction", "offset points", fontsize=10.5, weight="bold", color=INK
    )
    better = {"maximize": "higher is better", "minimize": "lower is better", None: ""}[metric.direction]
    axis.annotate(better, (1, 1), (0, 9), "axes fraction", "offset points", ha="right", fontsize=8.5, color=MUTED)


def _draw_line(axis: "Axes", line: pd.DataFrame, name: str, style: dict[str, Any]) -> None:
    """Draw the means over the epochs, with at most 31 markers, one of them at the last epoch."""
    step = max(1, len(line) // 16)
    marked = slice((len(line) - 1) % step, None, step)
    epoch, mean = (line[key].to_numpy("float64") for key in ("epoch", "mean"))
    axis.plot(epoch, mean, label=name, markevery=marked, zorder=3, **LINE, **style)


def _draw_spread(axis: "Axes", line: pd.DataFrame, style: dict[str, Any], banded: bool) -> None:
    """Draw the standard deviation as a band, or as a bar at the last epoch, which `_place_bars` moves later."""
    from matplotlib.collections import LineCollection

    epoch, mean, std = (line[key].to_numpy("float64") for key in ("epoch", "mean", "std"))
    color, low, high = style["color"], mean - std, mean + std
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
        bar = LineCollection([ends], colors=[color], linewidths=3, gid=BESIDE)
        axis.add_collection(bar)
        axis.autoscale_view()


def _place_bars(axis: "Axes", gutter: float) -> None:
    """Move the bars side by side to the right of the panel, cut to its vertical limits.

    `gutter` is the width of all bars together, in widths of the panel.
    """
    from matplotlib.collections import LineCollection

    bars = [drawn for drawn in axis.collections if isinstance(drawn, LineCollection) and drawn.get_gid() == BESIDE]
    bottom, top = axis.get_ylim()
    for index, bar in enumerate(bars):
        ((_, low), (_, high)) = bar.get_segments()[0]
        x = 1.0 + gutter * (index + 1) / (len(bars) + 1)
        bar.set_segments([np.array([(x, max(low, bottom)), (x, min(high, top))])])
        bar.set(transform=axis.get_yaxis_transform(), clip_on=False, alpha=0.75)


def _set_limits(axis: "Axes", metric: Metric) -> None:
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


def _alike(points: pd.DataFrame) -> bool:
    """Return whether the metrics have similar ranges, so that one shared axis shows all of them well."""
    ranges = points.groupby("metric")["mean"].agg(["min", "max"])
    return bool((ranges["max"] - ranges["min"]).min() * TIGHTEST >= ranges["max"].max() - ranges["min"].min())


def _draw_title(
    figure: "Figure", axis: "Axes", points: pd.DataFrame, trajectory: Trajectory, about: str, bars: str
) -> None:
    """Write the name, `about` and a caption above the panels. `bars` names the bars of the caption; "" without any."""
    box, height = axis.get_position(), figure.get_size_inches()[1]
    counts = points["count"][points["count"] > 0]
    caption = f"by {trajectory.key}"
    if counts.max() > 1:
        caption += f", mean of {'up to ' if counts.min() < counts.max() else ''}{counts.max()} trials"
        caption += f"; {bars}: ± standard deviation at the end" if bars else " ± standard deviation"
    lines = ((trajectory.name, 12.5, "bold", 0.98), (about, 10, "normal", 0.72), (caption, 10, "normal", 0.48))
    for text, size, weight, above in lines:
        figure.text(box.x0, box.y1 + above / height, text, fontsize=size, weight=weight, color=INK, va="bottom")
