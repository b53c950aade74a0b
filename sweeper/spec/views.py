"""Views of a sweep's rows: heatmaps, tables, and trajectories over the epochs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sweeper.errors import SpecError
from sweeper.spec.metric import Metric


@dataclass(frozen=True)
class Heatmap:
    """A metric over two hyperparameters, averaged over all others."""

    metric: Metric
    rows: str
    """The hyperparameter on the vertical axis."""
    columns: str
    """The hyperparameter on the horizontal axis."""
    published: Mapping[str, Mapping[tuple[Any, Any], float]] = field(default_factory=dict)
    """Preset -> (row value, column value) -> the paper's figure, in percent if the metric is `percent`."""
    presets: tuple[str, ...] = ()
    """The presets that have this heatmap; empty means all."""

    @property
    def axes(self) -> tuple[str, str]:
        return self.rows, self.columns


@dataclass(frozen=True)
class Table:
    """Metrics by row and column as a paper prints them: mean and standard deviation over everything else (seeds)."""

    name: str
    """The files are `tables/SWEEP/PRESET/NAME.parquet` and `.md`."""
    rows: tuple[str, ...]
    """Hyperparameters. Each combination of their values is a row, in the order of the trials."""
    metrics: tuple[Metric, ...]
    columns: str | None = None
    """A hyperparameter. Each of its values has its own column for each metric; None has one column per metric."""
    listed: bool = False
    """Whether the metrics of a row are listed below each other instead of side by side."""
    presets: tuple[str, ...] = ()
    """The presets that have this table; empty means all."""
    published: Mapping[str, Mapping[tuple[Any, ...], Mapping[str, float]]] = field(default_factory=dict)
    """Preset -> (row values, followed by the value of `columns` if that is set) -> metric -> the paper's figure.

    Figures are in percent if the metric is `percent`. Rows that only the paper has are shown, too.
    """

    def __post_init__(self) -> None:
        if not self.rows or not self.metrics:
            raise SpecError(f"table {self.name} must have rows and metrics, but lacks one")
        metrics, axes = [metric.name for metric in self.metrics], len(self.axes)
        for cells in self.published.values():
            for cell, figures in cells.items():
                if not isinstance(cell, tuple) or len(cell) != axes:
                    raise SpecError(
                        f"a published cell of table {self.name} must be a tuple of length {axes}, but got {cell!r}"
                    )
                for metric in figures:
                    if metric not in metrics:
                        raise SpecError(
                            f"table {self.name} has a published {metric} for {cell!r}, but its metrics are: "
                            f"{', '.join(metrics)}"
                        )

    @property
    def axes(self) -> tuple[str, ...]:
        """All hyperparameters of the table: those of its rows, then that of its columns."""
        return (*self.rows, self.columns) if self.columns else self.rows


@dataclass(frozen=True)
class Trajectory:
    """Metrics over the epochs: one line per value of `by`, with the standard deviation over everything else."""

    name: str
    """The files are `trajectories/SWEEP/PRESET/NAME.parquet` and `.png`."""
    metrics: tuple[Metric, ...]
    """Each metric has its own panel."""
    by: tuple[str, ...]
    """Hyperparameters. Each combination of their values has its own line."""

    @property
    def key(self) -> str:
        """Name of the column that tells the lines apart, e.g. `method, width`."""
        return ", ".join(self.by)
