"""Hyperparameter sweeps: a sweep's name in, Parquet out. All that users import is here.

>>> from sweeper import Grid
>>> Grid(fixed={"method": "vje"}, axes={"beta": (0.5, 1.0)}).axes
{'beta': (0.5, 1.0)}

- Run a sweep and read its store: `run`, `plan`, `best`, `run_best`, `table`, `compare`, `load`, `load_history`,
  `load_runs`, `run_differences`, `load_model`, `config_of`
- Define a sweep: `Sweep`, `Grid`, `Search` and the other names of `sweeper.definition`; its claims: `Claim`, `Filter`,
  `Side`
- Define a method: `ImageMethod`, `PairsMethod` and the types of their arguments; `checked` and the bounds of
  hyperparameters. The parameter `trial` of a training function is a `RunningTrial`
- Train a trial under Ray Tune: `tune_trainable`
- Catch errors: `SweeperError`, which is a `SpecError`, a `StoreError` or a `ClusterError`
- The version: `__version__`; `CHANGELOG.md` says what stays as it is from one to the next

Each is imported when it is first used, so `import sweeper` takes no time. No module that can be imported has the name
of one of them: it would take its place.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what `MODULE_OF` says, for editors and type checkers
    from sweeper.api import best, compare, config_of, load, load_history, load_model, plan, run, run_best, table  # noqa: I001
    from sweeper.claims import Claim, Filter, Side
    from sweeper.errors import ClusterError, SpecError, StoreError, SweeperError
    from sweeper.report.reruns import run_differences
    from sweeper.definition import Assumption, Command, Constraint, Direction, Grid, Halving, Heatmap, Metric
    from sweeper.definition import Population, Pruner, Published, Ranking, Search, Selection, Space, Sweep, Table
    from sweeper.definition import Trajectory, Value, When
    from sweeper.storage.load import load_runs
    from sweeper.version import __version__
    from trainables.contract import Batch, ConditionalDensity, ImageMethod, Losses, NetworkBuilder, Noise, Noises
    from trainables.contract import PairsMethod, PairStatistics, Shapes
    from trainables.functions.trial import RunningTrial
    from trainables.validation import above, added, at_least, at_most, below, between, checked, one_of
    from trainables.worker.tune_trainable import tune_trainable

__all__ = [
    "Assumption", "Batch", "Claim", "ClusterError", "Command", "ConditionalDensity", "Constraint", "Direction",
    "Filter", "Grid", "Halving", "Heatmap", "ImageMethod", "Losses", "Metric", "NetworkBuilder", "Noise", "Noises",
    "PairStatistics", "PairsMethod", "Population", "Pruner", "Published", "Ranking", "RunningTrial", "Search",
    "Selection", "Shapes", "Side", "Space", "SpecError", "StoreError", "Sweep", "SweeperError", "Table", "Trajectory",
    "Value", "When", "__version__", "above", "added", "at_least", "at_most", "below", "best", "between", "checked",
    "compare", "config_of", "load", "load_history", "load_model", "load_runs", "one_of", "plan", "run", "run_best",
    "run_differences", "table", "tune_trainable",
]  # fmt: skip
MODULE_OF = {
    name: module
    for module, names in {
        "sweeper.api": "best compare config_of load load_history load_model plan run run_best table",
        "sweeper.claims": "Claim Filter Side",
        "sweeper.errors": "ClusterError SpecError StoreError SweeperError",
        "sweeper.report.reruns": "run_differences",
        "sweeper.definition": "Assumption Command Constraint Direction Grid Halving Heatmap Metric Population Pruner "
        "Published Ranking Search Selection Space Sweep Table Trajectory Value When",
        "sweeper.storage.load": "load_runs",
        "sweeper.version": "__version__",
        "trainables.contract": "Batch ConditionalDensity ImageMethod Losses NetworkBuilder Noise Noises PairStatistics "
        "PairsMethod Shapes",
        "trainables.functions.trial": "RunningTrial",
        "trainables.validation": "above added at_least at_most below between checked one_of",
        "trainables.worker.tune_trainable": "tune_trainable",
    }.items()
    for name in names.split()
}
"""Public name -> module that defines it."""
RENAMED = {"Condition": "Filter"}
"""Earlier public name -> its name now."""

if not TYPE_CHECKING:  # type checkers would take any name for one of these

    def __getattr__(name: str) -> Any:
        if name in MODULE_OF:
            return getattr(importlib.import_module(MODULE_OF[name]), name)
        if name in RENAMED:
            raise AttributeError(f"sweeper.{name} is now sweeper.{RENAMED[name]}")
        raise AttributeError(f"module 'sweeper' has no attribute '{name}'; it has: {', '.join(__all__)}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
