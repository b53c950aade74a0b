"""History and rows -> mean and spread of metrics over the epochs, by a hyperparameter -> Parquet and a figure."""

import io

import pandas as pd

from sweeper.report.curves import draw
from sweeper.report.heatmap import NOTHING
from sweeper.report.paper_table import labels
from sweeper.spec.views import Trajectory
from sweeper.storage.io.files import Files


def average(history: pd.DataFrame, rows: pd.DataFrame, trajectory: Trajectory) -> pd.DataFrame:
    """One row for each value of `by`, metric and epoch that some trial of `rows` reported: mean, std (ddof 1), count.

    Values of `by` are in the order of their first appearance in `rows`, metrics in the trajectory's, epochs ascend.
    An epoch whose reports are all null has count 0. Reports of trials that are not in `rows` are left out. Where `by`
    is several hyperparameters, one column holds their values as text.
    """
    by, metrics = trajectory.key, [metric.name for metric in trajectory.metrics]
    lines = rows.reindex(columns=["trial_id", *trajectory.by])
    if len(trajectory.by) > 1:
        lines[by] = _joined(lines[list(trajectory.by)])
    order, distinct = pd.factorize(lines[by], use_na_sentinel=False)
    line_of = dict(zip(lines["trial_id"], order, strict=True))
    mine = history[history["trial_id"].isin(line_of) & history["metric"].isin(metrics)]
    mine = mine.assign(
        line=mine["trial_id"].map(line_of).astype("int64"),
        panel=mine["metric"].map({name: place for place, name in enumerate(metrics)}).astype("int64"),
        value=mine["value"].astype("float64"),
    )
    found = mine.groupby(["line", "panel", "epoch"])["value"].agg(["mean", "std", "count"]).reset_index()
    keys = {
        by: pd.Series(distinct.take(found.pop("line")), dtype=lines[by].dtype),
        "metric": pd.Series([metrics[place] for place in found.pop("panel")], dtype="str"),
    }
    return pd.concat([pd.DataFrame(keys), found], axis=1)


def write(
    files: Files, views: str, history: pd.DataFrame, rows: pd.DataFrame, trajectory: Trajectory, *, about: str = ""
) -> pd.DataFrame:
    """Write `trajectories/VIEWS/NAME.parquet` and `.png`; returns what `average` does. `about` is a line of the picture
    that says of what it is."""
    points = average(history, rows, trajectory)
    table, picture = io.BytesIO(), io.BytesIO()
    points.to_parquet(table, index=False)
    draw(points, trajectory, about).savefig(picture, format="png", dpi=160, bbox_inches="tight", pad_inches=0.25)
    files.write(f"trajectories/{views}/{trajectory.name}.parquet", table.getvalue())
    files.write(f"trajectories/{views}/{trajectory.name}.png", picture.getvalue())
    return points


def _joined(values: pd.DataFrame) -> list[str]:
    """What each row's values read as together; nulls are left out."""
    columns = [labels(values[name]) for name in values]
    return [", ".join(text for text in texts if text != NOTHING) for texts in zip(*columns, strict=True)]
