"""What the simulation reaches: `python -m tests.simulation.reach --worlds 200` prints the lines of the product that
worlds run, a folder a line, and how often each fault happened in each phase of a driver."""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import coverage

PRODUCT = Path(__file__).parents[2] / "sweeper"
FOLDERS = ("execution", "storage", "record", "search", "packing", "plan")
PHASES = ("planning", "beginning", "training", "recording", "merging", "ending")
"""Of a driver: before its lease, before its first cohort, while cohorts train, while their rows are written, while
files are merged or archived, and after the last cohort."""
FAULT = re.compile(r"^\s*[\d.]+\s+(?P<who>[^:]+): (?P<what>.+)$")
OPERATION = re.compile(
    r"^(?:dies (?:before|after) )?(?:write|delete|read|list|look) (?P<path>[^:]*)(?:: (?P<fault>.+))?$"
)


def pairs(history: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each fault of a world with the phase in which the driver was."""
    phase = "planning"
    for line in history:
        match = FAULT.match(line)
        if not match or match["who"].endswith(" ends"):
            phase = "planning" if " has ended" in line or " has died" in line else phase
            continue
        what = match["what"]
        operation = OPERATION.match(what)
        path = operation["path"] if operation else ""
        if phase == "planning" and path.startswith(".drivers/"):
            phase = "beginning"
        elif phase in ("beginning", "ending") and path.startswith("history/"):
            phase = "training"
        elif phase == "training" and path.startswith(".probe"):
            phase = "ending"
        now = phase
        if re.search(r"segment-|compact-|^_replaced/", path):
            now = "merging"
        elif phase != "ending" and path.startswith(("trials/", "sheets/", "models/")):
            now = "recording"
        if operation is None:
            yield what.partition(" ")[0], now
        elif what.startswith("dies"):
            yield " ".join(what.split()[:2]), now
        elif operation["fault"]:
            yield operation["fault"], now


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.reach", description=__doc__)
    parser.add_argument("--worlds", type=int, default=200)
    parser.add_argument("--first-seed", type=int, default=0)
    options = parser.parse_args()
    measured = coverage.Coverage(data_file=None, source=[str(PRODUCT)], messages=False, config_file=False)
    measured.start()
    from tests.simulation import world  # here: it imports the product

    counts: Counter[tuple[str, str]] = Counter()
    for seed in range(options.first_seed, options.first_seed + options.worlds):
        counts.update(pairs(world.run(seed).history))
    measured.stop()
    whole = [0, 0]
    for folder in FOLDERS:
        lines, run = 0, 0
        for path in sorted((PRODUCT / folder).glob("*.py")):
            _, statements, _, missing, _ = measured.analysis2(str(path))
            lines, run = lines + len(statements), run + len(statements) - len(missing)
            if statements:
                print(f"  {folder}/{path.name}: {len(statements) - len(missing)} of {len(statements)} lines")
        whole = [whole[0] + run, whole[1] + lines]
        print(f"{folder}: {run} of {lines} lines, {run / lines:.0%}")
    print(f"all: {whole[0]} of {whole[1]} lines, {whole[0] / whole[1]:.0%}")
    faults = sorted({fault for fault, _ in counts})
    print("fault".ljust(14), *(phase.rjust(10) for phase in PHASES))
    for fault in faults:
        print(fault.ljust(14), *(f"{counts[fault, phase] or '-':>10}" for phase in PHASES))
    print(f"{len(counts)} of {len(faults) * len(PHASES)} pairs of a fault and a phase")
    return 0


if __name__ == "__main__":
    sys.exit(main())
