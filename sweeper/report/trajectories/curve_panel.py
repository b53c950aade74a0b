"""A panel of a figure of curves: its axes, its lines, and their standard deviations."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.ticker import FuncFormatter, MaxNLocator

from sweeper.report.style import INK, MUTED, PALE
from sweeper.spec.metric import BETTER, Metric

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
