"""Real sweeps in processes of their own, for tests that kill them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import psutil

ROOT = Path(__file__).parents[2]
PATIENCE = 120.0
"""Seconds after which a sweep that should have done something is given up."""
TRAINERS = ("ray::ImplicitFunc.train", "ray::RayTrainWorker")
"""How the titles of processes that train begin: a cohort alone, or one of a group of workers."""
VOLATILE = ["seconds", "started", "ended", "host", "code_version"]
"""Columns in which two runs of one sweep may differ."""


@dataclass(frozen=True)
class Outcome:
    status: int
    out: str
    err: str
    seconds: float

    def __str__(self) -> str:
        return f"exit {self.status} after {self.seconds:.1f} s\n{self.out}\n{self.err}"


class Sweep:
    """`python -m sweeper.run NAME --preset PRESET WORDS`, leading a process group of its own."""

    def __init__(self, store: Path | str, words: Sequence[str], name: str, preset: str) -> None:
        self.store, self._begun = store, time.monotonic()
        command = [sys.executable, "-m", "sweeper.run", name, "--preset", preset, "--store", str(store), *words]
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"} | {"OMP_NUM_THREADS": "1"},
        )
        self._seen: dict[int, psutil.Process] = {}

    def processes(self) -> list[psutil.Process]:
        """All that descend from it and live, those whose parents have died included."""
        try:
            found = psutil.Process(self._process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            found = []
        for process in list(self._seen.values()):
            with contextlib.suppress(psutil.NoSuchProcess):
                found += process.children(recursive=True)
        self._seen |= {process.pid: process for process in found if process.pid not in self._seen}
        return [process for process in self._seen.values() if _lives(process)]

    def trainers(self) -> list[psutil.Process]:
        """Its processes that train a cohort at this moment."""
        return [process for process in self.processes() if title(process).startswith(TRAINERS)]

    def process(self, name: str) -> psutil.Process:
        """`raylet` or `gcs_server` of its own cluster."""
        return next(one for one in self.processes() if Path(title(one).split(" ", 1)[0]).name == name)

    def wait_until(self, there: Callable[[], object], what: str) -> None:
        """Until `there()` is true; an AssertionError if the sweep ends before, or patience does."""
        deadline = time.monotonic() + PATIENCE
        while not there():
            self.processes()
            assert self._process.poll() is None, f"ended before {what}: {self.outcome()}"
            assert time.monotonic() < deadline, f"no {what} in {PATIENCE:.0f} s"
            time.sleep(0.05)

    def running(self) -> bool:
        self.processes()
        return self._process.poll() is None

    def kill(self) -> None:
        """kill -9, the driver alone."""
        self.processes()
        self._process.kill()
        self._process.communicate()

    def send(self, number: signal.Signals, whole_group: bool = False) -> None:
        """To the driver; to its whole process group as a terminal does."""
        self.processes()
        if whole_group:
            os.killpg(self._process.pid, number)
        else:
            self._process.send_signal(number)

    def outcome(self, timeout: float = PATIENCE) -> Outcome:
        """Wait for its end."""
        out, err = self._process.communicate(timeout=timeout)
        return Outcome(self._process.returncode, out, err, time.monotonic() - self._begun)

    def clean_up(self) -> None:
        """End whatever of it still lives."""
        for process in [*self.processes(), self._process]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


class Sweeps:
    """Starts sweeps, and sees to it that none outlives its test."""

    def __init__(self) -> None:
        self._all: list[Sweep] = []

    def start(self, store: Path | str, *words: str, name: str = "anomaly_grid", preset: str = "digits") -> Sweep:
        self._all.append(Sweep(store, words, name, preset))
        return self._all[-1]

    def run(self, store: Path | str, *words: str, name: str = "anomaly_grid", preset: str = "digits") -> Outcome:
        return self.start(store, *words, name=name, preset=preset).outcome()

    def clean_up(self) -> None:
        for sweep in self._all:
            sweep.clean_up()


def sweeps() -> Iterator[Sweeps]:
    """For a fixture of any scope."""
    made = Sweeps()
    try:
        yield made
    finally:
        made.clean_up()


def rows(store: Path, name: str = "anomaly_grid") -> pd.DataFrame:
    """What plain pandas reads, by trial; an AssertionError where a trial is there twice."""
    frame = pd.read_parquet(store / f"trials/sweep={name}")
    assert frame["trial_id"].is_unique, frame["trial_id"].value_counts().head()
    return frame.set_index("trial_id").sort_index()


def row_files(store: Path) -> list[Path]:
    """Those that readers see."""
    return [path for path in store.glob("trials/sweep=anomaly_grid/*.parquet") if not path.name.startswith(".")]


def assert_same_results(left: pd.DataFrame, right: pd.DataFrame) -> None:
    """Every trial, hyperparameter and metric, to the last bit."""
    pd.testing.assert_frame_equal(left.drop(columns=VOLATILE), right.drop(columns=VOLATILE), check_exact=True)


def survivors(sweep: Sweep, seconds: float = 10.0, but: tuple[str, ...] = ()) -> list[str]:
    """What still lives of it after it has had this long to go, apart from processes whose titles begin with `but`."""
    deadline = time.monotonic() + seconds
    while True:
        titles = [title for title in map(title, sweep.processes()) if not (but and title.startswith(but))]
        if not titles or time.monotonic() > deadline:
            return titles
        time.sleep(0.1)


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def title(process: psutil.Process) -> str:
    """Its command line; what Ray's workers do stands there."""
    try:
        return " ".join(process.cmdline())
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return ""
