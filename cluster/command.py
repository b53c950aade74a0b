"""The command line's words -> what is asked of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster.access import HERE
from sweeper.cli.arguments import EXITS, Parser
from sweeper.spec import SpecError

ABOUT = (
    "Run a sweep on a Ray cluster, as a job: NAME and all other words are those of `python -m sweeper.run`. The job "
    "goes on without this terminal; when it has ended, the same command continues the sweep."
)


@dataclass(frozen=True)
class Asked:
    """What is to be done."""

    words: tuple[str, ...]
    """For `sweeper.run`."""
    address: str | None
    working_dir: Path
    """The folder of the code that is sent."""
    wait: bool
    """Follow the job to its end."""
    stop: str | None
    """A job to stop, instead of sending one."""
    logs: str | None
    """A job to follow, instead of sending one."""
    again: tuple[str, ...]
    """Words that continue the sweep when its job has ended."""


def parse(arguments: Sequence[str]) -> Asked:
    """SpecError for words that make no request; `--help` prints and leaves."""
    parser = Parser(
        prog="python -m cluster.submit",
        usage="%(prog)s NAME [words of sweeper.run] [options]",
        description=ABOUT,
        epilog=f"Exit status: that of the sweep. {EXITS}",
    )
    parser.add_argument("--address", metavar="URL", help=f"the cluster's dashboard (default: {HERE})")
    parser.add_argument("--working-dir", default=".", metavar="DIR", help="the code that is sent (default: .)")
    parser.add_argument("--no-wait", action="store_true", help="print the job's id, and leave")
    parser.add_argument("--stop", metavar="ID", help="stop a job: its sweep writes what it has")
    parser.add_argument("--logs", metavar="ID", help="follow a job from its beginning")
    known, words = parser.parse_known_args(arguments)
    others = [known.stop, known.logs].count(None) < 2
    if others and (words or known.no_wait or (known.stop is not None and known.logs is not None)):
        raise SpecError("--stop ID and --logs ID go alone or with --address, but got more")
    if "" in (known.stop, known.logs):  # a shell variable that was not set
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
