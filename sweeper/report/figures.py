"""What is shown of the rows of a request: the figures of its preset, in the store, in the terminal and on a page."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pandas as pd

from sweeper.definition import Constraint, Grid, Metric, Sweep
from sweeper.definition.figures import Figure
from sweeper.definition.metric import VALIDATION, Spread
from sweeper.definition.sweep import SEEDS, Repeats
from sweeper.errors import DamagedError, StoreError
from sweeper.planning.changes import changed_keys
from sweeper.report.formatting import ValueText, plain_text
from sweeper.report.selections import in_order, labelled
from sweeper.results.best import NUMBER, BestSetting, Settings, columns_of
from sweeper.results.judging import judging_rows
from sweeper.results.sentences import chosen
from sweeper.storage.rows import STUDY_COLUMNS, plain_value

MEAN_OF_STUDY = "of a search the mean over all of its settings"
"""What a figure says that shows all trials of studies."""
Kind = TypeVar("Kind", bound=Figure)
Made = TypeVar("Made")


@dataclass(frozen=True)
class Parameter:
    """A hyperparameter that a search samples."""

    name: str
    log: bool
    """Whether it is sampled on a logarithmic scale."""


@dataclass(frozen=True)
class PresetFigures:
    """The figures of a preset, none of which is restricted to other presets, and what they say of it."""

    preset: str
    about: str
    """One line that says what the sweep is."""
    over: str
    """What the cells of a heatmap average over, as a plural noun."""
    headline: Metric
    """The metric that decides which trial is best."""
    figures: tuple[Figure, ...]
    grids: tuple[Grid, ...]
    """In the order of the preset, which is that of the rows of tables; empty for a search."""
    objectives: tuple[Metric, ...]
    """Those of a search; empty for grids."""
    parameters: tuple[Parameter, ...]
    """Those of a search; empty for grids."""
    repeats: Repeats = SEEDS
    """Hyperparameters over whose values the score of a setting is the mean."""
    naming: tuple[str, ...] = ()
    """Hyperparameters that name a setting to a reader."""
    constraints: tuple[Constraint, ...] = ()
    """What proposals of a search must meet; empty for grids."""

    @property
    def ranks(self) -> bool:
        """Whether there is one metric to be best by. A search with several objectives has a front."""
        return len(self.objectives) < 2 or (bool(self.grids) and any(figure.ranking for figure in self.figures))

    def are_beside(self, rows: pd.DataFrame, changes: str) -> bool:
        """Whether the paper's figures may stand beside the rows of a request with `changes`: whether some of the rows
        can judge a claim about the preset."""
        changed = changed_keys(changes)
        return not changed or len(judging_rows(rows, self.grids, changed)) > 0

    def beside(self, rows: pd.DataFrame, changes: str) -> "PresetFigures":
        """Return the figures for the rows of a request with `changes`, without the paper's where they may not stand
        beside the rows."""
        if self.are_beside(rows, changes):
            return self
        return replace(self, figures=tuple(_of_preset(figure, "") for figure in self.figures))

    @property
    def axes(self) -> list[str]:
        """The hyperparameters that the definition of the preset varies, those of its cells first."""
        of_cells = [name for figure in self.figures if figure.ranking for name in figure.hyperparameters]
        of_grids = [name for grid in self.grids for name, values in grid.axes.items() if len(values) > 1]
        return list(dict.fromkeys((*of_cells, *self.naming, *of_grids, *(known.name for known in self.parameters))))

    def of_kind(self, kind: type[Kind]) -> tuple[Kind, ...]:
        """Return the figures of a kind."""
        return tuple(figure for figure in self.figures if isinstance(figure, kind))

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Every metric that is declared with a direction, each once."""
        declared = (
            self.headline,
            *(metric for figure in self.figures for metric in figure.shown),
            *self.objectives,
        )
        return tuple({metric.name: metric for metric in reversed(declared) if metric.direction}.values())[::-1]

    def metric(self, name: str) -> Metric | None:
        """Return the declared metric of this name, also if it is declared on validation images; None without one."""
        own = name.removeprefix(VALIDATION)
        return next((metric for metric in self.metrics if metric.name.removeprefix(VALIDATION) == own), None)


def figures_of(sweep: Sweep, preset: str) -> PresetFigures:
    """Return the figures of a preset of a sweep."""
    distributions = {key: distribution for part in sweep.parts(preset) for key, distribution in part.searched.items()}
    parameters = (Parameter(key, bool(getattr(kind, "log", False))) for key, kind in distributions.items())
    return PresetFigures(
        preset,
        sweep.about,
        sweep.over,
        sweep.headline(preset),
        tuple(_of_preset(figure, preset) for figure in sweep.figures_of(preset)),
        sweep.grids(preset),
        sweep.objectives(preset),
        tuple(parameters),
        sweep.repeats,
        sweep.naming(preset),
        sweep.constraints(preset),
    )


def _of_preset(figure: Figure, preset: str) -> Figure:
    """The figure with what the paper has of this preset alone, and without restriction to presets."""
    changes: dict[str, Any] = {"presets": ()}
    if published := getattr(figure, "published", {}):
        changes["published"] = {name: cells for name, cells in published.items() if name == preset}
    return replace(figure, **changes)


