"""A figure of paired differences: a strip for each metric with a point for each pair, their mean and its interval."""

import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from sweeper.report.comparison.differences import probability, signed
from sweeper.report.comparison.pairs import Pairs
from sweeper.report.style import INK, MUTED, PALE
from sweeper.spec.metric import BETTER

BETTER_COLOUR, WORSE_COLOUR, NEUTRAL_COLOUR = "#0072B2", "#D55E00", "#6b6f76"
"""Colours of pairs in which B is better or worse (Okabe and Ito's blue and vermilion), or where no value is better."""
WIDTH, LEFT, RIGHT = 5.2, 2.3, 2.3
"""Width of the strips, and of the texts on their left and right, in inches."""
STRIP, GAP, TOP, BOTTOM = 0.46, 0.36, 1.2, 0.3
"""Height of a strip, the space below it for its ticks, and the margins, in inches."""
POINTS, MEAN = (-0.02, 0.42), -0.26
"""Vertical range of the points of a strip, which are spread to be told apart, and height of their mean below them."""
LONGEST_LABEL = 100
"""Most characters of a side's name, which stands beside the legend."""
MOST_METRICS = 24
"""Most metrics that the figure shows; the table has all."""


def draw(pairs: Pairs, table: pd.DataFrame, labels: tuple[str, str]) -> Figure:
    """Draw the differences of `differences(pairs)`. `labels` are the names of the sides A and B.

    Each strip has its own scale, which is symmetric about zero.
    """
    shown = table.head(MOST_METRICS)
    height = TOP + len(shown) * (STRIP + GAP) + BOTTOM
    width = LEFT + WIDTH + RIGHT
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    for index, row in enumerate(shown.to_dict("records")):
        bottom = height - TOP - (index + 1) * (STRIP + GAP) + GAP
        axis = figure.add_axes((LEFT / width, bottom / height, WIDTH / width, STRIP / height))
        difference = (pairs.second[row["metric"]] - pairs.first[row["metric"]]).to_numpy()
        _draw_strip(axis, difference[np.isfinite(difference)], row)
    _draw_title(figure, shown, len(table), labels, height)
    return figure


def _draw_strip(axis: Axes, difference: np.ndarray, row: dict[Any, Any]) -> None:
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
    axis.spines["bottom"].set_color(PALE)
    axis.tick_params(length=0, labelsize=8, labelcolor=MUTED, pad=2)
    axis.set_yticks([])
    axis.axvline(0, color=MUTED, linewidth=1.0, zorder=1)
    spread = np.random.default_rng(0).uniform(*POINTS, len(difference))
    sign = {"maximize": 1, "minimize": -1}.get(row["direction"], 0)
    for gained, colour in ((1, BETTER_COLOUR), (-1, WORSE_COLOUR), (0, NEUTRAL_COLOUR)):
        points = np.sign(sign * difference) == gained
        axis.scatter(difference[points], spread[points], s=20, color=colour, alpha=0.55, linewidths=0, zorder=2)
    if math.isfinite(row["low"]):
        axis.hlines(MEAN, row["low"], row["high"], color=INK, linewidth=1.6, zorder=3)
        axis.vlines((row["low"], row["high"]), MEAN - 0.1, MEAN + 0.1, color=INK, linewidth=1.6, zorder=3)
    axis.plot([row["difference"]], [MEAN], marker="D", markersize=4.5, color=INK, markeredgewidth=0, zorder=4)
    ends = [abs(value) for value in (*difference, row["low"], row["high"]) if math.isfinite(value)]
    limit = 1.08 * max(ends) or 1.0
    axis.set_xlim(-limit, limit)
    axis.set_ylim(-0.5, 0.5)
    axis.xaxis.set_major_locator(MaxNLocator(5, symmetric=True, steps=(1, 2, 5, 10)))
    better = f"{BETTER[row['direction']]} is better" if row["direction"] else ""
    beside: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "va": "center"}
    axis.annotate(row["metric"], (0, 0.66), (-10, 0), ha="right", fontsize=10, color=INK, weight="bold", **beside)
    axis.annotate(better, (0, 0.2), (-10, 0), ha="right", fontsize=8, color=MUTED, **beside)
    summary = f"n = {row['n']}" + (f", p = {probability(row['p'])}".replace("= <", "< ") if row["n"] > 1 else "")
    mean = signed(row["difference"], row["error"])
    axis.annotate(mean, (1, 0.66), (12, 0), ha="left", fontsize=9.5, color=INK, **beside)
    axis.annotate(summary, (1, 0.2), (12, 0), ha="left", fontsize=8, color=MUTED, **beside)


def _shortened(label: str) -> str:
    middle = LONGEST_LABEL // 2
    return label if len(label) <= LONGEST_LABEL else f"{label[:middle]}\N{HORIZONTAL ELLIPSIS}{label[-middle:]}"


def _draw_title(figure: Figure, shown: pd.DataFrame, count: int, labels: tuple[str, str], height: float) -> None:
    left = 0.15 / (LEFT + WIDTH + RIGHT)
    lines = [
        ("Paired differences, B \N{MINUS SIGN} A", 12.5, INK, "bold"),
        *((f"{letter}: {_shortened(label)}", 9.5, INK, "normal") for letter, label in zip("AB", labels, strict=True)),
    ]
    note = "a point is a pair; diamond and bar: mean and its 95 % interval; ± standard error; p: Wilcoxon signed-rank"
    more = f"; {count - len(shown)} more metrics in the table" if len(shown) < count else ""
    lines.append((f"{note}{more}", 8, MUTED, "normal"))
    for index, (text, size, colour, weight) in enumerate(lines):
        above = height - 0.12 - 0.24 * index
        figure.text(left, above / height, text, fontsize=size, color=colour, weight=weight, va="top")
    right = 1 - 0.15 / (LEFT + WIDTH + RIGHT)
    top = (height - 0.12) / height
    for index, (text, colour) in enumerate((("B better", BETTER_COLOUR), ("B worse", WORSE_COLOUR))):
        y = top - 0.24 * index / height
        figure.text(right, y, f"\N{BLACK CIRCLE} {text}", fontsize=9, color=colour, ha="right", va="top")
