"""How a sweep's rows are shown: heatmaps, tables, and trajectories over the epochs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sweeper.errors import SpecError
from sweeper.spec.metric import Metric


@dataclass(frozen=True)
class Heatmap:
    """A metric over two axes, averaged over all others."""

    metric: Metric
    rows: str
    columns: str
    published: Mapping[str, Mapping[tuple[Any, Any], float]] = field(default_factory=dict)
    """Preset -> (row value, column value) -> the paper's figure, in percent where the metric is `percent`."""


@dataclass(frozen=True)
class Table:
    """Metrics by rows and columns, the mean and the spread over all else (seeds), as a paper prints them."""

    name: str
    """Its files are `tables/SWEEP/PRESET/NAME.parquet` and `.md`."""
    rows: tuple[str, ...]
    """Hyperparameters that make a row, in the order of the trials."""
    metrics: tuple[Metric, ...]
    columns: str | None = None
    """A hyperparameter, each value of which has a column of its own for each metric; None: a column a metric."""
    listed: bool = False
    """Metrics stand below each other, a row each, instead of side by side."""
    presets: tuple[str, ...] = ()
    """The presets that it is of; none for all."""
    published: Mapping[str, Mapping[tuple[Any, ...], Mapping[str, float]]] = field(default_factory=dict)
    """Preset -> (row values, then the column's where there are columns) -> metric -> the paper's figure, as it prints
    it: in percent where the metric is `percent`. Rows that only the paper has are shown, too."""

    def __post_init__(self) -> None:
        if not self.rows or not self.metrics:
            raise SpecError(f"table {self.name} must have rows and metrics, but lacks one")
        metrics, axes = [metric.name for metric in self.metrics], len(self.rows) + bool(self.columns)
        for cells in self.published.values():
            for place, figures in cells.items():
                if not isinstance(place, tuple) or len(place) != axes:
                    raise SpecError(f"a published cell of table {self.name} has {axes} values, but got {place!r}")
                for metric in figures:
                    if metric not in metrics:
                        has = ", ".join(metrics)
                        raise SpecError(f"table {self.name} has no {metric} published for {place!r}; it has: {has}")


@dataclass(frozen=True)
class Trajectory:
    """Metrics over the epochs, a line for each value of `by`, the spread over all else shaded."""

    name: str
    """Its files are `trajectories/SWEEP/PRESET/NAME.parquet` and `.png`."""
    metrics: tuple[Metric, ...]
    """A panel each."""
    by: tuple[str, ...]
    """Hyperparameters."""

    @property
    def key(self) -> str:
        """What the lines are told apart by."""
        return ", ".join(self.by)
