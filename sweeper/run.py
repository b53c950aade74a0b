"""Command line of the sweeper."""

import os
import shlex
from collections.abc import Sequence

from sweeper.execution.signals import LAST_LINE, StopSignal, exit_at_signals

if __name__ == "__main__":
    exit_at_signals()  # while modules are imported; `main` handles signals while it runs

from sweeper.cli.arguments import MODULE, Description, Listing, Restoration, list_sweeps, parse_command
from sweeper.cli.fresh import restore
from sweeper.cli.parser import COMMAND, EXIT_OK, command_line
from sweeper.execution.startup import delay_collection, end_process
from sweeper.masking import masked
from sweeper.printing import print
from sweeper.request import Request
from sweeper.sweep_run import SweepRun


@command_line(LAST_LINE)
def main(arguments: Sequence[str]) -> int:
    """Run the command line. Returns the exit status; see `sweeper.cli.arguments.EXITS`."""
    stopping = StopSignal()
    with stopping.on_signals():
        return _main(arguments, stopping)


def _main(arguments: Sequence[str], stopping: StopSignal) -> int:
    typed = os.environ.get(COMMAND, MODULE)  # a parser takes it from the environment
    match parse_command(arguments):
        case Listing():
            return list_sweeps()
        case Restoration() as what:
            return restore(what)
        case Description(name):
            from sweeper.cli.describe import describe  # imported here because torch takes seconds to import

            print(describe(name))
            return EXIT_OK
        case Request(plan=True) as request:
            planned = SweepRun.planned(request)
            print(planned.preview())
            planned.print_damaged()
            return EXIT_OK
        case request:
            continuing = [*typed.split(), *(word for word in arguments if word != "--fresh")]
            return SweepRun.planned(request).begin(stopping).execute(masked(shlex.join(continuing)))


if __name__ == "__main__":
    delay_collection()
    end_process(main())
