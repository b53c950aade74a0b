"""Restyles axes that Optuna drew: frame, legend, colour bar and ticks as in the other figures of a sweep."""

import math
from collections.abc import Sequence
from typing import Any

import optuna
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

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
