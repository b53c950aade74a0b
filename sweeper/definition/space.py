"""What a preset trains: a `Grid`, the product of some axes; a `Search`, a space that a sampler explores; or several."""

from __future__ import annotations

import inspect
import itertools
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

from sweeper.definition.constraint import Constraint
from sweeper.definition.field_types import check_mapping, check_types
from sweeper.definition.metric import Metric
from sweeper.definition.pruners import Pruner
from sweeper.errors import SpecError
from trainables.validation import unknown

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution


Value = bool | int | float | str | None
"""The value of a hyperparameter."""
SEED, EPOCHS = "seed", "epochs"
"""Key of the random numbers of a trial, and that of how long it trains."""
Fixed = Mapping[str, Value]
"""Key -> the value that every trial has."""
Axes = Mapping[str, tuple[Value, ...]]
"""Key -> its values."""
KeysOf = Callable[[str], Collection[str]]
"""Name of a method -> the keys that its trials have."""


def axis_values(key: str, values: object) -> tuple[Value, ...]:
    """The values of an axis, in their order, as values of Python. Raises SpecError for what is no sequence of them.

    Besides tuples and lists these may be ranges, generators, and arrays and series of one dimension.
    """
    if type(values) is tuple and all(type(value) in (int, float, str, bool) for value in values):
        return values
    several = values.tolist() if hasattr(values, "tolist") else values
    if isinstance(several, str | bytes | Mapping | set | frozenset) or not isinstance(several, Iterable):
        kind = f"a {type(values).__name__}{', which has no order' if isinstance(several, set | frozenset) else ''}"
        raise SpecError(f"axis {key} must be a sequence of values, such as (0.1, 1.0), but is {kind}: {values!r:.60}")
    plain_values = tuple(map(plain, several))
    if wrong := [value for value in plain_values if not isinstance(value, Value)]:
        raise SpecError(
            f"axis {key} must have single values: numbers, texts, true, false or none, but got {wrong[0]!r:.60}"
        )
    return plain_values


def plain(value: Any) -> Any:
    """A value of NumPy or PyTorch as one of Python, and a function as its name."""
    if inspect.isroutine(value):
        return function_name(value)
    try:
        return value.item() if hasattr(value, "item") else value
    except (ValueError, RuntimeError):  # of several elements
        return value


def function_name(function: Any) -> str:
    """The name of a function as a method. Raises SpecError for one that a worker could not import by its name."""
    module, name = function.__module__, function.__qualname__
    if not all(map(str.isidentifier, name.split("."))) or "." in name or module == "__main__":
        raise SpecError(
            "a function as a method must be at the top level of a module that can be imported, as module:NAME, but got "
            f"{module}:{name}"
        )
    return f"{module}:{name}"


@dataclass(frozen=True)
class Grid:
    """The Cartesian product of some axes, with all other hyperparameters fixed.

    Example: `Grid({"method": "vje"}, {"beta": (0.5, 1.0), "seed": (0, 1, 2)})` has six trials.
    """

    fixed: Fixed
    axes: Axes
    """Key -> its values, in the order of the paper. The last axis varies fastest."""
    pinned: frozenset[str] = frozenset()
    """Keys that `change_space` leaves unchanged, e.g. the epochs of a method that does not train."""
    pruner: Pruner | None = None
    """Compares the settings of the grid at rungs, and ends the worse (`compared`); None trains all to their end."""
    searched: ClassVar[Mapping[str, BaseDistribution]] = {}
    """Nothing is searched."""
    replicates: ClassVar[Axes] = {}
    """Only a search has them. In a grid an axis is enough: its heatmaps and tables have the mean over seeds."""
    objectives: ClassVar[tuple[Metric, ...]] = ()
    constraints: ClassVar[tuple[Constraint, ...]] = ()
    conditions: ClassVar[tuple[When, ...]] = ()

    def __post_init__(self) -> None:
        check_mapping(self, "fixed", "axes")
        check_types(self, apart=("fixed", "axes"))
        object.__setattr__(self, "fixed", {key: plain(value) for key, value in self.fixed.items()})
        object.__setattr__(self, "axes", {key: axis_values(key, values) for key, values in self.axes.items()})
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
        return Grid({**kept_fixed, **fixed}, {**kept_axes, **axes}, self.pinned, self.pruner)

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

    def studies(self) -> Iterator[Study]:
        """A grid has no studies."""
        yield from ()

    def compared(self, metric: Metric) -> Search:
        """Return the search as which a grid with a pruner is trained: it proposes each setting once, in order.

        A setting is one value for each axis but seeds, which are its replicates, so that settings are compared by their
        mean over seeds. Each combination of the values of axes in `APART`, such as classes, is a study of its own.
        Raises SpecError if there are no two settings to compare.
        """
        from optuna.distributions import CategoricalDistribution  # here, because it takes long to import

        several = {key: values for key, values in self.axes.items() if len(values) > 1}
        fixed = {**self.fixed, **{key: values[0] for key, values in self.axes.items() if key not in several}}
        apart = {key: values for key, values in several.items() if key in APART}
        repeated = {key: values for key, values in several.items() if key == "seed"}
        settings = {key: values for key, values in several.items() if key not in (*apart, *repeated)}
        if not settings:
            raise SpecError(
                f"a pruner compares the settings of a grid, but this one has only one; its axes are: "
                f"{', '.join(self.axes) or 'none'}"
            )
        given = tuple(Grid({}, settings).combinations())
        space = {key: CategoricalDistribution(values) for key, values in settings.items()}
        return Search(
            space,
            fixed,
            len(given),
            metric,
            wave=len(given),
            sampler="random",
            pruner=self.pruner,
            axes=apart,
            replicates=repeated,
            given=given,
        )


