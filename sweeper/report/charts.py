"""Charts as Vega-Lite descriptions: the page draws them, and vl-convert makes PNG files of the same descriptions.

A description has holes for what depends on the rows: data, titles, ranges, sizes, and the colours of the page's scheme.
`fill` puts values into them here, and `filled` in `charts.js` does so in a browser, where filters and axes are chosen.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import pandas as pd

from sweeper.printing import LAYOUT, printable_values

Chart = dict[str, Any]
"""A description in Vega-Lite, or a part of one."""
COLOURS: Mapping[str, Mapping[str, str]] = {
    "light": {
        "ground": "#ffffff", "raised": "#f5f6f8", "ink": "#1b1b1f", "muted": "#595d66", "line": "#d5d7dc",
        "accent": "#0060a0", "best": "#c0203a", "empty": "#e4e5e8", "weak": "#bcd5ea", "strong": "#08306b",
    },
    "dark": {
        "ground": "#16171b", "raised": "#212329", "ink": "#e9eaee", "muted": "#a7abb5", "line": "#3b3e47",
        "accent": "#7cc0f5", "best": "#ff7a8a", "empty": "#33363d", "weak": "#35506b", "strong": "#d3ecff",
    },
}  # fmt: skip
"""Colours of the page and its charts in each scheme. PNG files are light."""
CATEGORIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6fd1", "#b8860b", "#3f9fd8", "#7f7f7f")
"""Colours that tell lines apart on light and on dark ground, also for colour-blind readers."""
DASHES = ((1, 0), (6, 3), (2, 2), (8, 3, 2, 3))
"""Dashes of lines: the next ones where the colours repeat."""
SHAPES = ("circle", "square", "diamond", "triangle-up")
SCALE, MOST_DOTS = 2.0, 16_000
"""Dots of a PNG per unit of a description, and most dots of a side."""
PADDING = 18
"""White space around a picture."""
SLANT = -25
"""Angle in degrees of labels that are wider than what they belong to."""
FONT = "system-ui, sans-serif"
"""vl-convert has the second one built in, so pictures look the same on all machines."""


def hole(name: str) -> Chart:
    """The place of a value in a description."""
    return {"hole": name}


def fill(part: Any, values: Mapping[str, Any]) -> Any:
    """Return a description with its holes filled. Raises KeyError if a value is missing."""
    if isinstance(part, dict):
        if "hole" in part:
            return values[part["hole"]]
        return {name: fill(inner, values) for name, inner in part.items()}
    return [fill(inner, values) for inner in part] if isinstance(part, list | tuple) else part


def png(chart: Chart, *, extent: float = 1000.0, **values: Any) -> bytes:
    """Return a chart as a PNG. `values` are for its holes; `extent` is about its longer side, which limits the dots."""
    import vl_convert  # here: it is large, and most commands draw nothing

    scale = min(SCALE, MOST_DOTS / max(extent, 1.0))
    picture: bytes = vl_convert.vegalite_to_png(_light(chart, values), vl_version=VERSION, scale=scale)
    return picture


def _light(chart: Chart, values: Mapping[str, Any]) -> Any:
    """Return a chart with its holes filled, in light colours. vl-convert ends the whole process at a control
    character."""
    return fill(chart, printable_values({**COLOURS["light"], **values}, keep=LAYOUT))


Form = Literal["pdf", "svg", "png"]
"""Of a picture. PDF and SVG have no dots: they stay sharp in any size, and their text is text."""


@dataclass(frozen=True)
class Drawing:
    """A chart with the values of its holes, among which is its `title`: a text, and lines below it; if these are
    wrapped, `notes` are their sentences."""

    chart: Chart
    values: Mapping[str, Any]
    extent: float = 1000.0
    """About its longer side."""

    @property
    def caption(self) -> str:
        """What its title says, sentence by sentence."""
        return "\n".join([self.values["title"]["text"], *self.values.get("notes", self.values["title"]["subtitle"])])

    @property
    def png(self) -> bytes:
        return png(self.chart, extent=self.extent, **self.values)

    def picture(self, form: Form, bare: bool = False) -> bytes:
        """Return it as a file. A `bare` one lacks its title, and the white space around it."""
        import vl_convert  # here: as above

        drawn = self._bare if bare else self
        if form == "png":
            return drawn.png
        filled = _light(drawn.chart, drawn.values)
        if form == "svg":
            return _svg(filled)
        picture: bytes = vl_convert.vegalite_to_pdf(filled, vl_version=VERSION)
        return picture

    def inline(self, name: str) -> str:
        """Return it as an SVG element without its title, for an HTML page whose style has `COLOURS` as variables, and
        in which no other picture has this name."""
        variables = {colour: f"var(--{colour})" for colour in COLOURS["light"]}
        source = _svg(_light(self.chart, {**variables, **self._bare.values})).decode()
        return re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", source)

    @property
    def _bare(self) -> "Drawing":
        return replace(self, values={**self.values, "title": None, "padding": 2})


def _svg(filled: Any) -> bytes:
    import vl_convert  # here: as above

    return str(vl_convert.vegalite_to_svg(filled, vl_version=VERSION)).encode()


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a table as data of a chart, with None for null."""
    return table.astype(object).where(table.notna(), None).to_dict("records")


