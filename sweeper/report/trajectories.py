"""Trajectories: mean and 95 % interval of metrics over the epochs by hyperparameter, as Parquet and a figure."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from sweeper.definition.figures import Trajectory
from sweeper.definition.metric import SPREADS, Metric
from sweeper.definition.sweep import SEEDS, Repeats
from sweeper.report import charts
from sweeper.report.figures import Shown
from sweeper.report.formatting import ValueText, distinct_texts, json_values, plain_text
from sweeper.results.replicates import Repetition, repetition, summarise
from sweeper.results.sentences import NO_NOUNS, Over, averaged_over, described
from sweeper.storage.files import Files
from sweeper.storage.layout import figure_path
from sweeper.storage.rows import plain_value

HEIGHT, LABEL_HEIGHT = 260, 15
"""Height of a panel, and of the name of a line at its end."""
MAX_BANDS = 3
"""Maximum number of lines whose interval is drawn as a band. With more, overlapping bands could not be told apart, so
each line has a bar beside the panel instead: its interval at the last epoch."""
BAR_SPACING, MAX_BARS_WIDTH = 9.0, 110.0
"""Distance between two such bars, and maximum width of all bars together."""
MAX_END_LABELS, MAX_END_LABEL_WIDTH = 8, 210.0
"""Most lines that are named at their ends, and widest name; otherwise there is a legend."""
MAX_RANGE_RATIO = 2.5
"""Panels share their vertical axis if the range of all metrics is at most this times that of the narrowest metric."""

FOLDER, TITLE = "trajectories", "Trajectories"
CHARTS: Mapping[str, charts.Chart] = {"trajectory": {**charts.TRAJECTORY, "config": charts.CONFIG}}


def publish(files: Files, folder: str, shown: Shown, trajectory: Trajectory) -> None:
    """Write a trajectory, unless none of its selections has a trial."""
    rows, clause = shown.of_best_settings(shown.rows_of(trajectory), trajectory)
    if trajectory.selections and rows.empty:
        return
    over = averaged_over(rows, trajectory.by, shown.preset.repeats)
    options: dict[str, Any] = {"about": shown.about, "value_text": shown.value_text, "clause": clause, "over": over}
    write(files, folder, shown.history(), rows, trajectory, repeats=shown.preset.repeats, **options)


def draw(shown: Shown, trajectory: Trajectory) -> charts.Drawing:
    """Return the picture of a trajectory."""
    rows, clause = shown.of_best_settings(shown.rows_of(trajectory), trajectory)
    over = averaged_over(rows, trajectory.by, shown.preset.repeats)
    points = average(shown.history(), rows, trajectory, shown.value_text, shown.preset.repeats)
    return drawing(points, trajectory, shown.about, caption(points, trajectory, over, clause), shown.value_text)


def on_page(shown: Shown, trajectory: Trajectory) -> dict[str, Any] | None:
    """Return a trajectory: its caption and a chart for each metric; None if no trial has reported one."""
    rows, clause = shown.of_best_settings(shown.rows_of(trajectory), trajectory)
    points = average(shown.history(), rows, trajectory, shown.value_text, shown.preset.repeats)
    if points.empty:
        return None
    drawn = []
    for panel in panels(points, trajectory, shown.value_text):
        data = {str(name): json_values(values) for name, values in panel.pop("points").items()}
        axis = 60 + (panel["legend"]["offset"] if panel["legend"] else panel["gutter"])
        names = 20 + 6.6 * max(map(len, panel["lines"]))
        margins = [axis + names, axis if panel["legend"] else axis + names]
        drawn.append({"chart": "trajectory", "values": panel, "data": {"points": data}, "margins": margins})
    return {
        "name": trajectory.name,
        "captions": dict.fromkeys(
            SPREADS, caption(points, trajectory, averaged_over(rows, trajectory.by, shown.preset.repeats), clause)
        ),
        "charts": drawn,
    }


def average(
    history: pd.DataFrame,
    rows: pd.DataFrame,
    trajectory: Trajectory,
    value_text: ValueText = plain_text,
    repeats: Repeats = SEEDS,
) -> pd.DataFrame:
    """Average the reports of the trials in `rows`. Returns one row per value of `by`, metric and reported epoch.

    The columns are `trajectory.key`, `metric`, `epoch` and those of `replicates.summarise`. Values of `by` are in the
    order of their first appearance in `rows`, metrics in that of the trajectory, and epochs ascend. An epoch whose
    reports are all null has count 0. A trial that is in `rows` several times counts for each of its lines. If `by` has
    several hyperparameters, one column holds their values as text, by `value_text`.
    """
    by, metrics = trajectory.key, [metric.name for metric in trajectory.metrics]
    lines = rows.reindex(columns=["trial_id", *trajectory.by])
    if len(trajectory.by) > 1:
        lines[by] = _joined(lines[list(trajectory.by)], value_text)
    order, distinct = pd.factorize(lines[by], use_na_sentinel=False)
    reports = history[history["metric"].isin(metrics)]
    repeated = repetition(rows, repeats, trajectory.by)
    of_trials = pd.DataFrame({"trial_id": lines["trial_id"], "line": order})
    of_trials = of_trials.assign(replicate=repeated.replicate_T, fixed=repeated.fixed_T)
    reports = reports.merge(of_trials, on="trial_id")
    reports = reports.assign(
        line=reports["line"].astype("int64"),
        panel=reports["metric"].map({name: panel for panel, name in enumerate(metrics)}).astype("int64"),
        value=reports["value"].astype("float64"),
    )
    groups = reports.groupby(["line", "panel", "epoch"])
    points = groups.size().reset_index()[["line", "panel", "epoch"]]
    share = np.array([metric.bounds is not None for metric in trajectory.metrics])[points["panel"]]
    of_reports = Repetition(reports["replicate"].to_numpy(), reports["fixed"].to_numpy())
    measured = summarise(reports["value"], groups.ngroup().to_numpy(), of_reports, groups.ngroups, share)
    points = pd.concat([points, measured], axis=1)
    keys = {
        by: pd.Series(distinct.take(points.pop("line")), dtype=lines[by].dtype),
        "metric": pd.Series([metrics[panel] for panel in points.pop("panel")], dtype="str"),
    }
    return pd.concat([pd.DataFrame(keys), points], axis=1)


def write(
    files: Files,
    folder: str,
    history: pd.DataFrame,
    rows: pd.DataFrame,
    trajectory: Trajectory,
    *,
    about: str = "",
    clause: str = "",
    value_text: ValueText = plain_text,
    repeats: Repeats = SEEDS,
    over: Over = NO_NOUNS,
) -> pd.DataFrame:
    """Write `trajectories/FOLDER/NAME.parquet` and `.png`, with `about` below the title and a `clause` that ends the
    caption. Returns the averages."""
    points = average(history, rows, trajectory, value_text, repeats)
    path = figure_path(FOLDER, folder, trajectory.file)
    files.write(f"{path}.parquet", points.to_parquet(index=False))
    said = caption(points, trajectory, over, clause)
    files.write(f"{path}.png", drawing(points, trajectory, about, said, value_text).png)
    return points


def drawing(
    points: pd.DataFrame, trajectory: Trajectory, about: str, said: str, value_text: ValueText
) -> charts.Drawing:
    """Return the picture of what `average` returned, with `about` and what is `said` of it below the title."""
    shown = panels(points, trajectory, value_text)
    colours = {name: charts.hole(name) for name in charts.COLOURS["light"]}
    drawn = [
        charts.fill(charts.TRAJECTORY, {**colours, **panel, "points": charts.records(panel["points"])})
        for panel in (*({**panel, "legend": None} for panel in shown[:-1]), shown[-1])
    ]
    title = {"text": trajectory.name, "subtitle": list(filter(None, (about, said)))}
    chart = {**charts.ABREAST, "hconcat": drawn}
    return charts.Drawing(chart, {"title": title, "padding": charts.PADDING}, sum(panel["width"] for panel in shown))


def panels(points: pd.DataFrame, trajectory: Trajectory, value_text: ValueText = plain_text) -> list[dict[str, Any]]:
    """Return the values of `charts.TRAJECTORY` for each metric, with a data frame of `points`.

    `points` are those of `average`. Panels of metrics in percent share their vertical axis if their ranges are similar.
    """
    key, values = trajectory.key, points[trajectory.key].drop_duplicates()
    names = dict(zip(values, distinct_texts(values, key, value_text), strict=True))
    longest = max((charts.text_width(name, 11) for name in names.values()), default=0.0)
    labelled = len(names) <= MAX_END_LABELS and longest <= MAX_END_LABEL_WIDTH
    single = points["epoch"].nunique() == 1
    banded, barred = len(names) <= MAX_BANDS and not single, len(names) > MAX_BANDS and not single
    bars = min(MAX_BARS_WIDTH, BAR_SPACING * (len(names) + 1)) if barred and points["low"].notna().any() else 0.0
    shown = [
        _points_of(metric, points, key, names, banded=banded, bars=bars, single=single) for metric in trajectory.metrics
    ]
    ranges = [_range(own, metric) for own, metric in zip(shown, trajectory.metrics, strict=True)]
    if all(metric.percent for metric in trajectory.metrics) and _are_similar(ranges):
        ranges = [(min(low for low, _ in ranges), max(high for _, high in ranges))] * len(ranges)
    found = []
    for metric, own, (least, most) in zip(trajectory.metrics, shown, ranges, strict=True):
        own["low"], own["high"] = own["low"].clip(least, most), own["high"].clip(least, most)
        if labelled and len(own):
            ends = own[own["is_end"]].sort_values("mean", kind="stable")
            gap = LABEL_HEIGHT / HEIGHT * (most - least)
            own["label"] = pd.Series(spread(ends["mean"].tolist(), gap, least, most), ends.index)
        low, high = (float(own["x"].min()), float(own["x"].max())) if len(own) else (0.0, 1.0)
        margin = 0.7 - (high - low) / 2 if single else 0.03 * (high - low) or 0.7
        found.append(
            {
                "description": f"{metric.label} over the epochs by {key}",
                "metric": metric.label,
                "better": (f"{metric.better} is better" if metric.direction else "") if len(own) else "no value yet",
                "key": key,
                "lines": list(names.values()),
                "points": own.drop(columns="is_end"),
                "least": least,
                "most": most,
                "epochs": [low - margin, high + margin],
                "ticks": [int(own["epoch"].iloc[0])] if own["epoch"].nunique() == 1 else None,
                "gutter": bars + 14,
                "legend": None
                if labelled
                else {"orient": "right", "offset": bars + 18, "symbolOpacity": 1, "symbolStrokeWidth": 0},
                "width": 420,
                "height": HEIGHT,
            }
        )
    return found


def caption(points: pd.DataFrame, trajectory: Trajectory, over: Over = NO_NOUNS, clause: str = "") -> str:
    """Return what the lines average over, and what shows their interval, with a clause at the end."""
    text = described(points.assign(fixed_std=math.nan), over)
    barred = points[trajectory.key].nunique(dropna=False) > MAX_BANDS and points["epoch"].nunique() > 1
    shown = f"{text}{', which bars show at the end' * (barred and '[' in text)}"
    return "; ".join(filter(None, [", ".join(filter(None, [f"by {trajectory.key}", shown])), clause]))


def _points_of(
    metric: Metric, points: pd.DataFrame, key: str, names: Mapping[Any, str], *, banded: bool, bars: float, single: bool
) -> pd.DataFrame:
    """Return the finite points of a metric in the unit of its label, line by line."""
    own = points[(points["metric"] == metric.name) & np.isfinite(points["mean"])].reset_index(drop=True)
    scale = 100.0 if metric.percent else 1.0
    order = own[key].map({value: index for index, value in enumerate(names)})
    order = order.fillna(next((index for index, value in enumerate(names) if pd.isna(value)), 0)).astype("int64")
    mean, low, high = (scale * own[name] for name in ("mean", "low", "high"))
    last = own.groupby(order)["epoch"].transform("max")
    position = own.groupby(order).cumcount(ascending=False)
    step = (own.groupby(order)["epoch"].transform("size") // 16).clip(lower=1)
    is_end = own["epoch"] == last
    alone = own.groupby(order)["epoch"].transform("size") == 1
    return pd.DataFrame(
        {
            "line": [list(names.values())[index] for index in order],
            "epoch": own["epoch"],
            "x": own["epoch"] + (0.8 * ((order + 0.5) / len(names) - 0.5) if single else 0.0),
            "mean": mean,
            "low": low,
            "high": high,
            "count": own["count"],
            "marked": position % step == 0,
            "band": banded & ~alone & low.notna(),
            "single": alone & low.notna(),
            "bar": (8 + bars * (order + 0.5) / len(names)).where(is_end & ~alone & low.notna() & (bars > 0)),
            "label": pd.Series(np.nan, own.index),
            "is_end": is_end,
        }
    )


def _range(own: pd.DataFrame, metric: Metric) -> tuple[float, float]:
    """Return the vertical range that shows the points and their drawn intervals."""
    if own.empty:
        return 0.0, 1.0
    drawn = own[own["band"] | own["single"] | own["bar"].notna()]
    values = pd.concat([own["mean"], drawn["low"], drawn["high"]])
    low, high = float(values.min()), float(values.max())
    margin = 0.04 * (high - low) or abs(high) * 0.05 or 1.0
    low, high = low - margin, high + margin
    if metric.percent and own["mean"].min() >= 0.0 and own["mean"].max() <= 100.0:
        return max(low, -1.0), min(high, 101.0)
    return low, high


def _are_similar(ranges: Sequence[tuple[float, float]]) -> bool:
    narrowest = min(high - low for low, high in ranges)
    return narrowest * MAX_RANGE_RATIO >= max(high for _, high in ranges) - min(low for low, _ in ranges)


def _joined(values: pd.DataFrame, value_text: ValueText) -> list[str]:
    """Return the text of each row, which other rows have only if all of their values are equal. Nulls are left out
    unless two rows would then have one text."""
    keys = [*zip(*(map(plain_value, values[name]) for name in values), strict=True)]
    texts: dict[tuple[Any, ...], str] = {}
    for write_value, has_nulls in ((value_text, False), (value_text, True), (plain_text, True)):
        for key in dict.fromkeys(keys):
            named = zip(map(str, values), key, strict=True)
            texts[key] = ", ".join(write_value(*each) for each in named if has_nulls or each[1] is not None)
        if len({*texts.values()}) == len(texts):
            break
    return [texts[key] for key in keys]


def spread(positions: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move ascending positions so that neighbours are at least `gap` apart, within [low, high] if they fit.

    The sum of the squared moves is minimal: this is isotonic regression of `positions[i] - i * gap`.
    """
    if not positions:
        return []
    offsets = gap * np.arange(len(positions))
    fitted = isotonic_regression(np.asarray(positions) - offsets)
    return list(np.maximum(low, np.minimum(high - offsets[-1], fitted)) + offsets)


def isotonic_regression(values: Iterable[float]) -> list[float]:
    """Return the ascending sequence with the least sum of squared distances from the values.

    Pool adjacent violators: values that descend are replaced by their mean. Libraries have it, too, but take half a
    second to import.
    """
    pools: list[tuple[float, int]] = []  # sum and number of the values that share a mean
    for value in values:
        pools.append((float(value), 1))
        while len(pools) > 1 and pools[-2][0] * pools[-1][1] > pools[-1][0] * pools[-2][1]:
            (last, last_count), (total, count) = pools.pop(), pools.pop()
            pools.append((total + last, count + last_count))
    return [total / count for total, count in pools for _ in range(count)]
