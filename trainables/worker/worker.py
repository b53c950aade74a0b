"""Train one cohort in this process: resume and save its checkpoint, enforce its limits, and record why the process
ends.

This module does not import Ray; the caller passes the function that sends reports.
"""

import contextlib
import math
import os
import socket
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn, Protocol

import torch

from trainables.catalog import method_of, task_of
from trainables.functions.cohort import FunctionCallbacks, FunctionCohort
from trainables.functions.method import FunctionMethod
from trainables.learners.data_parallel import SINGLE_PROCESS, Peers
from trainables.reports import (
    SAVE_EVERY,
    CheckpointError,
    EpochRanking,
    Heartbeat,
    Judge,
    ModelError,
    Report,
    Stopped,
    Verdict,
)
from trainables.training.compiled_steps import StepCompiler
from trainables.training.model_file import TrainedModel, pack_model
from trainables.training.train import Callbacks, Checkpointing, train
from trainables.worker.logs import LogCapture, Logs
from trainables.worker.messages import (
    ONLY_DEVICE,
    CohortReport,
    CohortTask,
    DeviceShare,
    Failure,
    Message,
    Origin,
    write_failure,
)
from trainables.worker.resources import environment_of, limited
from trainables.worker.watchdog import GRACE, StepWatchdog, on_termination


class Checkpoints(Protocol):
    """Storage of checkpoints, reachable from every node."""

    def read(self, path: str) -> bytes | None:
        """Return the checkpoint; None if it does not exist. Raises CheckpointError if it may exist but cannot be
        read."""

    def write(self, path: str, data: bytes, trials: Sequence[str]) -> None:
        """Write a file of the cohort that has these trials."""


class Models(Protocol):
    """Storage of trained models, reachable from every node."""

    def write(self, trial: str, data: bytes, *, retry: bool) -> None:
        """Write the model of a trial atomically, with retries while the storage does not answer if `retry`. Raises
        ModelError if it cannot be written."""

    def has(self, trial: str) -> bool:
        """Return whether the trial has a model. Raises ModelError if this cannot be determined."""


@dataclass(frozen=True)
class WorkerSettings:
    """Settings that all cohorts of a dispatch share."""

    run: str
    """Token of the dispatch."""
    data: str
    """Folder of the data sets."""
    checkpoints: Checkpoints
    save_every: float = SAVE_EVERY
    """Seconds between a cohort's checkpoints."""
    step_timeout: float = 600.0
    """Seconds without a step after which a process ends itself. Infinity disables this, and ending on SIGTERM."""
    models: Models | None = None
    """Needed if the models of a task are kept."""
    ranking: EpochRanking | None = None
    """For functions: the metric that ranks trials. Their other metrics may have any value."""
    retries: int = 3
    """Number of times a function is called again after exceptions at different places."""
    folder: str = "."
    """Folder of the sweep's file, in which functions and commands run."""
    reserved: frozenset[str] = frozenset()
    """Names of columns that no metric of a function may have."""
    logs: Logs | None = None
    """Storage for trials' printed output. With None it goes to the process's own output."""


@dataclass(frozen=True)
class Dispatch:
    """Where and how the cohorts of a dispatch run."""

    settings: WorkerSettings
    resources: Mapping[str, float] = field(default_factory=dict)
    """Ray resources of each worker of a cohort that is trained by several workers."""
    workers: int = 1
    """Number of workers per cohort."""
    storage: str | None = None
    """Folder or URI for Ray Train's own scratch files, reachable from all nodes that train one cohort; None for one on
    this machine."""
    module_folders: Sequence[str] = ()
    """Folders from which the user's modules are imported, besides those of the process that started Ray."""


def _judge_of(task: CohortTask, end_at_rung: Callable[[Report], NoReturn]) -> Judge | None:
    """Return the judge of the task's members; None if they are not compared. It calls `end_at_rung` with the report of
    each rung without a verdict."""
    comparison = task.comparison
    if comparison.population:
        return comparison.population.judge_of(task.spec.configs())

    def judge(report: Report) -> Verdict:
        if report.epoch not in comparison.rungs:
            return Verdict()
        running = {index: member.metrics for index, member in enumerate(report.members) if member.status == "running"}
        if running and all(comparison.metric not in metrics for metrics in running.values()):
            reported = ", ".join(sorted({name for metrics in running.values() for name in metrics})) or "none"
            raise ValueError(
                f"pruning needs the metric '{comparison.metric}' at epoch {report.epoch}; there are: {reported}"
            )
        values = {index: metrics.get(comparison.metric) for index, metrics in running.items()}
        pruned = comparison.decide(report.epoch, values)
        if pruned is None:
            end_at_rung(report)
        return Verdict(pruned={index: reason for index, reason in pruned.items() if index in running})

    return judge if comparison.rungs else None


