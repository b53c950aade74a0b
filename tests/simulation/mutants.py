"""Deliberate faults of the product, of which each is put in alone: does the simulation find it?

`python -m tests.simulation.mutants --worlds 2000` runs worlds with each until one fails. The faults stand in
`mutants.txt`, and are slips that could pass a review: an order, a comparison, a case that is left out. A fault replaces
lines of the source while it is imported, so no file is changed. Each runs in a process of its own, forked from one
that has imported everything but the product. A process that stays silent counts as one whose world never ends.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import CodeType, ModuleType

import psutil

FAULTS = Path(__file__).with_name("mutants.txt")
"""A name a block, after `#`; then a path below `sweeper/`, after `@`, and where one is known, the seed of a world that
finds it; then lines of that file, in a row: `-` before one that goes, `+` before one that comes, and a space before one
that stays."""
PRODUCT = Path(__file__).parents[2] / "sweeper"
SILENCE_SECONDS = 60.0
"""Seconds of a core that a world may take."""
LIBRARIES = (
    *("optuna", "pandas", "pyarrow.parquet", "pyarrow.compute", "rich.progress", "scipy.stats", "torch", "pytest"),
    *("trainables.catalog", "trainables.training.train", "trainables.worker.worker"),
)
"""What is imported before forking. None of it imports the product."""


@dataclass(frozen=True)
class Mutant:
    """A fault."""

    name: str
    file: str
    """Path of the source below `sweeper/`."""
    lines: tuple[str, ...]
    seed: int | None = None
    """Seed of a world that found it once, which is tried first."""

    @property
    def module(self) -> str:
        return f"sweeper.{self.file.removesuffix('.py').replace('/', '.')}"

    @property
    def source(self) -> str:
        """The source with the fault. Raises ValueError if the lines that it changes do not stand there once."""
        text = (PRODUCT / self.file).read_text()
        old, new = (
            "".join(f"\n{line[1:]}" for line in self.lines if line[0] in signs) + "\n" for signs in (" -", " +")
        )
        if text.count(old) != 1:
            raise ValueError(f"the lines of '{self.name}' must be in {self.file} once, but are {text.count(old)} times")
        return text.replace(old, new)

    def install(self) -> None:
        """Have this process import the module with the fault. Raises ValueError if it was imported without."""
        if self.module in sys.modules:
            raise ValueError(f"mutant '{self.name}' must be put in before {self.module} is imported")
        sys.meta_path.insert(0, _Finder(self))


def mutants() -> list[Mutant]:
    """All faults."""
    blocks = FAULTS.read_text().strip().split("\n\n#")
    parsed = []
    for block in blocks:
        name, where, *lines = block.splitlines()
        file, _, seed = where.removeprefix("@ ").partition(" ")
        own = tuple(line or " " for line in lines)
        parsed.append(Mutant(name.strip("# "), file, own, int(seed) if seed else None))
    return parsed


class _Finder(MetaPathFinder):
    """Finds the module of a mutant."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path) if name == self._mutant.module else None
        if spec and spec.origin:
            spec.loader = _Loader(name, spec.origin, self._mutant.source)
        return spec


class _Loader(SourceFileLoader):
    """Loads a module from another text than its file's."""

    def __init__(self, name: str, path: str, text: str) -> None:
        super().__init__(name, path)
        self._text = text

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._text, self.path, "exec", dont_inherit=True)


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant."""

    mutant: Mutant | None
    worlds: int
    """How many worlds ran."""
    problem: str = ""
    """What did not hold in the last of them; empty if all held."""
    seed: int | None = None
    """That world's seed."""
    seconds: float = 0.0

    @property
    def line(self) -> str:
        found = f"after {self.worlds} worlds, in {self.seed}: {self.problem}" if self.problem else "NOT FOUND"
        name = f"{self.mutant.name} ({self.mutant.file})" if self.mutant else "no mutant"
        return f"{name}: {found} [{self.seconds:.0f} s]"


