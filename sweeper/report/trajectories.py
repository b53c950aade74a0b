"""Trajectories: mean and standard deviation of metrics over the epochs by hyperparameter, as Parquet and a figure."""

from functools import partial

import pandas as pd

from sweeper.report.curve_figure import draw
from sweeper.report.formatting import DASH, ValueText, plain_text
from sweeper.report.style import png
from sweeper.spec.views import Trajectory
from sweeper.storage.files import Files
from sweeper.storage.layout import figure_path


def average(
    history: pd.DataFrame, rows: pd.DataFrame, trajectory: Trajectory, value_text: ValueText = plain_text
) -> pd.DataFrame:
    """Average the reports of the trials in `rows`. Returns one row per value of `by`, metric and reported epoch.

    The columns are `trajectory.key`, `metric`, `epoch`, `mean`, `std` (ddof=1) and `count`. Values of `by` are in the
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
    reports = reports.merge(pd.DataFrame({"trial_id": lines["trial_id"], "line": order}), on="trial_id")
    reports = reports.assign(
        line=reports["line"].astype("int64"),
        panel=reports["metric"].map({name: panel for panel, name in enumerate(metrics)}).astype("int64"),
        value=reports["value"].astype("float64"),
    )
    points = reports.groupby(["line", "panel", "epoch"])["value"].agg(["mean", "std", "count"]).reset_index()
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
    value_text: ValueText = plain_text,
) -> pd.DataFrame:
    """Write `trajectories/FOLDER/NAME.parquet` and `.png`, with `about` below the title. Returns the averages."""
    points = average(history, rows, trajectory, value_text)
    path = figure_path("trajectories", folder, trajectory.name)
    files.write(f"{path}.parquet", points.to_parquet(index=False))
    files.write(f"{path}.png", png(draw(points, trajectory, about, value_text)))
    return points


def _joined(values: pd.DataFrame, value_text: ValueText) -> list[str]:
    columns = [map(partial(value_text, str(name)), values[name]) for name in values]
    return [", ".join(text for text in texts if text != DASH) for texts in zip(*columns, strict=True)]