def read_checkpoint(path: str, checkpoints: Checkpoints, notify: Callable[[str], None]) -> bytes | None:
    """Return a checkpoint; None if it does not exist or, after a notice, if it cannot be read.

    Training from the start costs time, but a cohort that fails because of its checkpoint loses its trials.
    """
    try:
        return checkpoints.read(path)
    except CheckpointError as error:
        notify(f"its checkpoint cannot be read: {error}")
        return None


def train_cohort(
    task: CohortTask,
    settings: WorkerSettings,
    device: torch.device,
    send: Callable[[Message], None],
    peers: Peers = SINGLE_PROCESS,
    share: DeviceShare = ONLY_DEVICE,
    show_exception: Callable[[BaseException], None] = traceback.print_exception,
) -> None:
    """Train the cohort in this process, and `send` each report and heartbeat.

    The models of finished members are written before the last report is sent. The `notice` of the next report names a
    checkpoint that cannot be used, and a model that cannot be written; the trial keeps its result. Only the first of
    several peers writes checkpoints, models and logs. If no step is made for too long, or on SIGTERM, the process
    exits; on SIGTERM it saves first. The rows contain the `share` of the node's devices that the cohort reserves.

    If the cohort is compared with others and there is no verdict yet, it saves a checkpoint and the function returns.

    Raises OutOfMemory if the cohort needs more than its memory limit.
    """
    started = datetime.now(UTC)
    origin = Origin(_device_name(device), socket.gethostname(), os.getpid(), started, environment_of(device), share)
    configs, checkpoints = task.spec.configs(), settings.checkpoints
    method = method_of(configs[0].method)
    of_function = issubclass(method, FunctionMethod)
    notices, unkept, about_steps, failures = list[str](), list[str](), list[str](), list[str]()
    at_rung = False
    unwritten = list[str]()  # trials
    compiler = StepCompiler(about_steps.append) if task.spec.compiled else None
    logs = settings.logs if task.trials and peers.rank == 0 else None
    capture = LogCapture(logs, notices.append) if logs else None

    def write_file(path: str, content: bytes) -> None:
        checkpoints.write(path, content, task.trials)

    def write(failure: Failure) -> None:
        write_failure(write_file, task.spec.checkpoint, settings.run, failure)
        if capture:
            capture.save()

    watchdog = StepWatchdog(settings.step_timeout, lambda failure: _end(failure, write, SINGLE_PROCESS))

    def save(content: bytes) -> None:
        with watchdog.suspended():
            write_file(task.spec.checkpoint, content)

    def keep(index: int, model: TrainedModel) -> None:
        assert task.models and settings.models
        trial = task.trials[index]
        content = pack_model(model, {"trial_id": trial, "kept": task.models.kept})
        with watchdog.suspended():
            try:  # only the first model that the store does not take is retried
                settings.models.write(trial, content, retry=not unwritten)
            except ModelError as error:
                if not unwritten:
                    unkept.append(f"its models cannot be stored: {error}")
                unwritten.append(trial)

    def is_kept(index: int) -> bool:
        assert settings.models
        with watchdog.suspended():
            try:
                return settings.models.has(task.trials[index])
            except ModelError as error:
                notices.append(str(error))
                return False

    def send_heartbeat(heartbeat: Heartbeat) -> None:
        with watchdog.suspended():
            send(heartbeat)

    def end_at_rung(report: Report) -> NoReturn:
        nonlocal at_rung
        take(report, waits=True)
        at_rung = True
        raise Stopped

    judge = _judge_of(task, end_at_rung)

    def suspended_judge(report: Report) -> Verdict:
        assert judge
        with watchdog.suspended():
            return judge(report)

    def loop() -> None:
        keeps = task.models is not None and peers.rank == 0
        reports = train(
            configs,
            Path(settings.data),
            device=device,
            width=task.spec.width,
            checkpointing=Checkpointing(
                resume=read_checkpoint(task.spec.checkpoint, checkpoints, notices.append),
                save=save if peers.rank == 0 else None,
                every=settings.save_every,
            ),
            peers=peers,
            callbacks=Callbacks(
                judge=suspended_judge if judge else None,
                stop=watchdog.stop,
                send_heartbeat=send_heartbeat,
                keep=keep if keeps else None,
                ranking=task.models.ranking if task.models else None,
                is_kept=is_kept if keeps else None,
                notify=notices.append,
            ),
            compiler=compiler,
        )
        for report in reports:
            take(report)

    def take(report: Report, waits: bool = False) -> None:
        """Send a report. A report at a rung is complete, because it is the last one if all members are pruned there."""
        complete = report.done or waits
        if capture and complete:  # before the rows, like the models
            with watchdog.suspended():
                capture.save()
        lines = [f"{'; '.join(notices)}; it trains without it"] if notices else []
        notice = "; ".join([*lines, *failures, *unkept]) or None
        notices.clear()
        failures.clear()
        from_here = replace(origin, compiled=compiler is not None and compiler.compiled)
        with watchdog.suspended():
            about = "; ".join(about_steps) or None
            sent = report if complete else _without_pictures(report)
            ended = complete or report.records is not None  # the ones that are written to rows
            send(CohortReport(sent, from_here, waits, notice, about, tuple(unwritten) if ended else ()))
        about_steps.clear()

    def call_functions(method: type[FunctionMethod]) -> None:
        first, population = peers.rank == 0, task.comparison.population
        saved = read_checkpoint(task.spec.checkpoint, checkpoints, notices.append)

        def begin(index: int) -> None:
            if capture:
                capture.begin(task.trials[index])

        def say(index: int, error: str) -> None:
            failures.append(f"trial {task.trials[index] if task.trials else index} failed: {error}")

        def keep_files(index: int, tensors: Mapping[str, torch.Tensor]) -> None:
            keep(index, TrainedModel(configs[index], tensors, {}, {}))

        def compared(epoch: int) -> bool:
            return epoch % population.every == 0 if population else epoch in task.comparison.rungs

        FunctionCohort(
            configs,
            method,
            device,
            FunctionCallbacks(
                emit=take if first else lambda report: None,
                judge=suspended_judge if judge and first else None,
                compared=compared,
                stop=watchdog.stop,
                save=save if first else None,
                save_every=settings.save_every,
                keep=keep_files if task.models and first else None,
                is_kept=is_kept,
                begin=begin,
                say=say,
                failed=show_exception,
                notify=notices.append,
            ),
            ranking=settings.ranking,
            retries=settings.retries,
            population=population is not None,
            peers=peers,
            folder=settings.folder,
            reserved=settings.reserved,
        ).train(saved)

    ends_itself = math.isfinite(settings.step_timeout)
    with contextlib.ExitStack() as stack:
        if capture:
            stack.enter_context(capture).begin(*task.trials)
            watchdog.output = capture.crash_output
        if ends_itself:
            stack.enter_context(watchdog)
            stack.enter_context(on_termination(watchdog.ask))
        # Loaded outside the memory limit, because the process keeps the data set for all its cohorts.
        task_of(configs[0].method).keep_data(configs[0], Path(settings.data))
        try:
            with limited(device, task.memory, f"a cohort of {len(configs)} in stacks of {task.spec.width}"):
                if issubclass(method, FunctionMethod):
                    with watchdog.suspended():  # the length of its epochs is unknown
                        call_functions(method)
                else:
                    loop()
        except Stopped as stopped:
            if at_rung and not watchdog.asked:
                return
            if not ends_itself:
                raise
            reason = f"stopped: {'SIGTERM; ' if watchdog.asked else ''}{stopped}"
            if of_function and peers.rank:
                time.sleep(GRACE / 4)  # the first peer writes a checkpoint, without a common step
                os._exit(1)
            _end(Failure("machine", reason), write, SINGLE_PROCESS if of_function else peers)


def _without_pictures(report: Report) -> Report:
    """The report without the pictures of members that ended early, which are sent with the last report."""
    return replace(report, members=tuple(replace(member, pictures={}) for member in report.members))


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


def _end(failure: Failure, write: Callable[[Failure], None], peers: Peers) -> NoReturn:
    """End the process with status 1.

    Peers first wait until the first of them, which has saved the checkpoint, has written the failure: once one process
    has ended, Ray ends the rest.
    """
    try:
        if peers.rank == 0:
            write(failure)
        peers.maximum(0)
    finally:
        os._exit(1)
