"""A cohort in a process of its own, as a worker trains it: `python -m tests.trainables.alone CASE FOLDER`.

It prints what becomes of it; what it keeps lies in the folder.
"""

from __future__ import annotations

import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tests.trainables.small import HERE, config_of, three
from trainables import worker
from trainables.cohort import Cohort
from trainables.contract import OutOfMemory, Report, Stopped, Verdict
from trainables.limits import limited
from trainables.peers import ALONE
from trainables.worker import Work, train_cohort

SLOW = 0.05
"""Seconds that a step takes more."""


@dataclass(frozen=True)
class Folder:
    """A `worker.Keeping`, and its `Checkpoints`."""

    path: Path
    run: str = "run"
    data: str = str(HERE)
    save_every: float = 1e9
    patience: float = 1.5

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
    time.sleep(1000)


def hold(cohort: Cohort) -> None:
    """It waits for ever, and nobody else gets a turn."""
    torch.ops.aten.sum(torch.ones(2))
    import ctypes

    ctypes.PyDLL(None).sleep(1000)


def ponder(report: Report) -> Verdict:
    """A judge who takes longer than anybody's patience."""
    print("judging", flush=True)
    time.sleep(4.0 if report.epoch == 2 else 0.0)
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
    _slow({"hang": hang, "hold": hold}.get(case))
    work = Work(three(), 3, "c", judge={"ponder": ponder, "room": make_room}.get(case))

    def run() -> None:
        train_cohort(work, folder, torch.device("cpu"), ALONE, lambda report: print("reported", flush=True))
        print("over", flush=True)

    thread = threading.Thread(target=run)  # as Tune does
    thread.start()
    while thread.is_alive():
        time.sleep(0.05)
    time.sleep(0.0 if case == "plain" else 5.0)


if __name__ == "__main__":
    assert worker
    main(sys.argv[1], Folder(Path(sys.argv[2])))
