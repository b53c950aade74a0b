import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sweeper.report.curve_figure import draw
from sweeper.report.trajectories import average, write
from sweeper.spec.views import Trajectory
from sweeper.storage.files import Files
from tests.sweeper.report.trajectories.example_reports import BOTH, KNN, reports


def test_points_are_mean_and_sample_deviation_over_trials_in_order() -> None:
    history, rows = reports(["vje", "byol"], [10, 2])
    points = average(history, rows, BOTH)
    assert points.columns.tolist() == ["method", "metric", "epoch", "mean", "std", "count"]
    keys = list(points[["method", "metric", "epoch"]].itertuples(index=False, name=None))
    assert keys == [(line, metric, epoch) for line in ("vje", "byol") for metric in ("knn", "nll") for epoch in (2, 10)]
    joined = history.merge(rows, on="trial_id")
    for point in points.to_dict("records"):
        selected = joined
        for key in ("method", "metric", "epoch"):
            selected = selected[selected[key] == point[key]]
        assert point["count"] == len(selected) == 3
        assert (point["mean"], point["std"]) == pytest.approx(
            (np.mean(selected["value"]), np.std(selected["value"], ddof=1))
        )


def test_reports_of_other_trials_are_left_out_and_nulls_are_not_averaged() -> None:
    history, rows = reports(["vje", "byol"], [1, 2])
    history.loc[(history["trial_id"] == "t0-0") & (history["epoch"] == 2), "value"] = np.nan
    history = history[(history["trial_id"] != "t0-1") | (history["epoch"] == 1)]
    points = average(history, rows[rows["method"] == "vje"], BOTH)
    assert set(points["method"]) == {"vje"} and points["count"].tolist() == [3, 1] * 2
    assert points["std"].isna().tolist() == [False, True] * 2 and points["mean"].notna().all()
    nothing = average(history.assign(value=np.nan), rows, BOTH)
    assert (nothing["count"] == 0).all() and nothing["mean"].isna().all()


@pytest.mark.parametrize("values", [[math.inf, 1.0, None], [True, None, False], ["b", None, "a"], [2, 1]])
def test_a_line_may_stand_for_any_value(values: list, tmp_path: Path) -> None:
    history, rows = reports(values, [1, 2])
    points = write(Files(tmp_path), "grid", history, rows, BOTH)
    first = points[::4]["method"]
    assert [None if pd.isna(value) else value for value in first] == values and len(points) == 4 * len(values)
    assert len(draw(points, BOTH).axes[0].get_lines()) == 2 * len(values)  # one for each, and one to its name
    stored = pd.read_parquet(tmp_path / "trajectories/grid/training.parquet")
    pd.testing.assert_frame_equal(stored.drop(columns="method"), points.drop(columns="method"))
    assert [None if pd.isna(value) else value for value in stored[::4]["method"]] == values


def test_what_no_row_has_is_one_line() -> None:
    history, rows = reports(["vje", "byol"], [1, 2])
    points = average(history, rows, Trajectory("t", (KNN,), by=("eta",)))
    assert points["eta"].isna().all() and points["count"].tolist() == [6, 6]


@pytest.mark.parametrize("seeds", [1, 2])
@pytest.mark.parametrize("epochs", [[], [50], [1, 2], [*range(1, 90)]])
@pytest.mark.parametrize("count", [1, 9, 25])
def test_any_number_of_lines_and_points_is_a_picture(count: int, epochs: list[int], seeds: int, tmp_path: Path) -> None:
    history, rows = reports([f"method {i}" for i in range(count)], epochs, seeds)
    view = Trajectory("t", (KNN,), by=("method",))
    points = write(Files(tmp_path), "grid", history, rows, view)
    assert len(points) == count * len(epochs)
    assert len(pd.read_parquet(tmp_path / "trajectories/grid/t.parquet")) == len(points)
    assert (tmp_path / "trajectories/grid/t.png").read_bytes().startswith(b"\x89PNG")
