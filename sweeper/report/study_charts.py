"""Restyles axes that Optuna drew: frame, legend, colour bar and ticks as in the other figures of a sweep.

Optuna's own Matplotlib figures of a study, restyled like the other figures of a sweep.
"""

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
import optuna
from matplotlib import patheffects, pyplot
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import ListedColormap
from matplotlib.contour import ContourSet
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator, PercentFormatter

from sweeper.report import style
from sweeper.report.studies import WARM, complete_trials, is_numeric, quiet
from sweeper.report.style import INK, MUTED, PALE
from sweeper.spec.metric import BETTER

MAX_OWN_TICKS = 6
"""Maximum number of distinct whole numbers that each have their own tick."""
MAX_TICKS = 7
"""Maximum number of ticks otherwise."""


def restyle(axis: Axes, inches: tuple[float, float]) -> Figure:
    """Restyle an axis and remove Optuna's title and legend. Returns its figure, resized to `inches` (width, height)."""
    figure: Any = axis.figure
    figure.set_layout_engine("none")
    figure.set_size_inches(*inches)
    figure.suptitle("")
    for location in ("left", "center"):
        axis.set_title("", loc=location)
    axis.set_facecolor("white")
    axis.set_axisbelow(True)
    axis.grid(visible=True, color=PALE, linewidth=0.8)
    for side, spine in axis.spines.items():
        spine.set(visible=side == "bottom", color=MUTED)
    axis.tick_params(length=0, labelsize=9, labelcolor=INK)
    axis.tick_params(axis="x", length=3, color=MUTED)
    for dimension in (axis.xaxis, axis.yaxis):
        dimension.label.set(fontsize=10, color=INK)
    if optuna_legend := axis.get_legend():
        optuna_legend.remove()
    return figure


def legend(axis: Axes) -> None:
    """Draw the legend as one line directly above the panel."""
    spaces: dict[str, Any] = {"handletextpad": 0.4, "columnspacing": 1.2, "frameon": False}
    axis.legend(loc="lower left", bbox_to_anchor=(-0.02, 0.985), ncols=3, fontsize=9, labelcolor=INK, **spaces)


def style_colour_bar(axis: Axes, label: str) -> None:
    """Restyle the axis of a colour bar, and label it."""
    axis.set_ylabel(label, color=INK, fontsize=9)
    axis.tick_params(labelsize=8, length=2, color=MUTED, labelcolor=INK)
    for spine in axis.spines.values():
        spine.set_visible(False)


def set_ticks(axis: Axis, values: Sequence[Any]) -> None:
    """Set few ticks with plain numbers, whole ones for whole `values`. An axis of words is not changed."""
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return
    whole = all(isinstance(value, int) for value in values)
    if axis.get_scale() == "log":
        low, high = axis.get_view_interval()
        axis.set_major_locator(FixedLocator(log_ticks(low, high)))
    elif whole and len(set(values)) <= MAX_OWN_TICKS:
        axis.set_major_locator(FixedLocator(sorted(set(values))))
    else:
        axis.set_major_locator(MaxNLocator(MAX_TICKS - 1, integer=whole, steps=(1, 2, 5, 10)))
    axis.set_major_formatter(FuncFormatter(lambda tick, _: f"{tick:.4g}".replace("e-0", "e-")))
    axis.set_minor_locator(NullLocator())


def log_ticks(low: float, high: float) -> list[float]:
    """Return three to seven round numbers between two positive ones, or fewer if `high / low` is below about 1.5."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    numbers: list[float] = []
    for steps in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 4, 6, 8)):
        candidates = [step * 10.0**decade for decade in decades for step in steps]
        numbers = [number for number in candidates if low <= number <= high]
        if len(numbers) >= 3:
            break
    return numbers[:: math.ceil(len(numbers) / MAX_TICKS)] if numbers else [low, high]


def with_direction(label: str, direction: optuna.study.StudyDirection) -> str:
    """Return e.g. `auroc, higher is better`."""
    return f"{label}, {BETTER[direction.name.lower()]} is better"


PANEL = (6.0, 4.0)
"""Width and height of a figure in inches. The width of parallel coordinates depends on the number of parameters."""
TRIAL, BEST = "#0072B2", "#D55E00"
"""Colours of trials, and of the best of them."""
MARKER_AREA = 26
"""Area of a trial's marker, in square points."""
MANY_TRIALS = 100
"""Number of trials above which markers on a contour plot and lines are thinner."""
MAX_TICK_LABEL = 11
"""Maximum number of characters of a tick label that is not slanted."""


