import math

import numpy as np
import pandas as pd
import pytest

from sweeper.plan.best_settings import best_settings
from sweeper.report.heatmaps import pivot, positions
from sweeper.spec import Metric
from tests.sweeper.report.grid_cells import AXES, cell


def test_pivot_is_mean_and_sample_deviation_over_other_columns(rows):
    cells = pivot(rows, "auroc", AXES)
    selected = cell(cells, 1.0, 3.0)
    assert selected["mean"] == pytest.approx(0.815) and selected["std"] == pytest.approx(
        np.std([0, 0.01, 0.02, 0.03], ddof=1)
    )
    assert cells.columns.tolist() == ["beta", "nu", "mean", "std", "count", "missing"]
    assert len(cells) == 6 and cells["nu"].tolist() == [0.5, 3.0, math.inf] * 2 and (cells["count"] == 4).all()


def test_missing_is_counted_and_not_averaged(rows):
    rows.loc[(rows["beta"] == 0) & (rows["nu"] == 3) & (rows["class"] > 0), "auroc"] = np.nan
    rows = rows[~((rows["beta"] == 1) & (rows["nu"] == 0.5))]
    cells = pivot(rows, "auroc", AXES)
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
    best = best_settings(rows.to_dict("records"), metric, (*AXES, "class"), replicates=("class",))
    cells = pivot(rows, "score", AXES)
    (position,) = positions(cells, rows, AXES, best)
    assert (cells["beta"][position], cells["nu"][position]) == place
    nothing = rows.assign(score=np.nan).to_dict("records")
    assert best_settings(nothing, metric, AXES) == [] and positions(cells, rows, AXES, []) == []


def test_an_axis_may_be_text_null_or_in_an_order_of_its_own(rows):
    rows["terms"] = pd.Categorical(["rad", "dir", "kl", "dir"] * 6, categories=["rad", "kl", "dir"], ordered=True)
    rows["k"] = np.where(rows["class"] == 0, np.nan, 30.0)
    cells = pivot(rows, "auroc", ("terms", "k"))
    assert list(dict.fromkeys(cells["terms"])) == ["rad", "kl", "dir"] and cells["count"].sum() == len(rows)


def test_an_unknown_column_is_named(rows):
    with pytest.raises(ValueError, match="no column 'eta' in the rows; there are: beta"):
        pivot(rows, "auroc", ("beta", "eta"))
