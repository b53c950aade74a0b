"""`sweeper table NAME`: the tables of a request, for a paper or for pandas."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import cast, get_args

import pandas as pd

from sweeper.commands.arguments import pairs
from sweeper.commands.command_line import EXIT_OK, Parser, add_request, command_line
from sweeper.definition import Table, registry
from sweeper.definition.metric import SPREADS, Spread
from sweeper.definition.space import unknown
from sweeper.errors import SpecError
from sweeper.option_values import one_of
from sweeper.printing import print
from sweeper.report import tables
from sweeper.report.answers import find_request, shown_of
from sweeper.report.figures import Made, Shown, made
from sweeper.report.kinds import read_figures
from sweeper.report.table_documents import NUMBERS, PARTS, Format
from sweeper.storage.files import Files
from sweeper.storage.layout import end_text_path, file_name

ABOUT = (
    "Print the tables of a request: mean and 95 % interval of each cell, the paper's figures beside them, and which "
    "cells are not told apart from the best of their column."
)
EXITS = "Exit status: 0, or 2 for a wrong request, said in one line."
TEXT = "text"
"""The format of all tables, heatmaps and studies as text, which the end of a run prints where they are short."""
FORMATS = (*(form for form in get_args(Format) if form != "json"), TEXT)
KINDS_OF_SPREAD = tuple(SPREADS)


@command_line()
def main(arguments: Sequence[str]) -> int:
    """Run the command line. Returns the exit status."""
    parser = Parser("table", ABOUT, EXITS)
    add_request(parser)
    add = parser.add_argument
    table_help = "this table, or that of the heatmap of this metric (default: all tables of the preset)"
    add("--table", metavar="TABLE", help=table_help)
    form = partial(one_of, "--format", choices=FORMATS)
    form_help = (
        "LaTeX needs the package booktabs; CSV has mean, the ends of its interval and n in columns of their own; text "
        "has all tables, heatmaps and studies of the request as its last run wrote them"
    )
    form_of = parser.add_mutually_exclusive_group().add_argument
    form_of("--format", type=form, default=FORMATS[0], metavar="|".join(FORMATS), help=form_help)
    form_of("--json", dest="format", action="store_const", const="json", help="one JSON object a line for each table")
    spread = partial(one_of, "--spread", choices=KINDS_OF_SPREAD)
    spread_help = "beside means: the 95 %% interval, or the standard deviation; CSV has both"
    add("--spread", type=spread, default=KINDS_OF_SPREAD[0], metavar="|".join(KINDS_OF_SPREAD), help=spread_help)
    columns_help = (
        f"what a cell shows, of {', '.join(PARTS)}: mean leaves out intervals and the paper's figures; of CSV its "
        "columns (default: all)"
    )
    add("--columns", metavar="COLUMN,...", help=columns_help)
    caption_help = "your caption, in place of the generated one, which becomes a comment; '' leaves the table bare"
    add("--caption", metavar="TEXT", help=caption_help)
    label_help = "write a value, a hyperparameter or a metric so, e.g. vje=Ours (again for more)"
    add("--label", action="append", default=[], metavar="TEXT=LABEL", help=label_help)
    add("--out", type=Path, metavar="FILE", help="write them to this file (default: print them)")
    options = parser.parse_args(arguments)
    if options.format == TEXT:
        if options.table is not None:
            raise SpecError("--format text prints all tables, so --table must be left out")
        found = [end_text(Files(options.store), options.name, options.preset, options.changes)]
    else:
        found = documents(
            options.name,
            preset=options.preset,
            changes=options.changes,
            table=options.table,
            form=cast(Format, options.format),
            spread=cast(Spread, options.spread),
            store=options.store,
            columns=None if options.columns is None else options.columns.split(","),
            caption=options.caption,
            labels=pairs("--label", options.label),
        )
    text = ("" if options.format == "json" else "\n").join(found)
    if options.out is None:
        print(text, end="", mask=options.format != "json")
    else:
        _write(options.out, text)
    return EXIT_OK


def end_text(files: Files, name: str, preset: str | None, changes: str | None) -> str:
    """Return the tables, heatmaps and studies of a request as text, as its last run wrote them. Raises StoreError if
    there are no rows, and SpecError if there is no such request, or no text of it."""
    sweep = registry.name_in_store(name)
    request, _ = find_request(files, sweep, preset, changes)
    data = files.read(end_text_path(f"{sweep}/{file_name(request.label)}"))
    if data is None:
        why = "no run of it has come to its end, or it has no tables, heatmaps or studies"
        raise SpecError(f"there is no text of {sweep} ({request.label}): {why}")
    return data.decode(errors="replace")


def documents(
    name: str,
    *,
    preset: str | None = None,
    changes: str | None = None,
    table: str | None = None,
    form: Format = "markdown",
    spread: Spread = "interval",
    store: str | os.PathLike[str] = "results",
    columns: Sequence[str] | None = None,
    caption: str | None = None,
    labels: Mapping[str, str] = MappingProxyType({}),
) -> list[str]:
    """Return the tables of a request that have a trial, by default of that with the latest row. Raises StoreError if
    there are no rows, and SpecError if there is no such request or table.

    `columns`: the parts of a cell, or the columns of CSV; None shows all. `caption`, `labels`: see
    `table_documents.Style` and `Table.labels`.
    """
    shown, chosen = chosen_tables(name, preset=preset, changes=changes, table=table, store=store)
    if form == "csv" and len(chosen) > 1:
        names = ", ".join(each.name for each in chosen)
        raise SpecError(f"--format csv writes one table, which --table must name: {names}")
    if form == "csv" and (caption is not None or labels):
        raise SpecError("--caption and --label are for Markdown, HTML and LaTeX, but got --format csv")
    known = NUMBERS if form == "csv" else PARTS
    for wrong in (each for each in columns or () if each not in known):
        raise SpecError(unknown("value of --columns", wrong, known))
    shown = replace(shown, spread=spread)
    chosen = [replace(each, labels={**each.labels, **labels}) for each in chosen]
    write = partial(tables.document, shown, form=form, parts=columns or known, own_caption=caption)
    return _made(name, chosen, write)


def frame(
    name: str,
    *,
    preset: str | None = None,
    changes: str | None = None,
    table: str | None = None,
    store: str | os.PathLike[str] = "results",
) -> pd.DataFrame:
    """Return the numbers of one table of a request. Raises as `documents`."""
    shown, chosen = chosen_tables(name, preset=preset, changes=changes, table=table, store=store)
    if len(chosen) > 1:
        names = ", ".join(each.name for each in chosen)
        raise SpecError(f"there are several tables, of which table=NAME must choose one: {names}")
    (found,) = _made(name, chosen, partial(tables.frame, shown))
    return found


def chosen_tables(
    name: str, *, preset: str | None, changes: str | None, table: str | None, store: str | os.PathLike[str]
) -> tuple[Shown, list[Table]]:
    """Return what is shown of a request, and the table of this name; by default all that its preset defines, and if
    there are none those of its heatmaps."""
    files, sweep = Files(store), registry.name_in_store(name)
    request, columns = find_request(files, sweep, preset, changes)
    figures = read_figures(files, sweep)[0].get(request.preset)
    if figures is None:
        raise SpecError(f"the store does not say which tables '{request.label}' of {sweep} has; run it again")
    shown = shown_of(files, sweep, request, figures, list(columns.hyperparameters))
    known = {each.name: each for each in tables.tables_of(shown)}
    if table is not None and table not in known:
        raise SpecError(unknown("table", table, list(known)))
    return shown, [known[table]] if table is not None else [*(figures.of_kind(Table) or known.values())]


def _made(name: str, chosen: Sequence[Table], make: Callable[[Table], Made | None]) -> list[Made]:
    """Return what is made of tables that have a trial. Raises SpecError if one cannot be made, or none has a trial."""
    problems = list[str]()
    made_ones = [made(problems.append, each.title, partial(make, each)) for each in chosen]
    if problems:
        raise SpecError("; ".join(problems))
    found = [each for each in made_ones if each is not None]
    if not found:
        raise SpecError(f"no trial of {name} is in {', '.join(each.title for each in chosen)} yet")
    return found


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise SpecError(f"--out {path} cannot be written: {error.strerror}") from error
    print(f"written to {path}")
