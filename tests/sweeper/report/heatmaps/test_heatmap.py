import math
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from sweeper.report.heatmaps.heatmap import draw, write
from sweeper.report.heatmaps.heatmap_cells import pivot
from sweeper.spec import Heatmap, Metric
from sweeper.storage.io.files import Files
from tests.sweeper.report.grid_cells import AXES, cell

AUROC = Metric("auroc", "maximize")
HEATMAP = Heatmap(AUROC, *AXES)


def test_axes_of_text_and_null_are_drawn(rows):
    rows["k"] = np.where(rows["class"] == 0, np.nan, 30.0)
    rows["terms"] = np.where(rows["nu"] == 3.0, "rad", "a name of many characters")
    axis = draw(pivot(rows, "auroc", ("k", "terms")), Heatmap(AUROC, "k", "terms")).axes[0]
    assert [tick.get_text() for tick in axis.get_yticklabels()] == ["30", "\N{EN DASH}"]
    assert [tick.get_text() for tick in axis.get_xticklabels()] == ["a name of many characters", "rad"]


def lines_above(figure: Figure) -> list[str]:
    """Return the lines of text above the heatmap, from top to bottom."""
    return [text.get_text() for text in sorted(figure.texts, key=lambda text: -text.get_position()[1])]


def test_shares_are_shown_in_percent_where_the_metric_says_so(tmp_path, rows):
    published = {"paper": {(1.0, 3.0): 90.3}}
    share = Heatmap(Metric("auroc", "maximize", percent=True), *AXES, published=published)
    figure = draw(pivot(rows, "auroc", AXES), share)
    assert {"81.50", "± 1.29"} <= {text.get_text() for text in figure.axes[0].texts}
    assert figure.axes[1].get_ylabel().startswith("auroc (%)") and "best 81.50 ± 1.29 at" in lines_above(figure)[1]
    low, high = figure.axes[0].images[0].get_clim()
    assert 50 < low < 53 and 81 < high < 83
    cells = write(Files(tmp_path), "g", rows, share, "paper")
    assert cell(cells, 1.0, 3.0)[["mean", "published"]].tolist() == pytest.approx([0.815, 0.903]), "as shares"


def test_lines_above_the_grid_do_not_overlap(rows):
    rows["auroc"] = 0.9 + 0.01 * rows["class"]
    figure = draw(pivot(rows, "auroc", AXES), HEATMAP, about="grid (digits)")
    figure.canvas.draw()
    boxes = [text.get_window_extent() for text in sorted(figure.texts, key=lambda text: -text.get_position()[1])]
    assert len(boxes) == 4 and all(below.y1 <= above.y0 for above, below in pairwise(boxes))
    assert boxes[-1].y0 >= figure.axes[0].get_window_extent().y1 and boxes[0].y1 <= figure.bbox.y1


def test_one_trial_a_cell_says_that_noise_is_not_known(rows):
    figure = draw(pivot(rows[rows["class"] == 0], "auroc", AXES), HEATMAP)
    assert lines_above(figure)[-1] == "one trial a cell, so what differences are noise is not known"


def test_the_figure_says_what_it_shows(rows):
    cells = pivot(rows[~((rows["beta"] == 0) & (rows["nu"] == 0.5))], "auroc", AXES)
    cells["published"] = [0.903 if (b, n) == (1.0, 3.0) else np.nan for b, n in zip(cells.beta, cells.nu, strict=True)]
    figure = draw(cells, HEATMAP, over="classes", about="grid (digits), data set digits")
    grid = figure.axes[0]
    texts = [text.get_text() for text in grid.texts]
    assert {"0.815", "± 0.013", "paper 0.903", "\N{EN DASH}"} <= set(texts)
    assert lines_above(figure) == [
        "auroc, mean of 4 classes",
        "grid (digits), data set digits",
        "best 0.815 ± 0.013 at beta=1, nu=3",
        "in a cell: standard deviation 0.013, standard error of its mean 0.0065 (medians)",
    ]
    assert [t.get_text() for t in grid.get_xticklabels()] == ["0.5", "3", "∞"]
    assert (grid.get_xlabel(), grid.get_ylabel()) == ("nu", "beta") and len(grid.patches) == 2


def test_the_framed_cell_is_the_one_chosen_on_validation_images(tmp_path, rows):
    rows["val_auroc"] = np.where((rows["beta"] == 0) & (rows["nu"] == 0.5), 0.9, 0.6)
    cells = write(Files(tmp_path), "g", rows, HEATMAP, "paper")
    assert cell(cells, 0.0, 0.5)["validation"] == pytest.approx(0.9)
    assert cell(cells, 1.0, 3.0)["mean"] == cells["mean"].max()
    figure = draw(cells, HEATMAP)
    assert lines_above(figure)[1] == "chosen on validation images: 0.515 ± 0.013 at beta=0, nu=0.5"
    frames: list[Any] = list(figure.axes[0].patches)
    assert {frame.get_xy() for frame in frames} == {(-0.475, -0.475)}, "the first column and row"


def test_colours_end_where_shares_end(rows):
    rows["auroc_joint"] = 0.95 + 0.01 * rows["class"]
    shares = Heatmap(Metric("auroc_joint", "maximize"), *AXES)
    assert draw(pivot(rows, "auroc_joint", AXES), shares).axes[0].images[0].get_clim()[1] == 1.0


@pytest.mark.parametrize("shape", [(1, 1), (1, 6), (5, 1), (9, 12)])
def test_written_files_are_a_table_and_a_picture(tmp_path, shape):
    rows = pd.DataFrame([(b, n, b * n / 7) for b in range(shape[0]) for n in range(shape[1])], columns=["b", "n", "m"])
    heatmap = Heatmap(Metric("m", "minimize"), "b", "n", published={"paper": {(0, 0): 1.0}})
    cells = write(Files(tmp_path), "grid", rows, heatmap, "paper")
    table = pd.read_parquet(tmp_path / "heatmaps" / "grid" / "m.parquet")
    pd.testing.assert_frame_equal(table, cells)
    assert table["published"].notna().sum() == 1
    assert (tmp_path / "heatmaps" / "grid" / "m.png").read_bytes().startswith(b"\x89PNG")


def test_a_preset_without_published_figures_has_no_column_of_them(tmp_path, rows):
    heatmap = Heatmap(AUROC, *AXES, published={"paper": {(1.0, 3.0): 0.9}})
    assert "published" not in write(Files(tmp_path), "grid", rows, heatmap, "digits")


@pytest.mark.parametrize("value", [math.nan, math.inf, 5.0, None])
def test_a_grid_without_spread_still_draws(value):
    cells = pivot(pd.DataFrame({"a": [1, 2], "b": [1, 1], "m": pd.array([value] * 2, "Float64")}), "m", ("a", "b"))
    draw(cells, Heatmap(Metric("m", "maximize"), "a", "b")).canvas.draw()
