from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.optimize

from sweeper.report.curve_figure import draw, isotonic_regression, spread
from sweeper.report.trajectories import average
from tests.sweeper.report.trajectories.example_reports import BOTH, reports


@pytest.mark.parametrize("count", [2, 8])
def test_names_at_the_ends_do_not_overlap_and_keep_the_order_of_the_ends(count: int) -> None:
    history, rows = reports([f"method {i}" for i in range(count)], [1, 2])
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
