"""Random kills during one sweep, and whether its rows equal those of an undisturbed sweep.

    python -m tests.benchmarks.soak_kills --kills 50 --seed 0

Each kill is drawn at random: a training process (SIGKILL), one that gets a spot notice (SIGTERM), the raylet, the
driver (SIGKILL) or the driver by Ctrl-C. If the driver ends, the same command continues.
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
"""Seconds from the recovery from one kill to the next kill, drawn uniformly."""


@dataclass(frozen=True)
class Harm:
    """A kind of kill."""

    name: str
    weight: int
    do: Callable[[Sweep, random.Random], bool]
    """Returns False where there was nothing to kill."""


def one_trainer(number: signal.Signals) -> Callable[[Sweep, random.Random], bool]:
    """Return a function that sends the signal to a random training process."""

    def send(sweep: Sweep, drawn: random.Random) -> bool:
        trainers = sweep.trainers()
        with contextlib.suppress(psutil.NoSuchProcess):
            if trainers:
                drawn.choice(trainers).send_signal(number)
                return True
        return False

    return send


def raylet(sweep: Sweep, drawn: random.Random) -> bool:
    """Kill the raylet, with which Ray loses the whole node."""
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

    def __init__(self, sweeps: Sweeps, store: Path, arguments: tuple[str, ...], seed: int) -> None:
        self._sweeps, self._store, self._arguments = sweeps, store, arguments
        self._drawn = random.Random(seed)
        self._sweep = sweeps.start(store, *arguments)
        self.done: list[tuple[str, float]] = []
        """Kind of each kill, and the seconds until training continued."""
        self.starts = 1

    def run(self, kills: int) -> None:
        """Kill up to `kills` times while the sweep runs, and then let it end."""
        while len(self.done) < kills and self._until_it_trains():
            time.sleep(self._drawn.uniform(*PAUSE))
            harm = self._drawn.choices(HARMS, [kind.weight for kind in HARMS])[0]
            pids_before = {process.pid for process in self._sweep.trainers()}
            begun = time.monotonic()
            if not self._sweep.running() or not harm.do(self._sweep, self._drawn):
                continue
            if self._until_it_trains(beside=pids_before):
                self.done.append((harm.name, time.monotonic() - begun))
                print(f"{len(self.done):3} {harm.name}: trains again after {self.done[-1][1]:.1f} s", flush=True)
        while not self._whole():
            self._again()

    def _until_it_trains(self, beside: Collection[int] = ()) -> bool:
        """Wait for a training process that is not in `beside`. Returns False if the sweep completes instead."""
        while True:
            if any(process.pid not in beside for process in self._sweep.trainers()):
                return True
            if not self._sweep.running():
                if self._whole():
                    return False
                self._again()
            time.sleep(0.05)

    def _whole(self) -> bool:
        """Wait for the end of the sweep. Returns whether every trial has a result."""
        return self._sweep.outcome(timeout=LONGEST).status == 0

    def _again(self) -> None:
        self._sweep.clean_up()
        self._sweep = self._sweeps.start(self._store, *self._arguments)
        self.starts += 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    arguments = (*GRID, "--set", f"epochs={max(LEAST_EPOCHS, EPOCHS_A_KILL * options.kills)}")
    with tempfile.TemporaryDirectory() as folder, contextlib.contextmanager(sweeps)() as started:
        undisturbed = started.start(Path(folder, "calm"), *arguments).outcome(timeout=LONGEST)
        assert undisturbed.status == 0, undisturbed
        print(f"undisturbed: {undisturbed.seconds:.0f} s", flush=True)
        begun = time.monotonic()
        soak = Soak(started, Path(folder, "killed"), arguments, options.seed)
        soak.run(options.kills)
        took = time.monotonic() - begun
        _say(soak, took, undisturbed.seconds)
        rows_are_equal = _same(Path(folder, "killed"), Path(folder, "calm"))
    return 0 if rows_are_equal and len(soak.done) == options.kills else 1


def _say(soak: Soak, took: float, baseline: float) -> None:
    for name in dict.fromkeys(name for name, _ in soak.done):
        times = [seconds for kill, seconds in soak.done if kill == name]
        middle, longest = statistics.median(times), max(times)
        print(f"{name:<28} {len(times):3} kills, trains again after {middle:.1f} s (median), {longest:.1f} s (most)")
    print(
        f"{len(soak.done)} kills, {soak.starts} starts of the driver, {took:.0f} s: {took / baseline:.2f} x undisturbed"
    )


def _same(killed: Path, undisturbed: Path) -> bool:
    """Whether every row and every number of the history is the same, to the last bit."""
    try:
        assert_same_results(rows(killed), rows(undisturbed))
        histories = (load_history("anomaly_grid", store) for store in (killed, undisturbed))
        pd.testing.assert_frame_equal(*histories, check_exact=True)
    except AssertionError as error:
        print(f"rows differ: {error}")
        return False
    print(f"{len(rows(killed))} rows and the whole history are equal to the last bit")
    return True


if __name__ == "__main__":
    sys.exit(main())
