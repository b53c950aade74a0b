"""The rows of a sweep as columns of JSON, from which a browser reads exactly the numbers of the Parquet files."""

import math
from collections.abc import Collection, Mapping
from typing import Any

import pandas as pd

from sweeper.report.page.preset_views import PresetViews
from sweeper.spec import Metric
from sweeper.spec.metric import VALIDATION
from sweeper.storage.rows import Columns
from trainables.evaluation.metrics import family_of


def encode(rows: pd.DataFrame, columns: Columns, shown: Collection[PresetViews]) -> list[dict[str, Any]]:
    """Return every column: `name`, `kind`, and `values`, or `constant` where all trials have the same value.

    The `kind` is `hyperparameter`, `metric` or `run` (how the trial ran). Metrics have a `direction`, `percent` and
    `bounds`, as the views of the presets or else the metrics' own definitions say.
    """
    declared = declared_metrics(shown)
    encoded = []
    for name in map(str, rows.columns):
        values = json_values(rows[name], columns.hyperparameters.get(name))
        column: dict[str, Any] = {"name": name, "kind": "run"}
        if name in columns.metrics:
            metric = declared.get(name) or _other_images(declared, name) or _known_metric(declared, name)
            column |= {"kind": "metric", "direction": metric.direction, "percent": metric.percent}
            column["bounds"] = [bound / (100 if metric.percent else 1) for bound in metric.bounds or ()] or None
        elif name in columns.hyperparameters:
            column["kind"] = "hyperparameter"
        is_constant = len(values) > 0 and all(value == values[0] for value in values)
        encoded.append(column | ({"constant": values[0]} if is_constant else {"values": values}))
    return encoded


def json_values(values: pd.Series, kind: type | None = None) -> list[Any]:
    """Return the values as JSON has them: null for NaN, the text `inf` or `-inf`, ISO 8601 for times.

    `kind` is the type of a hyperparameter. pandas holds whole numbers with nulls as floats, which `kind` turns back.
    """
    return [_json_value(value, kind) for value in values.tolist()]


def declared_metrics(shown: Collection[PresetViews]) -> Mapping[str, Metric]:
    """Return the objectives of searches and the metrics of views, by name. The first that has a name decides."""
    objectives = [metric for preset in shown for metric in preset.objectives]
    heatmaps = [heatmap.metric for preset in shown for heatmap in preset.heatmaps]
    of_tables = [metric for preset in shown for table in preset.tables for metric in table.metrics]
    of_trajectories = [metric for preset in shown for view in preset.trajectories for metric in view.metrics]
    metrics: dict[str, Metric] = {}
    for metric in (*objectives, *heatmaps, *of_tables, *of_trajectories):
        metrics.setdefault(metric.name, metric)
    return metrics


def _other_images(declared: Mapping[str, Metric], name: str) -> Metric | None:
    """Return the same metric on the other images: on test images for `val_NAME`, and the reverse."""
    return declared.get(name.removeprefix(VALIDATION) if name.startswith(VALIDATION) else f"{VALIDATION}{name}")


def _known_metric(declared: Mapping[str, Metric], name: str) -> Metric:
    """Return a metric that no view has, in the unit of those of its family."""
    family = family_of(name)
    if family is None:
        return Metric(name)
    percent = family.share and any(metric.percent for metric in declared.values() if family_of(metric.name) is family)
    return Metric(name, family.direction, percent)


def _json_value(value: Any, kind: type | None) -> Any:
    if value is None or value is pd.NaT or value is pd.NA:
        return None
    if isinstance(value, float):
        if math.isnan(value):
            return None
        if math.isinf(value):
            return "inf" if value > 0 else "-inf"
        return int(value) if kind is int else value
    return value.isoformat() if isinstance(value, pd.Timestamp) else value
