"""Charts of searches, as descriptions of which `charts` says more."""

from collections.abc import Mapping

from sweeper.report.charts import CATEGORIES, DASHES, Chart, described, hole, quantitative

STATUS_COLOURS = {
    "finished": "#0072b2", "earlier": "#8a6fd1", "infeasible": "#cc79a7", "pruned": "#9a9ea8", "diverged": "#b8860b",
    "failed": "#d55e00",
}  # fmt: skip
"""State of a trial in the history of a search -> its colour; `earlier` is one of a warm start, and `infeasible` one
that finished but does not meet a constraint."""

_STATUS = {
    "field": "status", "type": "nominal", "title": None,
    "legend": {"orient": "top", "symbolType": "circle", "values": hole("statuses"), "offset": 4},
    "scale": {"domain": list(STATUS_COLOURS), "range": list(STATUS_COLOURS.values())},
}  # fmt: skip
HISTORY = described(
    width=hole("width"),
    height=250,
    data={"name": "trials", "values": hole("trials")},
    encoding={
        "x": {**quantitative("number", "trial", padding=8, nice=False), "axis": {"tickMinStep": 1, "format": "d"}},
    },
    layer=[
        {
            "mark": {
                "type": "line", "interpolate": "step-after", "color": hole("best"), "strokeWidth": 2, "aria": False,
            },
            "encoding": {"y": quantitative("best", hole("metric"), padding=8)},
        },
        {
            "mark": {"type": "point", "filled": True, "size": 40, "opacity": 1, "aria": False},
            "encoding": {
                "y": quantitative("value", hole("metric"), padding=8),
                "color": _STATUS,
                "tooltip": [
                    {"field": "number", "title": "trial"}, {"field": "text", "title": hole("metric")},
                    {"field": "status"},
                ],
            },
        },
    ],
)  # fmt: skip
"""The objective of each trial of a study by its number, and as steps the best value so far."""

_STUDY = {"field": "study", "type": "nominal", "title": None, "legend": hole("legend")}
_STUDY_COLOUR = {**_STUDY, "scale": {"domain": hole("studies"), "range": list(CATEGORIES)}}
_STUDY_DASH = {
    **_STUDY,
    "scale": {"domain": hole("studies"), "range": [list(dashes) for dashes in DASHES for _ in CATEGORIES]},
}
PROGRESS = described(
    width=hole("width"),
    height=270,
    data={"name": "points", "values": hole("points")},
    encoding={
        "x": {**quantitative("number", "trial", padding=8, nice=False), "axis": {"tickMinStep": 1, "format": "d"}},
        "y": quantitative("best", hole("metric"), padding=8),
        "color": _STUDY_COLOUR,
    },
    layer=[
        {
            "mark": {"type": "line", "interpolate": "step-after", "strokeWidth": 2, "aria": False},
            "encoding": {"strokeDash": _STUDY_DASH},
        },
        {
            "transform": [{"filter": "datum.improves"}],
            "mark": {"type": "point", "filled": True, "size": 40, "opacity": 1, "aria": False},
            "encoding": {
                "tooltip": [
                    {"field": "study"}, {"field": "number", "title": "trial"},
                    {"field": "text", "title": hole("metric")},
                ],
            },
        },
    ],
)  # fmt: skip
"""The best value so far of each study over its trials, and a point for each trial that improved it."""

IMPORTANCE = described(
    width=hole("width"),
    height={"step": 28},
    data={"name": "shares", "values": hole("shares")},
    transform=[{"calculate": "datum.share < 0.005 ? '<1%' : format(datum.share, '.0%')", "as": "text"}],
    encoding={
        "x": {
            **quantitative("share", hole("axis"), nice=False, domain=[0, hole("most")]),
            "axis": {"format": "%", "tickCount": 4},
        },
        "y": {"field": "parameter", "type": "nominal", "title": None, "sort": None, "axis": {"ticks": False}},
    },
    layer=[
        {"mark": {"type": "bar", "color": hole("accent"), "height": {"band": 0.65}}},
        {
            "mark": {"type": "text", "align": "left", "dx": 4, "aria": False},
            "encoding": {"text": {"field": "text"}},
        },
    ],
)
"""The importance of each parameter, a share of the objective's variance, as a bar."""

