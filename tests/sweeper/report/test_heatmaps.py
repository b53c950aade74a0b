import math

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from scipy import stats

from sweeper.definition import Grid, Heatmap, Metric, Sweep
from sweeper.definition.sweep import Repeats
from sweeper.report import charts
from sweeper.report.figures import Shown, figures_of
from sweeper.report.heatmaps import (
    STANDARD_ERRORS,
    cell_texts,
    colour_scale,
    decimals_of,
    marks,
    noise_text,
    pivot,
    values_of,
    write,
)
from sweeper.results.best import best_settings
from sweeper.results.replicates import MEASURED
from sweeper.results.sentences import Over
from sweeper.storage.files import Files
from tests.cases import for_each

AXES, CLASSES = ("beta", "nu"), Repeats(("class",), ())


def cell(cells: pd.DataFrame, beta: float, nu: float) -> pd.Series:
    return cells[(cells["beta"] == beta) & (cells["nu"] == nu)].iloc[0]


AUROC = Metric("auroc", "maximize")
HEATMAP = Heatmap(AUROC, *AXES)


def written(folder, rows, heatmap, preset="paper", **options):
    """The cells of a heatmap in the store's folder `g`."""
    sweep = Sweep(about="", presets={preset: Grid({}, {})}, figures=(heatmap,))
    shown = Shown(figures_of(sweep, preset), rows, pd.DataFrame, (), **options)
    return write(Files(folder), "g", shown, heatmap, rows)


def test_pivot_is_mean_and_interval_over_the_replicates(rows):
    cells = pivot(rows, "auroc", AXES, CLASSES)
    selected = cell(cells, 1.0, 3.0)
    values = rows[(rows["beta"] == 1.0) & (rows["nu"] == 3.0)]["auroc"]
    low, high = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert selected[["mean", "low", "high"]].tolist() == pytest.approx([0.815, low, high])
    assert cells.columns.tolist() == ["beta", "nu", *MEASURED]
    assert len(cells) == 6 and cells["nu"].tolist() == [0.5, 3.0, math.inf] * 2 and (cells["count"] == 4).all()


def test_missing_is_counted_and_not_averaged(rows):
    rows.loc[(rows["beta"] == 0) & (rows["nu"] == 3) & (rows["class"] > 0), "auroc"] = np.nan
    rows = rows[~((rows["beta"] == 1) & (rows["nu"] == 0.5))]
    cells = pivot(rows, "auroc", AXES, CLASSES)
    partial_cell = cell(cells, 0.0, 3.0)
    assert (
        (partial_cell["count"], partial_cell["missing"]) == (1, 3)
        and partial_cell["mean"] == pytest.approx(0.7)
        and math.isnan(partial_cell["std"])
    )
    empty_cell = cell(cells, 1.0, 0.5)
    assert (empty_cell["count"], empty_cell["missing"]) == (0, 0) and math.isnan(empty_cell["mean"])


@pytest.mark.parametrize(("direction", "place"), [("maximize", (1.0, 3.0)), ("minimize", (0.0, 0.5))])
def test_the_cell_of_the_best_setting_follows_the_direction_and_skips_values_that_are_not_finite(
    rows, direction, place
):
    rows.loc[(rows["beta"] == 0) & (rows["nu"] == math.inf), "auroc"] = math.inf
    rows["trial_id"] = [f"t{index}" for index in range(len(rows))]
    rows["score"] = rows["auroc"]
    metric = Metric("score", direction)
    best = best_settings(rows.to_dict("records"), metric, (*AXES, "class"), repeats=CLASSES)
    cells = pivot(rows, "score", AXES)
    (position,) = [index for index, mark in enumerate(marks(cells, rows, AXES, best)) if mark == "*"]
    assert (cells["beta"][position], cells["nu"][position]) == place
    nothing = rows.assign(score=np.nan).to_dict("records")
    assert best_settings(nothing, metric, AXES) == [] and marks(cells, rows, AXES, []) == [""] * len(cells)


def test_an_axis_may_be_text_null_or_in_an_order_of_its_own(rows):
    rows["terms"] = pd.Categorical(["rad", "dir", "kl", "dir"] * 6, categories=["rad", "kl", "dir"], ordered=True)
    rows["k"] = np.where(rows["class"] == 0, np.nan, 30.0)
    cells = pivot(rows, "auroc", ("terms", "k"))
    assert list(dict.fromkeys(cells["terms"])) == ["rad", "kl", "dir"] and cells["count"].sum() == len(rows)


def test_an_unknown_column_is_named(rows):
    with pytest.raises(ValueError, match="no column 'eta' in the rows; there are: beta"):
        pivot(rows, "auroc", ("beta", "eta"))


def cells_of(means: list[float], std: float = 0.01, count: int = 4) -> pd.DataFrame:
    return pd.DataFrame({"mean": means, "std": std, "replicates": count})


