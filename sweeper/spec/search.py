"""What a search is: a space of Optuna's distributions, sampled in waves, a study for each cell of its axes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from sweeper.errors import SpecError
from sweeper.spec.grid import Grid, Value, change_each, unknown
from sweeper.spec.metric import Metric
from sweeper.spec.schedulers import Halving, Population

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

SAMPLERS = ("tpe", "gp", "cmaes", "nsga2", "qmc", "random")
"""Tree-structured Parzen estimator, Gaussian process, CMA-ES, NSGA-II, quasi-Monte Carlo (Sobol), independent draws."""
SEVERAL_OBJECTIVES = ("tpe", "gp", "nsga2", "qmc", "random")
WARM = "warm"
"""Attribute of a trial that a study began with."""
SECONDS = "seconds"
"""An objective that no trial reports: its share of the training seconds of its cohort."""


@dataclass(frozen=True)
class Search:
    """`trials` trials of each cell of `axes`, proposed by a sampler in waves that train together."""

    space: Mapping[str, BaseDistribution]
    """Key -> Optuna's distribution."""
    fixed: Mapping[str, Value]
    """Key -> value for every trial."""
    trials: int
    """Of each study."""
    metric: Metric | tuple[Metric, ...]
    """The objective, or several."""
    wave: int = 32
    """Trials that are proposed at once, before any of them is told."""
    sampler: Literal["tpe", "gp", "cmaes", "nsga2", "qmc", "random"] = "tpe"
    pruner: Halving | None = None
    population: Population | None = None
    axes: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    """Key -> its values; each combination has a study of its own."""
    seed: int = 0
    """Of the sampler."""

    def __post_init__(self) -> None:
        Grid(self.fixed, self.axes)  # refuses what makes no sense in a grid
        if not self.space:
            raise SpecError("a search must have at least one key in its space, but it is empty")
        for key in self.space:
            if key in self.fixed or key in self.axes:
                raise SpecError(f"{key} must be either searched or fixed or an axis, but it is two of them")
        for name, value in (("trials", self.trials), ("wave", self.wave)):
            if value < 1:
                raise SpecError(f"`{name} >= 1` must hold for a search, but got {name}={value}")
        if self.wave > self.trials:
            raise SpecError(f"`wave <= trials` must hold, but got wave={self.wave}, trials={self.trials}")
        if self.sampler not in SAMPLERS:
            raise SpecError(unknown("sampler", self.sampler, list(SAMPLERS)))
        self._check_objectives()
        self._check_sampler()

    def _check_objectives(self) -> None:
        names = [metric.name for metric in self.objectives]
        if not names:
            raise SpecError("a search must have an objective, but it has none")
        for metric in self.objectives:
            _ = metric.better
            ways = {one.direction for one in self.objectives if one.name == metric.name}
            if len(ways) > 1:
                raise SpecError(
                    f"an objective has one direction, but {metric.name} is to be both maximized and minimized"
                )
            if names.count(metric.name) > 1:
                raise SpecError(f"objectives must differ, but {metric.name} is there twice")
        if len(names) > 1 and self.sampler not in SEVERAL_OBJECTIVES:
            able = ", ".join(SEVERAL_OBJECTIVES)
            raise SpecError(f"{self.sampler} takes one objective, but got {', '.join(names)}; several are for: {able}")
        if len(names) > 1 and (self.pruner or self.population):
            raise SpecError(f"a pruner or a population ranks by one objective, but got {', '.join(names)}")
        if SECONDS in names and (self.pruner or self.population):
            raise SpecError(f"a pruner or a population ranks by a reported metric, but got {SECONDS}")

    def _check_sampler(self) -> None:
        for key, one in self.space.items():
            choices = getattr(one, "choices", ())
            for place, choice in enumerate(choices):
                if choices.index(choice) < place:
                    first = choices[choices.index(choice)]
                    raise SpecError(f"the choices of {key} must differ in value, but {first!r} equals {choice!r}")
        numeric = [key for key, one in self.space.items() if not hasattr(one, "choices")]
        if self.sampler == "cmaes" and (len(numeric) < len(self.space) or len(numeric) < 2):
            raise SpecError("cmaes needs a space of two numbers at least and no categories; choose another sampler")
        if self.population and self.pruner:
            raise SpecError("a search has either a pruner or a population, but got both")
        if self.population and self.sampler not in ("random", "qmc"):
            raise SpecError(
                "a population adapts its hyperparameters itself, so its sampler is random or qmc, but got "
                f"{self.sampler}"
            )

    @property
    def objectives(self) -> tuple[Metric, ...]:
        """One or several."""
        return (self.metric,) if isinstance(self.metric, Metric) else self.metric

    def changed(self, fixed: Mapping[str, Value], axes: Mapping[str, tuple[Value, ...]]) -> Search:
        """This search with these keys fixed, or an axis, instead of what it says of them."""
        grid = Grid(self.fixed, self.axes).changed(fixed, axes)
        space = {key: one for key, one in self.space.items() if key not in grid.fixed and key not in grid.axes}
        return replace(self, space=space, fixed=grid.fixed, axes=grid.axes)

    @property
    def pinned(self) -> frozenset[str]:
        """Keys that cannot be changed together with other searches: none."""
        return frozenset()

    def values(self, key: str) -> tuple[Value, ...]:
        """What the key is in this search; none where it is searched, or nothing is said of it."""
        return Grid(self.fixed, self.axes).values(key)

    @property
    def count(self) -> int:
        """Trials of all its studies."""
        return self.trials * Grid({}, self.axes).count

    def studies(self) -> Iterator[Study]:
        """A study for each cell of the axes."""
        for cell in Grid({}, self.axes).combinations():
            yield Study(_label(cell), {**self.fixed, **cell}, self)


