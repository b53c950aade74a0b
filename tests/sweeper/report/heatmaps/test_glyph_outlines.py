import numpy as np
import pytest
from matplotlib.font_manager import FontProperties
from matplotlib.path import Path
from matplotlib.textpath import TextPath

from sweeper.report.heatmap_figure import LINE, line, line_paths
from sweeper.report.style import DOTS, Weight


@pytest.mark.parametrize("text", ["0.982", "± 0.017", "\N{MINUS SIGN}∞", "3.75e+37"])
@pytest.mark.parametrize("weight", ["normal", "bold"])
def test_the_outline_of_a_number_is_matplotlibs(text: str, weight: Weight) -> None:
    expected = TextPath((0, 0), text, size=12, prop=FontProperties(weight=weight))
    outline = line(text, 12, weight).outline
    np.testing.assert_allclose(72 * outline.get_extents().get_points(), expected.get_extents().get_points(), atol=0.05)


def test_lines_stand_below_each_other_around_the_middle() -> None:
    lines = [line("0.5", 11.5, "bold"), line("0.25", 8)]
    upper, lower = (path.get_extents() for path in line_paths(lines, (3.0, 2.0)))
    assert upper.y0 > lower.y1 and upper.y1 - 2.0 == pytest.approx(2.0 - lower.y0, abs=0.04)
    assert (upper.x0 + upper.x1) / 2 == pytest.approx(3.0, abs=0.02)
    assert lines[1].height == pytest.approx(LINE * 8 / 72)


def test_equal_lines_have_equal_dots_wherever_they_are() -> None:
    first, second = (line_paths([line("0.5", 8)], centre)[0] for centre in ((1.0, 1.0), (2.0003, 3.0021)))
    dots = DOTS * (np.asarray(second.vertices) - np.asarray(first.vertices))
    np.testing.assert_allclose(dots, np.round(dots[:1]).repeat(len(dots), 0), atol=1e-6)
    assert isinstance(first, Path)