def text_width(text: str, size: float) -> float:
    """Return about the width of a line of text of `size`: that of digits is 0.56, that of capitals 0.7 of it."""
    return 0.58 * size * len(text)


VERSION = "6.4"
"""Of Vega-Lite, as in the page."""
_TEXT = {"labelColor": hole("ink"), "titleColor": hole("ink"), "labelFontSize": 11, "titleFontSize": 12}
CONFIG: Chart = {
    "background": hole("ground"),
    "font": FONT,
    "padding": hole("padding"),
    "view": {"stroke": None},
    "axis": {
        **_TEXT, "gridColor": hole("line"), "domainColor": hole("muted"), "tickColor": hole("muted"), "labelLimit": 180,
    },
    "legend": {**_TEXT, "labelLimit": 260, "titleLimit": 260},
    "title": {
        "color": hole("ink"), "anchor": "start", "fontSize": 14, "subtitleFontSize": 11.5, "subtitleColor": hole("ink"),
        "subtitlePadding": 5, "offset": 14, "subtitleLineHeight": 16,
    },
    "text": {"color": hole("ink")},
    "range": {"category": list(CATEGORIES)},
}  # fmt: skip


def described(**parts: Any) -> Chart:
    """A description with what all have: text for screen readers, title, config."""
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "description": hole("description"),
        "title": hole("title"),
        **parts,
        "config": CONFIG,
    }


def quantitative(field: str, title: Any, **scale: Any) -> Chart:
    return {"field": field, "type": "quantitative", "title": title, "scale": {"zero": False, **scale}}


# Heatmaps -------------------------------------------------------------------------------------------------------------

_BAND = {"type": "band", "paddingInner": 0.05, "paddingOuter": 0.025}
_CELL_AXIS = {"domain": False, "ticks": False, "labelOverlap": True, "labelPadding": 6, "titlePadding": 8}
_CELL_INK = {
    "condition": [
        {"test": "datum.shade === null", "value": hole("muted")},
        {"test": "luminance(scale('color', datum.shade)) < 0.21", "value": "#ffffff"},
    ],
    "value": "#1b1b1f",
}
"""Of text on a cell: relative luminance as in WCAG 2, so that it can be read on every colour."""


def _outline(colour: Chart, width: float) -> Chart:
    """A frame around the cells of the best settings, and around the chosen one."""
    return {
        "mark": {"type": "rect", "filled": False, "strokeJoin": "round", "aria": False, "strokeWidth": width},
        "encoding": {"stroke": colour},
        "transform": [{"filter": "datum.best || datum.index === chosen"}],
    }


HEATMAP = described(
    width={"step": hole("step")},
    height={"step": hole("tall")},
    data={"name": "cells", "values": hole("cells")},
    params=[{"name": "chosen", "value": hole("chosen")}, {"name": "size", "value": hole("step")}],
    encoding={
        "x": {
            "field": "x", "type": "nominal", "title": hole("columns"), "sort": hole("column_order"), "scale": _BAND,
            "axis": {**_CELL_AXIS, "orient": "bottom", "labelAngle": hole("angle")},
        },
        "y": {
            "field": "y", "type": "nominal", "title": hole("rows"), "sort": hole("row_order"), "scale": _BAND,
            "axis": _CELL_AXIS,
        },
    },
    layer=[
        {
            "name": "cells",
            "mark": {"type": "rect", "cursor": "pointer", "invalid": "show"},
            "encoding": {
                "color": {
                    "condition": {"test": "datum.shade === null", "value": hole("empty")},
                    "field": "shade",
                    "type": "quantitative",
                    "scale": {"scheme": "viridis", "domain": hole("range"), "reverse": hole("reverse"), "clamp": True},
                    "legend": {
                        "title": hole("legend"), "gradientLength": hole("legend_length"), "orient": hole("legend_side"),
                        "gradientThickness": 14, "offset": 16, "labelFontSize": 10, "titleFontSize": 11,
                        "tickCount": 6,
                    },
                },
                "description": {"field": "words"},
                "tooltip": {"field": "tip"},
            },
        },
        _outline({"condition": {"test": "datum.best", "value": "#ffffff"}, "value": None}, 6),
        _outline({"condition": {"test": "datum.index === chosen", "value": hole("ink")}, "value": "#d6283c"}, 3.5),
        {
            "mark": {
                "type": "text", "aria": False, "fontWeight": "bold", "tooltip": {"content": "data"},
                "fontSize": {"expr": "clamp(size / 6, 9.5, 13)"}, "dy": {"expr": "-6 * length(datum.below)"},
            },
            "encoding": {"text": {"field": "text"}, "color": _CELL_INK, "tooltip": {"field": "tip"}},
        },
        {
            "mark": {
                "type": "text", "aria": False, "fontSize": 9.5, "lineHeight": 12, "baseline": "top",
                "dy": {"expr": "8 - 6 * length(datum.below)"}, "tooltip": {"content": "data"},
            },
            "encoding": {"text": {"field": "below"}, "color": _CELL_INK, "tooltip": {"field": "tip"}},
        },
    ],
)  # fmt: skip
"""Cells with `x`, `y`, `shade` (null without a value), `text`, `below` (further lines), `best`, `words` and `tip`."""


