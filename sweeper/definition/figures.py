"""Figures of a sweep's rows: heatmaps, tables, trajectories over the epochs, and rankings.

A kind of figure is a subclass of `Figure` here, which says what is shown, and a module that makes it, which
`sweeper.report.kinds` names.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from sweeper.definition.field_types import check_types
from sweeper.definition.metric import Metric
from sweeper.definition.space import Value
from sweeper.errors import SpecError
from trainables.json_input import Finite


@dataclass(frozen=True)
class Selection:
    """Trials that a figure shows under labels instead of hyperparameters: for rows that differ in more than one.

    Example: `Selection({"terms": "no KL"}, {"beta": 0.0, "method": "vje"})` in a figure with the axis `terms`.
    """

    labels: Mapping[str, str]
    """Axis of the figure -> the label of these trials on it. All selections of a figure label the same axes."""
    where: Mapping[str, Value]
    """Hyperparameter -> its value, which all of these trials have."""

    def __post_init__(self) -> None:
        check_types(self)


@dataclass(frozen=True, kw_only=True)
class Figure(ABC):
    """What figures of all kinds have."""

    presets: tuple[str, ...] = ()
    """The presets that have this figure; empty means all."""
    selections: tuple[Selection, ...] = ()
    """The trials to show, in the order of their labels; empty means all, without labels."""
    place: str = ""
    """The place in the paper that it repeats, e.g. `Table 2` or `Fig. 4, 5.3`; empty if the paper has none such."""

    needed: ClassVar[bool] = False
    """Whether a request must report all that it shows. Others may show what only some trials report."""

    def __post_init__(self) -> None:
        check_types(self)
        _check_labels(self.title, self.axes, self.selections)

    @property
    @abstractmethod
    def file(self) -> str:
        """Name of its files, without suffix. Figures of one kind and preset have different ones."""

    @property
    @abstractmethod
    def title(self) -> str:
        """What it is, in a few words: `table accuracy`."""

    @abstractmethod
    def shows(self, over: str) -> str:
        """What it shows, to follow its title. `over`: what the sweep's cells average over, as a plural noun."""

    @property
    @abstractmethod
    def axes(self) -> tuple[str, ...]:
        """Hyperparameters, or labels of selections, that decide where a trial is shown."""

    @property
    @abstractmethod
    def shown(self) -> tuple[Metric, ...]:
        """Its metrics."""

    @property
    def ranking(self) -> Metric | None:
        """The metric that is best in one of its cells; None if it has no cells."""
        return None

    @property
    def hyperparameters(self) -> tuple[str, ...]:
        """The axes that are no labels, and the hyperparameters by which trials are selected."""
        labelled = {axis for selection in self.selections for axis in selection.labels}
        selecting = [key for selection in self.selections for key in selection.where]
        return tuple(dict.fromkeys([*(axis for axis in self.axes if axis not in labelled), *selecting]))


@dataclass(frozen=True)
class Heatmap(Figure):
    """A metric over two hyperparameters, averaged over all others."""

    metric: Metric
    rows: str
    """The hyperparameter on the vertical axis."""
    columns: str
    """The hyperparameter on the horizontal axis."""
    published: Mapping[str, Mapping[tuple[Any, Any], Finite]] = field(default_factory=dict)
    """Preset -> (row value, column value) -> the paper's figure, in percent if the metric is `percent`."""

    needed: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_cells(self.title, self.axes, self.published)
        _ = self.metric.ranking_direction  # its best cells are marked

    @property
    def file(self) -> str:
        return self.metric.name

    @property
    def title(self) -> str:
        return f"heatmap of {self.metric.name}"

    def shows(self, over: str) -> str:
        return f"over {self.rows} and {self.columns}, mean over {over}"

    @property
    def axes(self) -> tuple[str, str]:
        return self.rows, self.columns

    @property
    def shown(self) -> tuple[Metric, ...]:
        return (self.metric,)

    @property
    def ranking(self) -> Metric:
        return self.metric


