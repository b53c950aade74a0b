"""What a search_spaces file may say: a Sweep of presets, each of grids or of searches, and how to show its rows."""

from __future__ import annotations

import importlib
import pkgutil
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sweeper.errors import SpecError
from sweeper.spec.grid import Grid, Grids, Value, unknown
from sweeper.spec.metric import Direction, Metric
from sweeper.spec.schedulers import Halving, Population
from sweeper.spec.search import Search, Searches

__all__ = [
    "Direction", "Grid", "Grids", "Halving", "Heatmap", "Metric", "Population", "Search", "Searches", "Space",
    "SpecError", "Sweep", "Table", "Trajectory", "Value", "find", "names",
]  # fmt: skip

Space = Grid | Grids | Search | Searches
"""What a preset holds."""
LONGEST = 400
"""Letters of why a sweep's file cannot be read, at most."""


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


@dataclass(frozen=True)
class Sweep:
    """A named experiment."""

    about: str
    """One line."""
    presets: Mapping[str, Space]
    """By name; the first is the paper's, and the default."""
    heatmaps: tuple[Heatmap, ...] = ()
    tables: tuple[Table, ...] = ()
    """At least one heatmap or table where presets are grids; the metric of the first says which trial is best. Of a
    search its first objective does."""
    trajectories: tuple[Trajectory, ...] = ()
    over: str = "trials"
    """What a heatmap's cells average over, as a plural noun."""
    breakdown: str | None = None
    """An axis: a table of the first heatmap's best cell by its values."""
    correlations: tuple[tuple[str, str], ...] = ()
    """Pairs of metrics: their correlation over the cells of the first heatmap."""
    contours: tuple[tuple[str, str], ...] = ()
    """Pairs of searched keys: the objective of a search over them."""

    def __post_init__(self) -> None:
        for name, space in self.presets.items():
            if not isinstance(space, Space):
                kind = type(space).__name__
                raise SpecError(f"preset {name!r} must be a Grid, Grids, Search or Searches, but is of type {kind}")
        grids = any(isinstance(space, Grid | Grids) for space in self.presets.values())
        if not self.presets or (grids and not (self.heatmaps or self.tables)):
            raise SpecError("a sweep must have at least one preset, and for grids one heatmap or table")
        if (self.breakdown or self.correlations) and not self.heatmaps:
            raise SpecError("a breakdown and correlations are of the first heatmap, but there is none")
        for metric in self._ranked:
            _ = metric.better
            ways = {other.direction for other in self._ranked if other.name == metric.name}
            if len(ways) > 1:
                raise SpecError(f"a metric has one direction, but {metric.name} is both maximized and minimized")
        for kind, shown in (("table", self.tables), ("trajectory", self.trajectories)):
            found = [one.name for one in shown]
            if len(set(found)) < len(found):
                raise SpecError(f"the names of a sweep's {kind} views must differ, but got {', '.join(found)}")

    def of(self, preset: str) -> Sweep:
        """This sweep with the tables of that preset alone."""
        return replace(self, tables=tuple(one for one in self.tables if not one.presets or preset in one.presets))

    @property
    def _ranked(self) -> tuple[Metric, ...]:
        """Every metric that something is ranked by."""
        searches = (space for space in self.presets.values() if isinstance(space, Search | Searches))
        return (
            *(heatmap.metric for heatmap in self.heatmaps),
            *(table.metrics[0] for table in self.tables[:1]),
            *(metric for search in searches for metric in search.objectives),
        )

    def headline(self, preset: str) -> Metric:
        """The metric that says which trial is best."""
        space = self.presets[preset]
        if isinstance(space, Search | Searches):
            return space.objectives[0]
        return self.heatmaps[0].metric if self.heatmaps else self.tables[0].metrics[0]

    @property
    def views(self) -> dict[str, tuple[Heatmap | Table | Trajectory, ...]]:
        """By the folder of the store that they are written to."""
        return {"heatmaps": self.heatmaps, "tables": self.tables, "trajectories": self.trajectories}

    @property
    def shown(self) -> dict[str, tuple[str, ...]]:
        """Every metric that a view shows, and the hyperparameters over which one does."""
        over: dict[str, tuple[str, ...]] = {}
        for heatmap in self.heatmaps:
            over[heatmap.metric.name] = (*over.get(heatmap.metric.name, ()), heatmap.rows, heatmap.columns)
        for table in self.tables:
            axes = (*table.rows, *([table.columns] if table.columns else []))
            for metric in table.metrics:
                over[metric.name] = (*over.get(metric.name, ()), *axes)
        for trajectory in self.trajectories:
            for metric in trajectory.metrics:
                over[metric.name] = (*over.get(metric.name, ()), *trajectory.by)
        return over

    def preset(self, name: str | None) -> tuple[str, Space]:
        """The preset of that name, or the first. SpecError if there is none of that name."""
        name = next(iter(self.presets)) if name is None else name
        if name not in self.presets:
            raise SpecError(unknown("preset", name, self.presets))
        return name, self.presets[name]


def names() -> list[str]:
    """All sweeps there are: the modules of `search_spaces`, but for those that begin with `_`."""
    folder = importlib.import_module("search_spaces")
    return sorted(module.name for module in pkgutil.iter_modules(folder.__path__) if module.name[0] != "_")


def find(name: str) -> Sweep:
    """The sweep of that name. SpecError, one line, if there is none, or if its file cannot be used."""
    if name not in names():
        raise SpecError(unknown("sweep", name, names()))
    try:
        module = importlib.import_module(f"search_spaces.{name}")
    except (Exception, SystemExit) as error:
        raise SpecError(f"sweep '{name}' cannot be read: {_reason(error)}") from error
    sweep = getattr(module, "SWEEP", None)
    if not isinstance(sweep, Sweep):
        defined = f"defines SWEEP of type {type(sweep).__name__}" if hasattr(module, "SWEEP") else "defines none"
        raise SpecError(
            f"sweep '{name}' cannot be read: search_spaces/{name}.py must define SWEEP, a sweeper.spec.Sweep, but "
            f"{defined}"
        )
    return sweep


def _reason(error: BaseException) -> str:
    """Where in `search_spaces` an import failed, and why, in one line."""
    frames = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError):
        frames.append((error.filename or "", error.lineno))
    inside = [(Path(file), line) for file, line in frames if Path(file).parent in _folders()]
    where = f"search_spaces/{inside[-1][0].name}, line {inside[-1][1]}: " if inside else ""
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    kind = "" if isinstance(error, SpecError) else f"{type(error).__name__}: "
    return f"{where}{kind}{' '.join(text.split())}"[:LONGEST]


def _folders() -> list[Path]:
    return [Path(folder) for folder in importlib.import_module("search_spaces").__path__]
