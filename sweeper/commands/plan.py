"""`sweeper plan NAME`: what a run with the same arguments would do."""

from collections.abc import Sequence

from sweeper.commands.arguments import run_parser, typed_request
from sweeper.commands.command_line import EXIT_OK, command_line
from sweeper.commands.sweep_run import SweepRun
from sweeper.printing import print
from sweeper.request import Request

ABOUT = "Print what a run with the same arguments would do, and run nothing."
OF_RUNS = ("debug", "wait")
"""Options that a plan refuses."""


@command_line()
def main(arguments: Sequence[str]) -> int:
    """Run the command line. Returns the exit status."""
    parser = run_parser("plan", ABOUT, hidden=OF_RUNS)
    print_plan(typed_request({**vars(parser.parse_args(arguments)), "plan": True}))
    return EXIT_OK


def print_plan(request: Request) -> None:
    """Print what would run, as text or with `--json` as JSON."""
    planned = SweepRun.planned(request)
    print(planned.preview())
    planned.print_damaged()
