import math

import numpy as np
import pandas as pd
import pytest

from sweeper.report.heatmaps.heatmap_cells import selection_metric
from sweeper.report.summary import breakdown, correlations, on_test_images, text
from sweeper.spec.metric import Metric

AXES = ("beta", "nu")


@pytest.fixture
def rows() -> pd.DataFrame:
    grid = [(b, n, c) for b in (0.0, 1.0) for n in (0.5, math.inf) for c in ("cat", "dog")]
    frame = pd.DataFrame(grid, columns=["beta", "nu", "class"])
    frame["auroc"] = 0.5 + 0.2 * frame["beta"] + 0.1 * (frame["class"] == "dog") - 0.1 * (frame["nu"] == 0.5)
    frame["entropy"] = 10 * frame["auroc"] + 1
    frame["flat"] = 0.1 + 0.2
    return frame


def test_breakdown_is_taken_at_the_best_mean_not_at_the_best_row(rows):
    rows.loc[0, "auroc"] = 0.99  # one lucky trial in a poor cell
    table = breakdown(rows, "auroc", "maximize", AXES, "class")
    assert table["class"].tolist() == ["cat", "dog"] and table["mean"].tolist() == pytest.approx([0.7, 0.8])
    assert (table["beta"] == 1.0).all() and (table["nu"] == math.inf).all() and (table["count"] == 1).all()
    assert (breakdown(rows, "entropy", "minimize", AXES, "class")["nu"] == 0.5).all()


def test_breakdown_counts_the_missing_and_may_be_empty(rows):
    rows.loc[rows["class"] == "cat", "auroc"] = np.nan
    assert breakdown(rows, "auroc", "maximize", AXES, "class")["missing"].tolist() == [1, 0]
    assert breakdown(rows.assign(auroc=np.nan), "auroc", "maximize", AXES, "class").empty


def test_the_best_cell_is_chosen_by_validation_images_and_shown_by_test_images(rows):
    rows["val_auroc"] = 1 - rows["auroc"]
    table = breakdown(rows, "auroc", "maximize", AXES, "class")
    assert (table["beta"] == 0.0).all() and (table["nu"] == 0.5).all()
    assert table["mean"].tolist() == pytest.approx([0.4, 0.5])
    assert selection_metric(rows, "auroc") == "val_auroc" and selection_metric(rows, "entropy") == "entropy"
    assert selection_metric(rows.assign(val_auroc=np.nan), "auroc") == "auroc"


def test_a_trial_chosen_by_a_study_is_shown_by_test_images():
    """The best trial of each study is chosen by its objective alone. A trial that lacks either value is left out."""
    rows = pd.DataFrame(
        {
            "study": ["b", "b", "b", "a", "a"],
            "number": [0, 1, 2, 0, 1],
            "val_score": [0.3, 0.1, 0.05, 0.7, 0.8],
            "score": [0.1, 0.4, None, 0.6, 0.2],
        }
    )
    table = on_test_images(rows, Metric("val_score", "minimize"))
    assert table.to_dict("list") == {
        "study": ["a", "b"],
        "number": [0, 1],
        "val_score": [0.7, 0.1],
        "score": [0.6, 0.4],
    }
    assert on_test_images(rows, Metric("val_score", "maximize"))["score"].tolist() == [0.2, 0.1]
    assert "0.600" in text(table) and "0.700" in text(table)
    assert on_test_images(rows, Metric("score", "minimize")).empty
    assert on_test_images(rows.drop(columns="score"), Metric("val_score", "minimize")).empty


def test_correlation_is_over_cell_means(rows):
    rows["minus"] = -rows["auroc"] + rows["class"].map({"cat": 5, "dog": -5})  # within a cell it cancels
    table = correlations(rows, [("auroc", "entropy"), ("auroc", "minus"), ("auroc", "flat")], AXES)
    assert table["r"][:2].tolist() == pytest.approx([1.0, -1.0]) and math.isnan(table["r"][2])
    assert table["cells"].tolist() == [4, 4, 4]


def test_correlation_leaves_out_cells_without_both(rows):
    rows.loc[rows["nu"] == 0.5, "entropy"] = np.nan
    rows.loc[(rows["beta"] == 0) & (rows["nu"] == math.inf), "auroc"] = np.nan
    table = correlations(rows, [("auroc", "entropy")], AXES)
    assert table["cells"].tolist() == [1] and math.isnan(table["r"][0])


def test_text_is_aligned(rows):
    lines = text(breakdown(rows, "auroc", "maximize", AXES, "class")).splitlines()
    assert lines[0].split() == ["beta", "nu", "class", "mean", "std", "count", "missing"]
    assert lines[2].split() == ["1", "∞", "cat", "0.700", "\N{EN DASH}", "1", "0"]
    assert len({len(line) for line in lines}) == 1


def test_text_in_the_column_of_a_metric_stays_as_it_is():
    """The table of a Pareto front has formatted values, e.g. percentages."""
    lines = text(pd.DataFrame({"trial": ["3"], "val_auroc": ["98.2%"], "mean": ["a"]})).splitlines()
    assert lines[2].split() == ["3", "98.2%", "a"]
