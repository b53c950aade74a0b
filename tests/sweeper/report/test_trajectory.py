import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import LineCollection, PolyCollection

from sweeper.report.curve_labels import spread
from sweeper.report.curves import BESIDE, draw
from sweeper.report.trajectory import average, write
from sweeper.spec import Metric
from sweeper.spec.views import Trajectory
from sweeper.storage.io.files import Files

KNN, NLL = Metric("knn", "maximize", percent=True), Metric("nll", "minimize")
BOTH = Trajectory("training", (KNN, NLL), by=("method",))


def made(lines: list, epochs: list[int], seeds: int = 3) -> tuple[pd.DataFrame, pd.DataFrame]:
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


def test_points_are_mean_and_sample_deviation_over_trials_in_order() -> None:
    history, rows = made(["vje", "byol"], [10, 2])
    points = average(history, rows, BOTH)
    assert points.columns.tolist() == ["method", "metric", "epoch", "mean", "std", "count"]
    keys = list(points[["method", "metric", "epoch"]].itertuples(index=False, name=None))
    assert keys == [(line, metric, epoch) for line in ("vje", "byol") for metric in ("knn", "nll") for epoch in (2, 10)]
    joined = history.merge(rows, on="trial_id")
    for point in points.to_dict("records"):
        here = joined
        for key in ("method", "metric", "epoch"):
            here = here[here[key] == point[key]]
        assert point["count"] == len(here) == 3
        assert (point["mean"], point["std"]) == pytest.approx((np.mean(here["value"]), np.std(here["value"], ddof=1)))


def test_reports_of_other_trials_are_left_out_and_nulls_are_not_averaged() -> None:
    history, rows = made(["vje", "byol"], [1, 2])
    history.loc[(history["trial_id"] == "t0-0") & (history["epoch"] == 2), "value"] = np.nan
    history = history[(history["trial_id"] != "t0-1") | (history["epoch"] == 1)]
    points = average(history, rows[rows["method"] == "vje"], BOTH)
    assert set(points["method"]) == {"vje"} and points["count"].tolist() == [3, 1] * 2
    assert points["std"].isna().tolist() == [False, True] * 2 and points["mean"].notna().all()
    nothing = average(history.assign(value=np.nan), rows, BOTH)
    assert (nothing["count"] == 0).all() and nothing["mean"].isna().all()


@pytest.mark.parametrize("values", [[math.inf, 1.0, None], [True, None, False], ["b", None, "a"], [2, 1]])
def test_a_line_may_stand_for_any_value(values: list, tmp_path: Path) -> None:
    history, rows = made(values, [1, 2])
    points = write(Files(tmp_path), "grid", history, rows, BOTH)
    first = points[::4]["method"]
    assert [None if pd.isna(value) else value for value in first] == values and len(points) == 4 * len(values)
    assert len(draw(points, BOTH).axes[0].get_lines()) == 2 * len(values)  # one for each, and one to its name
    stored = pd.read_parquet(tmp_path / "trajectories/grid/training.parquet")
    pd.testing.assert_frame_equal(stored.drop(columns="method"), points.drop(columns="method"))
    assert [None if pd.isna(value) else value for value in stored[::4]["method"]] == values


def test_what_no_row_has_is_one_line() -> None:
    history, rows = made(["vje", "byol"], [1, 2])
    points = average(history, rows, Trajectory("t", (KNN,), by=("eta",)))
    assert points["eta"].isna().all() and points["count"].tolist() == [6, 6]


@pytest.mark.parametrize("seeds", [1, 2])
@pytest.mark.parametrize("epochs", [[], [50], [1, 2], [*range(1, 90)]])
@pytest.mark.parametrize("count", [1, 9, 25])
def test_any_number_of_lines_and_points_is_a_picture(count: int, epochs: list[int], seeds: int, tmp_path: Path) -> None:
    history, rows = made([f"method {i}" for i in range(count)], epochs, seeds)
    view = Trajectory("t", (KNN,), by=("method",))
    points = write(Files(tmp_path), "grid", history, rows, view)
    assert len(points) == count * len(epochs)
    assert len(pd.read_parquet(tmp_path / "trajectories/grid/t.parquet")) == len(points)
    assert (tmp_path / "trajectories/grid/t.png").read_bytes().startswith(b"\x89PNG")


def test_the_figure_shows_the_numbers() -> None:
    history, rows = made(["vje", "byol"], [10, 20, 30])
    points = average(history, rows, BOTH)
    figure = draw(points, BOTH, "ssl (digits), data set digits")
    assert [text.get_text() for text in figure.texts] == [
        "training",
        "ssl (digits), data set digits",
        "by method, mean of 3 trials ± standard deviation",
    ]
    for axis, metric in zip(figure.axes, ("knn", "nll"), strict=True):
        drawn: list[Any] = axis.get_lines()
        for line, name in zip(drawn, ("vje", "byol"), strict=False):
            here = points[(points["metric"] == metric) & (points["method"] == name)]
            assert line.get_label() == name and line.get_ydata().tolist() == here["mean"].tolist()
            assert line.get_xdata().tolist() == [10, 20, 30]
        band = axis.collections[0].get_datalim(axis.transData)
        vje = points[(points["metric"] == metric) & (points["method"] == "vje")]
        assert band.y1 == pytest.approx((vje["mean"] + vje["std"]).max())
        assert band.y0 == pytest.approx((vje["mean"] - vje["std"]).min())
    figure.canvas.draw()
    ticks = [[tick.get_text() for tick in axis.get_yticklabels()] for axis in figure.axes]
    assert all(tick.endswith("%") for tick in ticks[0]) and not any(tick.endswith("%") for tick in ticks[1])