@contextlib.contextmanager
def drawing() -> Iterator[None]:
    """Context manager in which Optuna draws off screen, quietly. On exit, figures are closed and settings restored."""
    pyplot.switch_backend("agg")
    before = pyplot.get_fignums()
    try:
        with quiet(Warning), matplotlib.rc_context():
            yield
    finally:
        for number in set(pyplot.get_fignums()) - set(before):  # including figures whose drawing failed
            pyplot.close(number)


def png(figure: Figure, title: str, caption: str) -> bytes:
    """Return the figure as a PNG, with a title and a caption above it."""
    main, inches = figure.axes[0], figure.get_size_inches()
    lowest = 10.0 if main.get_legend() is None else 21.0
    title_size = max(8.5, 12.5 * min(1.0, 8.0 * inches[0] / max(len(title), 1)))
    for index, (text, size, weight) in enumerate(((caption, 10.0, "normal"), (title, title_size, "bold"))):
        above = (0.0, lowest + 17.0 * index)
        main.annotate(text, (0, 1), above, "axes fraction", "offset points", fontsize=size, weight=weight, color=INK)
    return style.png(figure)


def importance(study: optuna.Study, weights: Mapping[str, float], label: str) -> Figure:
    """Draw a bar for each parameter's importance, with the most important one on top."""
    axis: Any = optuna.visualization.matplotlib.plot_param_importances(study, _KnownImportance(weights), list(weights))
    figure = restyle(axis, (PANEL[0], 0.9 + 0.42 * len(weights)))
    axis.grid(visible=False, axis="y")
    for patch, text in zip(axis.patches, axis.texts, strict=True):
        patch.set(facecolor=TRIAL, height=0.62)
        share = 100 * patch.get_width()
        text.set(text=f" {share:.0f}%" if share >= 0.5 else " <1%", fontsize=9, color=INK)
        text.set_y(patch.get_y() + patch.get_height() / 2)
    axis.tick_params(axis="y", labelsize=10)
    axis.xaxis.set_major_locator(MaxNLocator(6, steps=(1, 2, 5, 10)))
    axis.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axis.set(xlabel=f"importance: share of the variance of {label.removesuffix(' (%)')}", ylabel="")
    axis.set_xlim(0, 1.12 * max(patch.get_width() for patch in axis.patches))
    return figure


def history(study: optuna.Study, label: str) -> Figure:
    """Draw each complete trial as a point, hollow if from a warm start, and the best value so far as steps."""
    axis = optuna.visualization.matplotlib.plot_optimization_history(study, target_name=label)
    figure = restyle(axis, PANEL)
    points, line = axis.collections[0], axis.get_lines()[0]
    warm = [bool(trial.user_attrs.get(WARM)) for trial in complete_trials(study)]
    points.set(facecolor=["white" if is_warm else TRIAL for is_warm in warm], edgecolor=TRIAL, sizes=[MARKER_AREA])
    points.set(linewidth=[1.2 if is_warm else 0.0 for is_warm in warm], zorder=3, label=None)
    axis.scatter([], [], s=MARKER_AREA, facecolor=TRIAL, linewidth=0.0, label="trial")
    line.set(color=BEST, alpha=1.0, linewidth=1.8, drawstyle="steps-post", label="best so far")
    if any(warm):
        axis.scatter([], [], s=MARKER_AREA, facecolor="white", edgecolor=TRIAL, linewidth=1.2, label="earlier trial")
    axis.set(xlabel="trial", ylabel=with_direction(label, study.direction))
    axis.xaxis.set_major_locator(MaxNLocator(8, integer=True, steps=(1, 2, 5, 10)))
    legend(axis)
    return figure


