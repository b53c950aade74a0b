"""Curves over epochs as a figure: a panel for each metric, a line for each value of a hyperparameter."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from sweeper.heatmap import INK, MUTED
from sweeper.spec import Metric, Trajectory
from sweeper.tables import labels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANEL = (4.4, 3.3)
"""Inches, width by height."""
OKABE_ITO = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
MARKERS = "osD^v<>p"
NAMED = 8
"""Lines that are named at their ends at most; more have a legend."""
LONGEST = 2.2
"""Inches of a name at a line's end at most; longer ones have a legend, too."""
SMALL = 9.0
"""Points of a line's name."""
GRID = "#e4e5e8"
LINE: dict[str, Any] = {"linewidth": 1.8, "markersize": 5.5, "markeredgecolor": "white", "markeredgewidth": 0.7}
TIGHTEST = 2.5
"""The range of all metrics over that of the narrowest, up to which panels share their values."""
STEPS = (1, 2, 5, 10)
"""Of ticks, times a power of ten."""


def draw(points: pd.DataFrame, trajectory: Trajectory) -> "Figure":
    """A panel for each metric: a line for each value of `by`, named at its end, and one standard deviation shaded."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    by, metrics = trajectory.key, trajectory.metrics
    values = points[by][~points[by].duplicated()]
    names = labels(values)
    figure = Figure()
    FigureCanvasAgg(figure)
    widest = _widest(figure, names)
    named = len(names) <= NAMED and widest <= LONGEST
    shared = all(metric.percent for metric in metrics) and _alike(points)
    step = PANEL[0] + (widest + 0.25 if named else 0.0) + (0.35 if shared else 0.8)
    left, bottom, top = 0.8, 0.6, 1.05
    width, height = left + step * len(metrics), bottom + PANEL[1] + top
    figure.set_size_inches(width, height)

    single = points["epoch"].nunique() == 1
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
                _line(axis, line, name, style, shade=0.16 if len(names) <= 5 else 0.1)
        panels.append(axis)
    for axis, metric in zip(panels, metrics, strict=True):
        _limit(axis, metric)
    for axis in panels:  # once the limits of all are known
        if named:
            _name_ends(axis)
    if not named:
        _legend(panels, by)
    _title(figure, panels[0], points, trajectory)
    return figure


def _styles(count: int) -> list[dict[str, Any]]:
    """Colours that colour-blind readers tell apart, as far as there are, and a marker to each."""
    import matplotlib

    many = matplotlib.colormaps["tab20"]
    light_last = [many(i) for i in (*range(0, 20, 2), *range(1, 20, 2))]
    colours = OKABE_ITO if count <= len(OKABE_ITO) else light_last
    return [{"color": colours[i % len(colours)], "marker": MARKERS[i % len(MARKERS)]} for i in range(count)]


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


def _line(axis: "Axes", line: pd.DataFrame, name: str, style: dict[str, Any], shade: float) -> None:
    epoch, mean, std = (line[key].to_numpy("float64") for key in ("epoch", "mean", "std"))
    every = max(1, len(line) // 16)
    marked = slice((len(line) - 1) % every, None, every)  # the last one always
    axis.plot(epoch, mean, label=name, markevery=marked, zorder=3, **LINE, **style)
    axis.fill_between(epoch, mean - std, mean + std, color=style["color"], alpha=shade, linewidth=0, zorder=2)
    if len(line) == 1:  # too narrow to shade
        axis.vlines(epoch, mean - std, mean + std, color=style["color"], alpha=0.4, linewidth=3, zorder=2)


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


def _name_ends(axis: "Axes") -> None:
    """Each line's name right of the panel, as high as the line ends or as near as names do not overlap."""
    import matplotlib.colors

    drawn: list[Any] = axis.get_lines()
    lines = sorted(drawn, key=lambda line: line.get_ydata()[-1])
    (left, right), (bottom, top) = axis.get_xlim(), axis.get_ylim()
    gap = SMALL * 1.3 / 72 / PANEL[1] * (top - bottom)
    ends = [float(line.get_ydata()[-1]) for line in lines]
    for line, end, place in zip(lines, ends, spread(ends, gap, bottom, top), strict=True):
        ink = tuple(0.72 * part for part in matplotlib.colors.to_rgb(line.get_color()))
        start = (line.get_xdata()[-1] - left) / (right - left)
        across = axis.get_yaxis_transform()
        axis.plot(
            [start, 1.035],
            [end, place],
            color=line.get_color(),
            lw=0.8,
            alpha=0.6,
            transform=across,
            clip_on=False,
            scalex=False,
            scaley=False,
        )
        axis.text(1.045, place, line.get_label(), transform=across, va="center", fontsize=SMALL, color=ink)


def _alike(points: pd.DataFrame) -> bool:
    """Whether the metrics' values span about the same range, so that one axis shows all of them well."""
    ends = points.groupby("metric")["mean"].agg(["min", "max"])
    return bool((ends["max"] - ends["min"]).min() * TIGHTEST >= ends["max"].max() - ends["min"].min())


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


def _legend(panels: Sequence["Axes"], by: str) -> None:
    handles: dict[Any, Any] = {line.get_label(): line for axis in panels for line in axis.get_lines()}
    legend = panels[-1].legend(
        list(handles.values()),
        list(handles),
        title=by,
        loc="upper left",
        bbox_to_anchor=(1.03, 1.03),
        frameon=False,
        fontsize=SMALL,
        labelcolor=INK,
        alignment="left",
        ncols=1 + (len(handles) - 1) // 16,
    )
    legend.get_title().set(fontsize=SMALL, weight="bold", color=INK)


def _title(figure: "Figure", axis: "Axes", points: pd.DataFrame, trajectory: Trajectory) -> None:
    box, height = axis.get_position(), figure.get_size_inches()[1]
    counts = points["count"][points["count"] > 0]
    said = f"by {trajectory.key}"
    if counts.max() > 1:
        said += f", mean of {'up to ' if counts.min() < counts.max() else ''}{counts.max()} trials ± standard deviation"
    figure.text(box.x0, box.y1 + 0.74 / height, trajectory.name, fontsize=12.5, weight="bold", color=INK, va="bottom")
    figure.text(box.x0, box.y1 + 0.48 / height, said, fontsize=10, color=INK, va="bottom")


def _widest(figure: "Figure", names: Sequence[str]) -> float:
    """Inches of the longest name."""
    texts = [figure.text(0, 0, name, fontsize=SMALL) for name in names]
    inches = [text.get_window_extent().width / figure.dpi for text in texts]
    for text in texts:
        text.remove()
    return max(inches, default=0.0)
