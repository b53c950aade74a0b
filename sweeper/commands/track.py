"""Send the trials of a store to trackers: `sweeper track STORE --to mlflow=http://127.0.0.1:5000`."""

from collections.abc import Sequence
from functools import partial

from sweeper.commands.command_line import EXIT_FAILED, EXIT_OK, Parser, command_line
from sweeper.errors import SpecError
from sweeper.execution.signals import StopSignal
from sweeper.option_values import TrackRequest, named
from sweeper.printing import print, printable
from sweeper.record.trackers import Destination, connections
from sweeper.storage.files import Files
from sweeper.storage.inventory import sweep_names
from sweeper.storage.lease import Drivers
from trainables.validation import unknown

ABOUT = (
    "Send the trials of a store to trackers, each as a run, except what they have already. While a driver runs one of "
    "the sweeps, new reports and results follow every 30 s until it has ended, or until Ctrl-C."
)
EXITS = (
    "Exit status: 0 the trackers have every trial; 1 a tracker failed, and the same command sends the rest; 2 the "
    "request was wrong; 130 interrupted."
)


@command_line()
def main(arguments: Sequence[str]) -> int:
    """Run the command line. Returns the exit status."""
    parser = Parser("track", ABOUT, EXITS)
    add = parser.add_argument
    add(
        "store",
        type=partial(named, "STORE", noun="a folder"),
        metavar="STORE",
        help="folder or URI (s3, gs) of results",
    )
    targets = "tensorboard (TARGET: a folder), mlflow (a server's URI) or wandb (a project); again for more trackers"
    add(
        "--to",
        type=partial(TrackRequest.read, "--to"),
        action="append",
        required=True,
        metavar="TRACKER[=TARGET]",
        help=targets,
    )
    add("--sweep", action="append", metavar="NAME", help="a sweep of the store; again for more (default: all)")
    options = parser.parse_args(arguments)
    files = Files(options.store)
    sweeps = _sweeps(files, options.sweep)
    destinations = [
        Destination(name, connect, files, sweep, partial(_say, sweep))
        for sweep in sweeps
        for name, connect in connections(options.to, sweep, files, "--to").items()
    ]
    with StopSignal().on_signals():
        try:
            complete = _send(files, sweeps, destinations)
        finally:
            for destination in destinations:
                destination.close()
    return EXIT_OK if complete else EXIT_FAILED


def _send(files: Files, sweeps: Sequence[str], destinations: Sequence[Destination]) -> bool:
    """Send what the trackers lack until no driver runs any of the sweeps. Returns whether they have everything."""
    drivers = [Drivers(files, sweep) for sweep in sweeps]
    followed = False
    while True:
        running = [sweep for sweep, known in zip(sweeps, drivers, strict=True) if known.living()]
        complete = all([destination.try_sync() for destination in destinations])
        if not running:  # since before the last sync, which therefore had all rows
            break
        if not followed:
            followed = True
            print(printable(f"{', '.join(running)} runs now, and is followed until it has ended; Ctrl-C ends this"))
        files.runtime.sleep(max(destination.seconds_between for destination in destinations))
    for destination in destinations:
        _say(destination.sweep, f"{destination.count:,} trials were sent to {destination.name}")
    return complete


def _sweeps(files: Files, wanted: Sequence[str] | None) -> Sequence[str]:
    """Return the sweeps to send. Raises SpecError if the store has none, or not one of the `wanted`."""
    known = sweep_names(files)
    if not known:
        raise SpecError(f"STORE must hold a sweep, but {files.display_uri} holds none")
    for name in wanted or ():
        if name not in known:
            raise SpecError(unknown("sweep", name, known))
    return list(dict.fromkeys(wanted or known))


def _say(sweep: str, line: str) -> None:
    print(printable(f"{sweep}: {line}"), flush=True)
