"""The definition of a sweep: its presets, each of grids and searches, and the figures of its rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from sweeper.definition.constraint import Constraint
from sweeper.definition.field_types import check_mapping, check_types
from sweeper.definition.figures import Figure, Heatmap
from sweeper.definition.metric import OF_EVERY_ROW, Metric
from sweeper.definition.space import SEED, Grid, Part, Space, check_space, part_keys, parts_of
from sweeper.errors import SpecError
from sweeper.names import LAW, is_name
from trainables.metrics.meanings import FAMILIES, family_of
from trainables.validation import unknown

if TYPE_CHECKING:
    from sweeper.claims import Claim

Kind = TypeVar("Kind", bound=Figure)
PAGES = {"index": "the list of all sweeps", "claims": "that of all claims"}
"""Name that no sweep can have -> the page of this name."""


@dataclass(frozen=True)
class Repeats:
    """The hyperparameters whose values repeat an experiment: none of them is a choice, so a setting has the mean over
    them."""

    drawn: tuple[str, ...] = (SEED,)
    """Those whose values are drawn anew, so that others could have been drawn: intervals are over these."""
    fixed: tuple[str, ...] = ("normal_class", "held_out")
    """Those whose values are what they are, such as the classes of a data set: a replicate has the mean over them."""

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.drawn, *self.fixed)

    def without(self, names: Collection[str]) -> Repeats:
        """Return those that are not among `names`, by which trials are told apart already."""
        drawn, fixed = (tuple(name for name in own if name not in names) for own in (self.drawn, self.fixed))
        return Repeats(drawn, fixed)

    def replicates(self, distinct: Mapping[str, Collection[object]]) -> tuple[str, ...]:
        """Return those of the drawn ones whose values are the replicates. `distinct` has the values of each, without
        null, in all that is compared.

        Where there are several random classes these are the replicates, and a class counts once, with the mean over its
        seeds: seeds of a class differ less than classes do, so that an interval over both would be too narrow.
        """
        several = tuple(name for name in self.drawn if name != SEED and len(distinct.get(name, ())) > 1)
        return several or tuple(name for name in self.drawn if name in distinct)


SEEDS = Repeats()
"""What every sweep repeats."""


@dataclass(frozen=True)
class Assumption:
    """Settings of a preset that are our choice: the paper does not print them, the copy that we had does not show them,
    or the paper has no such experiment."""

    why: str
    """What the paper lacks, and what was chosen, in a few words."""
    keys: tuple[str, ...] = ()
    """Hyperparameters that the preset sets; none where no key sets what was chosen."""
    methods: tuple[str, ...] = ()
    """The methods of which it is said; empty means all that have the keys."""

    def __post_init__(self) -> None:
        check_types(self)

    def text(self, quote: str = "`") -> str:
        """Return e.g. `` `tau`, `ema` of `moco_v2`: the paper gives none ``, with names in these quotes."""
        keys, methods = (", ".join(f"{quote}{name}{quote}" for name in names) for names in (self.keys, self.methods))
        subject = " of ".join(filter(None, (keys, methods)))
        return f"{subject}: {self.why}" if subject else self.why


@dataclass(frozen=True)
class Sweep:
    """A named experiment: what to train, and how to show the results."""

    about: str
    """One line that says what the sweep is."""
    presets: Mapping[str, Space]
    """Name -> preset: a grid, a search, or a tuple of these. The first is the paper's, and the default."""
    figures: tuple[Figure, ...] = ()
    """Of any kinds. The first with cells says which metric decides what is best in a grid."""
    over: str = "trials"
    """What the cells of a heatmap average over, as a plural noun for its caption, e.g. "classes"."""
    breakdown: str | None = None
    """A hyperparameter. A table shows the best cell of the first heatmap for each of its values."""
    correlations: tuple[tuple[str, str], ...] = ()
    """Pairs of metrics. A table shows the correlation of each pair over the cells of the first heatmap."""
    random: tuple[str, ...] = ()
    """Hyperparameters beside the seed whose values are a sample of those that there could be, such as classes drawn at
    random: intervals are over them. The classes of a benchmark are not: they are the same for everyone."""
    contours: tuple[tuple[str, str], ...] = ()
    """Pairs of searched hyperparameters. A contour plot shows the objective of a search over each pair."""
    paper: str = ""
    """The paper whose experiment it is, or beside whose experiments it stands, e.g. "VJE (arXiv 2602.05639)"."""
    assumptions: Mapping[str, tuple[Assumption, ...]] = field(default_factory=dict)
    """Preset with settings of the paper, or of its authors' code -> those of its settings that are not. All of another
    preset is ours. A preset that the sweep does not have is ignored, so that a variant can have others."""
    claims: tuple[Claim, ...] = ()
    """What papers claim of its rows (`sweeper.claims`). They are checked where they are judged."""
    name: str = ""
    """Its name in the store: letters, digits, `_`, `-`, `+` and `.`, but neither `index` nor `claims`. By
    default that of the file that defines it."""

    def __post_init__(self) -> None:
        check_types(self, apart=("presets",))
        check_mapping(self, "presets")
        if self.name and not is_name(self.name):
            raise SpecError(f"the name of a sweep {LAW}, but got {self.name!r}")
        if (page := PAGES.get(self.name.lower())) is not None:
            raise SpecError(
                f"the name of a sweep must not be {self.name.lower()!r}, whose page is {page}, but got "
                f"{self.name!r}; write Sweep(name=...) or rename the file"
            )
        for name, space in self.presets.items():
            check_space(space, name)
        all_search = all(self.objectives(preset) for preset in self.presets)
        if not self.presets or not (all_search or any(figure.ranking for figure in self.figures)):
            raise SpecError("a sweep must have at least one preset, and for grids one heatmap or table")
        if (self.breakdown or self.correlations) and not self.of_kind(Heatmap):
            raise SpecError("a breakdown or correlations need a heatmap, but the sweep has none")
        for metric in self._ranked:
            _ = metric.ranking_direction
        directed = [*self._ranked, *(metric for figure in self.figures for metric in figure.shown if metric.direction)]
        directions = {metric.name: metric.direction for metric in directed}
        for metric in directed:
            if metric.direction != directions[metric.name]:
                raise SpecError(f"a metric has one direction, but {metric.name} is both maximized and minimized")
        for preset in self.presets:
            for assumption in self.assumptions.get(preset, ()):
                _check_assumption(assumption, preset, self.parts(preset))
        self._check_random()
        for preset in self.presets:
            self._check_files(preset)
            self._check_constraints(preset)

    def _check_random(self) -> None:
        """Raise SpecError for a random hyperparameter that no preset sets."""
        sets = dict.fromkeys(key for preset in self.presets for part in self.parts(preset) for key in part_keys(part))
        for name in self.random:
            if name not in sets:
                raise SpecError(unknown("random hyperparameter that a preset sets", name, list(sets)))

    def _check_files(self, preset: str) -> None:
        """Raise SpecError for two figures of one preset that would be the same file."""
        known = set[tuple[type[Figure], str]]()
        for figure in self.figures_of(preset):
            if (type(figure), figure.file) in known:
                raise SpecError(
                    f"figures of a preset must differ in kind or name, but {preset} has two: {figure.title}"
                )
            known.add((type(figure), figure.file))

    def _check_constraints(self, preset: str) -> None:
        """Raise SpecError for a constraint on a column that is neither a known metric, one that the sweep shows or
        searches for, nor a number of every row."""
        own = {*OF_EVERY_ROW, *self.axes_by_metric, *(metric.name for metric in self.objectives(preset))}
        for column in (constraint.column for constraint in self.constraints(preset)):
            if family_of(column) is None and column not in own:
                name = f"metric or column of a constraint of preset {preset}"
                raise SpecError(unknown(name, column, sorted({*FAMILIES, *own})))

    def claims_of(self, preset: str) -> tuple[Claim, ...]:
        """Return the claims that rows of the preset can judge."""
        return tuple(claim for claim in self.claims if not claim.presets or preset in claim.presets)

    def parts(self, preset: str) -> tuple[Part, ...]:
        """Return the grids and searches of a preset."""
        return parts_of(self.presets[preset])

    def trial_count(self, preset: str) -> int:
        """Return the number of trials of a preset: the cells of its grids, and of its searches all that they may
        propose."""
        return sum(part.count for part in self.parts(preset))

    def grids(self, preset: str) -> tuple[Grid, ...]:
        return tuple(part for part in self.parts(preset) if isinstance(part, Grid))

    def objectives(self, preset: str) -> tuple[Metric, ...]:
        """Return the objectives of the preset's searches, which all have the same; empty without a search."""
        return next((part.objectives for part in self.parts(preset) if part.objectives), ())

    def constraints(self, preset: str) -> tuple[Constraint, ...]:
        """Return what proposals of the preset's searches must meet, which is the same for all of them."""
        return next((part.constraints for part in self.parts(preset) if part.constraints), ())

    def figures_of(self, preset: str) -> tuple[Figure, ...]:
        """Return the figures that are not restricted to other presets."""
        return tuple(figure for figure in self.figures if not figure.presets or preset in figure.presets)

    def of_kind(self, kind: type[Kind]) -> tuple[Kind, ...]:
        """Return the figures of a kind."""
        return tuple(figure for figure in self.figures if isinstance(figure, kind))

    def for_preset(self, preset: str) -> Sweep:
        """Return this sweep without the figures that are restricted to other presets."""
        return replace(self, figures=self.figures_of(preset))

    @property
    def _ranked(self) -> tuple[Metric, ...]:
        """Every metric by which settings or trials of a preset are ranked."""
        headlines = (self.headline(preset) for preset in self.presets if self._headline_figure(preset))
        return *headlines, *(metric for preset in self.presets for metric in self.objectives(preset))

    def headline(self, preset: str) -> Metric:
        """Return the metric that decides which trial of the preset is best.

        For grids this is the metric of the first heatmap or table of the preset, of a table its first one; for searches
        alone, and where there is neither, the first objective.
        """
        figure = self._headline_figure(preset)
        return figure.ranking if figure and figure.ranking else self.objectives(preset)[0]

    def _headline_figure(self, preset: str) -> Figure | None:
        """Return the figure whose metric is the headline of the preset; None if that is an objective."""
        if not self.grids(preset):
            return None
        return next((figure for figure in self.figures_of(preset) if figure.ranking), None)

    @property
    def repeats(self) -> Repeats:
        """The hyperparameters over whose values the score of a setting is the mean."""
        known = SEEDS
        fixed = dict.fromkeys((*known.fixed, *([self.breakdown] if self.breakdown else [])))
        drawn = dict.fromkeys((*known.drawn, *self.random))
        return Repeats(tuple(drawn), tuple(name for name in fixed if name not in drawn))

    def naming(self, preset: str) -> tuple[str, ...]:
        """Return the hyperparameters that name a setting of the preset to a reader: the axes, without labels, of the
        figure whose metric is the headline, and those that are searched."""
        figure = self._headline_figure(preset)
        labels = {label for selection in figure.selections for label in selection.labels} if figure else set[str]()
        axes = [axis for axis in figure.axes if axis not in labels] if figure else []
        return tuple(dict.fromkeys((*axes, *(key for part in self.parts(preset) for key in part.searched))))

    @property
    def axes_by_metric(self) -> dict[str, tuple[str, ...]]:
        """Metric -> the hyperparameters over which any figure shows it, possibly with repetitions."""
        axes_by_metric: dict[str, tuple[str, ...]] = {}
        for figure in self.figures:
            for metric in figure.shown:
                axes_by_metric[metric.name] = axes_by_metric.get(metric.name, ()) + figure.hyperparameters
        return axes_by_metric

    def preset(self, name: str | None) -> tuple[str, Space]:
        """Return the name and the value of the preset `name` (None: the first). Raises SpecError if there is none."""
        name = next(iter(self.presets)) if name is None else name
        if name not in self.presets:
            raise SpecError(unknown("preset", name, self.presets))
        return name, self.presets[name]


def _check_assumption(assumption: Assumption, preset: str, parts: Sequence[Part]) -> None:
    """Raise SpecError for a method or a key that no trial of the preset has by the preset."""
    known = {str(method) for part in parts for method in part.values("method")}
    for method in assumption.methods:
        if method not in known:
            raise SpecError(f"an assumption about preset {preset}: {unknown('method', method, sorted(known))}")
    own = [part for part in parts if not assumption.methods or set(part.values("method")) & set(assumption.methods)]
    sets = {key for part in own for key in part_keys(part)}
    for key in assumption.keys:
        if key not in sets:
            of_methods = f" for {' or '.join(assumption.methods)}" if assumption.methods else ""
            raise SpecError(f"an assumption names {key}, which preset {preset} does not set{of_methods}")