Sampler = Literal["tpe", "gp", "cmaes", "nsga2", "qmc", "random"]
SAMPLERS: tuple[str, ...] = get_args(Sampler)
"""Tree-structured Parzen estimator, Gaussian process, CMA-ES, NSGA-II, quasi-Monte Carlo (Sobol), independent draws."""
SEVERAL_OBJECTIVES = ("tpe", "gp", "nsga2", "qmc", "random")
"""Samplers that support several objectives."""
CONSTRAINED = ("tpe", "gp", "nsga2")
"""Samplers that avoid infeasible proposals."""
CONDITIONAL = ("tpe", "random")
"""Samplers that draw a key in some proposals alone as well as in all: others would learn nothing of it."""
MEAN_OF = "replicates"
"""Optuna user attribute of a trial that is a mean: the values of each objective that it is the mean of."""
WARM = "warm"
"""Optuna user attribute of a trial that came from a warm start."""
NEVER_REPLICATED = frozenset(
    {"method", "workers", "validation", "normal_images", "contamination"}
    | {"image_digest", "image_size", "image_channels", "image_width"}
)
"""Keys that all trials of a study share: a mean over their values would be of different things."""
UNSEARCHABLE_KEYS = frozenset(
    {"workers", "method", "dataset", "image_digest", "image_size", "image_channels", "image_width", "normal_class"}
    | {"held_out", "validation", "normal_images", "contamination"}
)
"""Keys that must have the same value in all trials of a study."""
APART = UNSEARCHABLE_KEYS | {EPOCHS, "report_every"}
"""Keys in which trials differ that are not compared with each other at rungs."""
SECONDS = "seconds"
"""Name of the objective that is measured instead of reported: the trial's share of its cohort's training time."""


@dataclass(frozen=True)
class Population:
    """Population-based training of a wave as one stack: the worst members copy the best and perturb hyperparameters."""

    every: int
    """Epochs between two exchanges."""
    share: float = 0.25
    """Share of the members that copy, and of those that are copied from, in (0, 0.5]."""
    factor: float = 1.25
    """A copied hyperparameter is multiplied or divided by it with equal probability, and clipped to the space."""

    def __post_init__(self) -> None:
        check_types(self)
        if self.every < 1 or not 0 < self.share <= 0.5 or not self.factor > 1:
            raise SpecError(
                "`every >= 1`, `0 < share <= 0.5` and `factor > 1` must hold for a population, but got "
                f"every={self.every}, share={self.share}, factor={self.factor}"
            )


