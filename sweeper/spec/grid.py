"""Trials as products of axes: a Grid, or several Grids one after the other."""

from __future__ import annotations

import difflib
import itertools
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self, TypeVar

from sweeper.errors import SpecError

Value = bool | int | float | str | None


@dataclass(frozen=True)
class Grid:
    """The product of its axes, each combination joined with what is fixed."""

    fixed: Mapping[str, Value]
    """Key -> value for every trial."""
    axes: Mapping[str, tuple[Value, ...]]
    """Key -> its values, in the order of the paper; the last axis varies fastest."""
    pinned: frozenset[str] = frozenset()
    """Keys that stay as they are where several grids are changed together: the epochs of what does not train, say."""

    def __post_init__(self) -> None:
        for key, values in self.axes.items():
            if not values:
                raise SpecError(f"axis {key} must have at least one value, but it is empty")
            for value, count in Counter(values).items():
                if count > 1:
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
        return Grid({**kept_fixed, **fixed}, {**kept_axes, **axes}, self.pinned)

    def values(self, key: str) -> tuple[Value, ...]:
        """What the key is in this grid; none where it says nothing of it."""
        return self.axes.get(key, (self.fixed[key],) if key in self.fixed else ())

    @property
    def count(self) -> int:
        """Trials."""
        return math.prod(map(len, self.axes.values()))

    def combinations(self) -> Iterator[dict[str, Value]]:
        """Key -> value for each trial."""
        for values in itertools.product(*self.axes.values()):
            yield {**self.fixed, **dict(zip(self.axes, values, strict=True))}


@dataclass(frozen=True)
class Grids:
    """Several grids one after the other: where methods differ in more than a product of axes can say."""

    grids: tuple[Grid, ...]

    def __post_init__(self) -> None:
        if not self.grids:
            raise SpecError("there must be at least one grid, but there is none")
        if any("method" not in grid.fixed for grid in self.grids):
            raise SpecError("each of several grids must fix its method")

    def changed(
        self,
        fixed: Mapping[str, Value],
        axes: Mapping[str, tuple[Value, ...]],
        keys: Callable[[str], Collection[str]],
    ) -> Grids:
        """The grids with these keys fixed or varied, as `change_each` does it."""
        return Grids(change_each(self.grids, fixed, axes, keys))

    @property
    def count(self) -> int:
        """Trials of all."""
        return sum(grid.count for grid in self.grids)

    def combinations(self) -> Iterator[dict[str, Value]]:
        """Key -> value for each trial."""
        for grid in self.grids:
            yield from grid.combinations()


class Part(Protocol):
    """One of several grids, or of several searches."""

    @property
    def fixed(self) -> Mapping[str, Value]: ...
    @property
    def axes(self) -> Mapping[str, tuple[Value, ...]]: ...
    @property
    def pinned(self) -> frozenset[str]: ...
    def values(self, key: str) -> tuple[Value, ...]: ...
    def changed(self, fixed: Mapping[str, Value], axes: Mapping[str, tuple[Value, ...]]) -> Self: ...


P = TypeVar("P", bound=Part)


def change_each(
    parts: Sequence[P],
    fixed: Mapping[str, Value],
    axes: Mapping[str, tuple[Value, ...]],
    keys: Callable[[str], Collection[str]],
) -> tuple[P, ...]:
    """The parts with these keys fixed or varied, each where its method (whose `keys` are given) has them.

    A `method` among them chooses the parts of that method, and so does a `dataset` where the parts differ in it.
    SpecError for a value that no part has, or a key that none of their methods has.
    """
    Grid({}, {}).changed(fixed, axes)  # refuses what makes no sense in any part
    kept = tuple(parts)
    for key in ("method", "dataset"):
        wanted = axes.get(key, (fixed[key],) if key in fixed else ())
        if wanted and (key == "method" or len({part.values(key) for part in kept}) > 1):
            kept = _choose(kept, key, wanted)
            fixed = {name: value for name, value in fixed.items() if name != key}
            axes = {name: values for name, values in axes.items() if name != key}
    own = [set(keys(str(part.fixed["method"]))) - part.pinned for part in kept]
    for key in {**fixed, **axes}:
        if not any(key in known for known in own):
            raise SpecError(f"no method of these trials has the key '{key}' to change")
    return tuple(
        part.changed(
            {key: value for key, value in fixed.items() if key in known},
            {key: values for key, values in axes.items() if key in known},
        )
        for part, known in zip(kept, own, strict=True)
    )


def _choose(parts: Sequence[P], key: str, wanted: Sequence[Value]) -> tuple[P, ...]:
    """The parts that have any of these values, and of an axis these alone. SpecError for a value that none has."""
    there = dict.fromkeys(value for part in parts for value in part.values(key))
    for value in wanted:
        if value not in there:
            raise SpecError(unknown(f"{key} in this sweep", str(value), [str(one) for one in there]))
    kept = []
    for part in parts:
        here = tuple(value for value in part.values(key) if value in wanted)
        if here:
            kept.append(part.changed({}, {key: here}) if key in part.axes else part)
    return tuple(kept)


def unknown(noun: str, name: str, known: Mapping[str, object] | list[str]) -> str:
    """`no NOUN NAME`, the nearest that there is, and all there are."""
    near = difflib.get_close_matches(name, list(known), n=1)
    hint = f" (did you mean '{near[0]}'?)" if near else ""
    return f"no {noun} '{name}'{hint}; there are: {', '.join(known)}"
