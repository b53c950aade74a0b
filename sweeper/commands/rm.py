"""`sweeper rm NAME[:REQUEST]`: remove a sweep, or a request of it, from a store."""

import errno
import shlex
import sys
from collections.abc import Sequence

from sweeper.commands.command_line import EXIT_OK, EXIT_UNCONFIRMED, Parser, add_options, command_line
from sweeper.commands.list import size_text
from sweeper.commands.other_drivers import AGAIN, alone, refuse_others
from sweeper.definition import registry
from sweeper.errors import StoreError, error_text
from sweeper.execution.signals import LAST_LINE
from sweeper.printing import print, printable
from sweeper.storage.files import Files
from sweeper.storage.inventory import inventory_of
from sweeper.storage.lease import Drivers
from sweeper.storage.removal import Removal, make_room, plan_removal, remove
from sweeper.storage.store import check_no_links, check_writable

ABOUT = (
    "Remove a sweep, or a request of it, from a store for good: rows, history, evaluations, models, checkpoints, "
    "pictures and pages. Trials that another request has stay, and so do results that --fresh has archived. "
    "Without --yes it says what would go, and asks at a terminal."
)
EXITS = "Exit status: 0 it is removed; 2 the request was wrong; 3 nothing is removed, because --yes was not given."
NOT_REMOVED = "nothing is removed; --yes removes it"


@command_line(LAST_LINE)
def main(arguments: Sequence[str]) -> int:
    """Run the command line. Returns the exit status, one of `EXITS`."""
    parser = Parser("rm", ABOUT, EXITS)
    parser.add_argument(
        "name", metavar="NAME[:REQUEST]", help="the sweep, and a request as `sweeper list STORE` names it"
    )
    add_options(parser, "store")
    parser.add_argument("--yes", action="store_true", help="remove it without a question")
    options = parser.parse_args(arguments)
    name, _, request = options.name.partition(":")
    sweep, files = registry.name_in_store(name), Files(options.store)
    removal = plan_removal(files, sweep, request)
    check_no_links(files, sweep)
    print(_text(removal, files))
    if not options.yes and not _confirmed():
        print(NOT_REMOVED)
        return EXIT_UNCONFIRMED
    law = "a sweep that is removed must not run"
    try:
        check_writable(files)
    except StoreError as error:
        if not _is_of_full_disk(error):
            raise
        refuse_others(Drivers(files, sweep), law, AGAIN)
        make_room(files, removal)
    try:
        if inventory_of(files, sweep).bytes:
            with alone(files, sweep, f"sweeper rm {shlex.quote(options.name)}", law):
                remove(files, plan_removal(files, sweep, request))
        write_pages(files, sweep)
    except StoreError as error:
        if not _is_of_full_disk(error) or inventory_of(files, sweep).trials & removal.trials:
            raise
        print(f"note: the pages still show it: {error_text(error)}", file=sys.stderr)
    print(f"removed from {files.display_uri}")
    return EXIT_OK


def _is_of_full_disk(error: StoreError) -> bool:
    """Whether a disk has no room, or a user's share of it."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in (errno.ENOSPC, errno.EDQUOT)


def _text(removal: Removal, files: Files) -> str:
    what = printable(f"request '{removal.request}' of {removal.sweep}" if removal.request else f"sweep {removal.sweep}")
    kinds = ", ".join(f"{kind} {size_text(size)}" for kind, size in removal.kinds.items() if size)
    stay = f"; {removal.shared:,} trials that other requests have stay" if removal.shared else ""
    return f"{what} in {files.display_uri}: {len(removal.trials):,} trials, {size_text(removal.bytes)} ({kinds}){stay}"


def _confirmed() -> bool:
    """Ask at a terminal."""
    return sys.stdin.isatty() and input("remove it for good? [y/N] ").strip().lower() in ("y", "yes")


def write_pages(files: Files, sweep: str) -> None:
    """Write the page of a sweep that is left, and the lists of sweeps and claims, without what was removed."""
    from sweeper.report.page import publish  # here: it imports pandas

    if sweep in publish.sweep_names(files):
        publish.write(files, sweep)
    else:
        publish.write_index(files)
    publish.write_claims(files)
