"""What a process does that trains a cohort: it keeps its checkpoint, its limits, and says why where it ends itself.

It knows no Ray: who starts it says how a report is passed on.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn, Protocol

import torch

from trainables.config.trial import TrialConfig
from trainables.contract import STOPPED, WHY, CheckpointError, Heartbeat, Judge, Report, Stopped, Verdict
from trainables.learners.data_parallel import ALONE, Peers
from trainables.training.checkpoint import unpack
from trainables.training.cohort import dataset_of
from trainables.training.parting import part
from trainables.training.train import train
from trainables.worker.memory_limit import limited
from trainables.worker.sigterm import on_sigterm
from trainables.worker.step_watchdog import StepWatchdog


class Checkpoints(Protocol):
    """Where a cohort's checkpoint lives, readable from every node."""

    def read(self, path: str) -> bytes | None:
        """None where there is none; CheckpointError where there may be one that cannot be read."""

    def write(self, path: str, data: bytes) -> None: ...


@dataclass(frozen=True)
class Before:
    """A cohort that these members were part of, or were with other stacks."""

    configs: Sequence[TrialConfig]
    width: int
    checkpoint: str


@dataclass(frozen=True)
class Work:
    """What one process, or each of a group, is to do."""

    configs: Sequence[TrialConfig]
    width: int
    checkpoint: str
    """Path of the cohort's own."""
    judge: Judge | None = None
    memory: int | None = None
    """Bytes that it may use, None for all there are."""
    before: Sequence[Before] = ()
    """Nearest first."""

    def resume(self, checkpoints: Checkpoints, say: Callable[[str], None] = lambda line: None) -> bytes | None:
        """The checkpoint to go on from. `say` is told in one line of each that cannot be read or used: it counts as
        absent, for training anew costs time, and a cohort that fails for it costs its trials."""

        def read(path: str) -> bytes | None:
            try:
                return checkpoints.read(path)
            except CheckpointError as error:
                say(f"its checkpoint cannot be read: {error}")
                return None

        own = read(self.checkpoint)
        if not self.before or (own and unpack(own, self.configs, self.width, say)):
            return own
        for one in self.before:
            data = read(one.checkpoint)
            if data and (found := part(data, one.configs, one.width, self.configs, self.width, say)):
                return found
        return None


class Keeping(Protocol):
    """What holds for every cohort of a place (`trainables.worker.ray_train.Place`)."""

    @property
    def run(self) -> str:
        """A token of the dispatch that started it, without spaces."""

    @property
    def data(self) -> str:
        """Folder of the data sets."""

    @property
    def checkpoints(self) -> Checkpoints: ...
    @property
    def save_every(self) -> float:
        """Seconds between a cohort's checkpoints."""

    @property
    def patience(self) -> float:
        """Seconds without a step after which the process ends itself."""


def train_cohort(
    work: Work, keeping: Keeping, device: torch.device, peers: Peers, report: Callable[[dict[str, Any]], None]
) -> None:
    """The loop in this process, each report and each heartbeat passed on; of peers the first alone writes checkpoints.
    A checkpoint that is of no use is named in the `notice` of the next report.

    OutOfMemory if it needs more than it may use. Asked to end by SIGTERM it saves, and ends the process; so it does
    where no step is made for too long.
    """
    started, path, checkpoints = datetime.now(UTC).isoformat(), work.checkpoint, keeping.checkpoints
    where = {"device": _device_name(device), "host": socket.gethostname(), "pid": os.getpid(), "started": started}

    watch = StepWatchdog(keeping.patience, lambda why: _end(why, write, ALONE))

    def write(why: str) -> None:
        checkpoints.write(path + WHY, f"{keeping.run} {why}".encode())

    def save(content: bytes) -> None:
        with watch.suspended():
            checkpoints.write(path, content)

    def beat(heartbeat: Heartbeat) -> None:
        with watch.suspended():
            report({"heartbeat": asdict(heartbeat), **where})

    def judged(one: Report) -> Verdict:
        assert work.judge
        if peers.size == 1:
            return watch.awaiting(work.judge, one)
        with watch.suspended():
            return work.judge(one)

    def loop() -> None:
        said = list[str]()
        reports = train(
            work.configs,
            Path(keeping.data),
            device=device,
            width=work.width,
            resume=work.resume(checkpoints, said.append),
            save=save if peers.rank == 0 else None,
            save_every=keeping.save_every,
            peers=peers,
            judge=judged if work.judge else None,
            stop=watch.stop,
            beat=beat,
            say=said.append,
        )
        for one in reports:
            words = {"notice": f"{'; '.join(said)}; it trains without it"} if said else {}
            said.clear()
            with watch.suspended():
                report({"report": asdict(one), **where, **words})

    who = f"a cohort of {len(work.configs)} in stacks of {work.width}"
    with watch, on_sigterm(watch.ask):
        dataset_of(work.configs[0].data.dataset, Path(keeping.data))  # a process has it once, beside all its cohorts
        try:
            with limited(device, work.memory, who):
                loop()
        except Stopped as stopped:
            _end(f"{STOPPED}: {'SIGTERM; ' if watch.asked else ''}{stopped}", write, peers)


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def _end(why: str, write: Callable[[str], None], peers: Peers) -> NoReturn:
    """End the process; peers only when the first of them, which has saved, has said why: Ray ends who is left."""
    try:
        if peers.rank == 0:
            write(why)
        peers.agree(0)
    finally:
        os._exit(1)
