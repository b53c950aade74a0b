"""What the page of a sweep shows of one of its presets, as plain data in `reports/NAME.views/`.

The command that runs a preset writes them. A page reads them and not the definition of the sweep, which may be code
of the user that cannot be found any more, or must not be executed.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any
from urllib.parse import quote

from sweeper.spec import Grid, Grids, Heatmap, Metric, Search, Searches, Selection, SpecError, Sweep, Table, Trajectory
from sweeper.storage.io.files import Files
from sweeper.storage.layout import page_views_folder

MAX_REASON = 200
"""Maximum number of characters of the reason why a file cannot be read."""


@dataclass(frozen=True)
class Parameter:
    """A hyperparameter that a search samples."""

    name: str
    log: bool
    """Whether it is sampled on a logarithmic scale."""


@dataclass(frozen=True)
class PresetViews:
    """The views of a preset, none of which is restricted to other presets."""

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


def views_of(sweep: Sweep, preset: str) -> PresetViews:
    """Return the views of a preset of a sweep."""
    space, shown = sweep.presets[preset], sweep.for_preset(preset)
    searches = space.searches if isinstance(space, Searches) else (space,) if isinstance(space, Search) else ()
    distributions = {key: distribution for search in searches for key, distribution in search.space.items()}
    parameters = (Parameter(key, bool(getattr(kind, "log", False))) for key, kind in distributions.items())
    return PresetViews(
        preset,
        sweep.about,
        sweep.over,
        sweep.headline(preset),
        tuple(replace(view, presets=(), published=_published(view, preset)) for view in shown.heatmaps),
        tuple(replace(view, presets=(), published=_published(view, preset)) for view in shown.tables),
        shown.trajectories,
        space.grids if isinstance(space, Grids) else (space,) if isinstance(space, Grid) else (),
        space.objectives if isinstance(space, Search | Searches) else (),
        tuple(parameters),
    )


def write_views(files: Files, name: str, views: PresetViews) -> None:
    """Write the views of a preset. Raises StoreError if that is not possible."""
    plain = asdict(views)
    for record in (*plain["heatmaps"], *plain["tables"]):
        del record["presets"]
        figures = record["published"].get(views.preset, {})  # whose keys are tuples, which JSON lacks
        record["published"] = [[list(cell), figure] for cell, figure in figures.items()]
    for grid in plain["grids"]:
        del grid["pinned"]
    text = json.dumps(plain, separators=(",", ":"), default=_plain)  # infinity as Python reads it
    files.write(f"{page_views_folder(name)}/{quote(views.preset, safe=' ,=+')}.json", text.encode())


def read_views(files: Files, name: str) -> tuple[dict[str, PresetViews], list[str]]:
    """Return preset -> its views, of those that were written, and a sentence for each file that cannot be read."""
    folder = page_views_folder(name)
    found, problems = dict[str, PresetViews](), list[str]()
    for file in files.list(folder):
        try:
            views = _decoded(json.loads(files.read(f"{folder}/{file}") or b""))
            found[views.preset] = views
        except (ValueError, TypeError, LookupError, AttributeError, SpecError) as error:
            reason = f"{type(error).__name__}: {' '.join(str(error).split())}"[:MAX_REASON]
            problems.append(f"The views in {folder}/{file} cannot be read and are left out: {reason}.")
    return found, problems


def _published(view: Heatmap | Table, preset: str) -> Mapping[str, Any]:
    return {preset: figures} if (figures := view.published.get(preset)) else {}


def _decoded(plain: dict[str, Any]) -> PresetViews:
    preset = str(plain["preset"])

    def shared(record: Mapping[str, Any]) -> dict[str, Any]:
        """The fields that have one form in all kinds of views."""
        fields: dict[str, Any] = dict(record, selections=tuple(Selection(**each) for each in record["selections"]))
        if "metrics" in record:
            fields["metrics"] = tuple(Metric(**metric) for metric in record["metrics"])
        if figures := {tuple(cell): figure for cell, figure in record.get("published", ())}:
            fields["published"] = {preset: figures}
        else:
            fields.pop("published", None)
        return fields

    return PresetViews(
        preset,
        str(plain["about"]),
        str(plain["over"]),
        Metric(**plain["headline"]),
        tuple(Heatmap(**shared(view) | {"metric": Metric(**view["metric"])}) for view in plain["heatmaps"]),
        tuple(Table(**shared(view) | {"rows": tuple(view["rows"])}) for view in plain["tables"]),
        tuple(Trajectory(**shared(view) | {"by": tuple(view["by"])}) for view in plain["trajectories"]),
        tuple(_grid(**grid) for grid in plain["grids"]),
        tuple(Metric(**metric) for metric in plain["objectives"]),
        tuple(Parameter(**parameter) for parameter in plain["parameters"]),
    )


def _grid(fixed: Mapping[str, Any], axes: Mapping[str, list[Any]]) -> Grid:
    return Grid(fixed, {key: tuple(values) for key, values in axes.items()})


def _plain(value: Any) -> Any:
    """A value that JSON lacks: the number of a NumPy scalar, else the text."""
    return value.item() if hasattr(value, "item") else str(value)
