"""`sweeper run NAME`: run a sweep, or continue it; or with `--plan` and others, what another command does."""

import shlex
from collections.abc import Sequence

from sweeper.commands.arguments import Description, Listing, Restoration, parse_command
from sweeper.commands.command_line import EXIT_OK, command_line
from sweeper.commands.describe import print_description
from sweeper.commands.list import list_sweeps
from sweeper.commands.plan import print_plan
from sweeper.commands.restore import restore
from sweeper.commands.sweep_run import SweepRun
from sweeper.execution.signals import LAST_LINE, StopSignal
from sweeper.masking import masked
from sweeper.record.events import lines_of_json


@command_line(LAST_LINE)
def main(arguments: Sequence[str]) -> int:
    """Run the command line. Returns the exit status; see `sweeper.commands.arguments.EXITS`."""
    stopping = StopSignal()
    with stopping.on_signals():
        command = parse_command(arguments)
        if isinstance(command, Listing):
            list_sweeps(command.json)
        elif isinstance(command, Description):
            print_description(command.name)
        elif isinstance(command, Restoration):
            restore(command)
        elif command.plan:
            print_plan(command)
        else:
            again = ["sweeper", "run", *(word for word in arguments if word != "--fresh")]
            with lines_of_json(command.json) as write:
                return SweepRun.planned(command).begin(stopping).execute(masked(shlex.join(again)), write)
    return EXIT_OK