def hunt(chosen: Sequence[Mutant], seeds: Sequence[int], processes: int = 1) -> Iterator[Outcome]:
    """Yield what becomes of each mutant, as they end. A world that fails without a mutant, too, counts for nothing.

    Raises ValueError where the product is imported already.
    """
    if loaded := next((name for name in sys.modules if name.partition(".")[0] == "sweeper"), None):
        raise ValueError(f"mutants must be put in before the product is imported, but {loaded} is")
    for library in LIBRARIES:
        importlib.import_module(library)
    left, running = list(chosen), list[_Hunt]()
    while left or running:
        while left and len(running) < processes:
            mutant = left.pop(0)
            running.append(_Hunt(mutant, [*([] if mutant.seed is None else [mutant.seed]), *seeds]))
        wait([each.connection for each in running], 1.0)
        for each in list(running):
            if outcome := each.outcome():
                running.remove(each)
                yield outcome


class _Hunt:
    """A process that runs worlds with a mutant; None is the product as it is."""

    def __init__(self, mutant: Mutant | None, seeds: Sequence[int]) -> None:
        context = multiprocessing.get_context("fork")
        self.connection, sending = context.Pipe(duplex=False)
        self._mutant, self._seeds, self._count = mutant, seeds, 0
        self._process = context.Process(target=_run, args=(mutant, seeds, sending), daemon=True)
        self._begun, self._heard = time.monotonic(), 0.0
        self._process.start()
        sending.close()

    def outcome(self) -> Outcome | None:
        """Return what became of the mutant; None while that is not known."""
        while self.connection.poll():
            try:
                problem = self.connection.recv()
            except EOFError:
                return self._ended("" if self._count >= len(self._seeds) else "the process has died")
            self._count, self._heard = self._count + 1, self._seconds
            if problem and not (self._mutant and _fails_anyway(self._seeds[self._count - 1])):
                return self._ended(problem)
        silent = self._seconds - self._heard > SILENCE_SECONDS
        return self._ended(f"it takes more than {SILENCE_SECONDS:.0f} s") if silent else None

    @property
    def _seconds(self) -> float:
        """What the process has taken of a core. A world waits for nothing."""
        try:
            times = psutil.Process(self._process.pid).cpu_times()
        except psutil.NoSuchProcess:  # it has ended, and the start of another one has reaped it
            return self._heard
        return times.user + times.system

    def _ended(self, problem: str) -> Outcome:
        self._process.kill()
        self._process.join()
        self.connection.close()
        seed = self._seeds[max(0, self._count - 1)] if problem else None
        return Outcome(self._mutant, self._count, problem, seed, time.monotonic() - self._begun)


@functools.cache
def _fails_anyway(seed: int) -> bool:
    """Whether a world fails in the product as it is."""
    process = _Hunt(None, [seed])
    while (outcome := process.outcome()) is None:
        wait([process.connection], 1.0)
    if outcome.problem:
        print(f"world {seed} fails without a mutant: {outcome.problem}", flush=True)
    return bool(outcome.problem)


def _run(mutant: Mutant | None, seeds: Sequence[int], connection: Connection) -> None:
    """Send for each world what does not hold in it; an empty text if all holds."""
    if mutant:
        mutant.install()
    from tests.simulation import disk, world  # here: they import the product

    for seed in seeds:
        try:
            on_disk = mutant is not None and mutant.file == disk.FILE  # no world has a disk
            problems = [*disk.broken()] if on_disk else world.run(seed).problems
        except Exception as error:  # of the run that nothing disturbs
            problems = [f"{type(error).__name__}: {error}"]
        connection.send(problems[0].strip().splitlines()[-1] if problems else "")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of the names of mutants; by default all run")
    parser.add_argument("--worlds", type=int, default=2000, help="most worlds for each (default: %(default)s)")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="at once (default: one a core)")
    options = parser.parse_args()
    chosen = [mutant for mutant in mutants() if not options.names or any(name in mutant.name for name in options.names)]
    seeds = range(options.first_seed, options.first_seed + options.worlds)
    outcomes = []
    for outcome in hunt(chosen, seeds, options.processes):
        outcomes.append(outcome)
        print(outcome.line, flush=True)
    found = sorted(outcome.worlds for outcome in outcomes if outcome.problem)
    print(f"{len(found)} of {len(outcomes)} mutants found within {options.worlds} worlds each, after {found}")
    return 0 if len(found) == len(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
