import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.optimize
import scipy.stats

from sweeper.definition import Metric
from sweeper.definition.figures import Trajectory
from sweeper.report.trajectories import average, caption, isotonic_regression, panels, spread, write
from sweeper.results.replicates import MEASURED
from sweeper.storage.files import Files

KNN, NLL = Metric("knn", "maximize", percent=True), Metric("nll", "minimize")
BOTH = Trajectory("training", (KNN, NLL), by=("method",))


def reports(lines: list, epochs: list[int], seeds: int = 3) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the history and the rows of trials that all report both metrics."""
    draws = np.random.default_rng(0)
    trials = [(f"t{i}-{seed}", line, seed) for i, line in enumerate(lines) for seed in range(seeds)]
    records = [
        (trial, epoch, metric, scale * draws.uniform(0.5, 0.9))
        for trial, _, _ in trials[::-1]
        for metric, scale in (("nll", 9.0), ("knn", 1.0), ("loss", 1.0))
        for epoch in epochs[::-1]
    ]
    history = pd.DataFrame(records, columns=["trial_id", "epoch", "metric", "value"])
    return history.astype({"epoch": "int64"}), pd.DataFrame(trials, columns=["trial_id", "method", "seed"])


def test_points_are_mean_and_interval_over_replicates_in_order() -> None:
    history, rows = reports(["vje", "byol"], [10, 2])
    points = average(history, rows, BOTH)
    assert points.columns.tolist() == ["method", "metric", "epoch", *MEASURED]
    keys = list(points[["method", "metric", "epoch"]].itertuples(index=False, name=None))
    assert keys == [(line, metric, epoch) for line in ("vje", "byol") for metric in ("knn", "nll") for epoch in (2, 10)]
    joined = history.merge(rows, on="trial_id")
    for point in points.to_dict("records"):
        selected = joined
        for key in ("method", "metric", "epoch"):
            selected = selected[selected[key] == point[key]]
        assert point["count"] == len(selected) == 3
        values, p = selected["value"], selected["value"].mean()
        interval = [*scipy.stats.ttest_1samp(values, 0).confidence_interval(0.95)]
        if point["metric"] == "knn":  # a share: by the delta method on the logit scale
            half = (interval[1] - p) / (p * (1 - p))
            interval = [1 / (1 + np.exp(-(np.log(p / (1 - p)) + sign * half))) for sign in (-1, 1)]
        assert [point[name] for name in ("mean", "low", "high")] == pytest.approx([p, *interval])


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
    assert len(panels(points, BOTH)[0]["lines"]) == len(values)
    stored = pd.read_parquet(tmp_path / "trajectories/grid/training.parquet")
    pd.testing.assert_frame_equal(stored.drop(columns="method"), points.drop(columns="method"))
    assert [None if pd.isna(value) else value for value in stored[::4]["method"]] == values


def test_what_no_row_has_is_one_line() -> None:
    history, rows = reports(["vje", "byol"], [1, 2])
    points = average(history, rows, Trajectory("t", (KNN,), by=("eta",)))
    assert points["eta"].isna().all() and points["count"].tolist() == [6, 6]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "epochs", "seeds"), [(1, [], 1), (1, [50], 1), (9, [1, 2], 2), (25, [*range(1, 90)], 2)]
)
def test_any_number_of_lines_and_points_is_a_picture(count: int, epochs: list[int], seeds: int, tmp_path: Path) -> None:
    history, rows = reports([f"method {i}" for i in range(count)], epochs, seeds)
    trajectory = Trajectory("t", (KNN,), by=("method",))
    points = write(Files(tmp_path), "grid", history, rows, trajectory)
    assert len(points) == count * len(epochs)
    assert len(pd.read_parquet(tmp_path / "trajectories/grid/t.parquet")) == len(points)
    assert (tmp_path / "trajectories/grid/t.png").read_bytes().startswith(b"\x89PNG")


def test_panels_show_the_numbers() -> None:
    history, rows = reports(["vje", "byol"], [10, 20, 30])
    points = average(history, rows, BOTH)
    assert caption(points, BOTH) == "by method, mean [95 % interval] over 3 replicates"
    for panel, metric, scale in zip(panels(points, BOTH), ("knn", "nll"), (100, 1), strict=True):
        own = points[points["metric"] == metric]
        drawn = panel["points"]
        assert panel["lines"] == ["vje", "byol"] and drawn["line"].tolist() == own["method"].tolist()
        assert drawn["mean"].tolist() == pytest.approx((scale * own["mean"]).tolist()) and drawn["band"].all()
        assert panel["least"] < drawn["low"].min() and drawn["high"].max() <= panel["most"]
        assert drawn["high"].tolist() == pytest.approx((scale * own["high"]).clip(upper=panel["most"]).tolist())
    assert [panel["metric"] for panel in panels(points, BOTH)] == ["knn (%)", "nll"]
    assert [panel["better"] for panel in panels(points, BOTH)] == ["higher is better", "lower is better"]


@pytest.mark.parametrize("count", [2, 8])
def test_names_at_the_ends_do_not_overlap_and_keep_the_order_of_the_ends(count: int) -> None:
    history, rows = reports([f"method {i}" for i in range(count)], [1, 2])
    history["value"] = 0.8 + 1e-3 * history["value"] - 0.5 * (history["epoch"] == 1)
    for panel in panels(average(history, rows, BOTH), BOTH):
        assert panel["legend"] is None
        ends = panel["points"].dropna(subset="label").sort_values("mean")
        gap = 12 / panel["height"] * (panel["most"] - panel["least"])
        assert len(ends) == count and set(ends["epoch"]) == {2}
        assert all(above - below >= gap for below, above in pairwise(ends["label"]))


@pytest.mark.parametrize(("count", "banded"), [(1, True), (3, True), (4, False), (10, False)])
def test_bands_are_few_and_other_spreads_stand_side_by_side(count: int, banded: bool) -> None:
    history, rows = reports([f"m{i}" for i in range(count)], [1, 2, 3])
    points = average(history, rows, BOTH)
    for panel in panels(points, BOTH):
        drawn = panel["points"]
        bars = drawn.dropna(subset="bar")
        assert (int(drawn["band"].sum()), len(bars)) == ((3 * count, 0) if banded else (0, count))
        assert all(first < second for first, second in pairwise(bars["bar"])) and set(bars["epoch"]) <= {3}
        assert banded or panel["gutter"] > bars["bar"].max()
    assert ("which bars show at the end" in caption(points, BOTH)) != banded


@pytest.mark.parametrize("epochs", [[5], [1, 2]])
def test_trials_without_a_spread_have_no_room_for_it(epochs: list[int]) -> None:
    """With one trial per line there is no spread, and with one epoch it is drawn within the panel."""
    history, rows = reports([f"m{i}" for i in range(6)], epochs, seeds=1 if len(epochs) > 1 else 3)
    points = average(history, rows, BOTH)
    panel = panels(points, BOTH)[0]
    assert panel["points"]["bar"].isna().all() and "bars" not in caption(points, BOTH)
    assert panel["points"]["single"].all() == (len(epochs) == 1)
    assert panel["points"]["x"].is_unique or len(epochs) > 1, "points of one epoch stand side by side"


@pytest.mark.parametrize(("scale", "shared"), [(1.0, True), (0.1, False)])
def test_panels_share_their_values_where_all_are_shares_of_about_one_range(scale: float, shared: bool) -> None:
    history, rows = reports(["vje"], [1, 2])
    knn = history[history["metric"] == "knn"]
    history = pd.concat([history, knn.assign(metric="probe", value=scale * knn["value"])])
    shares = Trajectory("t", (KNN, Metric("probe", "maximize", percent=True)), by=("method",))
    left, right = panels(average(history, rows, shares), shares)
    assert ((left["least"], left["most"]) == (right["least"], right["most"])) == shared
    left, right = panels(average(history, rows, BOTH), BOTH)
    assert left["most"] != right["most"]


@pytest.mark.parametrize("lines", [[f"m{i}" for i in range(28)], ["a name that is much too long to be beside a line"]])
def test_many_lines_or_long_names_have_a_legend(lines: list[str]) -> None:
    history, rows = reports(lines, [1, 2])
    panel = panels(average(history, rows, BOTH), BOTH)[0]
    assert panel["lines"] == lines and panel["points"]["label"].isna().all()
    assert panel["legend"]["symbolStrokeWidth"] == 0, "the dashes of a line around its symbol would hide the shape"


def test_spread_is_the_least_squares_solution() -> None:
    """The result equals that of a general constrained optimiser."""
    from scipy.optimize import minimize

    draws = np.random.default_rng(0)
    for _ in range(20):
        positions = np.sort(draws.uniform(0, 1, 6))
        spread_out = np.array(spread(positions.tolist(), 0.12, 0.0, 1.0))
        constraint = {"type": "ineq", "fun": lambda x: np.diff(x) - 0.12}
        start = np.linspace(0, 1, 6)
        best = minimize(
            lambda x, p=positions: ((x - p) ** 2).sum(), start, bounds=[(0, 1)] * 6, constraints=[constraint], tol=1e-12
        )
        assert spread_out == pytest.approx(best.x, abs=1e-4)
    assert spread([0.1, 0.5], 0.1, 0.0, 1.0) == pytest.approx([0.1, 0.5]) and spread([], 1.0, 0.0, 1.0) == []


def test_isotonic_regression_is_that_of_scipy() -> None:
    random = np.random.default_rng(0)
    for size in (0, 1, 2, 7, 30):
        values = random.normal(size=size).round(1)
        expected = scipy.optimize.isotonic_regression(values).x if size else []
        np.testing.assert_allclose(isotonic_regression(values), expected, atol=1e-12)
