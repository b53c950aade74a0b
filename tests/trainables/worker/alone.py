"""A cohort in a process of its own, as a worker trains it: `python -m tests.trainables.worker.alone CASE FOLDER`.

It prints what becomes of it; what it keeps lies in the folder.
"""

from __future__ import annotations

import ctypes
import faulthandler
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tests.trainables.small import HERE, config_of, three
from trainables.contract import OutOfMemory, Report, Stopped, Verdict
from trainables.learners.data_parallel import ALONE
from trainables.training.cohort import Cohort
from trainables.worker import worker
from trainables.worker.memory_limit import limited
from trainables.worker.step_watchdog import StepWatchdog
from trainables.worker.worker import Work, train_cohort

SLOW = 0.05
"""Seconds that a step takes more."""
PATIENCE = 1.5
"""Seconds without a step after which a process ends itself. It holds only from where the process hangs, because on a
busy machine a sound step may take longer."""
watches: list[StepWatchdog] = []
"""The watch of the cohort that is trained."""
limits: list[float] = []
"""Seconds after which `faulthandler` was told to end the process, whenever it was."""


@dataclass(frozen=True)
class Folder:
    """A `worker.Keeping`, and its `Checkpoints`."""

    path: Path
    run: str = "run"
    data: str = str(HERE)
    save_every: float = 1e9
    patience: float = 600.0

    @property
    def checkpoints(self) -> Folder:
        return self

    def read(self, path: str) -> bytes | None:
        found = self.path / path
        return found.read_bytes() if found.exists() else None

    def write(self, path: str, data: bytes) -> None:
        (self.path / path).write_bytes(data)


def hang(cohort: Cohort) -> None:
    """It waits for ever, others run."""
    watches[-1]._patience = PATIENCE
    time.sleep(1000)


def hold(cohort: Cohort) -> None:
    """It waits for ever, and nobody else gets a turn."""
    watches[-1]._patience = PATIENCE
    while 1.5 * PATIENCE not in limits:
        watches[-1].stop()
        time.sleep(0.01)
    ctypes.PyDLL(None).sleep(1000)


def ponder(report: Report) -> Verdict:
    """A judge who says so when he has taken longer than patience lasts, and never answers."""
    watches[-1]._patience = PATIENCE
    time.sleep(PATIENCE + 0.5)
    print("judging", flush=True)
    time.sleep(1000)
    return Verdict()


def make_room(report: Report) -> Verdict:
    """A judge who wants the place for somebody else."""
    raise Stopped(f"it makes room at epoch {report.epoch}")


def _slow(befalls: Any = None) -> None:
    real = Cohort.step

    def step(self: Cohort, epoch: int, number: int, *given: Any) -> Any:
        time.sleep(SLOW)
        if befalls and (epoch, number) == (1, 1):
            befalls(self)
        print(f"step {epoch} {number}", flush=True)
        return real(self, epoch, number, *given)

    Cohort.step = step  # type: ignore


def _listen() -> None:
    """Remember what watches, and print a line as soon as the process has been asked to end."""
    enter, ask, later = StepWatchdog.__enter__, StepWatchdog.ask, faulthandler.dump_traceback_later

    def entered(self: StepWatchdog) -> StepWatchdog:
        watches.append(self)
        return enter(self)

    def asked(self: StepWatchdog) -> None:
        ask(self)
        print("asked", flush=True)

    def told(timeout: float, **how: Any) -> None:
        later(timeout, **how)
        limits.append(timeout)

    StepWatchdog.__enter__, StepWatchdog.ask = entered, asked  # type: ignore[method-assign, assignment]
    faulthandler.dump_traceback_later = told  # type: ignore[assignment]


def overrun(folder: Folder) -> None:
    """A cohort that may use too little, one after it that may use enough, and memory of both kinds of allocator."""
    configs = [config_of(width=64, batch_size=120, epochs=1, encoder="convnet", seed=seed) for seed in range(16)]
    for memory in (80 * 2**20, None):
        work = Work(configs, len(configs), f"c{memory}", memory=memory)
        try:
            train_cohort(work, folder, torch.device("cpu"), ALONE, lambda report: print("reported", flush=True))
        except OutOfMemory as error:
            print(f"{type(error).__name__}: {error}", flush=True)
    for ask in (lambda: torch.empty(10**9), lambda: bytearray(4 * 10**9)):
        try:
            with limited(torch.device("cpu"), 50 * 2**20, "it"):
                ask()
        except OutOfMemory:
            print("caught", flush=True)


def main(case: str, folder: Folder) -> None:
    if case == "overrun":
        overrun(folder)
        return
    _listen()
    _slow({"hang": hang, "hold": hold}.get(case))
    work = Work(three(), 3, "c", judge={"ponder": ponder, "room": make_room}.get(case))

    def run() -> None:
        train_cohort(work, folder, torch.device("cpu"), ALONE, lambda report: print("reported", flush=True))
        print("over", flush=True)

    thread = threading.Thread(target=run)  # as Tune does
    thread.start()
    while thread.is_alive():
        time.sleep(0.05)
    time.sleep(0.0 if case == "plain" else 1000)


if __name__ == "__main__":
    assert worker
    main(sys.argv[1], Folder(Path(sys.argv[2])))
