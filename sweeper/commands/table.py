"""`sweeper table NAME`: the tables of a request, for a paper or for pandas."""

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast, get_args

from sweeper.commands.command_line import EXIT_OK, Parser, add_request, command_line
from sweeper.definition import Table, registry
from sweeper.definition.metric import SPREADS, Spread
from sweeper.definition.space import unknown
from sweeper.errors import SpecError
from sweeper.option_values import one_of
from sweeper.printing import print
from sweeper.report import tables
from sweeper.report.answers import find_request, shown_of
from sweeper.report.figures import made
from sweeper.report.kinds import read_figures
from sweeper.report.tables import Format
from sweeper.storage.files import Files

ABOUT = (
    "Print the tables of a request: mean and 95 % interval of each cell, the paper's figures beside them, and which "
    "cells are not told apart from the best of their column."
)
EXITS = "Exit status: 0, or 2 for a wrong request, said in one line."
FORMATS, KINDS_OF_SPREAD = tuple(form for form in get_args(Format) if form != "json"), tuple(SPREADS)


@command_line()
def main(arguments: Sequence[str]) -> int:
    """Run the command line. Returns the exit status."""
    parser = Parser("table", ABOUT, EXITS)
    add_request(parser)
    add = parser.add_argument
    add("--table", metavar="TABLE", help="this table alone (default: all of the preset)")
    form = partial(one_of, "--format", choices=FORMATS)
    form_help = "LaTeX needs the package booktabs; CSV has mean, the ends of its interval and n in columns of their own"
    form_of = parser.add_mutually_exclusive_group().add_argument
    form_of("--format", type=form, default=FORMATS[0], metavar="|".join(FORMATS), help=form_help)
    form_of("--json", dest="format", action="store_const", const="json", help="one JSON object a line for each table")
    spread = partial(one_of, "--spread", choices=KINDS_OF_SPREAD)
    spread_help = "beside means: the 95 %% interval, or the standard deviation; CSV has both"
    add("--spread", type=spread, default=KINDS_OF_SPREAD[0], metavar="|".join(KINDS_OF_SPREAD), help=spread_help)
    add("--out", type=Path, metavar="FILE", help="write them to this file (default: print them)")
    options = parser.parse_args(arguments)
    found = documents(
        options.name,
        preset=options.preset,
        changes=options.changes,
        table=options.table,
        form=cast(Format, options.format),
        spread=cast(Spread, options.spread),
        store=options.store,
    )
    text = ("" if options.format == "json" else "\n").join(found)
    if options.out is None:
        print(text, end="", mask=options.format != "json")
    else:
        _write(options.out, text)
    return EXIT_OK


def documents(
    name: str,
    *,
    preset: str | None = None,
    changes: str | None = None,
    table: str | None = None,
    form: Format = "markdown",
    spread: Spread = "interval",
    store: str | os.PathLike[str] = "results",
) -> list[str]:
    """Return the tables of a request that have a trial, by default of that with the latest row. Raises StoreError if
    there are no rows, and SpecError if there is no such request or table."""
    files, sweep = Files(store), registry.name_in_store(name)
    request, columns = find_request(files, sweep, preset, changes)
    figures = read_figures(files, sweep)[0].get(request.preset)
    own = figures.of_kind(Table) if figures else ()
    if figures is None or not own:
        known = ", ".join(figure.title for figure in figures.figures) if figures else ""
        raise SpecError(f"{sweep} ({request.label}) must have a table, but has {known or 'no figures'}")
    names = [each.name for each in own]
    if table is not None and table not in names:
        raise SpecError(unknown("table", table, names))
    chosen = [each for each in own if table in (None, each.name)]
    if form == "csv" and len(chosen) > 1:
        raise SpecError(f"--format csv writes one table, which --table must name: {', '.join(names)}")
    shown = replace(shown_of(files, sweep, request, figures, list(columns.hyperparameters)), spread=spread)
    problems = list[str]()
    made_ones = [made(problems.append, each.title, partial(tables.document, shown, each, form)) for each in chosen]
    if problems:
        raise SpecError("; ".join(problems))
    found = [document for document in made_ones if document]
    if not found:
        raise SpecError(f"no trial of {sweep} ({request.label}) is in {', '.join(each.title for each in chosen)} yet")
    return found


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise SpecError(f"--out {path} cannot be written: {error.strerror}") from error
    print(f"written to {path}")
