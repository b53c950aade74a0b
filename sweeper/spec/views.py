"""Views of a sweep's rows: heatmaps, tables, and trajectories over the epochs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sweeper.errors import SpecError
from sweeper.spec.metric import Metric
from sweeper.spec.space import Value


@dataclass(frozen=True)
class Selection:
    """Trials that a view shows under labels instead of hyperparameters: for rows that differ in more than one.

    Example: `Selection({"terms": "no KL"}, {"beta": 0.0, "method": "vje"})` in a view with the axis `terms`.
    """

    labels: Mapping[str, str]
    """Axis of the view -> the label of these trials on it. All selections of a view label the same axes."""
    where: Mapping[str, Value]
    """Hyperparameter -> its value, which all of these trials have."""


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
    selections: tuple[Selection, ...] = ()
    """The trials to show, in the order of their labels; empty means all, without labels."""

    def __post_init__(self) -> None:
        _check_labels(f"heatmap of {self.metric.name}", self.axes, self.selections)

    @property
    def axes(self) -> tuple[str, str]:
        return self.rows, self.columns

    @property
    def hyperparameters(self) -> tuple[str, ...]:
        """Those that decide in which cell a trial is."""
        return _hyperparameters(self.axes, self.selections)


@dataclass(frozen=True)
class Table:
    """Metrics by row and column as a paper prints them: mean and 95 % interval over replicates (seeds)."""

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
    selections: tuple[Selection, ...] = ()
    """The trials to show, in the order of their labels; empty means all, without labels."""
    published: Mapping[str, Mapping[tuple[Any, ...], Mapping[str, float]]] = field(default_factory=dict)
    """Preset -> (row values, followed by the value of `columns` if that is set) -> metric -> the paper's figure.

    Figures are in percent if the metric is `percent`. Rows that only the paper has are shown, too.
    """
    note: str = ""
    """Ends the caption, e.g. the largest value that a metric can have."""

    def __post_init__(self) -> None:
        if not self.rows or not self.metrics:
            raise SpecError(f"table {self.name} must have rows and metrics, but lacks one")
        _check_labels(f"table {self.name}", self.axes, self.selections)
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
        """Those of its rows, then that of its columns."""
        return (*self.rows, self.columns) if self.columns else self.rows

    @property
    def hyperparameters(self) -> tuple[str, ...]:
        """Those that decide in which cell a trial is."""
        return _hyperparameters(self.axes, self.selections)


@dataclass(frozen=True)
class Trajectory:
    """Metrics over the epochs: one line per value of `by`, with the 95 % interval over replicates."""

    name: str
    """The files are `trajectories/SWEEP/PRESET/NAME.parquet` and `.png`."""
    metrics: tuple[Metric, ...]
    """Each metric has its own panel."""
    by: tuple[str, ...]
    """Hyperparameters. Each combination of their values has its own line."""
    selections: tuple[Selection, ...] = ()
    """The trials to show, in the order of their labels; empty means all, without labels."""

    def __post_init__(self) -> None:
        _check_labels(f"trajectory {self.name}", self.by, self.selections)

    @property
    def hyperparameters(self) -> tuple[str, ...]:
        """Those that decide on which line a trial is."""
        return _hyperparameters(self.by, self.selections)

    @property
    def key(self) -> str:
        """Name of the column that tells the lines apart, e.g. `method, width`."""
        return ", ".join(self.by)


@dataclass(frozen=True)
class Published:
    """A figure that a paper prints."""

    value: float
    """In the unit of the metric: a share in [0, 1]."""
    recalled: bool = False
    """Whether it was recalled, and not read in the paper. It is marked so wherever it is shown."""


Figures = Mapping[tuple[tuple[Value, ...], Value], Published]
"""Values of a row and a task, or None for the mean over tasks -> the paper's figure."""


@dataclass(frozen=True)
class Ranking:
    """Settings ranked over tasks, and compared with one of them: one-class methods over the normal classes."""

    name: str
    """The files are `rankings/SWEEP/PRESET/NAME.parquet`, `NAME-tasks.parquet` and `NAME.md`."""
    rows: tuple[str, ...]
    """Hyperparameters. Each combination of their values is a row."""
    metric: Metric
    """A share in [0, 1], shown in percent."""
    tasks: str
    """A hyperparameter. Each of its values is a task, and a column."""
    over: str
    """What the tasks are, as a plural noun: `classes`."""
    reference: tuple[Value, ...]
    """Values of `rows`: the row that the others are compared with."""
    leak: Metric | None = None
    """The same with what was chosen on the test images, for comparison."""
    published: Mapping[str, Figures] = field(default_factory=dict)
    """Preset -> the papers' figures. Rows that only papers have are shown, too."""
    presets: tuple[str, ...] = ()
    """The presets that have this ranking; empty means all."""
    note: str = ""
    """Ends the caption."""

    def __post_init__(self) -> None:
        if not self.rows:
            raise SpecError(f"ranking {self.name} must have rows, but has none")
        _ = self.metric.ranking_direction
        for key in (self.reference, *(key for cells in self.published.values() for key, _ in cells)):
            if len(key) != len(self.rows):
                raise SpecError(
                    f"a row of ranking {self.name} must be a tuple of length {len(self.rows)}, but got {key!r}"
                )

    @property
    def axes(self) -> tuple[str, ...]:
        """Those of its rows, then that of its tasks."""
        return (*self.rows, self.tasks)


def _hyperparameters(axes: tuple[str, ...], selections: tuple[Selection, ...]) -> tuple[str, ...]:
    """Return the axes that are no labels, and the hyperparameters by which trials are selected."""
    labelled = {axis for selection in selections for axis in selection.labels}
    selecting = [key for selection in selections for key in selection.where]
    return tuple(dict.fromkeys([*(axis for axis in axes if axis not in labelled), *selecting]))


def _check_labels(view: str, axes: tuple[str, ...], selections: tuple[Selection, ...]) -> None:
    for selection in selections:
        if not selection.labels or not set(selection.labels) <= set(axes):
            raise SpecError(
                f"the selections of a {view} must label some of its axes ({', '.join(axes)}), but one labels "
                f"{', '.join(selection.labels) or 'none'}"
            )
        if set(selection.labels) != set(selections[0].labels):
            raise SpecError(
                f"the selections of a {view} must label the same axes, but got {', '.join(selections[0].labels)} and "
                f"{', '.join(selection.labels)}"
            )
