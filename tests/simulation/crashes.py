"""Every crash of small sweeps: `python -m tests.simulation.crashes`.

Whoever makes an operation that changes the store dies before it, or after it: the driver, or the node of a worker. Or
the operation fails although it has had its effect, or is not answered. Each such world is continued to the end, and
judged as any other.
"""

from __future__ import annotations

import argparse
import errno
import itertools
import multiprocessing
import os
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any

import pytest

from sweeper.commands import conclusion
from sweeper.option_values import Keep
from sweeper.request import Request
from sweeper.storage import parquet_files
from sweeper.storage.retry import NoAnswerError
from tests.simulation.backend import Mishaps, poison_of
from tests.simulation.files import READS, SILENCE, Client, Memory, Result, contents
from tests.simulation.processes import Stuck
from tests.simulation.scenario import Scenario
from tests.simulation.stored import TRIALS, rows_in
from tests.simulation.sweeps import Kind
from tests.simulation.world import LIMIT, World, expected, simulated

DISTURBANCES = ("dies before", "dies after", "fails, but is done", "is not answered")
SAVING: Mapping[str, Any] = {"save_every": 0.0}
"""Options of a request that writes a checkpoint in every step."""


@dataclass(frozen=True)
class Small:
    """A small sweep."""

    name: str
    kind: Kind
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of all its requests."""
    fresh: bool = False
    """Whether the request that is disturbed trains anew what an earlier one has trained."""
    dies_at: int | None = None
    """Number of the operation at which the earlier driver dies, which halves cohorts because of a trial; None where it
    has ended, and nothing went wrong."""
    merging: bool = False
    """Whether two files are many, so that they are merged while the sweep runs and at its end."""


SMALL = (
    Small("grid", Kind("grid", (("cohort", 2),))),
    Small("search with pruning", Kind("halving", (("cohort", 2),))),
    Small("population", Kind("population")),
    Small("--fresh", Kind("grid", (("cohort", 2),)), fresh=True),
    Small("--fresh of halves", Kind("grid"), {**SAVING, "retries": 0}, fresh=True, dies_at=25),
    Small("--fresh with models", Kind("grid", (("keep", "all"), ("cohort", 2))), SAVING, fresh=True),
    Small("best models", Kind("grid", (("keep", "best"), ("cohort", 2))), SAVING),
    Small("models of best epochs", Kind("patient", (("keep", Keep("best", best_epoch=True)),)), SAVING),
    Small("--decide", Kind("claimed", (("decide", ()), ("most_seeds", 4)))),
    Small("merging", Kind("grid", (("cohort", 1),)), merging=True),
    Small("generators", Kind("yields", (("cohort", 3),)), SAVING),
    Small("functions with models", Kind("saves_first", (("keep", "best"), ("cohort", 3))), SAVING),
    Small("generators with pruning", Kind("yields_halving", (("cohort", 2),)), SAVING),
    Small("functions with pruning", Kind("reports_first_halving", (("cohort", 2),)), SAVING),
    Small("population of functions", Kind("saves_first_population"), SAVING),
)


@dataclass(frozen=True)
class Crash:
    """An operation of a small sweep, and what happens to it."""

    small: int
    """Index among `SMALL`."""
    operation: int
    """Its number among those that change the store, from 1; 0 for none."""
    disturbance: str = ""

    def __str__(self) -> str:
        return f"{SMALL[self.small].name}, operation {self.operation}: {self.disturbance}"


class Disturbed:
    """Takes the place of `Memory.operate`: one operation is disturbed."""

    def __init__(self, memory: Memory, crash: Crash) -> None:
        self._memory, self._crash, self._operate = memory, crash, memory.operate
        self.active, self.count = False, 0

    def __call__(self, client: Client, verb: str, path: str, effect: Callable[[], Result]) -> Result:
        memory = self._memory
        if not self.active or verb in READS or client.dead:
            return self._operate(client, verb, path, effect)
        self.count += 1
        if self.count != self._crash.operation:
            return self._operate(client, verb, path, effect)
        disturbance = self._crash.disturbance
        memory.time.say(f"{client.name}: {verb} {path}: {disturbance}")
        if disturbance == "is not answered":
            memory.time.current.sleep(SILENCE)
            raise NoAnswerError(f"no answer for {SILENCE:.0f} s")
        if disturbance != "dies before":
            memory._take_effect(client, verb, path, effect)
        if disturbance == "fails, but is done":
            raise OSError(errno.ECONNRESET, "simulated, and done")
        memory._die(client, disturbance)
        raise AssertionError


def run(crash: Crash) -> tuple[Crash, int, list[str], list[str]]:
    """Run a world. Returns how many operations were made while it may be disturbed, what did not hold, and its
    history."""
    small = SMALL[crash.small]
    scenario = Scenario(small.kind)
    world = World(scenario, 0, expected(scenario))
    auditor, disturbed = world.auditor, Disturbed(world.memory, crash)
    request = small.kind.request(**small.options)
    world.memory.operate = disturbed  # type: ignore[method-assign]
    with pytest.MonkeyPatch.context() as patched, simulated(world.time):
        if small.merging:
            patched.setattr(parquet_files, "MANY", 2)
            patched.setattr(conclusion, "COMPACT_ABOVE", 2)
        try:
            if small.dies_at is not None:
                halved = poison_of(next(iter(expected(scenario).rows.values())))
                first = Client("host first", faulty=False, die_at=(small.dies_at, False))
                _drive(world, first, request, Mishaps(poisoned=frozenset({halved}), poisoned_in=2))
            elif small.fresh:
                world.last(request)
            before = _trained(world.memory)
            disturbed.active, auditor.brief, auditor.sure = True, False, crash.disturbance != "is not answered"
            own = replace(request, fresh=small.fresh)
            _drive(world, Client("host driver", faulty=False, fresh=small.fresh), own, Mishaps())
            disturbed.active = False
            status = world.last(request)  # where nothing is left, it tidies up
            auditor.judge(small.kind, status, frozenset())
            if lost := before - _trained(world.memory):
                auditor.note(f"rows are neither in their place nor archived: {sorted(lost)}")
        except Stuck as stuck:
            auditor.note(f"no progress: {stuck}")
        except Exception as error:
            auditor.note(f"an exception: {''.join(traceback.format_exception(error))}")
    return crash, disturbed.count, auditor.problems, world.time.history


def _drive(world: World, client: Client, request: Request, mishaps: Mishaps) -> None:
    """Run a driver to its end."""
    process = world.drive(client, request, mishaps, partial(world.auditor.ended, request))
    world.time.run(lambda: process.ended, world.time.now + LIMIT)


def _trained(memory: Memory) -> set[tuple[str, str]]:
    """Trial and end of every row, also of those that are archived."""
    files = ((path, data) for path, data in contents(memory).items() if TRIALS in path)
    return {(row["trial_id"], str(row["ended"])) for path, data in files for row in rows_in(data)}


def every(small: int) -> list[Crash]:
    """Every crash of a small sweep."""
    _, count, problems, history = run(Crash(small, 0))
    if problems:
        raise ValueError("\n".join([*history, f"{SMALL[small].name} without a crash: {problems}"]))
    return [Crash(small, *each) for each in itertools.product(range(1, count + 1), DISTURBANCES)]


def results(crashes: Sequence[Crash], processes: int) -> Iterator[tuple[Crash, int, list[str], list[str]]]:
    """Run crashes in so many processes."""
    if processes == 1:
        yield from map(run, crashes)
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap_unordered(run, crashes, chunksize=8)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.crashes", description=__doc__)
    parser.add_argument("--share", type=float, default=1.0, help="share of them that is drawn (default: all)")
    parser.add_argument("--only", help="one of them: `INDEX,OPERATION,DISTURBANCE`, and its whole history")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="default: one a core")
    options = parser.parse_args()
    if options.only:
        small, operation, disturbance = options.only.split(",", 2)
        _, _, problems, history = run(Crash(int(small), int(operation), disturbance.strip()))
        print("\n".join([*history, *problems]))
        return 1 if problems else 0
    crashes, failed = [crash for small in range(len(SMALL)) for crash in every(small)], 0
    drawn = Random().sample(crashes, round(options.share * len(crashes)))
    for crash, _, problems, _ in results(drawn, options.processes):
        if problems:
            failed += 1
            print(f"{crash} ({crash.small},{crash.operation},{crash.disturbance})\n- " + "\n- ".join(problems))
    counts = Counter(SMALL[crash.small].name for crash in drawn)
    print(f"{failed} of {len(drawn)} crashes failed: {', '.join(f'{n} of {name}' for name, n in counts.items())}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