PARALLEL = described(
    width=hole("width"),
    height=270,
    encoding={
        "x": {
            "field": "axis", "type": "nominal", "sort": hole("axes"), "title": None, "scale": {"padding": 0.1},
            "axis": {
                "labelAngle": 0, "orient": "bottom", "domain": False, "ticks": False, "grid": True, "labelPadding": 20,
                "labelOverlap": False, "labelFontWeight": "bold",
            },
        },
        "y": {"field": "place", "type": "quantitative", "axis": None, "scale": {"domain": [0, 1]}},
    },
    layer=[
        {
            "data": {"name": "lines", "values": hole("lines")},
            "mark": {
                "type": "line", "strokeWidth": hole("thickness"), "opacity": 0.75, "aria": False,
                "point": {"size": 40, "opacity": 0},  # only points have a tooltip
            },
            "encoding": {
                "detail": {"field": "trial"},
                "color": {
                    **quantitative("objective", hole("metric"), range=hole("shades")),
                    "legend": {"type": "gradient", "gradientLength": 150, "tickCount": 5},
                },
                "order": {"field": "order", "type": "quantitative"},
                "tooltip": [{"field": "words", "title": "at"}, {"field": "text", "title": hole("metric")}],
            },
        },
        *(
            {
                "data": {"name": name, "values": hole("ends")},
                "mark": {
                    "type": "text", "fontSize": 10, "dx": 4, "align": "left", "aria": False, "fontWeight": 600,
                    "dy": {"expr": "datum.place === 1 ? -8 : datum.place === 0 ? 9 : 0"}, **halo,
                },
                "encoding": {"text": {"field": "text"}},
            }
            for name, halo in (
                ("halos", {"stroke": hole("ground"), "strokeWidth": 3, "strokeJoin": "round"}), ("ends", {}),
            )
        ),
    ],
)  # fmt: skip
"""An axis for each parameter and the objective, a line for each trial; `shades` of the lowest and the highest value."""

FRONT = described(
    width=hole("width"),
    height=260,
    data={"name": "trials", "values": hole("trials")},
    encoding={"x": quantitative("x", hole("first")), "y": quantitative("y", hole("second"))},
    layer=[
        {
            "transform": [{"filter": "datum.front"}],
            "mark": {"type": "line", "color": hole("best"), "opacity": 0.6, "strokeWidth": 1.4, "aria": False},
            "encoding": {"order": {"field": "x"}},
        },
        {
            "mark": {"type": "point", "filled": True, "aria": False},
            "encoding": {
                "color": {"condition": {"test": "datum.front", "value": hole("best")}, "value": hole("accent")},
                "size": {"condition": {"test": "datum.front", "value": 60}, "value": 36},
                "opacity": {"condition": {"test": "datum.front", "value": 1}, "value": 0.55},
                "tooltip": [
                    {"field": "trial"}, {"field": "first", "title": hole("first")},
                    {"field": "second", "title": hole("second")},
                ],
            },
        },
    ],
)  # fmt: skip
"""Two objectives of each trial, and the front of those than which no other is better in both."""

CONTOUR = described(
    width=440,
    height=320,
    encoding={
        axis: {
            **quantitative(axis, hole(name), nice=False, type=hole(f"{name}_scale"), domain=hole(f"{name}_range")),
            "axis": hole(f"{name}_axis"),
        }
        for axis, name in (("x", "first"), ("y", "second"))
    },
    layer=[
        {
            "data": {"values": hole("grid")},
            "mark": {"type": "rect", "aria": False, "clip": True},
            "encoding": {
                "x2": {"field": "x2"},
                "y2": {"field": "y2"},
                "color": {
                    "field": "value", "type": "quantitative", "title": hole("metric"),
                    "scale": {"scheme": "viridis", "reverse": hole("reverse"), "nice": False, "zero": False},
                    "legend": {"gradientLength": 290, "tickCount": 6, "offset": 14},
                },
            },
        },
        {
            "data": {"values": hole("trials")},
            "mark": {
                "type": "point", "filled": True, "color": "#1b1b1f", "stroke": "#ffffff", "strokeWidth": 0.8,
                "opacity": 1, "size": hole("size"), "aria": False,
            },
        },
    ],
)  # fmt: skip
"""The objective over two parameters, interpolated between the trials."""

CHARTS: Mapping[str, Chart] = {
    "history": HISTORY, "progress": PROGRESS, "importance": IMPORTANCE, "parallel": PARALLEL, "front": FRONT,
}  # fmt: skip
"""The descriptions that a page draws with data of its own."""