@pytest.mark.parametrize(("scale", "shared"), [(1.0, True), (0.1, False)])
def test_panels_share_their_values_where_all_are_shares_of_about_one_range(scale: float, shared: bool) -> None:
    history, rows = made(["vje"], [1, 2])
    knn = history[history["metric"] == "knn"]
    history = pd.concat([history, knn.assign(metric="probe", value=scale * knn["value"])])
    shares = Trajectory("t", (KNN, Metric("probe", "maximize", percent=True)), by=("method",))
    left, right = draw(average(history, rows, shares), shares).axes
    assert (left.get_ylim() == right.get_ylim()) == shared
    left, right = draw(average(history, rows, BOTH), BOTH).axes
    assert left.get_ylim() != right.get_ylim()


@pytest.mark.parametrize("count", [2, 8])
def test_names_at_the_ends_do_not_overlap_and_keep_the_order_of_the_ends(count: int) -> None:
    history, rows = made([f"method {i}" for i in range(count)], [1, 2])
    history["value"] = 0.8 + 1e-3 * history["value"] - 0.5 * (history["epoch"] == 1)
    figure = draw(average(history, rows, BOTH), BOTH)
    figure.canvas.draw()
    for axis in figure.axes:
        assert axis.get_legend() is None
        drawn: list[Any] = axis.get_lines()[:count]
        ends = {line.get_label(): line.get_ydata()[-1] for line in drawn}
        boxes = {text.get_text(): text.get_window_extent() for text in axis.texts if text.get_text() in ends}
        order = sorted(boxes, key=lambda name: boxes[name].y0)
        assert len(order) == count and order == sorted(ends, key=ends.__getitem__)
        assert all(boxes[below].y1 <= boxes[above].y0 for below, above in pairwise(order))
    assert max(box.x1 for box in boxes.values()) <= figure.bbox.x1


@pytest.mark.parametrize("lines", [[f"m{i}" for i in range(28)], ["a name that is much too long to be beside a line"]])
def test_many_lines_or_long_names_have_a_legend(lines: list[str]) -> None:
    history, rows = made(lines, [1, 2])
    figure = draw(average(history, rows, BOTH), BOTH)
    legend = figure.axes[-1].get_legend()
    assert legend is not None and [text.get_text() for text in legend.get_texts()] == lines
    drawn = [(line.get_color(), line.get_linestyle()) for line in figure.axes[0].get_lines()]
    assert len(set(drawn)) == len(lines)


def bars_of(axis: Any) -> list[Any]:
    """Return the bars beside the panel, which show standard deviations."""
    return [artist for artist in axis.collections if isinstance(artist, LineCollection) and artist.get_gid() == BESIDE]


@pytest.mark.parametrize(("count", "banded"), [(1, True), (3, True), (4, False), (10, False)])
def test_bands_are_few_and_other_spreads_stand_side_by_side(count: int, banded: bool) -> None:
    history, rows = made([f"m{i}" for i in range(count)], [1, 2, 3])
    points = average(history, rows, BOTH)
    figure = draw(points, BOTH)
    for axis, metric in zip(figure.axes, ("knn", "nll"), strict=True):
        bands = [artist for artist in axis.collections if isinstance(artist, PolyCollection)]
        bars = bars_of(axis)
        assert (len(bands), len(bars)) == ((count, 0) if banded else (0, count))
        segments = [bar.get_segments()[0] for bar in bars]
        assert all(first[0, 0] < second[0, 0] for first, second in pairwise(segments))
        last = points[(points["metric"] == metric) & (points["epoch"] == 3)]
        for segment, mean, std in zip(segments, last["mean"], last["std"], strict=False):
            assert segment[:, 0].min() > 1.0, "in widths of the panel, so to the right of it"
            assert segment[:, 1] == pytest.approx([mean - std, mean + std], rel=0.02)
    assert (": ± standard deviation at the end" in figure.texts[-1].get_text()) != banded


def test_edges_of_bands_have_different_dashes() -> None:
    history, rows = made(["a", "b", "c"], [1, 2, 3])
    axis = draw(average(history, rows, BOTH), BOTH).axes[0]
    edges = [artist for artist in axis.collections if isinstance(artist, LineCollection)]
    assert len(edges) == 3 and len({str(edge.get_linestyle()) for edge in edges}) == 3


@pytest.mark.parametrize("epochs", [[5], [1, 2]])
def test_trials_without_a_spread_have_no_room_for_it(epochs: list[int]) -> None:
    """With one trial per line there is no spread, and with one epoch it is drawn within the panel."""
    history, rows = made([f"m{i}" for i in range(6)], epochs, seeds=1 if len(epochs) > 1 else 3)
    figure = draw(average(history, rows, BOTH), BOTH)
    assert not bars_of(figure.axes[0]) and "bars" not in figure.texts[-1].get_text()


def test_spread_is_the_least_squares_solution() -> None:
    """The result equals that of a general constrained optimiser."""
    from scipy.optimize import minimize

    draws = np.random.default_rng(0)
    for _ in range(20):
        places = np.sort(draws.uniform(0, 1, 6))
        spread_out = np.array(spread(places.tolist(), 0.12, 0.0, 1.0))
        apart = {"type": "ineq", "fun": lambda x: np.diff(x) - 0.12}
        start = np.linspace(0, 1, 6)
        best = minimize(
            lambda x, p=places: ((x - p) ** 2).sum(), start, bounds=[(0, 1)] * 6, constraints=[apart], tol=1e-12
        )
        assert spread_out == pytest.approx(best.x, abs=1e-4)
    assert spread([0.1, 0.5], 0.1, 0.0, 1.0) == pytest.approx([0.1, 0.5]) and spread([], 1.0, 0.0, 1.0) == []
