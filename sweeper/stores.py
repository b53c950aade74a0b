"""What a store holds, what is removed from it and added to it: `sweeper list [STORE]`, `sweeper rm NAME[:REQUEST]` and
`sweeper merge A B`."""

import contextlib
import errno
import os
import shlex
import sys
from collections.abc import Sequence

from sweeper.execution.signals import LAST_LINE, exit_at_signals

if __name__ == "__main__":
    exit_at_signals()

from tabulate import tabulate

from sweeper.cli.arguments import list_sweeps
from sweeper.cli.other_drivers import named_drivers, refuse_others
from sweeper.cli.parser import COMMAND, EXIT_OK, Parser, add_options, command_line
from sweeper.errors import SpecError, StoreError, error_text
from sweeper.execution.startup import end_process
from sweeper.option_values import named
from sweeper.printing import print, printable
from sweeper.spec import registry
from sweeper.storage.files import Files
from sweeper.storage.inventory import RequestInventory, SweepInventory, inventory_of, take_inventory
from sweeper.storage.lease import Drivers, Lease
from sweeper.storage.merging import Merged, check_mergeable, merge, plan_merge
from sweeper.storage.parquet_files import say_damaged
from sweeper.storage.removal import Removal, make_room, plan_removal, remove
from sweeper.storage.rows import STATUSES
from sweeper.storage.store import check_no_folder_of_a_store, check_no_links, check_writable

NOT_REMOVED = "nothing is removed; --yes removes it"


@command_line(LAST_LINE)
def main(arguments: Sequence[str]) -> int:
    """Run the command line. Returns the exit status: 0, or 2 for a wrong request, said in one line."""
    typed = os.environ.get(COMMAND, "").partition(" ")[2] or "list"
    command = {"rm": _rm, "merge": _merge}.get(typed, _list)
    return command(arguments)


def _list(arguments: Sequence[str]) -> int:
    about = "List the sweeps that ship and their presets; or of a store its sweeps, their requests, rows and bytes."
    parser = Parser(prog="python -m sweeper.stores", description=about)
    parser.add_argument("store", nargs="?", metavar="STORE", help="folder or URI (s3, gs) of results")
    store = parser.parse_args(arguments).store
    if store is None:
        return list_sweeps()
    files = Files(named("STORE", store, "a folder"))
    sweeps = take_inventory(files)
    print(listing(files.display_uri, sweeps))
    for sweep in sweeps:
        say_damaged(files, sweep.damaged)
    return EXIT_OK


def listing(store: str, sweeps: Sequence[SweepInventory]) -> str:
    """Return a table with a line for each sweep, and one for each of its requests."""
    statuses = [status for status in STATUSES if any(sweep.counts.get(status) for sweep in sweeps)]
    lines, notes = list[list[str]](), list[str]()
    for sweep in sweeps:
        sizes = (f"{kind} {_size(sum(files.values()))}" for kind, files in sweep.sizes.items() if files)
        rows, last = f"{len(sweep.trials):,}", f"{sweep.last:%Y-%m-%d %H:%M}" if sweep.last else ""
        counts = [f"{sweep.counts.get(status, 0):,}" for status in statuses]
        lines.append([sweep.name, rows, *counts, last, _size(sweep.bytes), ", ".join(sizes)])
        lines += [_line(request, statuses) for request in sweep.requests]
        notes += [f"{sweep.name} runs now: {named_drivers(sweep.drivers)}"] if sweep.drivers else []
        notes += [f"{sweep.name}: {sweep.problem}"] if sweep.problem else []
    total, size = sum(len(sweep.trials) for sweep in sweeps), _size(sum(sweep.bytes for sweep in sweeps))
    heads = ["sweep, request", "rows", *statuses, "last result (UTC)", "size", "of which"]
    right = ["left", "right", *("right" for _ in statuses), "left", "right", "left"]
    lines = [[*map(printable, line)] for line in lines]
    table = tabulate(lines, heads, "simple", disable_numparse=True, colalign=right, preserve_whitespace=True)
    count = f"{len(sweeps)} sweep{'s' * (len(sweeps) != 1)}"
    return "\n".join(
        [f"{store}: {count}, {total:,} rows, {size}", *([table] if sweeps else []), *map(printable, notes)]
    )


def _line(request: RequestInventory, statuses: Sequence[str]) -> list[str]:
    of_all = "" if request.total is None else f" of {request.total:,}"
    counts = [f"{request.counts.get(status, 0):,}" for status in statuses]
    last = f"{request.last:%Y-%m-%d %H:%M}" if request.last else ""
    return [f"  {request.label}", f"{len(request.trials):,}{of_all}", *counts, last, "", ""]


def _size(count: float) -> str:
    """Return bytes as e.g. `12.3 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.3g} TB"


def _rm(arguments: Sequence[str]) -> int:
    about = (
        "Remove a sweep, or a request of it, from a store for good: rows, history, evaluations, models, checkpoints, "
        "pictures and pages. Trials that another request has stay, and so do results that --fresh has set aside. "
        "Without --yes it says what would go, and asks at a terminal."
    )
    parser = Parser(prog="python -m sweeper.stores", description=about)
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
        return EXIT_OK
    law, remedy = "a sweep that is removed must not run", "try again when it has ended"
    try:
        check_writable(files)
    except StoreError as error:
        if not _is_of_full_disk(error):
            raise
        refuse_others(Drivers(files, sweep), law, remedy)
        make_room(files, removal)
    try:
        if inventory_of(files, sweep).bytes:
            files.pin_folder()
            lease = Lease(files, sweep, f"sweeper rm {shlex.quote(options.name)}")
            lease.open()
            with contextlib.closing(lease):
                refuse_others(lease, law, remedy)
                remove(files, plan_removal(files, sweep, request))
        _write_pages(files, sweep)
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
    kinds = ", ".join(f"{kind} {_size(size)}" for kind, size in removal.kinds.items() if size)
    stay = f"; {removal.shared:,} trials that other requests have stay" if removal.shared else ""
    return f"{what} in {files.display_uri}: {len(removal.trials):,} trials, {_size(removal.bytes)} ({kinds}){stay}"


def _confirmed() -> bool:
    """Ask at a terminal."""
    return sys.stdin.isatty() and input("remove it for good? [y/N] ").strip().lower() in ("y", "yes")


def _merge(arguments: Sequence[str]) -> int:
    about = (
        "Add the rows of store A to store B, with their history, models, logs, sheets, evaluations and requests. A "
        "stays as it is. Of a trial that both have, B's run stays."
    )
    parser = Parser(prog="python -m sweeper.stores", description=about)
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
    target.pin_folder()
    for name in names:
        lease = Lease(target, name, f"sweeper merge {shlex.quote(source.display_uri)}")
        lease.open()
        with contextlib.closing(lease):
            law = "a sweep that is merged must not run"
            refuse_others(lease, law, "try again when it has ended")
            refuse_others(Drivers(source, name), law, "try again when it has ended")
            merged = plan_merge(source, target, name)
            merge(source, target, merged)
        print(printable(merged_line(merged)), flush=True)
        _write_pages(target, name)
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


def _write_pages(files: Files, sweep: str) -> None:
    """Write the page of a sweep that is left, and the lists of sweeps and claims, without what was removed."""
    from sweeper.report.page import publish  # here: it imports pandas

    if sweep in publish.sweep_names(files):
        publish.write(files, sweep)
    else:
        publish.write_index(files)
    publish.write_claims(files)


if __name__ == "__main__":
    end_process(main())
