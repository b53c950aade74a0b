"""The names that a file in `search_spaces/` uses to define its `SWEEP`: grids or searches, and their figures."""

from sweeper.definition.constraint import Constraint
from sweeper.definition.figures import Heatmap, Published, Ranking, Selection, Table, Trajectory
from sweeper.definition.metric import Direction, Metric
from sweeper.definition.pruners import Halving, Pruner
from sweeper.definition.space import Grid, Population, Search, Space, Value, When
from sweeper.definition.sweep import Assumption, Sweep
from sweeper.errors import SpecError
from trainables.functions.command import Command

__all__ = [
    "Assumption", "Command", "Constraint", "Direction", "Grid", "Halving", "Heatmap", "Metric", "Population", "Pruner",
    "Published", "Ranking", "Search", "Selection", "Space", "SpecError", "Sweep", "Table", "Trajectory", "Value",
    "When",
]  # fmt: skip