@dataclass(frozen=True)
class Shown:
    """The rows of a request, and what every figure says of them."""

    preset: PresetFigures
    rows: pd.DataFrame
    history: Callable[[], pd.DataFrame]
    """Reads that of these trials, and possibly of others."""
    hyperparameters: Collection[str]
    """Columns of the rows that are some. Those that figures show or that repeat an experiment may be left out."""
    value_text: ValueText = plain_text
    """How values of hyperparameters are written."""
    about: str = ""
    """A line below the title of each figure."""
    so_far: bool = False
    """Whether trials are still to come."""
    spread: Spread = "interval"
    """What stands beside means."""
    is_in_order: bool = False
    """Whether the rows have the order of the plan."""

    def rows_of(self, figure: Figure) -> pd.DataFrame:
        """Return the rows of a figure, in the order of its axes: of its selections under their labels, else all."""
        rows = self.rows if self.is_in_order else in_order(self.preset.grids, self.rows, figure.hyperparameters)
        return labelled(rows, figure.selections)

    def mean_of_studies(self, rows: pd.DataFrame) -> str:
        """Return a clause for a figure that averages over all settings of searches; empty if no row is of a search."""
        of_study = bool(self.preset.objectives) and "study" in rows and bool(rows["study"].notna().any())
        return MEAN_OF_STUDY if of_study else ""

    def of_best_settings(self, rows: pd.DataFrame, figure: Figure) -> tuple[pd.DataFrame, str]:
        """Return the rows of a figure, of those of each study the trials of its best setting in each cell alone, also
        those without a value, and a clause that says so, which is empty without a study.

        The objective of the search decides; axes whose values repeat an experiment divide no setting. The rows have
        neither the study nor what was searched: whichever setting was found, it is the cells that are compared. A cell
        whose settings do not meet the constraints has no values. With several objectives all rows stay.
        """
        objectives, clause = self.preset.objectives, self.mean_of_studies(rows)
        if len(objectives) != 1 or not clause:
            return rows, clause
        of_study = rows["study"].notna()
        axes = [axis for axis in figure.axes if axis in rows and axis not in self.preset.repeats.names]
        keys = zip(rows["study"], *(map(plain_value, rows[axis]) for axis in axes), strict=True)
        cells = pd.Series([*map(repr, keys)], rows.index)
        trials = rows["trial_id"] + "\n" + cells
        own = rows.assign(study=cells, trial_id=trials)[of_study]
        found = self.best(own, objectives[0], ())
        settings = cells + "\n" + rows[NUMBER].map(repr)
        is_compared = trials.isin([trial for best in found for trial in best.values])
        is_best = of_study & settings.isin(settings[is_compared])  # with those that failed
        is_left = of_study & ~is_best & ~cells.isin(cells[is_best])  # no setting of the cell is best
        searched = {*STUDY_COLUMNS, *(parameter.name for parameter in self.preset.parameters)}.difference(figure.axes)
        without = {name: of_study for name in rows if name in searched}
        without |= {name: is_left for name in ("trial_id", *(metric.name for metric in figure.shown)) if name in rows}
        left = rows.assign(**{name: rows[name].astype(object).mask(mask, None) for name, mask in without.items()})
        how = " or ".join(dict.fromkeys(map(chosen, found)))
        clause = f"of a search the best setting{' for each ' * bool(axes)}{' and '.join(axes)}, {how}" if how else ""
        return left[~of_study | is_best | is_left], clause

    def best(self, rows: pd.DataFrame, metric: Metric, named: Sequence[str]) -> list[BestSetting]:
        """Return the best settings of some rows by a metric, which hyperparameters name. A row that several selections
        have counts once."""
        return self.settings(rows, metric, named).best(metric, named)

    def settings(self, rows: pd.DataFrame, metric: Metric, named: Sequence[str]) -> Settings:
        """Return the settings of some rows, to be compared by a metric."""
        single = rows.drop_duplicates("trial_id") if "trial_id" in rows else rows
        shown = (key for figure in self.preset.figures for key in figure.hyperparameters)
        keys = dict.fromkeys((*self.hyperparameters, *shown, *self.preset.repeats.names))
        return settings_of(self.preset, single, keys, [metric], named)


def settings_of(
    preset: PresetFigures, rows: pd.DataFrame, keys: Iterable[str], metrics: Iterable[Metric], named: Sequence[str]
) -> Settings:
    """Return the settings of rows, to be compared by some metrics. `keys` are columns that are hyperparameters: most
    have one value in all rows, which tells no settings apart."""
    telling = [
        key for key in keys if key in preset.repeats.names or (key in rows and rows[key].nunique(dropna=False) > 1)
    ]
    settings = Settings((*telling, *named), preset.repeats, preset.constraints)
    of_metrics = (name for metric in metrics for name in columns_of(metric.name, list(rows)))
    wanted = dict.fromkeys((*settings.columns, *of_metrics))
    settings.add_columns({name: rows[name].tolist() for name in wanted if name in rows})
    return settings


def made(say: Callable[[str], object], name: str, make: Callable[[], Made]) -> Made | None:
    """Return `make()`. If it fails for what the store holds, call `say` with a sentence about `name` and return None.

    A file of a store can hold anything, such as text where numbers belong, and pandas, NumPy and Matplotlib raise many
    kinds of errors for that. Raises StoreError if the store cannot be read or written.
    """
    try:
        return make()
    except Exception as error:
        if isinstance(error, StoreError) and not isinstance(error, DamagedError):
            raise
        reason = " ".join(str(error).split())[:200]
        say(f"{name} cannot be shown: {type(error).__name__}{reason and f': {reason}'}")
        return None