@dataclass(frozen=True)
class When:
    """Keys that are searched in some proposals alone: in those whose value of another key is one of some values. In
    others they have their defaults.

    Example: `When("lr_schedule", "cosine", {"warmup_epochs": IntDistribution(0, 5)})`.
    """

    key: str
    values: Value | tuple[Value, ...]
    space: Mapping[str, BaseDistribution]
    """Key -> Optuna distribution."""

    def __post_init__(self) -> None:
        check_types(self)
        _check_distributions(self.space)
        if not self.choices or not self.space:
            raise SpecError(
                f"a condition must have at least one value and one key in its space, but that on {self.key} lacks one"
            )

    @property
    def choices(self) -> tuple[Value, ...]:
        return self.values if isinstance(self.values, tuple) else (self.values,)

    @property
    def text(self) -> str:
        """For example `if lr_schedule is cosine`."""
        return f"if {self.key} is {' or '.join(map(str, self.choices))}"

    def holds(self, params: Mapping[str, Value]) -> bool:
        """Whether a proposal with these values has its keys."""
        return self.key in params and any(_same(params[self.key], choice) for choice in self.choices)


@dataclass(frozen=True)
class Search:
    """A search. Each cell of `axes` is a study, in which a sampler makes `trials` proposals wave by wave.

    A proposal is one trial. With `replicates` it is one for each combination of their values, and the sampler is told
    the mean over these: `replicates={"seed": (0, 1, 2)}` searches for what is best on average over three seeds.
    """

    space: Mapping[str, BaseDistribution]
    """Key -> Optuna distribution."""
    fixed: Fixed
    trials: int
    """Number of proposals of each study, each of which is one trial unless there are `replicates`."""
    metric: Metric | tuple[Metric, ...]
    """The objective or objectives."""
    wave: int = 32
    """Number of proposals that are made at once, before the result of any of them is known."""
    sampler: Sampler = "tpe"
    pruner: Pruner | None = None
    population: Population | None = None
    axes: Axes = field(default_factory=dict)
    """Each combination of their values is a study of its own."""
    seed: int = 0
    """Seed of the sampler."""
    replicates: Axes = field(default_factory=dict)
    """Key -> its values, over which the objective is the mean. Every proposal is trained with each combination."""
    constraints: tuple[Constraint, ...] = ()
    """What a proposal must meet. One that does not is infeasible: it is never best, and the sampler avoids its like."""
    conditions: tuple[When, ...] = ()
    """What is searched in some proposals alone. A condition is on a key of `space`, of a condition before it or of
    `axes`."""
    given: tuple[Mapping[str, Value], ...] = ()
    """Values of `space` in the first proposals, in place of the sampler's. In a grid that is pruned they are all
    proposals (`Grid.compared`)."""
    pinned: ClassVar[frozenset[str]] = frozenset()
    """Keys that `change_space` leaves unchanged."""

    def __post_init__(self) -> None:
        check_mapping(self, "replicates")
        check_types(self, apart=("fixed", "axes", "replicates"))
        _check_distributions(self.space)
        grid = Grid(self.fixed, self.axes)  # raises SpecError for invalid axes
        replicates = {key: axis_values(key, values) for key, values in self.replicates.items()}
        for name, values in {"fixed": grid.fixed, "axes": grid.axes, "replicates": replicates}.items():
            object.__setattr__(self, name, values)
        if not all(study.space_of({}) for study in self.studies()):
            raise SpecError("a search must have at least one key in its space, but it is empty")
        for key in self.searched:
            if key in self.fixed or key in self.axes:
                raise SpecError(f"{key} must be either searched or fixed or an axis, but it is two of them")
        self._check_conditions()
        self._check_replicates()
        for name, value in (("trials", self.trials), ("wave", self.wave)):
            if value < 1:
                raise SpecError(f"`{name} >= 1` must hold for a search, but got {name}={value}")
        if self.wave > self.trials:
            raise SpecError(f"`wave <= trials` must hold, but got wave={self.wave}, trials={self.trials}")
        if self.sampler not in SAMPLERS:
            raise SpecError(unknown("sampler", self.sampler, list(SAMPLERS)))
        self._check_objectives()
        self._check_constraints()
        self._check_sampler()

    def _check_replicates(self) -> None:
        for key, values in self.replicates.items():
            if key in NEVER_REPLICATED:
                raise SpecError(
                    f"replicates repeat a proposal with several values of a key such as seed, but {key} is no such key"
                )
            if key in self.searched:
                searched = ", ".join(self.searched)
                raise SpecError(
                    f"replicates need a key that is not searched, but {key} is; those searched are: {searched}"
                )
            if key in self.fixed or key in self.axes:
                raise SpecError(f"{key} must be either fixed or an axis or replicated, but it is two of them")
            if len(set(values)) < max(2, len(values)):
                raise SpecError(
                    f"replicates must have at least two values, and different ones, but {key} has "
                    f"{','.join(map(str, values)) or 'none'}"
                )
        if self.replicates and self.population:
            raise SpecError(
                "a population has no replicates, because its members copy each other, but got replicates of "
                f"{', '.join(self.replicates)}"
            )

    def _check_objectives(self) -> None:
        names = [metric.name for metric in self.objectives]
        if not names:
            raise SpecError("a search must have an objective, but it has none")
        for metric in self.objectives:
            _ = metric.ranking_direction
            if len({other.direction for other in self.objectives if other.name == metric.name}) > 1:
                raise SpecError(
                    f"an objective has one direction, but {metric.name} is to be both maximized and minimized"
                )
            if names.count(metric.name) > 1:
                raise SpecError(f"objectives must differ, but {metric.name} is there twice")
        if len(names) > 1 and self.sampler not in SEVERAL_OBJECTIVES:
            raise SpecError(
                f"{self.sampler} takes one objective, but got {', '.join(names)}; samplers that take several: "
                f"{', '.join(SEVERAL_OBJECTIVES)}"
            )
        if len(names) > 1 and (self.pruner or self.population):
            raise SpecError(f"a pruner or a population ranks by one objective, but the search has {', '.join(names)}")
        if SECONDS in names and (self.pruner or self.population):
            raise SpecError(f"a pruner or a population ranks by a reported metric, but the objective is {SECONDS}")

    def _check_conditions(self) -> None:
        """Raise SpecError for conditions that are ambiguous or never hold."""
        known = dict(self.space)
        for condition in self.conditions:
            if condition.key in known:
                _check_choices(condition, known[condition.key])
            elif condition.key not in self.axes:
                raise SpecError(
                    f"a condition is on a key that is searched before it, or on an axis, but {condition.key} is "
                    f"neither; those are: {', '.join((*known, *self.axes))}"
                )
            if twice := [key for key in condition.space if key in known]:
                raise SpecError(f"a key is searched once, in the space or in one condition, but {twice[0]} is twice")
            known |= condition.space
        if self.conditions and self.sampler not in CONDITIONAL:
            raise SpecError(
                f"{self.sampler} takes no conditions, but got one on {self.conditions[0].key}; samplers that take "
                f"conditions: {', '.join(CONDITIONAL)}"
            )
        if self.conditions and self.population:
            raise SpecError(
                "a population has no conditions, because its members copy each other's hyperparameters, but got one on "
                f"{self.conditions[0].key}"
            )

    def _check_constraints(self) -> None:
        if self.constraints and self.sampler not in CONSTRAINED:
            raise SpecError(
                f"{self.sampler} takes no constraints, but got {', '.join(each.text for each in self.constraints)}; "
                f"samplers that take constraints: {', '.join(CONSTRAINED)}"
            )
        bounded = [(each.column, each.sign) for each in self.constraints]
        for column, sign in bounded:
            if bounded.count((column, sign)) > 1:
                raise SpecError(f"constraints must differ in column or sign, but {column} {sign} is there twice")
        if self.pruner and (at_end := [each.column for each in self.constraints if each.at_end]):
            raise SpecError(
                f"a pruner needs constraints on metrics, because {', '.join(at_end)} of a trial that it stops says "
                "nothing; search without one (--pruner none)"
            )

    def _check_sampler(self) -> None:
        for key, distribution in self.searched.items():
            choices = getattr(distribution, "choices", ())
            for index, choice in enumerate(choices):
                if choices.index(choice) < index:
                    first = choices[choices.index(choice)]
                    raise SpecError(f"the choices of {key} must differ in value, but {first!r} equals {choice!r}")
        numeric = [key for key, distribution in self.space.items() if not hasattr(distribution, "choices")]
        if self.sampler == "cmaes" and (len(numeric) < len(self.space) or len(numeric) < 2):
            raise SpecError("cmaes needs a space of at least two numbers and no categories; choose another sampler")
        if self.pruner and (unknown_fields := vars(self.pruner).keys() - {part.name for part in fields(self.pruner)}):
            raise SpecError(
                f"the parameters of a pruner must be fields of a frozen dataclass, but {type(self.pruner).__name__} "
                f"sets {', '.join(sorted(unknown_fields))}"
            )
        if self.population and self.pruner:
            raise SpecError("a search has either a pruner or a population, but got both")
        if self.population and self.sampler not in ("random", "qmc"):
            raise SpecError(
                "a population adapts its hyperparameters itself, so its sampler must be random or qmc, but got "
                f"{self.sampler}"
            )

    @property
    def proposer(self) -> str:
        """What proposes: the sampler, or `grid` where all proposals are given."""
        return "grid" if len(self.given) == self.trials else self.sampler

    @property
    def searched(self) -> Mapping[str, BaseDistribution]:
        """The keys that all or some proposals draw, with their distributions."""
        return dict(self.space) | {key: own for condition in self.conditions for key, own in condition.space.items()}

    @property
    def objectives(self) -> tuple[Metric, ...]:
        return (self.metric,) if isinstance(self.metric, Metric) else self.metric

    def changed(self, fixed: Fixed, axes: Axes) -> Search:
        """Return this search with the keys in `fixed` fixed and those in `axes` varied, which are then neither searched
        nor replicated.

        An axis that is fixed remains an axis, of one value, so the study of that value keeps its name. What is searched
        on condition of a key that is fixed now is searched in all proposals or in none.
        """
        grid = Grid(self.fixed, self.axes).changed(fixed, axes)
        kept = {key: (fixed[key],) for key in self.axes if key in fixed}
        grid = Grid({key: value for key, value in grid.fixed.items() if key not in kept}, {**kept, **grid.axes})
        space = {key: dist for key, dist in self.space.items() if key not in grid.fixed and key not in grid.axes}
        conditions, known = list[When](), {*space, *grid.axes}
        for condition in self.conditions:
            own = {key: dist for key, dist in condition.space.items() if key not in grid.fixed and key not in grid.axes}
            if condition.holds(grid.fixed):
                space |= own
            elif own and condition.key in known:
                conditions.append(replace(condition, space=own))
            else:
                continue
            known |= own.keys()
        replicates = {
            key: own for key, own in self.replicates.items() if key not in grid.fixed and key not in grid.axes
        }
        return replace(
            self,
            space=space,
            fixed=grid.fixed,
            axes=grid.axes,
            replicates=replicates,
            conditions=tuple(conditions),
        )

    def replicated(self, replicates: Axes) -> Search:
        """Return this search with these replicates, whose keys are then neither fixed nor axes, besides its own."""
        fixed = {key: value for key, value in self.fixed.items() if key not in replicates}
        axes = {key: values for key, values in self.axes.items() if key not in replicates}
        return replace(self, fixed=fixed, axes=axes, replicates={**self.replicates, **replicates})

    def values(self, key: str) -> tuple[Value, ...]:
        """Return the values of the key in `fixed`, `axes` or `replicates`; empty if it is searched or not mentioned."""
        return Grid(self.fixed, {**self.axes, **self.replicates}).values(key)

    @property
    def repeats(self) -> int:
        """Number of trials of a proposal."""
        return Grid({}, self.replicates).count

    @property
    def count(self) -> int:
        return self.trials * self.repeats * Grid({}, self.axes).count

    def combinations(self) -> Iterator[dict[str, Value]]:
        """No trial of a search is known before it is proposed."""
        yield from ()

    def studies(self) -> Iterator[Study]:
        """Yield the study of each cell of the axes."""
        for cell in Grid({}, self.axes).combinations():
            yield Study(_study_name(cell), {**self.fixed, **cell}, self)


