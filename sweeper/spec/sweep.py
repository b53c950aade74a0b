"""What a search_spaces file may say: a Sweep of presets, each of grids or of searches, and how to show its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sweeper.errors import SpecError
from sweeper.spec.grid import Grid, Grids, unknown
from sweeper.spec.metric import Metric
from sweeper.spec.search import Search, Searches
from sweeper.spec.views import Heatmap, Table, Trajectory

Space = Grid | Grids | Search | Searches
"""What a preset holds."""


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
