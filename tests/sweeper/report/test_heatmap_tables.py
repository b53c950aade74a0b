import math

import numpy as np
import pandas as pd
import pytest

from sweeper.definition.metric import Metric
from sweeper.definition.sweep import Repeats
from sweeper.report.heatmaps import breakdown, correlations, selection_metric, text
from sweeper.results.best import BestSetting, best_settings
from sweeper.results.replicates import MEASURED

AXES, CLASSES = ("beta", "nu"), Repeats(("class",), ())


@pytest.fixture
def rows() -> pd.DataFrame:
    grid = [(b, n, c) for b in (0.0, 1.0) for n in (0.5, math.inf) for c in ("cat", "dog")]
    frame = pd.DataFrame(grid, columns=["beta", "nu", "class"])
    frame["auroc"] = 0.5 + 0.2 * frame["beta"] + 0.1 * (frame["class"] == "dog") - 0.1 * (frame["nu"] == 0.5)
    frame["entropy"] = 10 * frame["auroc"] + 1
    frame["trial_id"] = [f"t{index}" for index in range(len(frame))]
    frame["flat"] = 0.1 + 0.2
    return frame


def chosen(rows: pd.DataFrame) -> list[BestSetting]:
    return best_settings(rows.to_dict("records"), Metric("auroc", "maximize"), (*AXES, "class"), repeats=CLASSES)


def test_breakdown_is_taken_at_the_best_setting_not_at_the_best_row(rows):
    rows.loc[0, "auroc"] = 0.99  # one lucky trial in a poor cell
    table = breakdown(rows, chosen(rows), AXES, "class")
    assert table["class"].tolist() == ["cat", "dog"] and table["mean"].tolist() == pytest.approx([0.7, 0.8])
    assert (table["beta"] == 1.0).all() and (table["nu"] == math.inf).all() and (table["count"] == 1).all()
    assert breakdown(rows, [], AXES, "class").empty


def test_the_best_setting_is_chosen_by_validation_images_and_shown_by_test_images(rows):
    rows["val_auroc"] = 1 - rows["auroc"]
    table = breakdown(rows, chosen(rows), AXES, "class")
    assert (table["beta"] == 0.0).all() and (table["nu"] == 0.5).all()
    assert table["mean"].tolist() == pytest.approx([0.4, 0.5])
    assert selection_metric(rows, "auroc") == "val_auroc" and selection_metric(rows, "entropy") == "entropy"


def test_a_correlation_over_few_cells_is_none(rows):
    table = correlations(rows, [("auroc", "entropy")], AXES)
    assert table["cells"].tolist() == [4] and math.isnan(table["r"][0])


def test_correlation_is_over_cell_means(rows):
    rows = pd.concat([rows, rows.assign(beta=rows["beta"] + 2, auroc=rows["auroc"] / 2, entropy=5 * rows["auroc"] + 1)])
    rows["minus"] = -rows["auroc"] + rows["class"].map({"cat": 5, "dog": -5})  # within a cell it cancels
    table = correlations(rows, [("auroc", "entropy"), ("auroc", "minus"), ("auroc", "flat")], AXES)
    assert table["r"][:2].tolist() == pytest.approx([1.0, -1.0]) and math.isnan(table["r"][2])
    assert table["cells"].tolist() == [8, 8, 8]


def test_a_correlation_of_several_seeds_is_corrected_for_noise_and_has_an_interval() -> None:
    rng = np.random.default_rng(0)
    truth = np.linspace(0, 1, 12)
    frame = pd.DataFrame(
        {"beta": cell, "nu": 1.0, "seed": seed, "x": value + rng.normal(0, 0.3), "y": value + rng.normal(0, 0.3)}
        for cell, value in enumerate(truth)
        for seed in range(5)
    )
    (found,) = correlations(frame, [("x", "y")], AXES).to_dict("records")
    means = frame.groupby("beta")[["x", "y"]].mean()
    assert found["r"] > means.corr().loc["x", "y"] and found["low"] < found["r"] <= found["high"] <= 1
    assert (found["replicates"], found["cells"]) == (5, 12)


def test_correlation_leaves_out_cells_without_both(rows):
    rows.loc[rows["nu"] == 0.5, "entropy"] = np.nan
    rows.loc[(rows["beta"] == 0) & (rows["nu"] == math.inf), "auroc"] = np.nan
    table = correlations(rows, [("auroc", "entropy")], AXES)
    assert table["cells"].tolist() == [1] and math.isnan(table["r"][0])


def test_text_is_aligned(rows):
    lines = text(breakdown(rows, chosen(rows), AXES, "class")).splitlines()
    dash = "\N{EN DASH}"
    assert lines[0].split() == ["beta", "nu", "class", *MEASURED]
    assert lines[2].split() == ["1", "∞", "cat", "0.700", *[dash] * 5, "1", "1", "1", "0"]
    assert len({len(line) for line in lines}) == 1


def test_text_in_the_column_of_a_metric_stays_as_it_is():
    """The table of a Pareto front has formatted values, e.g. percentages."""
    lines = text(pd.DataFrame({"trial": ["3"], "val_auroc": ["98.2%"], "mean": ["a"]})).splitlines()
    assert lines[2].split() == ["3", "98.2%", "a"]