@dataclass(frozen=True)
class Table(Figure):
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
    published: Mapping[str, Mapping[tuple[Any, ...], Mapping[str, Finite]]] = field(default_factory=dict)
    """Preset -> (row values, followed by the value of `columns` if that is set) -> metric -> the paper's figure.

    Figures are in percent if the metric is `percent`. Rows that only the paper has are shown, too.
    """
    note: str = ""
    """Ends the caption, e.g. the largest value that a metric can have."""
    others: bool = False
    """Whether the other metrics that trials report follow, which only a function's reports tell."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Value, hyperparameter or metric as the table writes it -> the text in its place: `{"vje": "Ours"}`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.rows or not self.metrics:
            raise SpecError(f"{self.title} must have rows and metrics, but lacks one")
        for text, label in self.labels.items():
            if not label.strip():
                raise SpecError(f"the labels of {self.title} must not be empty, but that of {text!r} is")
        _check_cells(self.title, self.axes, self.published)
        metrics = [metric.name for metric in self.metrics]
        for cells in self.published.values():
            for cell, figures in cells.items():
                for metric in figures:
                    if metric not in metrics:
                        raise SpecError(
                            f"{self.title} has a published {metric} for {cell!r}, but its metrics are: "
                            f"{', '.join(metrics)}"
                        )

    @property
    def file(self) -> str:
        return self.name

    @property
    def title(self) -> str:
        return f"table {self.name}"

    def shows(self, over: str) -> str:
        across = f" and {self.columns}" if self.columns else ""
        return f"of {_names(self.metrics)} by {', '.join(self.rows)}{across}"

    @property
    def axes(self) -> tuple[str, ...]:
        """Those of its rows, then that of its columns."""
        return (*self.rows, self.columns) if self.columns else self.rows

    @property
    def shown(self) -> tuple[Metric, ...]:
        return self.metrics

    @property
    def ranking(self) -> Metric:
        return self.metrics[0]


@dataclass(frozen=True)
class Trajectory(Figure):
    """Metrics over the epochs: one line per value of `by`, with the 95 % interval over replicates."""

    name: str
    """The files are `trajectories/SWEEP/PRESET/NAME.parquet` and `.png`."""
    metrics: tuple[Metric, ...]
    """Each metric has its own panel."""
    by: tuple[str, ...]
    """Hyperparameters. Each combination of their values has its own line."""

    @property
    def file(self) -> str:
        return self.name

    @property
    def title(self) -> str:
        return f"trajectory {self.name}"

    def shows(self, over: str) -> str:
        return f"of {_names(self.metrics)} over the epochs by {self.key}"

    @property
    def axes(self) -> tuple[str, ...]:
        return self.by

    @property
    def shown(self) -> tuple[Metric, ...]:
        return self.metrics

    @property
    def key(self) -> str:
        """Name of the column that tells the lines apart, e.g. `method, width`."""
        return ", ".join(self.by)


@dataclass(frozen=True)
class Published:
    """A figure that a paper prints."""

    value: Finite
    """In the unit of the metric: a share in [0, 1]."""
    recalled: bool = False
    """Whether it was recalled, and not read in the paper. It is marked so where it is shown."""


@dataclass(frozen=True)
class Ranking(Figure):
    """Settings ranked over tasks, and compared with one of them: one-class methods over the normal classes."""

    name: str
    """The files are `rankings/SWEEP/PRESET/NAME.parquet` and `.md`."""
    rows: tuple[str, ...]
    """Hyperparameters. Each combination of their values is a row."""
    metric: Metric
    """A share in [0, 1]."""
    tasks: str
    """A hyperparameter. Each of its values is a task."""
    over: str
    """What the tasks are, as a plural noun: `classes`."""
    reference: tuple[Value, ...]
    """Values of `rows`: the row that the others are compared with."""
    leak: Metric | None = None
    """The same with what was chosen on the test images, for comparison."""
    published: Mapping[str, Mapping[tuple[Value, ...], Published]] = field(default_factory=dict)
    """Preset -> values of `rows` -> the paper's figure. Rows that only papers have are shown, too."""
    note: str = ""
    """Ends the caption where there are published figures: what must be known of them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.rows:
            raise SpecError(f"{self.title} must have rows, but has none")
        _ = self.metric.ranking_direction
        _check_cells(self.title, self.rows, {"": {self.reference: None}})
        _check_cells(self.title, self.rows, self.published)

    @property
    def file(self) -> str:
        return self.name

    @property
    def title(self) -> str:
        return f"ranking {self.name}"

    def shows(self, over: str) -> str:
        return f"of {', '.join(self.rows)} by {self.metric.name} over {self.over}"

    @property
    def axes(self) -> tuple[str, ...]:
        """Those of its rows, then that of its tasks."""
        return (*self.rows, self.tasks)

    @property
    def shown(self) -> tuple[Metric, ...]:
        return (self.metric, self.leak) if self.leak else (self.metric,)

    @property
    def ranking(self) -> Metric:
        return self.metric


def _names(metrics: tuple[Metric, ...]) -> str:
    return ", ".join(metric.name for metric in metrics)


def _check_cells(title: str, axes: tuple[str, ...], published: Mapping[str, Mapping[Any, object]]) -> None:
    for cell in (cell for cells in published.values() for cell in cells):
        if not isinstance(cell, tuple) or len(cell) != len(axes):
            raise SpecError(f"a published cell of {title} must be a tuple of length {len(axes)}, but got {cell!r}")


def _check_labels(title: str, axes: tuple[str, ...], selections: tuple[Selection, ...]) -> None:
    for selection in selections:
        if not selection.labels or not set(selection.labels) <= set(axes):
            raise SpecError(
                f"the selections of a {title} must label some of its axes ({', '.join(axes)}), but one labels "
                f"{', '.join(selection.labels) or 'none'}"
            )
        if set(selection.labels) != set(selections[0].labels):
            raise SpecError(
                f"the selections of a {title} must label the same axes, but got {', '.join(selections[0].labels)} and "
                f"{', '.join(selection.labels)}"
            )
