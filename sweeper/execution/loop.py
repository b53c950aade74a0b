"""Runs the cohorts of a stage on a backend, each in a slot, and tells listeners what happens."""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sweeper.definition import user_code
from sweeper.execution.backend import Backend, Ended, Event, MessageReceived, Started, read_exit_file
from sweeper.execution.budget import Budget, BudgetSpent
from sweeper.execution.retries import Attempt, RetryQueue
from sweeper.execution.signals import StopSignal
from sweeper.execution.stages import Stage
from sweeper.execution.suspects import Suspects
from sweeper.packing.cluster import SlotResources, Slots
from sweeper.planning.cohorts import Cohort
from sweeper.planning.sources import CohortSource
from sweeper.record.listener import CohortListener
from sweeper.storage.files import Files
from sweeper.storage.rows import FIXED, STUDY_COLUMNS
from sweeper.storage.worker_files import CheckpointStorage, LogStorage, ModelStorage
from trainables.reports import Heartbeat
from trainables.worker.messages import CohortReport, CohortSpec, CohortTask, Failure, ModelRequest
from trainables.worker.worker import Dispatch, WorkerSettings

MOST_PENDING = 64
"""Most cohorts that wait for devices where nodes may come: they are what an autoscaler starts nodes for."""
NO_LAST_REPORT = Failure("error", "its training ended without a last report")
MOST_WAITING = 64
"""Most cohorts that wait for a slot of a kind that they fit while others go ahead."""


@dataclass(frozen=True)
class Limits:
    """Limits of a dispatch."""

    retries: int
    """How often in a row a cohort is tried again after an error without reaching a further epoch."""
    save_every: float
    """Seconds between a cohort's checkpoints."""
    step_timeout: float
    """Seconds without a step after which a worker ends itself as hung."""
    budget: Budget = field(default_factory=Budget)
    """The time that is left."""


@dataclass(frozen=True)
class CohortFiles:
    """What cohorts read and write."""

    data: str
    """Folder of the data sets."""
    checkpoints: Files
    checkpoint_path: Callable[[str], str]
    """Id of a cohort -> path of its checkpoint in `checkpoints`."""
    models: ModelStorage | None = None
    """Takes the trained models; None keeps none."""
    logs: LogStorage | None = None
    """Takes what trials print; None keeps nothing."""
    folder: str = "."
    """Folder of the sweep's file."""


class SlotAssigner:
    """Assigns each cohort to train a slot on a kind of device that it fits."""

    def __init__(
        self, attempts: RetryQueue, slots: Slots, in_time: Callable[[Cohort], bool] = lambda cohort: True
    ) -> None:
        """A cohort that does not end `in_time` waits, and later ones go ahead."""
        self._attempts, self._slots, self._in_time = attempts, slots, in_time
        self._taken: dict[str, int] = {}
        """Id of a cohort -> index of the kind of device on which it has a slot."""
        self._waiting: list[Attempt] = []
        """Attempts that fit no free slot yet."""

    def next(self) -> tuple[Attempt, SlotResources] | None:
        """Return the next attempt, and the slot that its cohort has until `release`; None if there is none now.

        With several kinds of devices, a cohort that fits some of them waits for a free slot there, and later cohorts go
        ahead. If nodes may come it does not wait, and gets a slot on the least busy kind that it fits.
        """
        for attempt in [*self._waiting, None]:
            if attempt is None:
                attempt = self._attempts.next() if len(self._waiting) < MOST_WAITING else None
                if attempt is None:
                    return None
                self._waiting.append(attempt)
            kind = self._kind_for(attempt)
            if kind is not None and self._in_time(attempt.cohort):
                self._waiting.remove(attempt)
                self._taken[attempt.cohort.id] = kind
                return attempt, self._slots.by_kind[kind]
        return None

    @property
    def waiting(self) -> Sequence[Cohort]:
        """The cohorts that fit no free slot or do not end in time."""
        return [attempt.cohort for attempt in self._waiting]

    def release(self, cohort: str) -> None:
        """Free the slot of a cohort, named by its id."""
        self._taken.pop(cohort, None)

    def _kind_for(self, attempt: Attempt) -> int | None:
        """Return the index of the least busy kind of device that the cohort fits; None if it has to wait."""
        kinds = self._slots.by_kind
        if len(kinds) == 1:
            return 0
        taken = list(self._taken.values())
        busy = {
            kind: taken.count(kind) / max(1, kinds[kind].count)
            for kind in self._slots.fitting_kinds.get(attempt.cohort.trials[0].id, range(len(kinds)))
        }
        kind = min(busy, key=lambda index: busy[index])
        return kind if busy[kind] < 1 or not self._slots.local else None


