"""Train one cohort in this process: resume and save its checkpoint, keep its limits, and record why the process ends.

This module does not import Ray: the caller passes in how a report is sent on.
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
from trainables.learners.data_parallel import SINGLE_PROCESS, Peers
from trainables.training.checkpoint import unpack
from trainables.training.checkpoint_slicing import slice_checkpoint
from trainables.training.cohort import dataset_of
from trainables.training.train import train
from trainables.worker.memory_limit import limited
from trainables.worker.sigterm import on_sigterm
from trainables.worker.step_watchdog import StepWatchdog


class Checkpoints(Protocol):
    """Storage of checkpoints, reachable from every node."""

    def read(self, path: str) -> bytes | None:
        """Return the checkpoint, or None if there is none. Raises CheckpointError if one may exist but cannot be
        read."""

    def write(self, path: str, data: bytes) -> None: ...


@dataclass(frozen=True)
class Before:
    """An earlier cohort that these members belonged to, or the same cohort with stacks of another width."""

    configs: Sequence[TrialConfig]
    width: int
    checkpoint: str
    """Path of its checkpoint."""


@dataclass(frozen=True)
class Work:
    """The cohort that one process trains, or that each process of a group trains together with its peers."""

    configs: Sequence[TrialConfig]
    width: int
    """Members stacked at a time."""
    checkpoint: str
    """Path of the cohort's own checkpoint."""
    judge: Judge | None = None
    memory: int | None = None
    """Memory limit of the process in bytes; None for no limit."""
    before: Sequence[Before] = ()
    """Earlier cohorts of these members, the most recent first."""

    def resume(self, checkpoints: Checkpoints, say: Callable[[str], None] = lambda line: None) -> bytes | None:
        """Return the checkpoint to resume from: the cohort's own, else one cut from the first earlier cohort that has
        one of use, else None.

        A checkpoint that cannot be read or used counts as absent, and `say` is called with one line about it: training
        from the start costs time, but a cohort that fails because of a checkpoint costs its trials.
        """

        def read(path: str) -> bytes | None:
            try:
                return checkpoints.read(path)
            except CheckpointError as error:
                say(f"its checkpoint cannot be read: {error}")
                return None

        own = read(self.checkpoint)
        if not self.before or (own and unpack(own, self.configs, self.width, say)):
            return own
        for earlier in self.before:
            data = read(earlier.checkpoint)
            if data and (cut := slice_checkpoint(data, earlier.configs, earlier.width, self.configs, self.width, say)):
                return cut
        return None


class Keeping(Protocol):
    """Settings shared by all cohorts of a dispatch (`trainables.worker.ray_train.Place` has them)."""

    @property
    def run(self) -> str:
        """Token of the dispatch that started the cohort; it has no spaces."""

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
        """Step timeout: seconds without a step after which the process ends itself."""


def train_cohort(
    work: Work, keeping: Keeping, device: torch.device, peers: Peers, report: Callable[[dict[str, Any]], None]
) -> None:
    """Train the cohort in this process and pass each report and heartbeat to `report`, as a dict.

    A checkpoint that cannot be used is named in the `notice` of the next report. Of several peers only the first writes
    checkpoints. On SIGTERM, or where no step is made for too long, the process exits; on SIGTERM it saves first.

    Raises OutOfMemory if the cohort needs more than its memory limit.
    """
    started, path, checkpoints = datetime.now(UTC).isoformat(), work.checkpoint, keeping.checkpoints
    origin = {"device": _device_name(device), "host": socket.gethostname(), "pid": os.getpid(), "started": started}

    watchdog = StepWatchdog(keeping.patience, lambda reason: _end(reason, write_reason, SINGLE_PROCESS))

    def write_reason(reason: str) -> None:
        checkpoints.write(path + WHY, f"{keeping.run} {reason}".encode())

    def save(content: bytes) -> None:
        with watchdog.suspended():
            checkpoints.write(path, content)

    def beat(heartbeat: Heartbeat) -> None:
        with watchdog.suspended():
            report({"heartbeat": asdict(heartbeat), **origin})

    def judge(epoch_report: Report) -> Verdict:
        assert work.judge
        if peers.size == 1:
            return watchdog.awaiting(work.judge, epoch_report)
        with watchdog.suspended():
            return work.judge(epoch_report)

    def loop() -> None:
        notices = list[str]()
        epoch_reports = train(
            work.configs,
            Path(keeping.data),
            device=device,
            width=work.width,
            resume=work.resume(checkpoints, notices.append),
            save=save if peers.rank == 0 else None,
            save_every=keeping.save_every,
            peers=peers,
            judge=judge if work.judge else None,
            stop=watchdog.stop,
            beat=beat,
            say=notices.append,
        )
        for epoch_report in epoch_reports:
            notice = {"notice": f"{'; '.join(notices)}; it trains without it"} if notices else {}
            notices.clear()
            with watchdog.suspended():
                report({"report": asdict(epoch_report), **origin, **notice})

    who = f"a cohort of {len(work.configs)} in stacks of {work.width}"
    with watchdog, on_sigterm(watchdog.ask):
        # Loaded outside the memory limit: the process keeps the data set for all its cohorts.
        dataset_of(work.configs[0].data.dataset, Path(keeping.data))
        try:
            with limited(device, work.memory, who):
                loop()
        except Stopped as stopped:
            _end(f"{STOPPED}: {'SIGTERM; ' if watchdog.asked else ''}{stopped}", write_reason, peers)


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def _end(reason: str, write_reason: Callable[[str], None], peers: Peers) -> NoReturn:
    """End the process with status 1.

    Peers first wait until the first of them, which has saved the checkpoint, has written the reason: once one process
    has ended, Ray ends the rest.
    """
    try:
        if peers.rank == 0:
            write_reason(reason)
        peers.maximum(0)
    finally:
        os._exit(1)
