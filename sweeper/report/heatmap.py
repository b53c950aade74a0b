"""The cells of two axes (`sweeper.report.heatmap_cells`) as Parquet and as a figure."""

import io
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from sweeper.report.colour_scale import STANDARD_ERRORS, ColourScale, colour_scale
from sweeper.report.heatmap_cells import Direction, best, pivot
from sweeper.storage.io.files import Files

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Published = Mapping[tuple[Any, Any], float]
"""(value on the rows, value on the columns) -> the figure that a paper prints for that cell."""

CELL = (1.02, 0.74)
"""Inches, width by height."""
INK, MUTED, EMPTY = "#1b1b1f", "#6b6f76", "#e4e5e8"
MINUS, NOTHING = "\N{MINUS SIGN}", "\N{EN DASH}"


def write(
    files: Files,
    views: str,
    rows: pd.DataFrame,
    metric: str,
    direction: Direction,
    axes: tuple[str, str],
    *,
    over: str = "trials",
    published: Published | None = None,
    percent: bool = False,
    about: str = "",
) -> pd.DataFrame:
    """Write `heatmaps/VIEWS/METRIC.parquet` and `.png`; returns the cells. `over` names what the mean is over.

    `percent`: the picture shows shares in percent, and `published` is in percent; the cells stay shares. `about` is a
    line of the picture that says of what it is.
    """
    cells = pivot(rows, metric, axes)
    if published:
        paper = [published.get((row, column)) for row, column in zip(cells[axes[0]], cells[axes[1]], strict=True)]
        cells["published"] = pd.array(paper, dtype="float64") / (100.0 if percent else 1.0)
    table, picture = io.BytesIO(), io.BytesIO()
    cells.to_parquet(table, index=False)
    figure = draw(cells, metric, direction, axes, over=over, percent=percent, about=about)
    figure.savefig(picture, format="png", dpi=_dots(figure), bbox_inches="tight", pad_inches=0.3)
    files.write(f"heatmaps/{views}/{metric}.parquet", table.getvalue())
    files.write(f"heatmaps/{views}/{metric}.png", picture.getvalue())
    return cells