def dispatch(
    stage: Stage,
    backend: Backend,
    files: CohortFiles,
    limits: Limits,
    listeners: Sequence[CohortListener],
    stopping: StopSignal,
) -> None:
    """Run all cohorts of a stage until each has finished or failed for good.

    Raises KeyboardInterrupt when `stopping` was asked to stop, BudgetSpent when the time is over or suffices for none
    of the cohorts that are left, and any exception that a listener raised.
    """
    run, slots = files.checkpoints.runtime.token(), stage.slots
    shared = None if slots.local or slots.workers == 1 else files.checkpoint_path(f"ray-{run}")
    checkpoints = CheckpointStorage(files.checkpoints)
    settings = WorkerSettings(
        *(run, files.data, checkpoints, limits.save_every, limits.step_timeout, files.models),
        logs=files.logs,
        ranking=stage.ranking,
        retries=limits.retries,
        folder=files.folder,
        reserved=frozenset({*FIXED, *STUDY_COLUMNS, "sweep"}),
    )
    storage = files.checkpoints.uri_of(shared) if shared else None
    shipped = Dispatch(settings, slots.resources, slots.workers, storage, user_code.folders())
    queue = RetryQueue(stage.source, limits.retries)
    budget = limits.budget

    @functools.cache
    def begun_before(cohort: str) -> bool:
        return files.checkpoints.read_start(files.checkpoint_path(cohort), 1) is not None

    slot_assigner = SlotAssigner(queue, slots, lambda cohort: budget.fits(cohort) or begun_before(cohort.id))
    events = _Events(
        stage.source,
        queue,
        slot_assigner,
        listeners,
        lambda cohort: read_exit_file(files.checkpoints, files.checkpoint_path(cohort), run),
        backend,
        Suspects() if slots.workers == 1 and slots.resources.get("GPU") else None,
    )

    def take(event: Event) -> None:
        events.take(event)
        if not queue.ended:  # here, too, because a backend may train a whole cohort before it returns
            budget.check()

    most = slots.count if slots.local or slots.workers > 1 else math.inf
    try:
        with backend.training(shipped):
            while not queue.ended:
                stopping.check()
                budget.check()
                for cohort, report in queue.last_reports():
                    take(MessageReceived(cohort, report))
                while len(events.pending) < MOST_PENDING and len(events.pending) + len(events.running) < most:
                    assignment = slot_assigner.next()
                    if assignment is None:
                        break
                    attempt, slot = assignment
                    events.pending.add(attempt.cohort.id)
                    backend.start(_task(stage, files, attempt, slot.memory), slot)
                if elsewhere := stage.source.trained_elsewhere():
                    for listener in listeners:
                        listener.trained_elsewhere(elsewhere)
                if budget.limited and slot_assigner.waiting and not events.pending and not events.running:
                    raise BudgetSpent(budget.name)
                backend.advance(take)
    finally:
        if shared:
            files.checkpoints.delete_folder(shared)


