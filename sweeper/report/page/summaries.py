"""The summary that the page of a sweep leaves in `reports/NAME.summary.json`, from which the list of sweeps is made."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any

import numpy as np
import pandas as pd

from sweeper.report.formatting import format_significant
from sweeper.report.guard import made
from sweeper.report.heatmaps.colour_scale import colour_scale
from sweeper.report.heatmaps.heatmap_cells import pivot
from sweeper.report.page.preset_views import PresetViews
from sweeper.report.selections import labelled
from sweeper.spec.metric import VALIDATION
from sweeper.spec.views import Heatmap
from sweeper.storage.files import Files, read_record
from sweeper.storage.layout import summary_path
from sweeper.storage.rows import STATUSES
from trainables.json_input import Count, Length, Range

MAX_SENTENCES, MAX_TEXT = 3, 500
"""Most sentences about best settings of a card, and most characters of a text."""
MAX_SIDE = 60
"""Most rows and most columns of a heatmap that is drawn on a card."""

Shade = Annotated[float, Range(0, 1)]
"""The brightness of a cell, from the worst to the best of a heatmap's colours."""
Time = Annotated[float, Range(0, datetime(9999, 1, 1, tzinfo=UTC).timestamp())]


@dataclass(frozen=True)
class Thumbnail:
    """A heatmap without its numbers. Raises ValueError if it has no cells, or rows of different length."""

    caption: str
    shades: Annotated[list[Annotated[list[Shade | None], Length(MAX_SIDE)]], Length(MAX_SIDE)]
    """`[rows][columns]`; None for a cell without a value."""

    def __post_init__(self) -> None:
        lengths = {len(row) for row in self.shades}
        if len(lengths) != 1 or 0 in lengths:
            raise ValueError("the rows of a heatmap must have one length, which is not 0")


@dataclass(frozen=True)
class Summary:
    """What the list of sweeps says of one. Raises ValueError if more trials have ended than there are."""

    about: str
    counts: Annotated[Mapping[str, Count], Length(len(STATUSES))]
    """Status -> number of trials of all requests."""
    request: str = ""
    """The request with the latest row; empty if there are no rows."""
    requests: Count = 0
    """Number of requests that have rows."""
    done: Count = 0
    """Number of trials of the request that have a row."""
    total: Count | None = None
    """Number of all trials of the request; None if that is not known, as of a search."""
    best: Annotated[list[str], Length(MAX_SENTENCES + 1)] = field(default_factory=list)
    """Sentences about the best settings of the request."""
    last: Time | None = None
    """When the latest row came, in seconds since 1970."""
    heatmap: Thumbnail | None = None
    """The first one of the request."""

    def __post_init__(self) -> None:
        if self.total is not None and self.total < self.done:
            raise ValueError(f"{self.done} of {self.total} trials cannot have ended")


def summarise(report: Mapping[str, Any], shown: Mapping[str, PresetViews], rows: pd.DataFrame) -> Summary:
    """Return the summary of a sweep from the `report` of its page, the views of its presets, and all of its rows."""
    statuses = rows["status"].value_counts()
    summary = Summary(str(report["about"])[:MAX_TEXT], {name: int(statuses.get(name, 0)) for name in STATUSES})
    if not report["requests"]:
        return summary
    latest = report["requests"][0]
    own = rows.loc[[index for first, count in latest["trials"] for index in range(first, first + count)]]
    views, ended = shown.get(latest["preset"]), rows["ended"].max()
    return replace(
        summary,
        request=str(latest["label"])[:MAX_TEXT],
        requests=len(report["requests"]),
        done=len(own),
        total=latest["total"],
        best=_best(views, latest["best"]),
        last=None if pd.isna(ended) else ended.timestamp(),
        heatmap=made(_left_out, "heatmap", partial(_thumbnail, views, own[own["status"] != "pruned"])),
    )


def read_summary(files: Files, name: str) -> Summary | None:
    """Return what the page of a sweep wrote; None if it wrote nothing or the file is damaged, which a line says."""
    return read_record(files, summary_path(name), Summary)


def write_summary(files: Files, name: str, summary: Summary) -> None:
    """Write what the list of sweeps says of this one. Raises StoreError if that is not possible."""
    files.write(summary_path(name), json.dumps(asdict(summary), separators=(",", ":"), allow_nan=False).encode())


def _best(views: PresetViews | None, best: Mapping[str, Any]) -> list[str]:
    """Return the first sentences about the metric by which the preset decides, as in the head of the page."""
    plain = views.headline.name.removeprefix(VALIDATION) if views else ""
    said: list[str] = (best.get(plain) or best.get(f"{VALIDATION}{plain}") or {"text": []})["text"]
    more = [f"and {len(said) - MAX_SENTENCES} more lines on the page"] if len(said) > MAX_SENTENCES else []
    return [*(sentence[:MAX_TEXT] for sentence in said[:MAX_SENTENCES]), *more]


def _left_out(reason: str) -> None:
    """A heatmap that fails for its data is not drawn; the page says why."""


def _thumbnail(views: PresetViews | None, rows: pd.DataFrame) -> Thumbnail | None:
    """Return the first heatmap of the preset that has values and is small enough."""
    shown = (_shades(view, labelled(rows, view.selections)) for view in (views.heatmaps if views else ()))
    return next(filter(None, shown), None)


def _shades(view: Heatmap, rows: pd.DataFrame) -> Thumbnail | None:
    if not {*view.axes, view.metric.name} <= {*rows.columns} or rows.empty:
        return None
    metric, cells = view.metric, pivot(rows, view.metric.name, view.axes)
    if metric.percent:
        cells = cells.assign(mean=100 * cells["mean"], std=100 * cells["std"])
    across, finite = cells[view.columns].nunique(dropna=False), cells["mean"][np.isfinite(cells["mean"])]
    if finite.empty or max(across, len(cells) // across) > MAX_SIDE:
        return None
    scale = colour_scale(cells, metric.bounds)
    places = ((finite - scale.low) / (scale.high - scale.low)).clip(0, 1)
    shades = (1 - places if metric.better == "lower" else places).round(3).to_dict()
    table = [[shades.get(start + column) for column in range(across)] for start in range(0, len(cells), across)]
    low, high = (format_significant(float(value)) for value in (finite.min(), finite.max()))
    text = f"{metric.label} from {low} to {high}, {view.rows} by {view.columns}"
    return Thumbnail(f"{text}; bright is {metric.better}"[:MAX_TEXT], table)