def draw(
    cells: pd.DataFrame,
    metric: str,
    direction: Direction,
    axes: tuple[str, str],
    *,
    over: str = "trials",
    percent: bool = False,
    about: str = "",
) -> "Figure":
    """The cells as a table in colour: bright is better, the best one framed, a cell without a value grey.

    Colours span no less than the noise of the cells (`colour_scale`), and a line says what that is.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    if percent:
        metric = f"{metric} (%)"
        cells = cells.assign(**{name: 100 * cells[name] for name in ("mean", "std", "published") if name in cells})
    rows, columns = (list(dict.fromkeys(map(_hashable, cells[axis]))) for axis in axes)
    means = cells["mean"].to_numpy("float64").reshape(len(rows), len(columns))
    tall = 0.2 if "published" in cells and cells["published"].notna().any() else 0.0
    grid = np.array([len(columns) * CELL[0], len(rows) * (CELL[1] + tall)])
    left, bottom = 1.0, 0.8
    width, height = grid[0] + left + 1.2, grid[1] + bottom + 1.5
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    axis = figure.add_axes((left / width, bottom / height, grid[0] / width, grid[1] / height))
    bar = figure.add_axes(((left + grid[0] + 0.25) / width, bottom / height, 0.16 / width, grid[1] / height))

    scale = colour_scale(cells, (0.0, 100.0) if percent else None)
    colours = "viridis" if direction == "maximize" else "viridis_r"
    image = axis.imshow(np.ma.masked_invalid(means), cmap=colours, vmin=scale.low, vmax=scale.high, aspect="auto")
    axis.set_facecolor(EMPTY)
    _frame(axis, rows, columns, axes)
    figure.colorbar(image, cax=bar)
    finite = means[np.isfinite(means)]
    _label_bar(bar, metric, direction, visible=bool(finite.size))

    digits = _digits(finite)
    for index, cell in enumerate(cells.to_dict("records")):
        row, column = divmod(index, len(columns))
        shade = image.cmap(image.norm(means[row, column])) if np.isfinite(means[row, column]) else None
        ink = MUTED if shade is None else INK if _luminance(np.asarray(shade)) > 0.21 else "white"
        _annotate(axis, column, row, cell, digits, ink, grid[1] / len(rows))
    champion = best(cells, direction)
    if champion is not None:
        _mark(axis, *reversed(divmod(champion["position"], len(columns))))
    _title(figure, axis, [_heading(cells, metric, over), about, _best(champion, axes, digits), _spread(scale, cells)])
    return figure


def _label_bar(bar: "Axes", metric: str, direction: Direction, visible: bool) -> None:
    better = "higher is better" if direction == "maximize" else "lower is better"
    bar.set_ylabel(f"{metric}\n({better})", color=INK, fontsize=9, linespacing=1.3, labelpad=7)
    bar.set_visible(visible)
    bar.tick_params(labelsize=8, length=2, color=MUTED, labelcolor=INK)
    bar.spines["outline"].set_visible(False)


def _frame(axis: "Axes", rows: list[object], columns: list[object], names: tuple[str, str]) -> None:
    axis.set_yticks(range(len(rows)), [label(value) for value in rows])
    axis.set_xticks(range(len(columns)), [label(value) for value in columns])
    longest = max((len(label(value)) for value in columns), default=0)
    if longest > 11:
        for tick in axis.get_xticklabels():
            tick.set(rotation=25, rotation_mode="anchor", ha="right")
    axis.set_ylabel(names[0], fontsize=11, color=INK)
    axis.set_xlabel(names[1], fontsize=11, color=INK)
    axis.tick_params(length=0, labelsize=10, labelcolor=INK)
    for spine in axis.spines.values():
        spine.set_visible(False)
    axis.set_xticks(np.arange(1, len(columns)) - 0.5, minor=True)
    axis.set_yticks(np.arange(1, len(rows)) - 0.5, minor=True)
    axis.grid(which="minor", color="white", linewidth=2)
    axis.tick_params(which="minor", length=0)


def _annotate(axis: "Axes", x: int, y: int, cell: dict, digits: int, ink: str, inches: float) -> None:
    """The mean, its deviation beneath, and what the paper has beneath that; a cell is so many inches high."""
    mean, std, paper = cell["mean"], cell["std"], cell.get("published", math.nan)
    lines = [(NOTHING if pd.isna(mean) else number(mean, digits), 11.5, "bold")]
    if not pd.isna(std):
        lines.append((f"± {number(std, digits)}", 8.0, "normal"))
    if not pd.isna(paper):
        lines.append((f"paper {number(paper, digits)}", 8.0, "normal"))
    heights = [size / 72 * 1.3 for _, size, _ in lines]
    top = -sum(heights) / 2
    for (text, size, weight), height in zip(lines, heights, strict=True):
        style = "italic" if text.startswith("paper") else "normal"
        place = y + (top + height / 2) / inches
        axis.text(x, place, text, ha="center", va="center", fontsize=size, weight=weight, style=style, color=ink)
        top += height


def _mark(axis: "Axes", x: int, y: int) -> None:
    """A frame that shows on dark and on bright cells alike."""
    from matplotlib.patches import Rectangle

    for colour, width, inset in (("white", 5.0, 0.05), ("#d6283c", 2.6, 0.05)):
        box = (x - 0.5 + inset / 2, y - 0.5 + inset / 2)
        axis.add_patch(Rectangle(box, 1 - inset, 1 - inset, fill=False, edgecolor=colour, linewidth=width, zorder=5))


def _title(figure: "Figure", axis: "Axes", lines: Sequence[str]) -> None:
    """Lines above the grid: what is shown, of what, the best cell, and the spread within a cell."""
    box, height = axis.get_position(), figure.get_size_inches()[1]
    styles = ((12.5, "bold", INK), (10.5, "normal", INK), (10.5, "normal", INK), (9.0, "normal", MUTED))
    above = 0.12
    for text, (size, weight, ink) in reversed(list(zip(lines, styles, strict=True))):
        if text:
            place = box.y1 + above / height
            figure.text(box.x0, place, text, fontsize=size, weight=weight, color=ink, va="bottom", linespacing=1.3)
            above += (1.6 + 1.3 * text.count("\n")) * size / 72


def _heading(cells: pd.DataFrame, metric: str, over: str) -> str:
    counts = cells["count"][cells["count"] > 0]
    if counts.empty or counts.max() == 1:
        return metric
    return f"{metric}, mean of {'up to ' if counts.min() < counts.max() else ''}{counts.max()} {over}"


def _best(champion: dict[str, Any] | None, axes: tuple[str, str], digits: int) -> str:
    if champion is None:
        return "no value yet"
    spread = "" if pd.isna(champion["std"]) else f" ± {number(champion['std'], digits)}"
    cell = ", ".join(f"{name}={label(champion[name])}" for name in axes)
    return f"best {number(champion['mean'], digits)}{spread} at {cell}"


def _spread(scale: ColourScale, cells: pd.DataFrame) -> str:
    """What the values within a cell differ by, and whether the colours were widened for it."""
    if math.isnan(scale.std):
        return "" if cells["mean"].isna().all() else "one trial a cell, so what differences are noise is not known"
    said = f"in a cell: standard deviation {scale.std:.2g}, standard error of its mean {scale.error:.2g} (medians)"
    return (
        f"{said}\ncolours span {STANDARD_ERRORS:g} standard errors, as the cells differ by less"
        if scale.widened
        else said
    )


def label(value: object) -> str:
    """An axis value as it is read: 1.0, 0.25, ∞, cat; a dash for null."""
    if value is None or value is pd.NA or value is pd.NaT or (isinstance(value, float) and math.isnan(value)):
        return NOTHING
    if isinstance(value, float | np.floating):
        text = ("∞" if math.isinf(value) else repr(float(value))).replace("e-0", "e-")
        return f"{MINUS}∞" if value == -math.inf else text.replace("-", MINUS) if value < 0 else text
    return str(value)


def number(value: float, digits: int) -> str:
    """A value of the metric with this many decimals; scientific where that shows nothing of it."""
    if math.isinf(value):
        return "∞" if value > 0 else f"{MINUS}∞"
    text = f"{value:.{digits}f}" if value == 0 or abs(value) >= 0.5 * 10**-digits else f"{value:.0e}"
    return text.replace("-", MINUS) if value < 0 else text


def _dots(figure: "Figure") -> float:
    """Dots an inch: sharp, and few enough that Agg (65,536 pixels) draws any grid."""
    return float(min(160.0, 16000 / max(figure.get_size_inches())))


def _digits(values: np.ndarray) -> int:
    """Decimals that show three or four figures of the largest."""
    largest = float(np.abs(values).max()) if values.size else 1.0
    return 3 if largest == 0 else int(np.clip(3 - math.floor(math.log10(largest)) - (largest < 1), 0, 6))


def _luminance(shade: np.ndarray) -> float:
    """Relative luminance of an sRGB colour, from 0 to 1 (WCAG 2)."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in shade[:3]]
    return float(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])


def _hashable(value: object) -> object:
    """NaN is not equal to itself, so that each would be an axis value of its own."""
    return None if pd.isna(value) else value
