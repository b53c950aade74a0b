"""Parse the command line of `cluster.submit`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster.access import HERE
from sweeper.cli.arguments import EXITS, Parser
from sweeper.spec import SpecError

ABOUT = (
    "Run a sweep on a Ray cluster, as a job. NAME and all other arguments are those of `python -m sweeper.run`. The "
    "job goes on without this terminal; when it has ended, the same command continues the sweep."
)


@dataclass(frozen=True)
class Asked:
    """Parsed command line."""

    words: tuple[str, ...]
    """Arguments for `sweeper.run`."""
    address: str | None
    """URL of the cluster's dashboard; None for the default."""
    working_dir: Path
    """Folder of the code to send."""
    wait: bool
    """Whether to follow the job to its end."""
    stop: str | None
    """Id of a job to stop; None to send a new one."""
    logs: str | None
    """Id of a job to follow; None to send a new one."""
    again: tuple[str, ...]
    """Arguments of `cluster.submit` that continue the sweep after its job has ended."""


def parse(arguments: Sequence[str]) -> Asked:
    """Parse command-line arguments. Raises SpecError for wrong arguments; `--help` prints and exits."""
    parser = Parser(
        prog="python -m cluster.submit",
        usage="%(prog)s NAME [arguments of sweeper.run] [options]",
        description=ABOUT,
        epilog=f"Exit status: that of the sweep. {EXITS}",
    )
    parser.add_argument("--address", metavar="URL", help=f"the cluster's dashboard (default: {HERE})")
    parser.add_argument("--working-dir", default=".", metavar="DIR", help="folder of the code to send (default: .)")
    parser.add_argument("--no-wait", action="store_true", help="print the job's id and exit")
    parser.add_argument("--stop", metavar="ID", help="stop a job; its sweep saves what it has")
    parser.add_argument("--logs", metavar="ID", help="follow a job from its beginning")
    known, words = parser.parse_known_args(arguments)
    names_job = known.stop is not None or known.logs is not None
    if names_job and (words or known.no_wait or (known.stop is not None and known.logs is not None)):
        raise SpecError("--stop ID and --logs ID can be combined with --address only, but got more")
    if "" in (known.stop, known.logs):  # an unset shell variable
        raise SpecError("--stop and --logs must name a job, but got ''")
    return Asked(
        words=tuple(words),
        address=known.address,
        working_dir=Path(known.working_dir),
        wait=not known.no_wait,
        stop=known.stop,
        logs=known.logs,
        again=tuple(word for word in arguments if word not in ("--fresh", "--no-wait")),
    )
