"""`sweeper report PAPER`: what a paper reports beside what the rows of a store say, in one document."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from sweeper.commands.command_line import EXIT_OK, Parser, add_options, command_line
from sweeper.definition import registry
from sweeper.definition.paper import Paper
from sweeper.definition.space import unknown
from sweeper.errors import SpecError
from sweeper.printing import print
from sweeper.report import replication
from sweeper.report.replication import Replication
from sweeper.report.replication_documents import html_page, markdown
from sweeper.storage.files import Files

ABOUT = (
    "Write a replication report: each table and figure of a paper in its order, with the paper's numbers beside those "
    "of a store, the verdict of each claim, and the settings that are ours. What has no rows yet names the command "
    "that makes them. Nothing is trained."
)
EXITS = "Exit status: 0, or 2 for a wrong request, said in one line."
WRITERS: Mapping[str, Callable[[Replication], bytes]] = {".html": html_page, ".md": markdown}
"""Suffix of a file -> what writes the report to it."""


@command_line()
def main(arguments: Sequence[str]) -> int:
    """Run the command line. Returns the exit status."""
    papers = registry.papers()
    parser = Parser("report", ABOUT, EXITS)
    add = parser.add_argument
    add("paper", metavar="PAPER", help=f"one of {', '.join(papers)}")
    add("--preset", help="by the rows of this preset alone (default: of every preset that has rows)")
    add_options(parser, "store")
    add("--output", type=Path, metavar="FILE", help="FILE.html has pictures, FILE.md is Markdown (default: PAPER.html)")
    options = parser.parse_args(arguments)
    if options.paper not in papers:
        raise SpecError(unknown("paper", options.paper, list(papers)))
    path = options.output or Path(f"{options.paper}.html")
    if path.suffix not in WRITERS:
        raise SpecError(f"--output must end with {' or '.join(WRITERS)}, but got '{path}'")
    content = WRITERS[path.suffix](_report(Files(options.store), papers[options.paper], options.preset))
    try:
        path.write_bytes(content)
    except OSError as error:
        raise SpecError(f"--output {path} cannot be written: {error.strerror}") from error
    print(f"written to {path}")
    return EXIT_OK


def _report(files: Files, paper: Paper, preset: str | None) -> Replication:
    """Return the report. Raises SpecError for a preset that no sweep of the paper has."""
    sweeps = replication.sweeps_of(paper, map(registry.find, registry.names()))
    presets = dict.fromkeys(name for sweep in sweeps for name in sweep.presets)
    if preset is not None and preset not in presets:
        raise SpecError(unknown("preset", preset, list(presets)))
    return replication.report(files, paper, sweeps, preset)
