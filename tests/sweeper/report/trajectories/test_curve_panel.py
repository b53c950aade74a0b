from itertools import pairwise
from typing import Any

import pytest
from matplotlib.collections import LineCollection, PolyCollection

from sweeper.report.curve_figure import SIDE_BAR, draw
from sweeper.report.trajectories import average
from tests.sweeper.report.trajectories.example_reports import BOTH, reports


def bars_of(axis: Any) -> list[Any]:
    """Return the bars beside the panel, which show standard deviations."""
    return [
        artist for artist in axis.collections if isinstance(artist, LineCollection) and artist.get_gid() == SIDE_BAR
    ]


@pytest.mark.parametrize(("count", "banded"), [(1, True), (3, True), (4, False), (10, False)])
def test_bands_are_few_and_other_spreads_stand_side_by_side(count: int, banded: bool) -> None:
    history, rows = reports([f"m{i}" for i in range(count)], [1, 2, 3])
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
    history, rows = reports(["a", "b", "c"], [1, 2, 3])
    axis = draw(average(history, rows, BOTH), BOTH).axes[0]
    edges = [artist for artist in axis.collections if isinstance(artist, LineCollection)]
    assert len(edges) == 3 and len({str(edge.get_linestyle()) for edge in edges}) == 3


@pytest.mark.parametrize("epochs", [[5], [1, 2]])
def test_trials_without_a_spread_have_no_room_for_it(epochs: list[int]) -> None:
    """With one trial per line there is no spread, and with one epoch it is drawn within the panel."""
    history, rows = reports([f"m{i}" for i in range(6)], epochs, seeds=1 if len(epochs) > 1 else 3)
    figure = draw(average(history, rows, BOTH), BOTH)
    assert not bars_of(figure.axes[0]) and "bars" not in figure.texts[-1].get_text()
