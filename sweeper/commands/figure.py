"""`sweeper figure NAME`: the figures of a request for a paper, as PDF or SVG."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import cast, get_args

from sweeper.commands.command_line import EXIT_OK, Parser, add_request, command_line
from sweeper.definition import registry
from sweeper.definition.figures import Figure
from sweeper.definition.metric import SPREADS, Spread
from sweeper.definition.space import unknown
from sweeper.errors import SpecError
from sweeper.option_values import one_of
from sweeper.printing import print
from sweeper.report.answers import find_request, shown_of
from sweeper.report.charts import Drawing, Form
from sweeper.report.figures import PresetFigures, made
from sweeper.report.kinds import DRAWN, read_figures
from sweeper.report.publish import about, history_of
from sweeper.storage.files import Files
from sweeper.storage.layout import file_name
from sweeper.storage.requests import StoredRequest

ABOUT = (
    "Draw the heatmaps and trajectories of a request, and the charts of its searches, and print their captions. PDF "
    "and SVG stay sharp in any size."
)
EXITS = "Exit status: 0, or 2 for a wrong request, said in one line."
FORMS, KINDS_OF_SPREAD = get_args(Form), tuple(SPREADS)


@command_line()
def main(arguments: Sequence[str]) -> int:
    """Run the command line. Returns the exit status."""
    parser = Parser("figure", ABOUT, EXITS)
    add_request(parser)
    add = parser.add_argument
    figure_help = "the heatmap of this metric, or the trajectory or chart of a search of this name (default: all)"
    add("--figure", metavar="NAME", help=figure_help)
    form = partial(one_of, "--format", choices=FORMS)
    add("--format", type=form, default=FORMS[0], metavar="|".join(FORMS), help="of the files")
    add("--bare", action="store_true", help="without the title and what stands below it, which a paper's caption says")
    spread = partial(one_of, "--spread", choices=KINDS_OF_SPREAD)
    spread_help = "beside the means of heatmaps: the 95 %% interval, or the standard deviation"
    add("--spread", type=spread, default=KINDS_OF_SPREAD[0], metavar="|".join(KINDS_OF_SPREAD), help=spread_help)
    add("--out", type=Path, default=Path(), metavar="FOLDER", help="the folder of the files (default: the working one)")
    options = parser.parse_args(arguments)
    if not options.out.is_dir():
        raise SpecError(f"--out must be a folder that exists, but got '{options.out}'")
    drawn = drawings(
        options.store, options.name, options.preset, options.changes, options.figure, cast(Spread, options.spread)
    )
    for name, drawing in drawn.items():
        path = options.out / f"{name}.{options.format}"
        try:
            path.write_bytes(drawing.picture(cast(Form, options.format), options.bare))
        except OSError as error:
            raise SpecError(f"{path} cannot be written: {error.strerror}") from error
        print(f"written to {path}\n{drawing.caption}")
    return EXIT_OK


def drawings(
    store: str, name: str, preset: str | None, changes: str | None, wanted: str | None, spread: Spread
) -> dict[str, Drawing]:
    """Return name of a file -> drawing, of the figures of a request, or of the one that is `wanted`. Raises StoreError
    if there are no rows, and SpecError if there is no such request or figure."""
    files, sweep = Files(store), registry.name_in_store(name)
    request, columns = find_request(files, sweep, preset, changes)
    figures = read_figures(files, sweep)[0].get(request.preset)
    makers = dict[str, Callable[[], Drawing]]()
    if figures:
        shown = replace(
            shown_of(files, sweep, request, figures, list(columns.hyperparameters)),
            history=cache(partial(history_of, files, sweep)),
            about=about(sweep, request.label, request.comparable),
            spread=spread,
        )
        own = _file_names([figure for figure in figures.figures if type(figure) in DRAWN])
        makers = {file: partial(DRAWN[type(figure)], shown, figure) for file, figure in own.items()}
        makers |= _of_studies(files, name, sweep, request, figures)
    if not makers:
        raise SpecError(f"{sweep} ({request.label}) must have a heatmap, a trajectory or a study, but has none")
    if wanted is not None and wanted not in makers:
        raise SpecError(unknown("figure", wanted, [*makers]))
    problems = list[str]()
    found = {file: made(problems.append, file, draw) for file, draw in makers.items() if wanted in (None, file)}
    if problems:
        raise SpecError("; ".join(problems))
    return {file: drawing for file, drawing in found.items() if drawing}


def _of_studies(
    files: Files, name: str, sweep: str, request: StoredRequest, figures: PresetFigures
) -> dict[str, Callable[[], Drawing]]:
    """Return name of a file -> what draws it, of the figures of a search, which its journal has."""
    if not figures.objectives:
        return {}
    from sweeper.search import journal  # here: Optuna takes long to import, and grids need none

    contours = registry.find(name).contours if registry.is_findable(name) else ()
    folder, title = f"{sweep}/{file_name(request.label)}", f"{sweep} ({request.label})"
    return journal.drawings(files, folder, title, figures.objectives, contours)


def _file_names(figures: Sequence[Figure]) -> dict[str, Figure]:
    """Return name of a file -> figure. A trajectory with the name of a heatmap has another."""
    names = dict[str, Figure]()
    for figure in figures:
        names[figure.file if figure.file not in names else f"{figure.file}-{type(figure).__name__.lower()}"] = figure
    return names
