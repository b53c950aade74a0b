"""`sweeper list [STORE]`: the sweeps and their presets, or what a store holds."""

import sys
from collections.abc import Sequence

from tabulate import tabulate

from sweeper.commands.command_line import EXIT_OK, Parser, command_line
from sweeper.commands.other_drivers import named_drivers
from sweeper.definition import registry
from sweeper.errors import SpecError
from sweeper.option_values import named
from sweeper.printing import json_text, print, printable
from sweeper.storage.files import Files
from sweeper.storage.inventory import RequestInventory, SweepInventory, take_inventory
from sweeper.storage.parquet_files import say_damaged
from sweeper.storage.rows import STATUSES

ABOUT = "List the sweeps that ship and their presets; or of a store its sweeps, their requests, rows and bytes."


@command_line()
def main(arguments: Sequence[str]) -> int:
    """Run the command line. Returns the exit status: 0, or 2 for a wrong request, said in one line."""
    parser = Parser("list", ABOUT)
    parser.add_argument("store", nargs="?", metavar="STORE", help="folder or URI (s3, gs) of results")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    store = options.store
    if store is None:
        list_sweeps(options.json)
        return EXIT_OK
    files = Files(named("STORE", store, "a folder"))
    sweeps = take_inventory(files)
    if options.json:
        print(json_text({"store": files.display_uri, "sweeps": [*map(_values, sweeps)]}), mask=False)
    else:
        print(listing(files.display_uri, sweeps))
    for sweep in sweeps:
        say_damaged(files, sweep.damaged)
    return EXIT_OK


def list_sweeps(as_json: bool = False) -> None:
    """Print all sweeps and their presets. A sweep that cannot be read gets one line on standard error."""
    found = list[dict[str, object]]()
    for name in registry.names():
        try:
            sweep = registry.find(name)
        except SpecError as error:
            print(f"error: {error}", file=sys.stderr)
            continue
        counts = {preset: sweep.trial_count(preset) for preset in sweep.presets}
        found.append({"sweep": name, "about": sweep.about, "presets": counts})
        if as_json:
            continue
        sizes = ", ".join(f"{preset} ({count} trials)" for preset, count in counts.items())
        print(f"{name}: {sweep.about}\n  presets: {sizes}")
    if as_json:
        print(json_text({"sweeps": found}), mask=False)


def _values(sweep: SweepInventory) -> dict[str, object]:
    """What the store holds of a sweep, as JSON has it."""
    requests = [
        {
            **{"request": each.label, "rows": len(each.trials), "total": each.total},
            **{"statuses": each.counts, "last": each.last},
        }
        for each in sweep.requests
    ]
    return {
        **{"sweep": sweep.name, "rows": len(sweep.trials), "statuses": sweep.counts, "last": sweep.last},
        "bytes": {kind: sum(files.values()) for kind, files in sweep.sizes.items()},
        "requests": requests,
        "drivers": [*map(str, sweep.drivers)],
        "problem": sweep.problem or None,
        "damaged": sweep.damaged,
    }


def listing(store: str, sweeps: Sequence[SweepInventory]) -> str:
    """Return a table with a line for each sweep, and one for each of its requests."""
    statuses = [status for status in STATUSES if any(sweep.counts.get(status) for sweep in sweeps)]
    lines, notes = list[list[str]](), list[str]()
    for sweep in sweeps:
        sizes = (f"{kind} {size_text(sum(files.values()))}" for kind, files in sweep.sizes.items() if files)
        rows, last = f"{len(sweep.trials):,}", f"{sweep.last:%Y-%m-%d %H:%M}" if sweep.last else ""
        counts = [f"{sweep.counts.get(status, 0):,}" for status in statuses]
        lines.append([sweep.name, rows, *counts, last, size_text(sweep.bytes), ", ".join(sizes)])
        lines += [_line(request, statuses) for request in sweep.requests]
        notes += [f"{sweep.name} runs now: {named_drivers(sweep.drivers)}"] if sweep.drivers else []
        notes += [f"{sweep.name}: {sweep.problem}"] if sweep.problem else []
    total, size = sum(len(sweep.trials) for sweep in sweeps), size_text(sum(sweep.bytes for sweep in sweeps))
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


def size_text(count: float) -> str:
    """Return bytes as e.g. `12.3 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.3g} TB"
