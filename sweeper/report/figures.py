"""What the page of a sweep shows of one of its presets, as plain data in `reports/NAME.views/`.

The command that runs a preset writes them. A page reads them and not the definition of the sweep, which may be code
of the user that cannot be found any more, or must not be executed.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any, TypeVar
from urllib.parse import quote

from sweeper.errors import DamagedError, StoreError
from sweeper.spec import Grid, Heatmap, Metric, Selection, Sweep, Table, Trajectory
from sweeper.spec.metric import VALIDATION
from sweeper.spec.space import Value
from sweeper.spec.sweep import REPLICATES
from sweeper.storage.files import Files, checked_record
from sweeper.storage.layout import page_views_folder
from trainables.json_input import Length

MAX_FIGURES, MAX_PUBLISHED = 500, 20_000
"""Most figures of a kind, grids, selections or metrics of a file that is read, and most published values of one."""


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
    heatmaps: tuple[Heatmap, ...]
    tables: tuple[Table, ...]
    trajectories: tuple[Trajectory, ...]
    grids: tuple[Grid, ...]
    """In the order of the preset, which is that of the rows of tables; empty for a search."""
    objectives: tuple[Metric, ...]
    """Those of a search; empty for grids."""
    parameters: tuple[Parameter, ...]
    """Those of a search; empty for grids."""
    replicates: tuple[str, ...] = REPLICATES
    """Hyperparameters over whose values the score of a setting is the mean."""
    naming: tuple[str, ...] = ()
    """Hyperparameters that name a setting to a reader."""

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Every metric that is declared with a direction, each once."""
        declared = (
            self.headline,
            *(view.metric for view in self.heatmaps),
            *(metric for view in self.tables for metric in view.metrics),
            *self.objectives,
        )
        return tuple({metric.name: metric for metric in reversed(declared) if metric.direction}.values())[::-1]

    def metric(self, name: str) -> Metric | None:
        """Return the declared metric of this name, also if it is declared on validation images; None without one."""
        own = name.removeprefix(VALIDATION)
        return next((metric for metric in self.metrics if metric.name.removeprefix(VALIDATION) == own), None)


def figures_of(sweep: Sweep, preset: str) -> PresetFigures:
    """Return the figures of a preset of a sweep."""
    shown = sweep.for_preset(preset)
    distributions = {key: distribution for part in sweep.parts(preset) for key, distribution in part.space.items()}
    parameters = (Parameter(key, bool(getattr(kind, "log", False))) for key, kind in distributions.items())
    return PresetFigures(
        preset,
        sweep.about,
        sweep.over,
        sweep.headline(preset),
        tuple(replace(view, presets=(), published=_published(view, preset)) for view in shown.heatmaps),
        tuple(replace(view, presets=(), published=_published(view, preset)) for view in shown.tables),
        shown.trajectories,
        sweep.grids(preset),
        sweep.objectives(preset),
        tuple(parameters),
        sweep.replicates,
        sweep.naming(preset),
    )


def write_figures(files: Files, name: str, figures: PresetFigures) -> None:
    """Write the figures of a preset. Raises StoreError if that is not possible."""
    plain = asdict(figures)
    for record in (*plain["heatmaps"], *plain["tables"]):
        del record["presets"]
        published = record["published"].get(figures.preset, {})  # whose keys are tuples, which JSON lacks
        record["published"] = [[list(cell), value] for cell, value in published.items()]
    for grid in plain["grids"]:
        del grid["pinned"]
    text = json.dumps(plain, separators=(",", ":"), default=_plain)  # infinity as Python reads it
    files.write(f"{page_views_folder(name)}/{quote(figures.preset, safe=' ,=+')}.json", text.encode())


def read_figures(files: Files, name: str) -> tuple[dict[str, PresetFigures], list[str]]:
    """Return preset -> its figures, of those that were written, and a sentence for each file that cannot be read."""
    folder = page_views_folder(name)
    found, problems = dict[str, PresetFigures](), list[str]()
    for file in files.list_files(folder, ".json"):
        figures, problem = checked_record(files, f"{folder}/{file}", _PresetRecord, _PresetRecord.figures)
        if figures:
            found[figures.preset] = figures
        if problem:
            problems.append(f"The views in {folder}/{file} cannot be read and are left out: {problem}.")
    return found, problems


def _published(view: Heatmap | Table, preset: str) -> Mapping[str, Any]:
    return {preset: figures} if (figures := view.published.get(preset)) else {}


Published = Annotated[list[tuple[Annotated[tuple[Value, ...], Length(20)], Mapping[str, float]]], Length(MAX_PUBLISHED)]
"""The paper's figures of a table: cell -> metric -> figure. JSON has no tuples as keys."""
Selections = Annotated[tuple[Selection, ...], Length(MAX_FIGURES)]
Metrics = Annotated[tuple[Metric, ...], Length(MAX_FIGURES)]
Axes = Annotated[tuple[str, ...], Length(20)]


@dataclass(frozen=True)
class _HeatmapRecord:
    metric: Metric
    rows: str
    columns: str
    published: Annotated[list[tuple[tuple[Value, Value], float]], Length(MAX_PUBLISHED)] = field(default_factory=list)
    selections: Selections = ()

    def view(self, preset: str) -> Heatmap:
        published = {preset: dict(self.published)} if self.published else {}
        return Heatmap(self.metric, self.rows, self.columns, published, selections=self.selections)


@dataclass(frozen=True)
class _TableRecord:
    name: str
    rows: Axes
    metrics: Metrics
    columns: str | None = None
    listed: bool = False
    selections: Selections = ()
    published: Published = field(default_factory=list)
    note: str = ""

    def view(self, preset: str) -> Table:
        published = {preset: dict(self.published)} if self.published else {}
        return Table(
            self.name, self.rows, self.metrics, self.columns, self.listed, (), self.selections, published, self.note
        )


@dataclass(frozen=True)
class _GridRecord:
    fixed: Mapping[str, Value]
    axes: Annotated[Mapping[str, tuple[Value, ...]], Length(100)]


@dataclass(frozen=True)
class _PresetRecord:
    """The figures of a preset as `write_figures` writes them."""

    preset: str
    about: str
    over: str
    headline: Metric
    heatmaps: Annotated[list[_HeatmapRecord], Length(MAX_FIGURES)]
    tables: Annotated[list[_TableRecord], Length(MAX_FIGURES)]
    trajectories: Annotated[tuple[Trajectory, ...], Length(MAX_FIGURES)]
    grids: Annotated[list[_GridRecord], Length(MAX_FIGURES)]
    objectives: Metrics
    parameters: Annotated[tuple[Parameter, ...], Length(MAX_FIGURES)]
    replicates: Annotated[tuple[str, ...], Length(100)] = REPLICATES  # earlier versions wrote neither of the two
    naming: Annotated[tuple[str, ...], Length(100)] = ()

    def figures(self) -> PresetFigures:
        return PresetFigures(
            self.preset,
            self.about,
            self.over,
            self.headline,
            tuple(record.view(self.preset) for record in self.heatmaps),
            tuple(record.view(self.preset) for record in self.tables),
            self.trajectories,
            tuple(Grid(record.fixed, record.axes) for record in self.grids),
            self.objectives,
            self.parameters,
            self.replicates,
            self.naming,
        )


def _plain(value: Any) -> Any:
    """A value that JSON lacks: the number of a NumPy scalar, else the text."""
    return value.item() if hasattr(value, "item") else str(value)


Made = TypeVar("Made")


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