Part = Grid | Search
Space = Part | tuple[Part, ...]
"""What a preset trains: a grid, a search, or several of them, for example for methods with different search spaces."""


def parts_of(space: Space) -> tuple[Part, ...]:
    return space if isinstance(space, tuple) else (space,)


def part_keys(part: Part) -> tuple[str, ...]:
    """Return the hyperparameters that a part of a preset sets or searches."""
    return (*part.fixed, *part.axes, *part.replicates, *part.searched)


def studies_of(space: Space) -> Iterator[Study]:
    """Yield the studies of a space; if it is several parts, with the method in front of their names."""
    for part in parts_of(space):
        for study in part.studies():
            named = isinstance(space, tuple)
            yield replace(study, name=_study_name({"method": part.fixed["method"], "": study.name})) if named else study


def check_space(space: Space, preset: str) -> None:
    """Raise SpecError if this is no space, or if its parts are not told apart."""
    kinds = {type(part).__name__ for part in parts_of(space) if not isinstance(part, Part)}
    if kinds:
        offender = "one of its parts" if isinstance(space, tuple) else "it"
        raise SpecError(
            f"preset {preset!r} must be a Grid, a Search or a tuple of them, but {offender} is of type "
            f"{', '.join(sorted(kinds))}"
        )
    if not isinstance(space, tuple):
        return
    if not space:
        raise SpecError(f"preset {preset!r} must have at least one grid or search, but there is none")
    if any("method" not in part.fixed for part in space):
        raise SpecError(f"each of several grids or searches must fix its method, but one of preset {preset!r} does not")
    searches = [part for part in space if isinstance(part, Search)]
    if len({search.objectives for search in searches}) > 1:
        raise SpecError("several searches must have the same objectives, but theirs differ")
    if len({search.constraints for search in searches}) > 1:
        raise SpecError("several searches must have the same constraints, but theirs differ")
    methods = [search.fixed["method"] for search in searches]
    if len(set(methods)) < len(methods):
        raise SpecError(f"each of several searches must have a method of its own, but got {methods}")


