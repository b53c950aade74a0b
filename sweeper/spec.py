"""What a search_spaces file may say: a Sweep of presets, each a Grid, and how to show its rows."""

from __future__ import annotations

import difflib
import importlib
import itertools
import pkgutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Value = bool | int | float | str | None
Direction = Literal["maximize", "minimize"]


class SpecError(Exception):
    """A request that no sweep can serve: one line that states the law, the offender and the choices."""


@dataclass(frozen=True)
class Metric:
    name: str
    """As in the rows, e.g. `auroc_joint`."""
    direction: Direction
    """Which way is better."""


@dataclass(frozen=True)
class Grid:
    """The product of its axes, each combination joined with what is fixed."""

    fixed: Mapping[str, Value]
    """Key -> value for every trial."""
    axes: Mapping[str, tuple[Value, ...]]
    """Key -> its values, in the order of the paper; the last axis varies fastest."""

    def __post_init__(self) -> None:
        for key, values in self.axes.items():
            if not values:
                raise SpecError(f"axis {key} must have at least one value, but it is empty")
            for value in values:
                if values.count(value) > 1:
                    raise SpecError(f"the values of axis {key} must differ, but {value} is there twice")
            if key in self.fixed:
                raise SpecError(f"{key} must be either fixed or an axis, but it is both")

    def changed(self, fixed: Mapping[str, Value], axes: Mapping[str, tuple[Value, ...]]) -> Grid:
        """This grid with these keys fixed or varied instead of what it says of them."""
        for key in fixed:
            if key in axes:
                raise SpecError(f"{key} must be either set or an axis, but it is asked to be both")
        kept_fixed = {key: value for key, value in self.fixed.items() if key not in axes}
        kept_axes = {key: values for key, values in self.axes.items() if key not in fixed}
        return Grid({**kept_fixed, **fixed}, {**kept_axes, **axes})

    def combinations(self) -> Iterator[dict[str, Value]]:
        """Key -> value for each trial."""
        for values in itertools.product(*self.axes.values()):
            yield {**self.fixed, **dict(zip(self.axes, values, strict=True))}


@dataclass(frozen=True)
class Heatmap:
    """A metric over two axes, averaged over all others."""

    metric: Metric
    rows: str
    columns: str
    published: Mapping[str, Mapping[tuple[Any, Any], float]] = field(default_factory=dict)
    """Preset -> (row value, column value) -> the paper's figure."""


@dataclass(frozen=True)
class Sweep:
    """A named experiment."""

    about: str
    """One line."""
    presets: Mapping[str, Grid]
    """By name; the first is the paper's, and the default."""
    heatmaps: tuple[Heatmap, ...]
    """The first one's metric says which trial is best."""
    over: str = "trials"
    """What a heatmap's cells average over, as a plural noun."""
    breakdown: str | None = None
    """An axis: a table of the first heatmap's best cell by its values."""
    correlations: tuple[tuple[str, str], ...] = ()
    """Pairs of metrics: their correlation over the cells of the first heatmap."""

    def __post_init__(self) -> None:
        if not self.presets or not self.heatmaps:
            raise SpecError("a sweep must have at least one preset and one heatmap")

    def preset(self, name: str | None) -> tuple[str, Grid]:
        """The preset of that name, or the first. SpecError if there is none of that name."""
        name = next(iter(self.presets)) if name is None else name
        if name not in self.presets:
            raise SpecError(_unknown("preset", name, self.presets))
        return name, self.presets[name]


def names() -> list[str]:
    """All sweeps there are: the modules of `search_spaces`."""
    folder = importlib.import_module("search_spaces")
    return sorted(module.name for module in pkgutil.iter_modules(folder.__path__))


def find(name: str) -> Sweep:
    """The sweep of that name. SpecError if there is none."""
    if name not in names():
        raise SpecError(_unknown("sweep", name, names()))
    sweep: Sweep = importlib.import_module(f"search_spaces.{name}").SWEEP
    return sweep


def _unknown(noun: str, name: str, known: Mapping[str, object] | list[str]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    hint = f" (did you mean '{near[0]}'?)" if near else ""
    return f"no {noun} '{name}'{hint}; there are: {', '.join(known)}"
