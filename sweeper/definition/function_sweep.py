"""The sweep of a function, or of a command, that is run without a sweep's file."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from sweeper.definition.figures import Table
from sweeper.definition.metric import Direction, Metric
from sweeper.definition.space import SEED, Grid
from sweeper.definition.sweep import Sweep
from sweeper.errors import SpecError
from sweeper.names import is_name

MODES: dict[str, Direction] = {"max": "maximize", "min": "minimize"}
"""Value of `--mode` -> the direction of the metric."""
TIME = Metric("seconds", "minimize")
"""What ranks trials without `--metric`."""
RESULTS = "results"
"""Name of the table."""


@dataclass(frozen=True)
class FunctionSweep(Sweep):
    """A grid of one function, whose table has all metrics that it reports."""

    PRESET: ClassVar[str] = "all"

    def for_request(self, metric: str | None, mode: str | None, axes: Iterable[str]) -> Sweep:
        """Return the sweep with a table by `axes`, whose first metric ranks trials. Without one that is the time."""
        if mode is not None and metric is None:
            raise SpecError(f"--mode says whether a metric is to be high or low, so it needs --metric, but got {mode}")
        if metric is not None and mode is None and Metric(metric).direction is None:
            raise SpecError(f"--metric {metric} needs --mode max or --mode min, which says what is better")
        ranking = Metric(metric, MODES[mode]) if metric and mode else TIME
        rows = tuple(axis for axis in axes if axis != SEED) or ("method",)
        return replace(self, figures=(Table(RESULTS, rows, (ranking,), others=True),))


def sweep_of_function(method: str, function: Any, name: str) -> FunctionSweep:
    """Return the sweep of a method that is a function or a command."""
    if isinstance(function, str):
        about = f"the command {function}"
    else:
        about = (inspect.getdoc(function) or "").split("\n")[0] or f"the function {method}"
    table = Table(RESULTS, ("method",), (TIME,), others=True)
    presets = {FunctionSweep.PRESET: Grid({"method": method}, {})}
    return FunctionSweep(about, presets, (table,), name=name)


def name_of_command(line: str) -> str:
    """Return the name in the store of the sweep of a command: that of its script, or its first word."""
    words = [word.rpartition("/")[2] for word in line.split() if "{" not in word and not word.startswith("-")]
    scripts = [word.rpartition(".")[0] for word in words if "." in word[1:]]
    return next((name for name in [*scripts, *words] if is_name(name)), "command")
