"""The kinds of figures: the one table that says by which module a kind is made; and the figures of presets in a store.

The command that runs a preset writes its figures to `reports/NAME.views/`, as plain data. A page reads them and not the
definition of the sweep, which may be code of the user that cannot be found any more, or must not be executed.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, Protocol, get_args, get_type_hints
from urllib.parse import quote

from msgspec import Meta

from sweeper.definition import Constraint, Grid, Heatmap, Metric, Ranking, Table, Trajectory
from sweeper.definition.figures import Figure
from sweeper.definition.space import Value
from sweeper.definition.sweep import SEEDS, Repeats
from sweeper.printing import printable_values
from sweeper.report import heatmaps, rankings, tables, trajectories
from sweeper.report.charts import Chart, Drawing
from sweeper.report.figures import Parameter, PresetFigures, Shown
from sweeper.storage.files import Files, checked_record
from sweeper.storage.layout import page_figures_folder
from trainables.json_input import JsonError, decode


class FigureKind(Protocol):
    """A module that makes figures of one kind."""

    FOLDER: str
    """Its folder in a store, one of `layout.FIGURES`."""
    TITLE: str
    """The heading of its section on a page."""
    CHARTS: Mapping[str, Chart]
    """Name -> description of each chart that a page draws of it."""

    def publish(self, files: Files, folder: str, shown: Shown, figure: Any) -> str | None:
        """Write a figure to the folder of a request. Returns what the terminal shows of it."""

    def on_page(self, shown: Shown, figure: Any) -> dict[str, Any] | None:
        """Return a figure as values for JSON, as `figures.js` draws them; None if a page has nothing to show."""


KINDS: Mapping[type[Figure], FigureKind] = {
    Heatmap: heatmaps,
    Ranking: rankings,
    Table: tables,
    Trajectory: trajectories,
}
"""In the order of their sections on a page."""
DRAWN: Mapping[type[Figure], Callable[[Shown, Any], Drawing]] = {
    Heatmap: heatmaps.draw,
    Trajectory: trajectories.draw,
}
"""Kind of figure -> what draws it, of those that are a picture."""
MAX_FIGURES, MAX_PUBLISHED = 500, 20_000
"""Most figures of a kind, grids, selections or metrics of a file that is read, and most published values of one."""


def write_figures(files: Files, name: str, figures: PresetFigures) -> None:
    """Write the figures of a preset. Raises StoreError if that is not possible."""
    plain = asdict(replace(figures, figures=()))
    del plain["figures"]
    plain |= {
        module.FOLDER: [_record(figure, figures.preset) for figure in figures.of_kind(kind)]
        for kind, module in KINDS.items()
    }
    for grid in plain["grids"]:
        del grid["pinned"], grid["pruner"]
    text = json.dumps(plain, separators=(",", ":"), default=_plain)  # infinity as Python reads it
    files.write(f"{page_figures_folder(name)}/{quote(figures.preset, safe=' ,=+')}.json", text.encode())


def _record(figure: Figure, preset: str) -> dict[str, Any]:
    record = asdict(figure)
    del record["presets"]
    if "published" in record:
        cells = record["published"].get(preset, {})  # whose keys are tuples, which JSON lacks
        record["published"] = [[list(cell), value] for cell, value in cells.items()]
    return record


def _plain(value: Any) -> Any:
    """A value that JSON lacks: the number of a NumPy scalar, else the text."""
    return value.item() if hasattr(value, "item") else str(value)


def read_figures(files: Files, name: str) -> tuple[dict[str, PresetFigures], list[str]]:
    """Return preset -> its figures, of those that were written, and a sentence for each file that cannot be read."""
    folder = page_figures_folder(name)
    found, problems = dict[str, PresetFigures](), list[str]()
    for file in files.list_files(folder, ".json"):
        figures, problem = checked_record(files, f"{folder}/{file}", Mapping[str, Any], _figures)
        if figures:
            found[figures.preset] = figures
        if problem:
            problems.append(f"The figures in {folder}/{file} cannot be read and are left out: {problem}.")
    return found, problems


Metrics = Annotated[tuple[Metric, ...], Meta(max_length=MAX_FIGURES)]
Cell = Annotated[tuple[Value, ...], Meta(max_length=20)]
_Records = Annotated[list[Mapping[str, Any]], Meta(max_length=MAX_FIGURES)]


@dataclass(frozen=True)
class _GridRecord:
    fixed: Mapping[str, Value]
    axes: Annotated[Mapping[str, tuple[Value, ...]], Meta(max_length=100)]


@dataclass(frozen=True)
class _PresetRecord:
    """What `write_figures` writes besides the figures."""

    preset: str
    about: str
    over: str
    headline: Metric
    grids: Annotated[list[_GridRecord], Meta(max_length=MAX_FIGURES)]
    objectives: Metrics
    parameters: Annotated[tuple[Parameter, ...], Meta(max_length=MAX_FIGURES)]
    repeats: Repeats = SEEDS  # earlier versions wrote none of the three
    naming: Annotated[tuple[str, ...], Meta(max_length=100)] = ()
    constraints: Annotated[tuple[Constraint, ...], Meta(max_length=100)] = ()


def _figures(plain: Mapping[str, Any]) -> PresetFigures:
    """Return the figures of a file. Raises JsonError, or SpecError for a figure that cannot be."""
    plain = printable_values(plain)
    known = decode(_PresetRecord, plain)
    return PresetFigures(
        known.preset,
        known.about,
        known.over,
        known.headline,
        tuple(figure for kind in KINDS for figure in _of_kind(kind, plain, known.preset)),
        tuple(Grid(record.fixed, record.axes) for record in known.grids),
        known.objectives,
        known.parameters,
        known.repeats,
        known.naming,
        known.constraints,
    )


def _of_kind(kind: type[Figure], plain: Mapping[str, Any], preset: str) -> Iterable[Figure]:
    """Yield the figures of a kind. A file of another version may lack the kind."""
    place = f".{KINDS[kind].FOLDER}"
    try:
        for index, record in enumerate(decode(_Records, plain.get(KINDS[kind].FOLDER, []))):
            place = f".{KINDS[kind].FOLDER}[{index}]"
            _check_lengths({**record, "published": []})
            figure = decode(kind, {**record, "presets": [], "published": {}})
            cells = _published(kind, record.get("published", []))
            yield replace(figure, published={preset: cells}) if cells else figure
    except JsonError as error:
        raise error.inside(place) from None


def _published(kind: type[Figure], records: Any) -> dict[tuple[Value, ...], Any]:
    """Return the paper's figures, which a kind may have: where they are -> the figures."""
    hint = get_type_hints(kind).get("published")
    value = get_args(get_args(hint)[1])[1] if hint else object
    pairs = decode(Annotated[list[tuple[Cell, Any]], Meta(max_length=MAX_PUBLISHED if hint else 0)], records)
    return {cell: decode(value, figures) for cell, figures in pairs}


def _check_lengths(value: Any) -> None:
    """Raise JsonError for a list or an object of more than `MAX_FIGURES` values, anywhere in a figure."""
    if isinstance(value, list | dict):
        if len(value) > MAX_FIGURES:
            raise JsonError(
                f"it must be of at most {MAX_FIGURES} items, but is a {type(value).__name__} of {len(value)}"
            )
        for inner in value.values() if isinstance(value, dict) else value:
            _check_lengths(inner)
