"""Runs simulated worlds: `python -m tests.simulation --seed 4711` replays one and prints its history,
`--worlds 10000 --first-seed 0` runs many on all cores, `--hours 1` as many as there is time for. The first seed is that
of the time where none is given, so that each run has other worlds.

The exit status is 1 if something did not hold in a world. Its seed and the end of its history are printed.
"""

import argparse
import gc
import itertools
import multiprocessing
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tests.simulation import world
from tests.simulation.world import Outcome

FAILED_ONCE = Path(__file__).with_name("failed_once.txt")
"""Seeds of worlds in which something did not hold once, a line each: a seed, and what it was."""
SHOWN = 40
"""Lines of a history that are shown of a world that fails."""


def failed_once() -> list[int]:
    """The seeds in `FAILED_ONCE`."""
    lines = FAILED_ONCE.read_text().splitlines()
    return [int(line.split()[0]) for line in lines if line.strip() and not line.startswith("#")]


def run_all(seeds: Iterable[int], processes: int) -> Iterator[Outcome]:
    """Run worlds in so many processes."""
    if processes == 1:
        yield from map(world.run, seeds)
        return
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([world.__name__])
    with context.Pool(processes, gc.freeze, maxtasksperchild=2000) as pool:
        yield from pool.imap_unordered(world.run, seeds, chunksize=8)


def shortened(outcome: Outcome) -> str:
    """What did not hold in a world, and what happened before."""
    history = outcome.history
    first = next((index for index, line in enumerate(history) if "PROBLEM" in line), len(history))
    lines = history[max(0, first - SHOWN) : first + 1]
    problems = "\n".join(f"- {problem}" for problem in outcome.problems)
    again = f"python -m tests.simulation --seed {outcome.seed}"
    return "\n".join([f"world {outcome.seed}: {outcome.scenario}", *lines, problems, f"again: {again}"])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="replay one world and print its whole history")
    parser.add_argument("--worlds", type=int, default=500, help="how many to run (default: %(default)s)")
    parser.add_argument("--first-seed", type=int, help="seed of the first (default: by the time)")
    parser.add_argument("--hours", type=float, help="run so long, instead of a number of worlds")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="default: one a core")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        outcome = world.run(options.seed)
        print("\n".join([str(outcome.scenario), *outcome.history, *outcome.problems]))
        return 1 if outcome.problems else 0
    begun, first = time.monotonic(), options.first_seed
    first = int(time.time()) * 1000 if first is None else first
    seeds: Iterable[int] = range(first, first + options.worlds)
    if options.hours is not None:
        deadline = begun + 3600 * options.hours
        seeds = itertools.takewhile(lambda _: time.monotonic() < deadline, itertools.count(first))
    print(f"worlds from seed {first}", flush=True)
    count, failed = 0, 0
    for outcome in run_all(seeds, options.processes):
        count += 1
        if outcome.problems:
            failed += 1
            print(shortened(outcome), end="\n\n", flush=True)
    minutes = (time.monotonic() - begun) / 60
    print(f"{failed} of {count} worlds from seed {first} failed; {count / minutes:.0f} worlds a minute")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
