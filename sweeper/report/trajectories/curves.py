"""A figure of curves over epochs, with a panel for each metric and a line for each value of a hyperparameter."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from sweeper.report.class_names import ValueText, plain_text
from sweeper.report.style import INK
from sweeper.report.trajectories.curve_labels import label_line_ends, legend, max_text_width
from sweeper.report.trajectories.curve_panel import draw_lines, place_bars, set_limits, style_panel
from sweeper.spec.views import Trajectory

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