@pytest.mark.parametrize("count", [3, 10])
def test_cells_that_differ_by_noise_alone_have_less_than_half_of_the_colours(count: int) -> None:
    draws = np.random.default_rng(0).normal(0.9, 0.02, (56, count))
    noise = pd.DataFrame({"mean": draws.mean(1), "std": draws.std(1, ddof=1), "replicates": count})
    scale = colour_scale(noise)
    assert scale.widened and np.ptp(noise["mean"]) < 0.4 * (scale.high - scale.low)
    assert (scale.low + scale.high) / 2 == pytest.approx((noise["mean"].max() + noise["mean"].min()) / 2)


def test_cells_that_differ_by_more_have_all_of_the_colours() -> None:
    scale = colour_scale(cells_of([0.1, 0.5, 0.9]))
    assert not scale.widened and 0.05 < scale.low < 0.1 and 0.9 < scale.high < 0.95
    assert (scale.std, scale.error) == pytest.approx((0.01, 0.005))


def test_the_range_is_moved_into_the_bounds_of_the_metric() -> None:
    near_the_top = colour_scale(cells_of([0.99, 0.995]), (0.0, 1.0))
    assert (near_the_top.low, near_the_top.high) == pytest.approx((1 - STANDARD_ERRORS * 0.005, 1.0))
    near_the_bottom = colour_scale(cells_of([0.01, 0.02]), (0.0, 1.0))
    assert (near_the_bottom.low, near_the_bottom.high) == pytest.approx((0.0, STANDARD_ERRORS * 0.005))
    both = colour_scale(cells_of([0.4, 0.6], std=2.0), (0.0, 1.0))
    assert (both.low, both.high) == (0.0, 1.0)


@pytest.mark.parametrize("means", [[0.5, 0.6], [0.5], [np.nan, np.nan], [0.5, np.inf]])
def test_a_single_trial_a_cell_says_nothing_of_noise(means: list[float]) -> None:
    scale = colour_scale(cells_of(means, std=np.nan, count=1))
    assert not scale.widened and np.isnan([scale.std, scale.error]).all() and scale.low < scale.high < np.inf


def test_a_cell_has_the_mean_its_spread_the_interquartile_mean_and_the_papers_figure():
    cell = {"mean": 0.815, "std": 0.0129, "low": 0.793, "high": 0.836, "iqm": 0.817, "published": 0.903}
    cell["fixed_std"] = 0.0334
    assert cell_texts(cell, 3) == ["0.815", "[0.793, 0.836]", "IQM 0.817", "paper 0.903"]
    assert cell_texts(cell, 3, "deviation")[1] == "± 0.013"
    assert cell_texts({**cell, "low": math.nan}, 3)[1] == "± 0.033", "over fixed values"
    assert cell_texts(dict.fromkeys(cell, math.nan), 3) == ["\N{EN DASH}"]
    large = {"mean": 123456789.0, "low": 121456789.0, "high": 125456789.0, "iqm": math.nan}
    assert cell_texts(large, 0) == ["1.23e+08", "[1.21e+08, 1.25e+08]"]


@for_each(
    ("values", "decimals"), [([0.5, 0.98], 3), ([81.5, math.inf], 2), ([5.0], 3), ([123456.0], 0), ([1e-9], 6), ([], 3)]
)
def test_decimals_show_the_largest_value_to_three_or_four_figures(values, decimals):
    assert decimals_of(np.array(values)) == decimals


def test_one_trial_a_cell_says_that_noise_is_not_known(rows: pd.DataFrame):
    cells = pivot(rows[rows["class"] == 0], "auroc", AXES)
    assert noise_text(colour_scale(cells), cells) == "one replicate a cell, so what differences are noise is not known"


def test_the_figure_says_what_it_shows(rows):
    best = [
        "best auroc: 0.815 [0.793, 0.836] (mean [95 % interval] over 4 classes) at beta=1 nu=3; chosen on test images"
    ]
    about = "grid (digits), data set digits"
    shown = values_of(pivot(rows, "auroc", AXES, CLASSES), HEATMAP, over=Over("classes"), about=about, best=best)
    assert shown["title"]["text"] == "auroc: mean [95 % interval] over 4 classes"
    assert shown["title"]["subtitle"] == [
        about,
        "best auroc: 0.815 [0.793, 0.836] (mean [95 % interval] over 4 classes) at beta=1 nu=3; chosen on",
        "test images",
        "in a cell: standard deviation 0.013, standard error of its mean 0.0065 (medians)",
    ]
    assert (shown["rows"], shown["columns"]) == AXES and shown["legend"] == ["auroc", "higher is better"]
    assert (shown["row_order"], shown["column_order"]) == (["0", "1"], ["0.5", "3", "∞"])


def test_cells_have_their_numbers_places_and_frames(rows):
    cells = pivot(rows, "auroc", AXES, CLASSES)
    shown = values_of(cells.assign(mark=["°", "*", "", "", "", ""]), HEATMAP)["cells"]
    assert [cell["shade"] for cell in shown] == cells["mean"].tolist()
    assert [(cell["y"], cell["x"]) for cell in shown[:4]] == [("0", "0.5"), ("0", "3"), ("0", "∞"), ("1", "0.5")]
    assert (shown[0]["text"], shown[1]["text"]) == ("0.515°", "0.715") and shown[1]["below"] == ["[0.694, 0.736]"]
    assert [cell["best"] for cell in shown] == [False, True, False, False, False, False]


