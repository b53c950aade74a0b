from typing import Any

import pandas as pd
import pytest

from sweeper.report.curve_figure import draw
from sweeper.report.trajectories import average
from sweeper.spec import Metric
from sweeper.spec.views import Trajectory
from tests.sweeper.report.trajectories.example_reports import BOTH, KNN, reports


def test_the_figure_shows_the_numbers() -> None:
    history, rows = reports(["vje", "byol"], [10, 20, 30])
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
            selected = points[(points["metric"] == metric) & (points["method"] == name)]
            assert line.get_label() == name and line.get_ydata().tolist() == selected["mean"].tolist()
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
    history, rows = reports(["vje"], [1, 2])
    knn = history[history["metric"] == "knn"]
    history = pd.concat([history, knn.assign(metric="probe", value=scale * knn["value"])])
    shares = Trajectory("t", (KNN, Metric("probe", "maximize", percent=True)), by=("method",))
    left, right = draw(average(history, rows, shares), shares).axes
    assert (left.get_ylim() == right.get_ylim()) == shared
    left, right = draw(average(history, rows, BOTH), BOTH).axes
    assert left.get_ylim() != right.get_ylim()


@pytest.mark.parametrize("lines", [[f"m{i}" for i in range(28)], ["a name that is much too long to be beside a line"]])
def test_many_lines_or_long_names_have_a_legend(lines: list[str]) -> None:
    history, rows = reports(lines, [1, 2])
    figure = draw(average(history, rows, BOTH), BOTH)
    legend = figure.axes[-1].get_legend()
    assert legend is not None and [text.get_text() for text in legend.get_texts()] == lines
    drawn = [(line.get_color(), line.get_linestyle()) for line in figure.axes[0].get_lines()]
    assert len(set(drawn)) == len(lines)
