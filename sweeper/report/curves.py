"""Curves over epochs as a figure: a panel for each metric, a line for each value of a hyperparameter."""

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
"""Inches, width by height."""
OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Colours that colour-blind readers tell apart, without the yellow, which is too light for a line."""
DASHES = ("solid", "dashed", "dotted", "dashdot")
MARKERS = "osD^v<>p"
BANDS = 3
"""Lines whose spread is a band at most: more bands overlap so that none can be followed. The spread of more lines is a
bar for each, beside the panel, at its last epoch."""
BAR, BARS = 0.09, 1.1
"""Inches between two such bars, and that all of them take at most."""
NAMED = 8
"""Lines that are named at their ends at most; more have a legend."""
LONGEST = 2.2
"""Inches of a name at a line's end at most; longer ones have a legend, too."""
GRID = "#e4e5e8"
LINE: dict[str, Any] = {"linewidth": 1.8, "markersize": 5.5, "markeredgecolor": "white", "markeredgewidth": 0.7}
TIGHTEST = 2.5
"""The range of all metrics over that of the narrowest, up to which panels share their values."""
BESIDE = "beside the panel"
"""The mark of such a bar."""
STEPS = (1, 2, 5, 10)
"""Of ticks, times a power of ten."""


def draw(points: pd.DataFrame, trajectory: Trajectory, about: str = "") -> "Figure":
    """A panel for each metric: a line for each value of `by`, named at its end, and one standard deviation either way.

    `about` says of what the picture is.
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
        _frame(axis, metric, first=panel == 0 or not shared)
        here = points[(points["metric"] == metric.name) & np.isfinite(points["mean"])]
        for place, (value, name, style) in enumerate(zip(values, names, _styles(len(names)), strict=True)):
            line = here[here[by].isna() if pd.isna(value) else here[by] == value].sort_values("epoch")
            if single:  # side by side, not on top of each other
                line = line.assign(epoch=line["epoch"] + 0.8 * ((place + 0.5) / len(names) - 0.5))
            if len(line):
                _line(axis, line, name, style)
                _spread(axis, line, style, banded)
        panels.append(axis)
    for axis, metric in zip(panels, metrics, strict=True):
        _limit(axis, metric)
    for axis in panels:  # once the limits of all are known
        _place_bars(axis, gutter / PANEL[0])
        if named:
            name_ends(axis, PANEL[1], gutter / PANEL[0])
    if not named:
        legend(panels, by, gutter / PANEL[0])
    bars = "" if not gutter else "bars" if named else "bars in the order of the legend"
    _title(figure, panels[0], points, trajectory, about, bars)
    return figure


def _styles(count: int) -> list[dict[str, Any]]:
    """A colour and a marker to each line; where colours come again, other dashes."""
    return [
        {
            "color": OKABE_ITO[i % len(OKABE_ITO)],
            "linestyle": DASHES[i // len(OKABE_ITO) % len(DASHES)],
            "marker": MARKERS[i % len(MARKERS)],
        }
        for i in range(count)
    ]


def _frame(axis: "Axes", metric: Metric, first: bool) -> None:
    """Axes and heading of a panel; values are written beside the first of those that share them."""
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


def _line(axis: "Axes", line: pd.DataFrame, name: str, style: dict[str, Any]) -> None:
    every = max(1, len(line) // 16)
    marked = slice((len(line) - 1) % every, None, every)  # the last one always
    epoch, mean = (line[key].to_numpy("float64") for key in ("epoch", "mean"))
    axis.plot(epoch, mean, label=name, markevery=marked, zorder=3, **LINE, **style)


def _spread(axis: "Axes", line: pd.DataFrame, style: dict[str, Any], banded: bool) -> None:
    """A light band with an edge, or what `_place_bars` puts beside the panel: a bar at the last epoch."""
    from matplotlib.collections import LineCollection

    epoch, mean, std = (line[key].to_numpy("float64") for key in ("epoch", "mean", "std"))
    color, low, high = style["color"], mean - std, mean + std
    if len(line) == 1:  # too narrow to shade
        axis.vlines(epoch, low, high, color=color, alpha=0.4, linewidth=3, zorder=2)
    elif banded:
        edge = DASHES[(len(axis.get_lines()) - 1) % len(DASHES)]
        axis.fill_between(epoch, low, high, color=color, alpha=0.1, linewidth=0, zorder=2)
        edges = [np.column_stack([epoch, values]) for values in (low, high)]
        drawn = LineCollection(edges, colors=[color], linestyles=edge, linewidths=0.9, alpha=0.6, zorder=2)
        axis.add_collection(drawn, autolim=False)
    elif math.isfinite(std[-1]):
        ends = [(epoch[-1], low[-1]), (epoch[-1], high[-1])]
        bar = LineCollection([ends], colors=[color], linewidths=3, gid=BESIDE)
        axis.add_collection(bar)
        axis.autoscale_view()


def _place_bars(axis: "Axes", gutter: float) -> None:
    """Move the bars right of the panel, side by side, within the values that it shows; together they are as wide as
    `gutter`, in widths of the panel."""
    from matplotlib.collections import LineCollection

    bars = [one for one in axis.collections if isinstance(one, LineCollection) and one.get_gid() == BESIDE]
    bottom, top = axis.get_ylim()
    for place, bar in enumerate(bars):
        ((_, low), (_, high)) = bar.get_segments()[0]
        x = 1.0 + gutter * (place + 1) / (len(bars) + 1)
        bar.set_segments([np.array([(x, max(low, bottom)), (x, min(high, top))])])
        bar.set(transform=axis.get_yaxis_transform(), clip_on=False, alpha=0.75)


def _limit(axis: "Axes", metric: Metric) -> None:
    """All that is drawn, but of the shading no share beyond [0, 1]; only words where there is nothing."""
    drawn: list[Any] = axis.get_lines()
    if not drawn:
        axis.text(0.5, 0.5, "no value yet", transform=axis.transAxes, ha="center", va="center", color=MUTED)
        axis.tick_params(bottom=False, labelbottom=False, labelleft=False)
        axis.grid(visible=False)
        return
    epochs, means = (np.concatenate(found) for found in zip(*(line.get_data() for line in drawn), strict=True))
    low, high = float(epochs.min()), float(epochs.max())
    if round(low) == round(high):
        low, high = round(low) - 0.7, round(high) + 0.7
        axis.set_xticks([round(epochs[0])])
    room = (high - low) * 0.03
    axis.set_xlim(low - room, high + room)
    bottom, top = axis.get_ylim()
    if metric.percent and means.min() >= 0.0 and means.max() <= 1.0:
        axis.set_ylim(max(bottom, -0.01), min(top, 1.01))


def _alike(points: pd.DataFrame) -> bool:
    """Whether the metrics' values span about the same range, so that one axis shows all of them well."""
    ends = points.groupby("metric")["mean"].agg(["min", "max"])
    return bool((ends["max"] - ends["min"]).min() * TIGHTEST >= ends["max"].max() - ends["min"].min())


def _title(figure: "Figure", axis: "Axes", points: pd.DataFrame, trajectory: Trajectory, about: str, bars: str) -> None:
    box, height = axis.get_position(), figure.get_size_inches()[1]
    counts = points["count"][points["count"] > 0]
    said = f"by {trajectory.key}"
    if counts.max() > 1:
        said += f", mean of {'up to ' if counts.min() < counts.max() else ''}{counts.max()} trials"
        said += f"; {bars}: ± standard deviation at the end" if bars else " ± standard deviation"
    lines = ((trajectory.name, 12.5, "bold", 0.98), (about, 10, "normal", 0.72), (said, 10, "normal", 0.48))
    for text, size, weight, above in lines:
        figure.text(box.x0, box.y1 + above / height, text, fontsize=size, weight=weight, color=INK, va="bottom")