# Curves ---------------------------------------------------------------------------------------------------------------

_EPOCHS = {"tickMinStep": 1, "format": "d"}


_LINE = {"field": "line", "type": "nominal", "title": hole("key"), "legend": hole("legend")}
_COLOUR = {"color": {**_LINE, "scale": {"domain": hole("lines"), "range": list(CATEGORIES)}}}
_SHAPE = {
    "shape": {**_LINE, "scale": {"domain": hole("lines"), "range": [name for name in SHAPES for _ in CATEGORIES]}}
}
_DASH = {
    "strokeDash": {
        **_LINE,
        "scale": {"domain": hole("lines"), "range": [list(dashes) for dashes in DASHES for _ in CATEGORIES]},
    }
}
TRAJECTORY = {
    "width": hole("width"),
    "height": hole("height"),
    "title": {"text": hole("metric"), "subtitle": hole("better"), "fontSize": 12, "subtitleColor": hole("muted"),
              "subtitleFontSize": 10.5, "offset": 10, "subtitlePadding": 3},
    "data": {"values": hole("points")},
    "encoding": {
        "x": {"field": "x", "type": "quantitative", "title": "epoch", "axis": {**_EPOCHS, "values": hole("ticks")},
              "scale": {"domain": hole("epochs"), "nice": False}},
    },
    "layer": [
        {
            "transform": [{"filter": "datum.band"}],
            "mark": {"type": "area", "opacity": 0.13, "aria": False},
            "encoding": {"y": {"field": "low", "type": "quantitative"}, "y2": {"field": "high"}, **_COLOUR},
        },
        {
            "transform": [{"filter": "isNumber(datum.bar)"}],
            "mark": {"type": "rule", "strokeWidth": 3, "opacity": 0.6, "aria": False, "strokeCap": "round",
                     "xOffset": {"expr": "datum.bar"}},
            "encoding": {"x": {"value": "width"}, "y": {"field": "low", "type": "quantitative"},
                         "y2": {"field": "high"}, **_COLOUR},
        },
        {
            "transform": [{"filter": "datum.single"}],
            "mark": {"type": "rule", "strokeWidth": 3, "opacity": 0.4, "aria": False},
            "encoding": {"y": {"field": "low", "type": "quantitative"}, "y2": {"field": "high"}, **_COLOUR},
        },
        {
            "mark": {"type": "line", "strokeWidth": 2, "aria": False, "strokeJoin": "round"},
            "encoding": {
                "y": {"field": "mean", "type": "quantitative", "title": None,
                      "scale": {"domain": [hole("least"), hole("most")], "nice": False, "zero": False}},
                **_COLOUR, **_DASH,
            },
        },
        {
            "mark": {"type": "point", "filled": True, "size": 40, "aria": False, "stroke": hole("ground"),
                     "strokeWidth": 0.8},
            "encoding": {
                "y": {"field": "mean", "type": "quantitative"},
                **_COLOUR, **_SHAPE,
                "opacity": {"condition": {"test": "datum.marked", "value": 1}, "value": 0},
                "tooltip": [{"field": "line", "title": hole("key")}, {"field": "epoch"},
                            {"field": "mean", "title": "mean", "format": ".4"}, {"field": "count", "title": "trials"}],
            },
        },
        {
            "transform": [{"filter": "isNumber(datum.label)"}],
            "mark": {"type": "rule", "opacity": 0.5, "aria": False, "x2Offset": hole("gutter")},
            "encoding": {"x2": {"value": "width"}, "y": {"field": "mean", "type": "quantitative"},
                         "y2": {"field": "label"}, **_COLOUR},
        },
        {
            "transform": [{"filter": "isNumber(datum.label)"}],
            "mark": {"type": "text", "align": "left", "dx": 4, "fontSize": 11, "aria": False,
                     "xOffset": hole("gutter")},
            "encoding": {"x": {"value": "width"}, "y": {"field": "label", "type": "quantitative"},
                         "text": {"field": "line"}},
        },
    ],
}  # fmt: skip
"""A metric over the epochs by line, with its interval as bands, or as bars beside the panel."""

