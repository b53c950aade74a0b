"""Train a cohort in a process of its own, as a worker does.

It prints its progress line by line, and keeps its checkpoint and its errors in a folder. To import what it needs takes
seconds, so `python -m tests.trainables.worker.alone` does so once, for all processes that it forks.
"""

import ctypes
import faulthandler
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tests.trainables.small import HERE, config_of, three
from trainables.reports import OutOfMemory
from trainables.sections import TrialConfig
from trainables.training.cohort import TrainingCohort
from trainables.worker.messages import CohortReport, CohortSpec, CohortTask, Message
from trainables.worker.resources import limited
from trainables.worker.watchdog import StepWatchdog
from trainables.worker.worker import WorkerSettings, train_cohort

SLOW = 0.05
"""Seconds added to each step."""
STEP_TIMEOUT = 1.5
"""Seconds without a step after which the process ends itself. It is set only where the process hangs, because on a busy
machine an ordinary step may take longer."""
FOR_GOOD = 300
"""Seconds that a process sleeps where something else should end it."""
ENDED = "ended with status "
"""Begins the line that is printed once a process has ended."""
watchdogs: list[StepWatchdog] = []
"""The watchdog of the cohort that is trained."""
limits: list[float] = []
"""Every timeout, in seconds, that `faulthandler` was given."""


@dataclass(frozen=True)
class FolderCheckpoints:
    """`worker.Checkpoints` in a folder."""

    path: Path

    def read(self, path: str) -> bytes | None:
        file = self.path / path
        return file.read_bytes() if file.exists() else None

    def write(self, path: str, data: bytes, trials: Sequence[str]) -> None:
        (self.path / path).write_bytes(data)


def settings(folder: Path) -> WorkerSettings:
    return WorkerSettings("run", str(HERE), FolderCheckpoints(folder), save_every=1e9)


def task_of(configs: Sequence[TrialConfig], width: int, checkpoint: str, **options: Any) -> CohortTask:
    return CohortTask("c0", spec_of(configs, width, checkpoint), **options)


def spec_of(configs: Sequence[TrialConfig], width: int, checkpoint: str) -> CohortSpec:
    return CohortSpec.of([config.flat() for config in configs], width, checkpoint)


def train(task: CohortTask, folder: Path) -> None:
    """Train the task in this process, and print a line for each report."""

    def send(message: Message) -> None:
        if isinstance(message, CohortReport):
            print("reported", flush=True)

    train_cohort(task, settings(folder), torch.device("cpu"), send)


def hang(cohort: TrainingCohort) -> None:
    """Never return; other threads run."""
    watchdogs[-1]._step_timeout = STEP_TIMEOUT
    time.sleep(FOR_GOOD)


def hold(cohort: TrainingCohort) -> None:
    """Never return, and hold the interpreter: no other thread runs."""
    watchdogs[-1]._step_timeout = STEP_TIMEOUT
    while 1.5 * STEP_TIMEOUT not in limits:
        watchdogs[-1].stop()
        time.sleep(0.01)
    ctypes.PyDLL(None).sleep(FOR_GOOD)


def _slow_down(fault: Any = None) -> None:
    """Make each step slower and print a line; call `fault` in the second step of the second epoch."""
    original = TrainingCohort.step

    def step(self: TrainingCohort, epoch: int, number: int, *arguments: Any) -> Any:
        time.sleep(SLOW)
        if fault and (epoch, number) == (1, 1):
            fault(self)
        print(f"step {epoch} {number}", flush=True)
        return original(self, epoch, number, *arguments)

    cohort_class: Any = TrainingCohort
    cohort_class.step = step


def _listen() -> None:
    """Record the watchdog and the timeouts of `faulthandler`, and print a line when the process is asked to end."""
    enter, ask, dump_later = StepWatchdog.__enter__, StepWatchdog.ask, faulthandler.dump_traceback_later

    def recording_enter(self: StepWatchdog) -> StepWatchdog:
        watchdogs.append(self)
        return enter(self)

    def printing_ask(self: StepWatchdog) -> None:
        ask(self)
        print("asked", flush=True)

    def recording_dump_later(timeout: float, **options: Any) -> None:
        dump_later(timeout, **options)
        limits.append(timeout)

    watchdog_class: Any = StepWatchdog
    watchdog_class.__enter__, watchdog_class.ask = recording_enter, printing_ask
    patched: Any = faulthandler
    patched.dump_traceback_later = recording_dump_later


def overrun(folder: Path) -> None:
    """Train a cohort with too small a memory limit, then one without a limit, then exceed a limit with PyTorch's and
    with Python's allocator."""
    configs = [config_of(width=64, batch_size=120, epochs=1, encoder="convnet", seed=seed) for seed in range(16)]
    try:
        train(task_of(configs, len(configs), "c", memory=80 * 2**20), folder)
    except OutOfMemory as error:
        print(f"{type(error).__name__}: {error}", flush=True)
    train(task_of(configs[:1], 1, "c1"), folder)
    for allocate in (lambda: torch.empty(10**9), lambda: bytearray(4 * 10**9)):
        try:
            with limited(torch.device("cpu"), 50 * 2**20, "it"):
                allocate()
        except OutOfMemory:
            print("caught", flush=True)


class Alone:
    """A process that runs a case, of those that `main` starts."""

    def __init__(self, server: subprocess.Popen[str], case: str, folder: Path) -> None:
        assert server.stdin and server.stdout
        self._server, self._folder, self._ended = server.stdout, folder, False
        print(case, folder, file=server.stdin, flush=True)
        self._number = int(self._server.readline())

    def until(self, line: str) -> None:
        """Wait until it prints this line."""
        while (printed := self._server.readline().strip()) != line:
            assert not printed.startswith(ENDED), f"the process ended before it printed '{line}'"

    def send(self, number: int) -> None:
        """Send it a signal."""
        os.kill(self._number, number)

    def end(self) -> tuple[int, str, str]:
        """Wait for its end. Returns its status, what it printed since the last wait, and its errors."""
        printed = ""
        while not (line := self._server.readline()).startswith(ENDED):
            printed += line
        self._ended = True
        return int(line.removeprefix(ENDED)), printed, (self._folder / "errors").read_text()

    def kill(self) -> None:
        """End it, if it has not ended."""
        if not self._ended:
            self.send(signal.SIGKILL)
            self.end()


def run(case: str, folder: Path) -> None:
    if case == "overrun":
        overrun(folder)
        return
    _listen()
    _slow_down({"hang": hang, "hold": hold}.get(case))

    def train_three() -> None:
        train(task_of(three(), 3, "c"), folder)
        print("over", flush=True)

    thread = threading.Thread(target=train_three)  # Tune trains on a thread, too
    thread.start()
    while thread.is_alive():
        time.sleep(0.05)
    time.sleep(0.0 if case == "plain" else FOR_GOOD)


def main() -> None:
    """For each line of the standard input, a case and a folder, fork a process that prints its number and runs the
    case. Its end is printed, too, and the next line is read after it."""
    for line in sys.stdin:
        child = os.fork()
        if not child:
            case, folder = line.split()
            with (Path(folder) / "errors").open("w") as errors:
                os.dup2(errors.fileno(), 2)
            print(os.getpid(), flush=True)
            return run(case, Path(folder))
        print(f"{ENDED}{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}", flush=True)


if __name__ == "__main__":
    main()
