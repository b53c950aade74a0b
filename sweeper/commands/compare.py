"""`sweeper compare A B`: paired differences of the metrics of two sweeps, presets, stores or values."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import cast, get_args

import pandas as pd

from sweeper.commands.command_line import EXIT_OK, Parser, command_line
from sweeper.definition import SpecError
from sweeper.definition.space import unknown
from sweeper.printing import print
from sweeper.report.charts import Form
from sweeper.report.differences import drawing, text
from sweeper.report.formatting import format_value
from sweeper.results.compare import (
    SYNTAX,
    ComparedSide,
    PairedTrials,
    SideRows,
    differences,
    pair,
    parse_sides,
    rows_of,
)
from sweeper.results.estimates import MIN_REPLICATES

ABOUT = (
    "Compare the finished trials of two sides. Trials that agree in all hyperparameters are paired, except in those in "
    "which the sides differ by construction. Each side is "
    f"{SYNTAX}; B takes NAME, PRESET and STORE from A where it lacks them. Examples: "
    "`anomaly_grid:digits :digits_long`, `anomaly_grid:digits @other/results`, "
    "`ssl_cifar10:digits,method=vje ,method=simclr`, `anomaly_grid:digits ,changes=epochs=100`."
)
SHOWN_VALUES = 4
"""Most values of a hyperparameter that the text shows."""


@command_line()
def main(arguments: Sequence[str]) -> int:
    """Run the command line. Returns the exit status: 0, or 2 for a wrong request, said in one line."""
    parser = Parser("compare", ABOUT)
    parser.add_argument("first", metavar="A", help=SYNTAX)
    parser.add_argument("second", metavar="B", help="the same, without what it shares with A")
    metric_help = "compare this metric; may be given several times (default: all)"
    parser.add_argument("--metric", action="append", default=[], help=metric_help)
    out_help = "the figure: a PNG, PDF or SVG"
    parser.add_argument("--out", type=Path, default=Path("comparison.png"), metavar="FILE", help=out_help)
    options = parser.parse_args(arguments)
    _compare(*parse_sides(options.first, options.second), options)
    return EXIT_OK


def compare(first: str, second: str, metrics: Sequence[str] = ()) -> pd.DataFrame:
    """Return the paired differences of two sides, as typed: the columns of `sweeper.results.compare.differences`."""
    return _differences(parse_sides(first, second), metrics)[2]


def _differences(
    sides: tuple[ComparedSide, ComparedSide], metrics: Sequence[str]
) -> tuple[tuple[SideRows, SideRows], PairedTrials, pd.DataFrame]:
    """Return the rows of two sides, their pairs and their differences."""
    first, second = sides
    rows = rows_of(first, second)
    pairs = pair(
        rows[0].rows,
        rows[1].rows,
        tuple(dict.fromkeys((*rows[0].hyperparameters, *rows[1].hyperparameters))),
        _metrics(metrics, rows),
        {*first.conditions, *second.conditions},
    )
    table = differences(pairs)
    if table.empty:
        raise SpecError("the sides must share a metric, but no pair has a value of any on both sides")
    return rows, pairs, table


def _compare(first: ComparedSide, second: ComparedSide, options: argparse.Namespace) -> None:
    form = options.out.suffix.lower().removeprefix(".")
    if form not in get_args(Form) or not options.out.absolute().parent.is_dir():
        raise SpecError(f"--out must be a PNG, PDF or SVG in a folder that exists, but got {options.out}")
    sides, pairs, table = _differences((first, second), options.metric)
    print("\n".join([*_about(pairs, (first, second), sides), "", text(table), "", *_notes(table)]))
    try:
        options.out.write_bytes(drawing(pairs, table, (first.label, second.label)).picture(cast(Form, form)))
    except OSError as error:
        raise SpecError(f"--out {options.out} cannot be written: {error.strerror}") from error
    print(f"figure: {options.out}")


def _metrics(wanted: Sequence[str], sides: tuple[SideRows, SideRows]) -> list[str]:
    """The metrics to compare: those wanted, or all that both sides have."""
    shared = [metric for metric in sides[0].metrics if metric in sides[1].metrics]
    for metric in wanted:
        if metric not in shared:
            raise SpecError(unknown("metric of both sides", metric, shared))
    return list(dict.fromkeys(wanted)) or shared


def _about(pairs: PairedTrials, sides: tuple[ComparedSide, ComparedSide], rows: tuple[SideRows, SideRows]) -> list[str]:
    lines = []
    for letter, side, side_rows, count, unpaired in zip("AB", sides, rows, pairs.trials, pairs.unpaired, strict=True):
        left_out = [f"{number} {status}" for status, number in side_rows.left_out.items()]
        rest = ", ".join([*([f"{unpaired} without a counterpart"] if unpaired else []), *left_out])
        lines.append(f"{letter}: {side.label}: {count} trials{f' ({rest} left out)' if rest else ''}")
    n = len(pairs.first)
    mean = "" if n == max(pairs.trials) else "; where several trials of a side agree, their mean takes part"
    lines.append(f"pairs: {n}, agreeing in {', '.join(pairs.agreeing) or 'all hyperparameters'}{mean}")
    for key, (left, right) in pairs.differing.items():
        lines.append(f"differs: {key}: {_values(left)} in A, {_values(right)} in B")
    return lines


def _values(values: Sequence[object]) -> str:
    texts = [format_value(value) for value in values[:SHOWN_VALUES]]
    return ", ".join([*texts, *(["..."] if len(values) > SHOWN_VALUES else [])])


def _notes(table: pd.DataFrame) -> list[str]:
    kinds = dict.fromkeys(over or "further replicates" for over in table.loc[table["low"].notna(), "over"])
    beside = f" [95 % interval] over {' or '.join(kinds)}" if kinds else ""
    few = "" if kinds else f" without an interval, which needs {MIN_REPLICATES} seeds on both sides"
    notes = [f"B - A: mean over the pairs{beside}{few}; n: replicates, or what the interval is over"]
    if any(kind != "further replicates" for kind in kinds):
        notes.append("an interval over classes or the like, by a sign-flip test, says nothing of other seeds")
    if table["improved"].notna().any():
        notes.append(
            "P(B better): probability that a run of B is better than one of A, ties half, the mean over strata (trials "
            "that agree in all but the seed) [95 % interval]"
        )
    if len(table) > 1 and kinds:
        notes.append(f"p: smallest level at which the interval excludes 0, not corrected for the {len(table)} metrics")
    return notes