@dataclass(frozen=True)
class Searches:
    """Several searches one after the other: where methods differ in what is searched."""

    searches: tuple[Search, ...]

    def __post_init__(self) -> None:
        if not self.searches:
            raise SpecError("there must be at least one search, but there is none")
        if any("method" not in search.fixed for search in self.searches):
            raise SpecError("each of several searches must fix its method")
        if len({search.objectives for search in self.searches}) > 1:
            raise SpecError("several searches must have the same objectives, but theirs differ")
        methods = [search.fixed["method"] for search in self.searches]
        if len(set(methods)) < len(methods):
            raise SpecError(f"each of several searches must have a method of its own, but got {methods}")

    def changed(
        self,
        fixed: Mapping[str, Value],
        axes: Mapping[str, tuple[Value, ...]],
        keys: Callable[[str], Collection[str]],
    ) -> Searches:
        """The searches with these keys fixed or an axis, as `grid.change_each` does it."""
        return Searches(change_each(self.searches, fixed, axes, keys))

    @property
    def objectives(self) -> tuple[Metric, ...]:
        """Those of each."""
        return self.searches[0].objectives

    @property
    def count(self) -> int:
        """Trials of all."""
        return sum(search.count for search in self.searches)

    def studies(self) -> Iterator[Study]:
        """The studies of each search."""
        for search in self.searches:
            for study in search.studies():
                yield replace(study, name=_label({"method": search.fixed["method"], "": study.name}))


@dataclass(frozen=True)
class Study:
    """One search in one cell of its axes: what Optuna calls a study."""

    name: str
    """Its folder in the store: the values of the axes."""
    fixed: Mapping[str, Value]
    """Key -> value for every trial, those of the cell included."""
    search: Search

    @property
    def identity(self) -> dict[str, object]:
        """All that its proposals depend on; not how many there are to be: a study can be made longer."""
        search = self.search
        return {
            "fixed": dict(self.fixed),
            "space": {key: repr(one) for key, one in search.space.items()},
            "objectives": [(metric.name, metric.direction) for metric in search.objectives],
            "rules": [search.wave, search.sampler, search.seed, repr(search.pruner), repr(search.population)],
        }


def bounds(distribution: Any) -> tuple[Value, ...]:
    """The lowest and the highest value of one of Optuna's distributions, or all choices."""
    return tuple(distribution.choices) if hasattr(distribution, "choices") else (distribution.low, distribution.high)


def within(distribution: Any, value: Value) -> bool:
    """True where the distribution could have given the value."""
    if hasattr(distribution, "choices"):
        return any(value == choice and type(value) is type(choice) for choice in distribution.choices)
    low, high = distribution.low, distribution.high
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high


def _label(cell: Mapping[str, Value]) -> str:
    """The values, joined, as a name in the store."""
    return "+".join("none" if value is None else str(value) for value in cell.values() if value != "all") or "all"