ABREAST: Chart = {
    "title": hole("title"),
    "hconcat": hole("panels"),
    "spacing": 30,
    "resolve": {"scale": {channel: "independent" for channel in ("color", "strokeDash", "shape")}},
    "config": CONFIG,
}
"""Filled charts beside each other."""
LEARNING_CURVES = described(
    width=hole("width"),
    height=220,
    data={"name": "points", "values": hole("points")},
    mark={"type": "line", "point": {"size": 18}, "strokeCap": "round", "aria": False},
    encoding={
        "x": {**quantitative("epoch", "epoch"), "axis": _EPOCHS},
        "y": quantitative("value", hole("metric")),
        "detail": {"field": "line"},
        "color": {"condition": {"test": "datum.main", "value": hole("best")}, "value": hole("accent")},
        "opacity": {"condition": {"test": "datum.main", "value": 1}, "value": hole("opacity")},
        "strokeWidth": {"condition": {"test": "datum.main", "value": 2.5}, "value": 1.2},
        "order": {"field": "epoch"},
        "tooltip": [
            {"field": "name", "title": "trial"},
            {"field": "epoch"},
            {"field": "text", "title": hole("metric")},
        ],
    },
)
"""A metric of some trials over the epochs; the `main` one stands out."""


# Comparisons ----------------------------------------------------------------------------------------------------------


def _beside(side: str, line: int) -> Chart:
    """A line of text on the left or right of a strip: the first is prominent."""
    left = side == "left"
    return {
        "data": {"values": [{}]},
        "mark": {
            "type": "text", "text": hole(f"{side}{line}"), "align": "right" if left else "left", "aria": False,
            "xOffset": -12 if left else 12, "fontSize": 9.5 if line else 11, "color": hole("muted" if line else "ink"),
            "fontWeight": "bold" if left and line == 0 else "normal",
        },
        "encoding": {"x": {"value": 0 if left else "width"}, "y": {"value": 10 + 16 * line}},
    }  # fmt: skip


DIFFERENCES: Chart = {
    "width": 460,
    "height": 42,
    "layer": [
        {"data": {"values": [{}]}, "mark": {"type": "rule", "color": hole("muted")}, "encoding": {"x": {"datum": 0}}},
        {
            "data": {"values": hole("points")},
            "mark": {"type": "point", "filled": True, "size": 32, "opacity": 0.55},
            "encoding": {
                "x": {
                    **quantitative("x", None, domain=hole("limits"), nice=False),
                    "axis": {"grid": False, "ticks": False, "tickCount": 5, "domainColor": hole("line"),
                             "labelColor": hole("muted"), "labelFontSize": 10},
                },
                "y": {**quantitative("y", None, domain=[-0.5, 0.5]), "axis": None},
                "color": {
                    "field": "outcome", "type": "nominal", "title": None,
                    "legend": {"orient": "top", "offset": 2, "values": ["B better", "B worse"]},
                    "scale": {"domain": ["B better", "B worse", "neither"], "range": ["#0072b2", "#d55e00", "#7f7f7f"]},
                },
            },
        },
        {
            "data": {"values": hole("mean")},
            "layer": [
                {
                    "transform": [{"filter": "isNumber(datum.low)"}],
                    "mark": {"type": "errorbar", "ticks": {"size": 9}, "color": hole("ink"), "thickness": 1.8},
                    "encoding": {"x": {"field": "low", "type": "quantitative"}, "x2": {"field": "high"},
                                 "y": {"datum": hole("height"), "type": "quantitative"}},
                },
                {
                    "mark": {"type": "point", "filled": True, "shape": "diamond", "size": 60, "color": hole("ink"),
                             "opacity": 1},
                    "encoding": {"x": {"field": "x", "type": "quantitative"},
                                 "y": {"datum": hole("height"), "type": "quantitative"}},
                },
            ],
        },
        *(_beside(side, line) for side in ("left", "right") for line in (0, 1)),
    ],
}  # fmt: skip
"""The paired differences of a metric as points, their mean, and its interval."""
BELOW: Chart = {"title": hole("title"), "vconcat": hole("panels"), "spacing": 14, "config": CONFIG}
"""Filled charts below each other."""

CHARTS: Mapping[str, Chart] = {"curves": LEARNING_CURVES}
"""The descriptions that a page draws with data of its own, besides those of searches and of kinds of figures."""
