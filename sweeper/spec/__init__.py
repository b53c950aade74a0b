"""The names that a file in `search_spaces/` uses to define its `SWEEP`: grids or searches, and views of their rows."""

from sweeper.errors import SpecError
from sweeper.spec.constraint import Constraint
from sweeper.spec.figures import Heatmap, Published, Ranking, Selection, Table, Trajectory
from sweeper.spec.metric import Direction, Metric
from sweeper.spec.pruners import Halving, Pruner
from sweeper.spec.space import Grid, Population, Search, Space, Value, When
from sweeper.spec.sweep import Assumption, Sweep
from trainables.functions.command import Command

__all__ = [
    "Assumption", "Command", "Constraint", "Direction", "Grid", "Halving", "Heatmap", "Metric", "Population", "Pruner",
    "Published", "Ranking", "Search", "Selection", "Space", "SpecError", "Sweep", "Table", "Trajectory", "Value",
    "When",
]  # fmt: skip