@dataclass(frozen=True)
class _Events:
    """Takes the events of a backend to the retry queue, and notifies the listeners of what becomes of each cohort."""

    source: CohortSource
    queue: RetryQueue
    slot_assigner: SlotAssigner
    listeners: Sequence[CohortListener]
    read_exit_file: Callable[[str], Failure | None]
    """Returns why the process of a cohort ended itself; None if it did not."""
    backend: Backend
    suspects: Suspects | None
    """Judges nodes by the failures on them; None without GPUs, and where several nodes may train one cohort."""
    pending: set[str] = field(default_factory=set)
    """Ids of the cohorts that wait for a device."""
    running: dict[str, str] = field(default_factory=dict)
    """Id of each cohort that trains -> id of its node."""
    at_rung: set[str] = field(default_factory=set)
    """Ids of those that have reported that they end at a rung."""

    def take(self, event: Event) -> None:
        match event:
            case Started(cohort, node):
                self.pending.remove(cohort)
                self.running[cohort] = node
                self._notify(cohort, lambda listener, cohort: listener.started(cohort))
            case MessageReceived(cohort) if not self.queue.runs(cohort):
                pass  # it has sent its last report, or has failed for good
            case MessageReceived(cohort, CohortReport() as message):
                if self.suspects and cohort in self.running:
                    self.suspects.reported(self.running[cohort])
                if message.waits:
                    self.at_rung.add(cohort)
                self._notify(cohort, lambda listener, cohort: listener.reported(cohort, message))
                self.queue.reported(cohort, message.report.epoch, message.report.done)
            case MessageReceived(cohort, Heartbeat() as heartbeat):
                self._notify(cohort, lambda listener, cohort: listener.advanced(cohort, heartbeat))
            case Ended(cohort, failure):
                node = self.running.pop(cohort)
                self.slot_assigner.release(cohort)
                waits = cohort in self.at_rung and failure is None
                if self.suspects and failure is None:
                    self.suspects.succeeded(node)
                self.at_rung.discard(cohort)
                if waits:
                    self.queue.wait(cohort)
                    self._notify(cohort, lambda listener, cohort: listener.waits(cohort))
                elif self.queue.runs(cohort):  # else it has sent its last report
                    self._lost(cohort, failure or NO_LAST_REPORT, node)

    def _lost(self, cohort: str, failure: Failure, node: str) -> None:
        failure = self.read_exit_file(cohort) or failure
        if self.suspects and node and failure.cause in ("error", "hung"):
            failure = self._judged(self.suspects, cohort, failure, node)
        if failure.cause == "device":
            self.backend.leave_out(failure.node or node, failure.reason)
        decision = self.queue.lost(cohort, failure.cause)
        if decision.kind == "again":
            self._notify(cohort, lambda listener, cohort: listener.interrupted(cohort, failure))
        elif decision.kind == "smaller":
            self._notify(cohort, lambda listener, cohort: listener.split(cohort, decision.parts, failure))
        else:
            self._notify(cohort, lambda listener, cohort: listener.failed(cohort, failure))

    def _judged(self, suspects: Suspects, cohort: str, failure: Failure, node: str) -> Failure:
        """Return the failure of a cohort on a node; that of the node's GPU if others have failed there, too."""
        failed_here = suspects.failed(node, cohort)
        for other in suspects.cleared(cohort):
            self.backend.take_back(other, f"cohort {cohort} fails elsewhere, too")
        for other in failed_here:
            if other != cohort:
                self.queue.excuse(other)
        count = len(failed_here)
        row = f"{count} cohorts in a row failed there, and none elsewhere, the last by {failure.reason}"
        return Failure("device", row) if failed_here else failure

    def _notify(self, cohort: str, event: Callable[[CohortListener, Cohort], None]) -> None:
        for listener in self.listeners:
            event(listener, self.source.cohorts[cohort])


def _task(stage: Stage, files: CohortFiles, attempt: Attempt, memory: int | None) -> CohortTask:
    """Return the task of an attempt, with a memory limit in bytes for each of its processes."""

    cohort = attempt.cohort
    configs = [trial.config for trial in cohort.trials]
    spec = CohortSpec.of(configs, cohort.width, files.checkpoint_path(cohort.id), cohort.compiled)
    models = ModelRequest(files.models.kept, files.models.ranking) if files.models else None
    trials = tuple(trial.id for trial in cohort.trials)
    return CohortTask(cohort.id, spec, stage.comparison(cohort), memory, models, trials)