PART_KEYS = ("method", "dataset", "normal_images")
"""Keys whose change selects among several parts, in this order; the others but the method only where parts differ."""


def change_space(space: Space, fixed: Fixed, axes: Axes, keys: KeysOf) -> Space:
    """Return the space with the keys in `fixed` fixed and those in `axes` varied; of several parts, in each whose
    method has the key, by `keys`."""
    return _change_each(space, fixed, axes, keys) if isinstance(space, tuple) else space.changed(fixed, axes)


def replicate_space(space: Space, replicates: Axes, keys: KeysOf) -> Space:
    """Return the space with these replicates in its searches; of several parts, in each whose method has the key, by
    `keys`. Raises SpecError for a key that none of them has."""
    searches = [part for part in parts_of(space) if isinstance(part, Search)]
    for key in replicates:
        if not any(key in keys(str(method)) for part in searches for method in part.values("method")):
            raise SpecError(f"no method of these searches has the key '{key}' to replicate")

    def replicated(part: Part) -> Part:
        if isinstance(part, Grid):
            return part
        own = set().union(*(keys(str(method)) for method in part.values("method")))
        return part.replicated({key: values for key, values in replicates.items() if key in own})

    return tuple(map(replicated, space)) if isinstance(space, tuple) else replicated(space)


