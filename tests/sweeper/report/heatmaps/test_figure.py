import io
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image

from sweeper.report.heatmap_figure import draw
from sweeper.report.heatmaps import pivot
from sweeper.report.style import DOTS, PAD, fitted_png
from sweeper.spec import Heatmap, Metric
from tests.sweeper.report.grid_cells import AXES

AUROC = Metric("auroc", "maximize")
HEATMAP = Heatmap(AUROC, *AXES)


def texts_of(figure: Figure) -> list[str]:
    """Return all texts but the numbers in cells, from top to bottom."""
    return [text.get_text() for text in sorted(figure.texts, key=lambda text: -text.get_position()[1])]


def boxes_of(figure: Figure) -> list[np.ndarray]:
    """Return the corners of the cells, in inches."""
    grid = next(item for item in figure.artists if isinstance(item, PolyCollection))
    return [np.asarray(path.vertices)[:4] for path in grid.get_paths()]


def test_axes_of_text_and_null_are_drawn(rows):
    rows["k"] = np.where(rows["class"] == 0, np.nan, 30.0)
    rows["terms"] = np.where(rows["nu"] == 3.0, "rad", "a name of many characters")
    figure = draw(pivot(rows, "auroc", ("k", "terms")), Heatmap(AUROC, "k", "terms"))
    assert {"30", "\N{EN DASH}", "a name of many characters", "rad", "k", "terms"} <= set(texts_of(figure))


def test_the_figure_says_what_it_shows(rows):
    best = [
        "best auroc: 0.815 ± 0.013 (mean ± standard deviation over 4 classes) at beta=1 nu=3; chosen on test images"
    ]
    about = "grid (digits), data set digits"
    figure = draw(pivot(rows, "auroc", AXES), HEATMAP, over="classes", about=about, best=best)
    assert texts_of(figure)[:4] == [
        "auroc: mean ± standard deviation over 4 classes",
        about,
        "best auroc: 0.815 ± 0.013 (mean ± standard deviation over 4 classes) at beta=1 nu=3;\nchosen on test images",
        "in a cell: standard deviation 0.013, standard error of its mean 0.0065 (medians)",
    ]
    assert {"0.5", "3", "∞", "0", "1", "nu", "beta", "auroc\n(higher is better)"} <= set(texts_of(figure))


def test_shares_are_shown_in_percent_where_the_metric_says_so(rows):
    figure = draw(pivot(rows, "auroc", AXES), Heatmap(Metric("auroc", "maximize", percent=True), *AXES))
    texts = texts_of(figure)
    assert "auroc (%): mean ± standard deviation over 4 trials" in texts and "auroc (%)\n(higher is better)" in texts
    assert {"60", "70", "80"} <= set(texts), "along the colours"


def test_a_label_stands_at_its_row_and_column(rows):
    figure = draw(pivot(rows, "auroc", AXES), HEATMAP)
    places = {text.get_text(): text.get_position() for text in figure.texts}
    first, last = boxes_of(figure)[0].mean(axis=0), boxes_of(figure)[-1].mean(axis=0)
    assert first[1] > last[1] and places["0"][1] == pytest.approx(boxes_of(figure)[0].mean(axis=0)[1])
    assert places["∞"][0] == pytest.approx(last[0]) and places["1"][1] == pytest.approx(last[1])


def test_a_frame_stands_around_the_cell_of_the_best_setting(rows):
    figure = draw(pivot(rows, "auroc", AXES), HEATMAP, framed=[0])
    frames: list[Any] = [item for item in figure.artists if isinstance(item, Rectangle)]
    low, high = boxes_of(figure)[0].min(axis=0), boxes_of(figure)[0].max(axis=0)
    assert len(frames) == 2 and all((low < frame.get_xy()).all() and (frame.get_xy() < high).all() for frame in frames)


def shades_of(figure: Figure) -> np.ndarray:
    grid: Any = next(item for item in figure.artists if isinstance(item, PolyCollection))
    return grid.get_facecolor()


@pytest.mark.parametrize("direction", ["maximize", "minimize"])
def test_bright_is_better_and_a_cell_without_a_value_is_grey(direction):
    cells = pivot(pd.DataFrame({"a": [1, 1, 2], "b": [1, 2, 1], "m": [0.0, 1.0, 0.5]}), "m", ("a", "b"))
    shades = shades_of(draw(cells, Heatmap(Metric("m", direction), "a", "b")))
    brightness = shades[:3, :3].sum(axis=1)
    assert (np.diff(brightness[[0, 2, 1]]) > 0).all() == (direction == "maximize")
    assert np.ptp(shades[3, :3]) < 0.02, "grey"


LONG = "a_metric_with_a_name_of_" + "many_" * 6 + "words"


@pytest.mark.parametrize(
    ("rows_at", "columns_at", "metric", "values"),
    [
        ([1], [1], "m", 0.5),
        ([1], [1], LONG, 0.5),
        (range(12), range(9), "m", 1e7),
        (["an Abyssinian cat", "dog"], ["American Staffordshire terrier", "a $x$", "pug", "cat"], "m", -1e-9),
        ([1, 2], [1, 2], LONG, math.nan),
    ],
)
def test_nothing_is_cut_off(rows_at, columns_at, metric, values):
    grid = pd.DataFrame([(a, b, values) for a in rows_at for b in columns_at], columns=["a_long_name", LONG, "value"])
    heatmap = Heatmap(Metric("value", "maximize"), "a_long_name", LONG, published={})
    figure = draw(pivot(grid, "value", heatmap.axes), heatmap, about=metric)
    picture = np.asarray(Image.open(io.BytesIO(fitted_png(figure))).convert("L"))
    margin = int(0.6 * PAD * DOTS)
    inner = picture[margin:-margin, margin:-margin]
    assert (picture < 250).sum() == (inner < 250).sum(), "the margin is white"
    assert (inner < 250).any()


@pytest.mark.parametrize("value", [math.nan, math.inf, 5.0, None])
def test_a_grid_without_spread_still_draws(value):
    cells = pivot(pd.DataFrame({"a": [1, 2], "b": [1, 1], "m": pd.array([value] * 2, "Float64")}), "m", ("a", "b"))
    assert fitted_png(draw(cells, Heatmap(Metric("m", "maximize"), "a", "b"))).startswith(b"\x89PNG")