def test_shares_are_shown_in_percent_where_the_metric_says_so(rows):
    share = Heatmap(Metric("auroc", "maximize", percent=True), *AXES)
    shown = values_of(pivot(rows, "auroc", AXES, CLASSES), share, spread="deviation")
    assert shown["title"]["text"] == "auroc (%): mean ± standard deviation over 4 replicates"
    assert shown["cells"][1]["below"] == ["± 1.29"]
    assert shown["cells"][1]["text"] == "71.50" and 50 < shown["range"][0] < shown["range"][1] < 90


def test_values_of_an_axis_have_texts_of_their_own(rows):
    rows["k"] = np.where(rows["class"] == 0, np.nan, 30.0)
    cells = pivot(rows, "auroc", ("k", "nu"))
    assert values_of(cells, Heatmap(AUROC, "k", "nu"))["row_order"] == ["30", "\N{EN DASH}"]
    same = values_of(cells, Heatmap(AUROC, "k", "nu"), value_text=lambda name, value: "cat")
    assert same["column_order"] == ["0.5", "3", "∞"], "two classes may have one name"


def test_the_colours_of_a_metric_whose_lower_values_are_better_are_reversed():
    cells = pivot(pd.DataFrame({"a": [1, 1, 2], "b": [1, 2, 1], "m": [0.0, 1.0, 0.5]}), "m", ("a", "b"))
    for direction in ("maximize", "minimize"):
        shown = values_of(cells, Heatmap(Metric("m", direction), "a", "b"))
        assert shown["reverse"] == (direction == "minimize")
        assert (shown["cells"][3]["shade"], shown["cells"][3]["text"]) == (None, "\N{EN DASH}")


LONG = "a_metric_with_a_name_of_" + "many_" * 6 + "words"


@pytest.mark.slow
@for_each(
    ("rows_at", "columns_at", "values"),
    [
        ([1], [1], 0.5),
        (range(12), range(9), 1e7),
        (["an Abyssinian cat", "dog"], ["American Staffordshire terrier", "a $x$", "pug", "cat"], -1e-9),
        ([1, 2], [1, 2], math.nan),
        ([1, 2], [1], math.inf),
        ([1, 2], [1], None),
    ],
)
def test_nothing_is_cut_off(tmp_path, rows_at, columns_at, values):
    grid = pd.DataFrame([(a, b, values) for a in rows_at for b in columns_at], columns=["a_long_name", LONG, "value"])
    heatmap = Heatmap(Metric("value", "maximize"), "a_long_name", LONG)
    written(tmp_path, grid.astype({"value": "Float64"}), heatmap, about=LONG * 2)
    picture = np.asarray(Image.open(tmp_path / "heatmaps/g/value.png").convert("L"))
    margin = int(0.6 * charts.PADDING * charts.SCALE)
    inner = picture[margin:-margin, margin:-margin]
    assert (picture < 250).sum() == (inner < 250).sum(), "the margin is white"
    assert (inner < 250).any()


@pytest.mark.parametrize("shape", [(1, 1), (1, 6), (5, 1), (9, 12)])
def test_written_files_are_a_table_and_a_picture(tmp_path, shape):
    rows = pd.DataFrame([(b, n, b * n / 7) for b in range(shape[0]) for n in range(shape[1])], columns=["b", "n", "m"])
    heatmap = Heatmap(Metric("m", "minimize"), "b", "n", published={"paper": {(0, 0): 1.0}})
    cells = written(tmp_path, rows, heatmap)
    table = pd.read_parquet(tmp_path / "heatmaps" / "g" / "m.parquet")
    pd.testing.assert_frame_equal(table, cells)
    assert table["published"].notna().sum() == 1
    assert (tmp_path / "heatmaps" / "g" / "m.png").read_bytes().startswith(b"\x89PNG")


def test_figures_of_a_paper_are_shares_where_the_metric_is_in_percent(tmp_path, rows):
    published = {"paper": {(1.0, 3.0): 90.3}}
    share = Heatmap(Metric("auroc", "maximize", percent=True), *AXES, published=published)
    cells = written(tmp_path, rows, share)
    assert cell(cells, 1.0, 3.0)[["mean", "published"]].tolist() == pytest.approx([0.815, 0.903])


def test_cells_have_the_mean_on_validation_images(tmp_path, rows):
    rows["val_auroc"] = np.where((rows["beta"] == 0) & (rows["nu"] == 0.5), 0.9, 0.6)
    cells = written(tmp_path, rows, HEATMAP)
    assert cell(cells, 0.0, 0.5)["validation"] == pytest.approx(0.9)
    assert cell(cells, 1.0, 3.0)["mean"] == cells["mean"].max()


def test_a_preset_without_published_figures_has_no_column_of_them(tmp_path, rows):
    heatmap = Heatmap(AUROC, *AXES, published={"paper": {(1.0, 3.0): 0.9}})
    assert "published" not in written(tmp_path, rows, heatmap, "digits")