def _change_each(parts: Sequence[Part], fixed: Fixed, axes: Axes, keys: KeysOf) -> tuple[Part, ...]:
    """Return the parts with the keys in `fixed` fixed and those in `axes` varied.

    A key is changed only in the parts whose method has it. The key `method` selects the parts with one of the wanted
    methods instead. So do `dataset` and `normal_images` if the parts differ in them. Raises SpecError for a value of
    these that no part has, and for a key that none of their methods has.
    """
    requested = Grid({}, {}).changed(fixed, axes)  # raises SpecError for what is invalid in any part
    selected, selecting = tuple(parts), set[str]()
    for key in PART_KEYS:
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


def _select(parts: Sequence[Part], key: str, wanted: Sequence[Value]) -> tuple[Part, ...]:
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


@dataclass(frozen=True)
class Study:
    """A search in one cell of its axes, which is a study in the sense of Optuna."""

    name: str
    """Name of its folder in the store: the values of the axes, joined by `+`."""
    fixed: Fixed
    """Includes the values of the cell."""
    search: Search

    def space_of(self, params: Mapping[str, Value]) -> dict[str, BaseDistribution]:
        """Return the keys that a proposal with these values draws, with their distributions. A condition on a key that
        has no value, or that is not drawn itself, does not hold."""
        drawn = dict(self.search.space)
        for condition in self.search.conditions:
            known = {**self.fixed, **{key: params[key] for key in drawn if key in params}}
            if condition.holds(known):
                drawn |= condition.space
        return drawn

    def proposal(self, params: Mapping[str, Value]) -> dict[str, Value]:
        """Return a proposal that has these values of keys that it draws, and of others the lowest or first one."""
        known: dict[str, Value] = {}
        while new := {key: dist for key, dist in self.space_of(known).items() if key not in known}:
            known |= {key: params[key] if key in params else bounds(dist)[0] for key, dist in new.items()}
        return known

    def reaching(self, key: str) -> dict[str, Value]:
        """Return values with which a proposal draws a searched key; none if all do."""
        on = next((condition for condition in self.search.conditions if key in condition.space), None)
        return {**self.reaching(on.key), on.key: on.choices[0]} if on else {}

    def searched_values(self, row: Mapping[str, Any], defaults: Mapping[str, Value]) -> dict[str, Value]:
        """Return the values that a trial drew by its row. Keys that the row lacks have their defaults."""
        values = {key: value_in(row, key, defaults) for key in self.search.searched}
        return {key: values[key] for key in self.space_of(values)}

    def contains(self, params: Mapping[str, Value]) -> bool:
        """Whether these are the values of a proposal: of each key that it draws one inside its distribution."""
        space = self.space_of(params)
        return params.keys() == space.keys() and all(within(space[key], params[key]) for key in space)

    @property
    def replicates(self) -> tuple[dict[str, Value], ...]:
        """What the trials of a proposal have beside its values, each of them; one empty mapping without replicates."""
        return tuple(Grid({}, self.search.replicates).combinations())

    def replicate_of(self, row: Mapping[str, Any], defaults: Mapping[str, Value]) -> tuple[Value, ...]:
        """Return the values of the replicated keys in a trial's row, which tell the trials of a proposal apart."""
        return tuple(value_in(row, key, defaults) for key in self.search.replicates)

    @property
    def identity(self) -> dict[str, object]:
        """Everything that the proposals depend on, without the number of trials: a study can be made longer."""
        search = self.search
        bounded = [(each.column, each.sign, float(each.bound)) for each in search.constraints]
        conditions = [
            (each.key, each.choices, {key: repr(distribution) for key, distribution in each.space.items()})
            for each in search.conditions
        ]
        return {
            "fixed": dict(self.fixed),
            "space": {key: repr(distribution) for key, distribution in search.space.items()},
            "objectives": [(metric.name, metric.direction) for metric in search.objectives],
            "rules": [search.wave, search.sampler, search.seed, repr(search.pruner), repr(search.population)],
            **({"replicates": dict(search.replicates)} if search.replicates else {}),
            **({"given": [dict(values) for values in search.given]} if search.given else {}),
            **({"constraints": bounded} if bounded else {}),
            **({"conditions": conditions} if conditions else {}),
        }


