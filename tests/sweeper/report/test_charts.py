"""Descriptions of charts: their holes, and that vl-convert draws each of them."""

import io
from typing import Any

import pytest
from PIL import Image

from sweeper.report import charts, study_charts
from sweeper.report.charts import Chart, fill, hole, png
from tests.cases import for_each

ALL = {**charts.CHARTS, **study_charts.CHARTS, "contour": study_charts.CONTOUR, "differences": charts.DIFFERENCES}


def holes(part: Any) -> set[str]:
    if isinstance(part, dict):
        return {part["hole"]} if "hole" in part else set().union(*map(holes, part.values()))
    return set().union(*map(holes, part)) if isinstance(part, list | tuple) else set()


def test_a_hole_is_filled_at_any_depth_and_its_value_stays_as_it_is() -> None:
    chart: Chart = {"a": [{"b": hole("x")}, 1], "c": hole("y")}
    assert fill(chart, {"x": {"hole": "data may say so"}, "y": None}) == {
        "a": [{"b": {"hole": "data may say so"}}, 1],
        "c": None,
    }
    with pytest.raises(KeyError):
        fill(chart, {"x": 1})


@for_each("name", ALL)
def test_colours_of_charts_are_those_of_the_scheme(name: str) -> None:
    """So that they change with it: no other colour may be of text, lines or ground."""
    assert not {colour for colour in charts.COLOURS["light"].values() if f"'{colour}'" in str(ALL[name])} - {
        "#ffffff",
        "#1b1b1f",
    }
    assert holes(charts.CONFIG) <= {*charts.COLOURS["dark"], "padding"}
    assert charts.COLOURS["light"].keys() == charts.COLOURS["dark"].keys()


def test_a_large_picture_has_fewer_dots() -> None:
    chart = charts.described(data={"values": [{"a": 1}]}, mark="bar", width=hole("wide"))
    sizes = [
        Image.open(io.BytesIO(png(chart, extent=wide, wide=wide, title=None, description="", padding=0))).width
        for wide in (100, 12_000)
    ]
    assert sizes[0] >= 200 and 12_000 < sizes[1] <= charts.MOST_DOTS + 500
