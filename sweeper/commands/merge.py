"""`sweeper merge A B`: add the rows of one store to another."""

import shlex
from collections.abc import Sequence

from sweeper.commands.command_line import EXIT_OK, Parser, command_line
from sweeper.commands.other_drivers import AGAIN, alone, refuse_others
from sweeper.commands.rm import write_pages
from sweeper.errors import SpecError
from sweeper.execution.signals import LAST_LINE
from sweeper.printing import print, printable
from sweeper.storage.files import Files
from sweeper.storage.inventory import take_inventory
from sweeper.storage.lease import Drivers
from sweeper.storage.merging import Merged, check_mergeable, merge, plan_merge
from sweeper.storage.store import check_no_folder_of_a_store, check_no_links, check_writable

ABOUT = (
    "Add the rows of store A to store B, with their history, models, logs, sample grids, evaluations and requests. A "
    "stays as it is. Of a trial that both have, B's run stays."
)


@command_line(LAST_LINE)
def main(arguments: Sequence[str]) -> int:
    """Run the command line. Returns the exit status: 0, or 2 for a wrong request, said in one line."""
    parser = Parser("merge", ABOUT)
    parser.add_argument("source", metavar="A", help="folder or URI (s3, gs) of a store")
    parser.add_argument("target", metavar="B", help="folder or URI of the store that gets its rows")
    options = parser.parse_args(arguments)
    source, target = Files(options.source), Files(options.target)
    if source.uri.rstrip("/") == target.uri.rstrip("/"):
        raise SpecError(f"A and B must be two stores, but both are {source.display_uri}")
    check_no_folder_of_a_store(target)
    names = [sweep.name for sweep in take_inventory(source)]
    for name in names:  # before anything is written
        check_mergeable(source, target, name)
        check_no_links(target, name)
    check_writable(target)
    law = "a sweep that is merged must not run"
    for name in names:
        with alone(target, name, f"sweeper merge {shlex.quote(source.display_uri)}", law):
            refuse_others(Drivers(source, name), law, AGAIN)
            merged = plan_merge(source, target, name)
            merge(source, target, merged)
        print(printable(merged_line(merged)), flush=True)
        write_pages(target, name)
    print(f"merged into {target.display_uri}; the next run of each request draws its pictures")
    return EXIT_OK


def merged_line(merged: Merged) -> str:
    """Return e.g. `grid: 12 rows added, 4 equal, 1 with another result in the other store, which stays (t3)`."""
    parts = [f"{len(merged.added):,} rows added", f"{merged.equal:,} equal"]
    if merged.replaced:
        parts[0] += f" ({len(merged.replaced):,} in place of failed ones)"
    if merged.differing:
        names = ", ".join(merged.differing[:3]) + (", ..." if len(merged.differing) > 3 else "")
        parts.append(f"{len(merged.differing):,} with another result in B, which stays ({names})")
    parts.append(f"{len(merged.models):,} models added")
    if merged.kept_lists:
        parts.append(f"B's trials of request {', '.join(map(repr, merged.kept_lists))} stay, which differ")
    return f"{merged.sweep}: {', '.join(parts)}"
