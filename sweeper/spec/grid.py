"""Trials as the product of axes: a Grid, or several grids run one after the other."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from sweeper.errors import SpecError
from trainables.validation import unknown as unknown

if TYPE_CHECKING:
    from sweeper.spec.search import Search

Value = bool | int | float | str | None
"""The value of a hyperparameter."""
Fixed = Mapping[str, Value]
"""Key -> the value that every trial has."""
Axes = Mapping[str, tuple[Value, ...]]
"""Key -> its values."""
KeysOf = Callable[[str], Collection[str]]
"""Name of a method -> the keys that its trials have."""
P = TypeVar("P", "Grid", "Search")
"""One of several grids, or one of several searches."""


@dataclass(frozen=True)
class Grid:
    """The Cartesian product of some axes, with all other hyperparameters fixed.

    Example: `Grid({"method": "vje"}, {"beta": (0.5, 1.0), "seed": (0, 1, 2)})` has six trials.
    """

    fixed: Fixed
    axes: Axes
    """Key -> its values, in the order of the paper. The last axis varies fastest."""
    pinned: frozenset[str] = frozenset()
    """Keys that `change_each` leaves unchanged, e.g. the epochs of a method that does not train."""

    def __post_init__(self) -> None:
        for key, values in self.axes.items():
            if not values:
                raise SpecError(f"axis {key} must have at least one value, but it is empty")
            for value, count in Counter(values).items():
                if count > 1:
                    raise SpecError(f"the values of axis {key} must differ, but {value} is there twice")
            if key in self.fixed:
                raise SpecError(f"{key} must be either fixed or an axis, but it is both")

    def changed(self, fixed: Fixed, axes: Axes) -> Grid:
        """Return this grid with the keys in `fixed` fixed and those in `axes` varied."""
        for key in fixed:
            if key in axes:
                raise SpecError(f"{key} must be either set or an axis, but it is asked to be both")
        kept_fixed = {key: value for key, value in self.fixed.items() if key not in axes}
        kept_axes = {key: values for key, values in self.axes.items() if key not in fixed}
        return Grid({**kept_fixed, **fixed}, {**kept_axes, **axes}, self.pinned)

    def values(self, key: str) -> tuple[Value, ...]:
        """Return the values of the key in this grid; empty if the grid does not mention it."""
        return self.axes.get(key, (self.fixed[key],) if key in self.fixed else ())

    @property
    def count(self) -> int:
        return math.prod(map(len, self.axes.values()))

    def combinations(self) -> Iterator[dict[str, Value]]:
        """Yield the hyperparameters of each trial, key -> value."""
        for values in itertools.product(*self.axes.values()):
            yield {**self.fixed, **dict(zip(self.axes, values, strict=True))}


@dataclass(frozen=True)
class Grids:
    """Several grids, run one after the other, for methods whose hyperparameters differ."""

    grids: tuple[Grid, ...]

    def __post_init__(self) -> None:
        if not self.grids:
            raise SpecError("there must be at least one grid, but there is none")
        if any("method" not in grid.fixed for grid in self.grids):
            raise SpecError("each of several grids must fix its method")

    def changed(self, fixed: Fixed, axes: Axes, keys: KeysOf) -> Grids:
        return Grids(change_each(self.grids, fixed, axes, keys))

    @property
    def count(self) -> int:
        return sum(grid.count for grid in self.grids)

    def combinations(self) -> Iterator[dict[str, Value]]:
        for grid in self.grids:
            yield from grid.combinations()


def change_each(parts: Sequence[P], fixed: Fixed, axes: Axes, keys: KeysOf) -> tuple[P, ...]:
    """Return the parts with the keys in `fixed` fixed and those in `axes` varied.

    A key is changed only in the parts whose method has it. The key `method` selects the parts with one of the wanted
    methods instead. So does `dataset` if the parts differ in it. Raises SpecError for a method or data set that no part
    has, and for a key that none of their methods has.
    """
    requested = Grid({}, {}).changed(fixed, axes)  # raises SpecError for what is invalid in any part
    selected, selecting = tuple(parts), set[str]()
    for key in ("method", "dataset"):
        wanted = requested.values(key)
        if wanted and (key == "method" or len({part.values(key) for part in selected}) > 1):
            selected = _select(selected, key, wanted)
            selecting.add(key)
    changeable = [set(keys(str(part.fixed["method"]))) - part.pinned - selecting for part in selected]
    for key in (*fixed, *axes):
        if key not in selecting.union(*changeable):
            if all(key in part.pinned for part in selected):
                methods = ", ".join(dict.fromkeys(str(part.fixed["method"]) for part in selected))
                raise SpecError(f"{key} stays as it is in trials of {methods}, where another value has no meaning")
            raise SpecError(f"no method of these trials has the key '{key}' to change")
    return tuple(
        part.changed({key: fixed[key] for key in fixed if key in own}, {key: axes[key] for key in axes if key in own})
        for part, own in zip(selected, changeable, strict=True)
    )


def _select(parts: Sequence[P], key: str, wanted: Sequence[Value]) -> tuple[P, ...]:
    """Return the parts that have any of the wanted values, their axis reduced to these. Each must be in some part."""
    choices = dict.fromkeys(value for part in parts for value in part.values(key))
    for value in wanted:
        if value not in choices:
            raise SpecError(unknown(f"{key} in this sweep", str(value), [str(choice) for choice in choices]))
    selected = []
    for part in parts:
        kept = tuple(value for value in part.values(key) if value in wanted)
        if kept:
            selected.append(part.changed({}, {key: kept}) if key in part.axes else part)
    return tuple(selected)
