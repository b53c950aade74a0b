"""What the page of a sweep says of all of its trials, and which of them it has.

The page of a sweep of up to `MAX_TRIALS` has all of its trials. That of a larger one opens as fast: it has
`KEPT_TRIALS` of them and the cells of its heatmaps, and gets the other trials from `sweeper view` when they are wanted.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pandas as pd

from sweeper.definition import Heatmap
from sweeper.definition.metric import VALIDATION
from sweeper.report.figures import PresetFigures
from sweeper.report.formatting import json_values
from sweeper.report.heatmaps import pivot_of, selection_metric
from sweeper.report.marks import positions
from sweeper.report.page.findings import declared_metrics, known_metric, labelled_name
from sweeper.report.selections import labelled
from sweeper.results.replicates import MEASURED
from sweeper.results.sentences import averaged_over
from sweeper.storage.requests import StoredRequest
from sweeper.storage.rows import PROVENANCE

MAX_TRIALS = 10_000
"""Most trials of a sweep that are all on its page."""
KEPT_TRIALS = 1_000
"""Trials of a larger sweep that are on its page."""
BROKEN_SHARE = 4
"""Of so many of these at most one failed or diverged."""
MAX_CELLS = 50_000
"""Most cells of heatmaps on the page of a larger sweep, of all metrics together."""
POSITION = "position in all rows"
"""A column that no hyperparameter is called."""
MOST_VALUES = 12
"""Most values of a column that are counted."""
SUMMED, TIMES = ("seconds", "device_seconds", "cost"), ("started", "ended")
COUNTED = [
    name
    for name in dict.fromkeys(("code_version", "device", "host", "status", *PROVENANCE))
    if name not in (*SUMMED, *TIMES)
]
"""Columns whose values are counted."""


def course(rows: pd.DataFrame) -> dict[str, Any]:
    """Return how the trials of a request ended and ran: `statuses`, and `counts` of the values of other columns, the
    most frequent first; `sums` of columns, each with the number of trials that have a value; first start and last
    end."""
    summed = [name for name in SUMMED if name in rows and rows[name].notna().any()]
    counted = [name for name in COUNTED if name in rows and rows[name].notna().any()]
    times = [rows["started"].min(), rows["ended"].max()]
    return {
        "statuses": _counts(rows["status"]),
        "sums": [[name, float(rows[name].sum()), int(rows[name].notna().sum())] for name in summed],
        "counts": [[name, sorted(_counts(rows[name]), key=lambda pair: -pair[1])[:MOST_VALUES]] for name in counted],
        **dict(zip(TIMES, json_values(pd.Series(times)), strict=True)),
    }


def _counts(values: pd.Series) -> list[tuple[Any, int]]:
    """Return each value with the number of trials that have it, in the order in which they ended."""
    counts = values.value_counts(sort=False, dropna=False)
    return [*zip(json_values(pd.Series(counts.index, dtype=object)), map(int, counts), strict=True)]


def kept(requests: Sequence[StoredRequest], shown: Mapping[str, PresetFigures]) -> list[int]:
    """Return the positions of the trials that are on the page of a large sweep, in ascending order."""
    share = max(1, KEPT_TRIALS // max(1, len(requests)))
    found = (position for each in requests for position in _kept(each.rows, shown.get(each.preset), share))
    return sorted(set(found))


def _kept(rows: pd.DataFrame, shown: PresetFigures | None, most: int) -> Sequence[int]:
    """Return the positions of the latest trials that failed or diverged, and of the best trials of each setting that
    has a name to a reader, as many of each as there is room for."""
    broken = [*rows.index[rows["status"].isin(("failed", "diverged"))]][::-1][: most // BROKEN_SHARE]
    criterion = selection_metric(rows, shown.headline.name) if shown else ""
    if shown is None or criterion not in rows:
        return list(dict.fromkeys((*broken, *rows.index[::-1])))[:most]
    cost = shown.headline.cost(rows[criterion]).where(rows["status"] == "finished")
    names = [name for name in shown.naming if name in rows]
    groups = cost.groupby([rows[name] for name in names], dropna=False) if names else cost
    ranked = pd.DataFrame({"rank": groups.rank(method="first"), "cost": cost}).sort_values(["rank", "cost"])
    return list(dict.fromkeys((*broken, *ranked.index[:most])))[:most]


def heatmap_cells(
    shown: PresetFigures, rows: pd.DataFrame, metrics: Sequence[str], best: Mapping[str, Mapping[str, Sequence[int]]]
) -> list[dict[str, Any]]:
    """Return the cells of each heatmap of a preset, or over its first two axes where it has none: its axes with their
    values, and of each metric the columns of cells, those with a best setting and those not told apart from it.

    `best` are the positions in `rows` of the trials of the best settings, and of those not told apart from them, by
    metric. Metrics beyond `MAX_CELLS` cells are left out, the last ones first.
    """
    found, left = list[dict[str, Any]](), MAX_CELLS
    for heatmap in _heatmaps(shown, rows):
        own, axes = labelled(rows.assign(**{POSITION: rows.index}), heatmap.selections), heatmap.axes
        if own.empty or not {*axes} <= {*own}:
            continue
        over = averaged_over(own, axes, shown.repeats, shown.over)
        drawn: dict[str, Any] = {"rows": axes[0], "columns": axes[1], "over": asdict(over), "metrics": {}}
        for name in dict.fromkeys((heatmap.metric.name, *metrics)):
            if name not in metrics:
                continue
            cells = pivot_of(known_metric(declared_metrics([shown]), name), own, axes, shown.repeats)
            left -= len(cells)
            if left < 0:
                break
            drawn["values"] = [json_values(cells[axis].drop_duplicates()) for axis in axes]
            plain = name.removeprefix(VALIDATION)
            of_all = best.get(plain) or best.get(f"{VALIDATION}{plain}") or {}
            chosen = best.get(labelled_name(heatmap), of_all) if name == heatmap.metric.name else of_all
            drawn["metrics"][name] = _columns(cells) | {
                kind: positions(cells, own, axes, chosen.get(kind, ()), POSITION) for kind in ("trials", "alike")
            }
        if drawn["metrics"]:
            found.append(drawn)
    return found


def _heatmaps(shown: PresetFigures, rows: pd.DataFrame) -> Iterator[Heatmap]:
    """Yield a heatmap for each pair of axes."""
    heatmaps = shown.of_kind(Heatmap)
    axes = [name for name in shown.axes if name in rows and rows[name].nunique(dropna=False) > 1]
    if not heatmaps and not shown.objectives and len(axes) > 1:
        yield Heatmap(shown.headline, axes[0], axes[1])
    seen = set[tuple[str, str]]()
    for heatmap in heatmaps:
        if heatmap.axes not in seen:
            seen.add(heatmap.axes)
            yield heatmap


def _columns(cells: pd.DataFrame) -> dict[str, Any]:
    """Return the figures of cells as a page has them."""
    return {name: json_values(cells[name]) for name in MEASURED}
