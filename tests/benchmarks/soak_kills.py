"""Random kills over one sweep, and whether its rows are those of a sweep that nothing happened to.

    python -m tests.benchmarks.soak_kills --kills 50 --seed 0

What is killed is drawn: a training process (SIGKILL), one that gets a spot notice (SIGTERM), the raylet, the driver
(SIGKILL) or the driver as by Ctrl-C. Where the driver ends, the same command goes on.
"""

import argparse
import contextlib
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import psutil

from sweeper.storage.load import load_history
from tests.end_to_end.sweeps import Sweep, Sweeps, assert_same_results, rows, sweeps

GRID = (
    *("--axis", "beta=0.5,1,2", "--axis", "nu=0.5,3,20", "--axis", "normal_class=0,1,2,3", "--cohort", "3"),
    *("--save-every", "0.5", "--retries", "3"),
)
"""36 trials in 12 cohorts."""
EPOCHS_A_KILL, LEAST_EPOCHS = 40, 200
LONGEST = 3600.0
PAUSE = (0.3, 3.0)
"""Seconds between the end of the last kill's harm and the next kill, drawn evenly."""


@dataclass(frozen=True)
class Harm:
    """A kind of kill."""

    name: str
    weight: int
    do: Callable[[Sweep, random.Random], bool]
    """Returns False where there was nothing to kill."""


def one_trainer(number: signal.Signals) -> Callable[[Sweep, random.Random], bool]:
    """Sends the signal to a process that trains."""

    def send(sweep: Sweep, drawn: random.Random) -> bool:
        there = sweep.trainers()
        with contextlib.suppress(psutil.NoSuchProcess):
            if there:
                drawn.choice(there).send_signal(number)
                return True
        return False

    return send


def raylet(sweep: Sweep, drawn: random.Random) -> bool:
    """The whole node, as Ray sees it."""
    with contextlib.suppress(psutil.NoSuchProcess, StopIteration):
        sweep.process("raylet").kill()
        return True
    return False


def driver(sweep: Sweep, drawn: random.Random) -> bool:
    sweep.kill()
    return True


def interrupt(sweep: Sweep, drawn: random.Random) -> bool:
    sweep.send(signal.SIGINT)
    return True


HARMS = (
    Harm("training process, SIGKILL", 5, one_trainer(signal.SIGKILL)),
    Harm("training process, SIGTERM", 3, one_trainer(signal.SIGTERM)),
    Harm("raylet, SIGKILL", 1, raylet),
    Harm("driver, SIGKILL", 1, driver),
    Harm("driver, Ctrl-C", 1, interrupt),
)


class Soak:
    """One sweep that is killed again and again."""

    def __init__(self, made: Sweeps, store: Path, words: tuple[str, ...], seed: int) -> None:
        self._sweeps, self._store, self._words = made, store, words
        self._drawn = random.Random(seed)
        self._sweep = made.start(store, *words)
        self.done: list[tuple[str, float]] = []
        """Of each kill what it was, and the seconds until training went on."""
        self.starts = 1

    def run(self, kills: int) -> None:
        """So many kills, or as many as there are until the sweep has ended; then to its end."""
        while len(self.done) < kills and self._until_it_trains():
            time.sleep(self._drawn.uniform(*PAUSE))
            harm = self._drawn.choices(HARMS, [one.weight for one in HARMS])[0]
            before = {one.pid for one in self._sweep.trainers()}
            begun = time.monotonic()
            if not self._sweep.running() or not harm.do(self._sweep, self._drawn):
                continue
            if self._until_it_trains(beside=before):
                self.done.append((harm.name, time.monotonic() - begun))
                print(f"{len(self.done):3} {harm.name}: trains again after {self.done[-1][1]:.1f} s", flush=True)
        while not self._whole():
            self._again()

    def _until_it_trains(self, beside: Collection[int] = ()) -> bool:
        """Wait for a training process that was not there before; False where the sweep ended whole instead."""
        while True:
            if any(one.pid not in beside for one in self._sweep.trainers()):
                return True
            if not self._sweep.running():
                if self._whole():
                    return False
                self._again()
            time.sleep(0.05)

    def _whole(self) -> bool:
        """Whether the sweep has ended with a result of every trial."""
        return self._sweep.outcome(timeout=LONGEST).status == 0

    def _again(self) -> None:
        self._sweep.clean_up()
        self._sweep = self._sweeps.start(self._store, *self._words)
        self.starts += 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    words = (*GRID, "--set", f"epochs={max(LEAST_EPOCHS, EPOCHS_A_KILL * asked.kills)}")
    with tempfile.TemporaryDirectory() as folder, contextlib.contextmanager(sweeps)() as made:
        calm = made.start(Path(folder, "calm"), *words).outcome(timeout=LONGEST)
        assert calm.status == 0, calm
        print(f"undisturbed: {calm.seconds:.0f} s", flush=True)
        begun = time.monotonic()
        soak = Soak(made, Path(folder, "killed"), words, asked.seed)
        soak.run(asked.kills)
        took = time.monotonic() - begun
        _say(soak, took, calm.seconds)
        same = _same(Path(folder, "killed"), Path(folder, "calm"))
    return 0 if same and len(soak.done) == asked.kills else 1


def _say(soak: Soak, took: float, calm: float) -> None:
    for name in dict.fromkeys(name for name, _ in soak.done):
        times = [seconds for one, seconds in soak.done if one == name]
        middle, most = statistics.median(times), max(times)
        print(f"{name:<28} {len(times):3} kills, trains again after {middle:.1f} s (median), {most:.1f} s (most)")
    print(f"{len(soak.done)} kills, {soak.starts} starts of the driver, {took:.0f} s: {took / calm:.2f} x undisturbed")


def _same(killed: Path, calm: Path) -> bool:
    """Whether every row and every number of the history is the same, to the last bit."""
    try:
        assert_same_results(rows(killed), rows(calm))
        both = (load_history("anomaly_grid", store) for store in (killed, calm))
        pd.testing.assert_frame_equal(*both, check_exact=True)
    except AssertionError as error:
        print(f"rows differ: {error}")
        return False
    print(f"{len(rows(killed))} rows and the whole history are equal to the last bit")
    return True


if __name__ == "__main__":
    sys.exit(main())