def _same(value: Value, other: Value) -> bool:
    return value == other and isinstance(value, bool) == isinstance(other, bool)


def _check_distributions(space: Mapping[str, object]) -> None:
    """Raise SpecError for a key that has no distribution."""
    for key, distribution in space.items():
        if not hasattr(distribution, "choices") and not hasattr(distribution, "low"):
            raise SpecError(
                "a space maps each key to a distribution of Optuna, such as FloatDistribution(0.001, 0.1), but "
                f"{key} to {distribution!r:.60}"
            )


def _check_choices(condition: When, distribution: BaseDistribution) -> None:
    """Raise SpecError for a condition on a range of numbers, or on a value that the key cannot have."""
    low, high = bounds(distribution)[0], bounds(distribution)[-1]
    if not hasattr(distribution, "choices") and not (isinstance(low, int) and isinstance(high, int)):
        raise SpecError(
            f"a condition is on a key with choices or whole numbers, but {condition.key} is {low:g} to {high:g}"
        )
    for choice in condition.choices:
        if not within(distribution, choice):
            values = (
                ", ".join(map(str, bounds(distribution))) if hasattr(distribution, "choices") else f"{low} to {high}"
            )
            raise SpecError(
                f"a condition is on a value that its key has, but {condition.key} is {values}, not {choice}"
            )


def value_in(row: Mapping[str, Any], key: str, defaults: Mapping[str, Value]) -> Value:
    """Return the value of a key in a row, whose sweep may have no column of a key that all its trials leave at its
    default."""
    value: Value = row.get(key)
    return defaults.get(key) if value is None else value


def bounds(distribution: Any) -> tuple[Value, ...]:
    """Return the lowest and the highest value of an Optuna distribution, or all choices of a categorical one."""
    return tuple(distribution.choices) if hasattr(distribution, "choices") else (distribution.low, distribution.high)


def within(distribution: Any, value: Value) -> bool:
    """Return whether the value has a type and a range that the Optuna distribution allows. A step is not checked."""
    if hasattr(distribution, "choices"):
        return any(value == choice and type(value) is type(choice) for choice in distribution.choices)
    low, high = distribution.low, distribution.high
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high


def _study_name(cell: Mapping[str, Value]) -> str:
    """Join the values of a cell into a name in the store, e.g. `digits+1.0`; `all` without any values."""
    return "+".join("none" if value is None else str(value) for value in cell.values() if value != "all") or "all"