def parallel(study: optuna.Study, parameters: Sequence[str], label: str) -> Figure:
    """Draw parallel coordinates: an axis per parameter and a line per complete trial. Dark is better, and on top."""
    axis = optuna.visualization.matplotlib.plot_parallel_coordinate(study, list(parameters), target_name=label)
    main, side, *others = axis.figure.axes
    lines: Any = main.collections[0]
    names = [text.get_text() for text in main.get_xticklabels()]
    for other, key in zip(others, sorted(parameters), strict=True):
        if is_numeric(study, key):
            set_ticks(other.yaxis, _values(study, key))
    choices = [text.get_text() for other in others for text in other.get_yticklabels()]
    labels_width = max(0.9, 0.075 * max(map(len, choices), default=0) + 0.3)  # widths are in inches
    panel_width = len(parameters) * max(1.35, labels_width, 0.085 * max(map(len, names)) + 0.2)
    width = 0.7 + panel_width + labels_width + 0.6
    figure = restyle(main, (width, PANEL[1]))
    main.set_position((0.7 / width, 0.12, panel_width / width, 0.76))
    side.set_box_aspect(None)
    side.set_position(((0.7 + panel_width + labels_width) / width, 0.12, 0.16 / width, 0.76))
    main.grid(visible=False)
    main.spines["bottom"].set_visible(False)
    main.set_xticks(main.get_xticks(), names, rotation=0, fontsize=10)
    main.tick_params(axis="x", length=0, pad=9)
    values = np.asarray(lines.get_array())
    order = np.argsort(values if _is_maximized(study) else -values, kind="stable")
    segments = lines.get_segments()
    blues = matplotlib.colormaps["Blues"](np.linspace(*((0.25, 1.0) if _is_maximized(study) else (1.0, 0.25)), 256))
    lines.set(segments=[segments[index] for index in order], array=values[order], cmap=ListedColormap(blues))
    lines.set_linewidth(1.0 if len(order) <= MANY_TRIALS else 0.6)
    outlined: list[patheffects.AbstractPathEffect] = [patheffects.withStroke(linewidth=3.5, foreground="white")]
    for other in others:
        other.grid(visible=False)
        other.tick_params(axis="y", labelsize=8.5, length=3, color=MUTED, labelcolor=INK)
        for side_name, spine in other.spines.items():
            spine.set(visible=side_name == "right", color=MUTED)
        for text in other.get_yticklabels():
            text.set_path_effects(outlined)
    main.spines["left"].set(visible=True, color=MUTED)
    main.tick_params(axis="y", length=3, color=MUTED)
    style_colour_bar(side, with_direction(label, study.direction))
    return figure


def contour(study: optuna.Study, pair: tuple[str, str], label: str) -> Figure:
    """Draw the objective over two parameters, interpolated between the trials. Bright is better."""
    axis: Any = optuna.visualization.matplotlib.plot_contour(study, list(pair), target_name=label)
    figure = restyle(axis, PANEL)
    axis.grid(visible=False)
    for collection in axis.collections:
        if isinstance(collection, ContourSet):
            if collection.filled:
                collection.set_cmap("viridis" if _is_maximized(study) else "viridis_r")
            else:
                collection.set(linewidth=0.3, alpha=0.35)
        else:
            size = MARKER_AREA * (0.6 if len(collection.get_offsets()) <= MANY_TRIALS else 0.25)
            collection.set(sizes=[size], facecolor=INK, edgecolor="white", linewidth=0.5)
    for dimension, key in zip((axis.xaxis, axis.yaxis), sorted(pair), strict=True):
        set_ticks(dimension, _values(study, key))
    if max(len(text.get_text()) for text in axis.get_xticklabels()) > MAX_TICK_LABEL:
        for text in axis.get_xticklabels():
            text.set(rotation=20, rotation_mode="anchor", ha="right")
    style_colour_bar(figure.axes[1], with_direction(label, study.direction))
    return figure


def pareto(study: optuna.Study, labels: Sequence[str]) -> Figure:
    """Draw the two objectives of each complete trial, and the Pareto front."""
    axis = optuna.visualization.matplotlib.plot_pareto_front(study, target_names=list(labels))
    figure = restyle(axis, PANEL)
    *others, front = axis.collections
    for collection in others:
        collection.set(facecolor=TRIAL, sizes=[MARKER_AREA], alpha=0.55, linewidth=0, label="trial")
    front.set(facecolor=BEST, sizes=[1.3 * MARKER_AREA], linewidth=0, zorder=4, label="on the front")
    points = np.asarray(front.get_offsets())
    axis.plot(*points[np.lexsort(points.T[::-1])].T, color=BEST, linewidth=1.2, alpha=0.6, zorder=3)
    first, second = study.directions
    axis.set(xlabel=with_direction(labels[0], first), ylabel=with_direction(labels[1], second))
    legend(axis)
    return figure


class _KnownImportance(optuna.importance.BaseImportanceEvaluator):
    """An Optuna evaluator that returns importances computed earlier."""

    def __init__(self, weights: Mapping[str, float]) -> None:
        self.weights = weights

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        return dict(self.weights)


def _values(study: optuna.Study, key: str) -> list[Any]:
    return [trial.params[key] for trial in complete_trials(study) if key in trial.params]


def _is_maximized(study: optuna.Study) -> bool:
    return study.direction == optuna.study.StudyDirection.MAXIMIZE
