"""Adapters to Ray Tune: the searcher that gives it cohorts, and the callback that takes its events."""

from collections.abc import Callable, Mapping
from typing import Any

from ray import tune
from ray.tune.search import Searcher

from sweeper.execution.failures import failure_in
from sweeper.execution.listener import CohortListener
from sweeper.execution.process.stop_signal import StopSignal
from sweeper.execution.retries import Attempt, RetryQueue
from sweeper.execution.slot_assignment import SlotAssigner
from trainables.reports import Heartbeat
from trainables.worker.messages import KEY, CohortReport, CohortTask, Failure


class TuneCallback(tune.Callback):
    """Takes Tune's events to the retry queue, and tells the listener what becomes of each cohort.

    The first exception that the listener raises is kept, and stops the sweep.
    """

    def __init__(
        self,
        queue: RetryQueue,
        listener: CohortListener,
        read_exit_file: Callable[[str], Failure | None],
        stopping: StopSignal,
    ) -> None:
        """`read_exit_file` returns why the process of a cohort ended itself; None if it did not."""
        self.error: Exception | None = None
        """The first exception that the listener raised."""
        self.stopper = SweepStopper(self, stopping)
        self._queue, self._listener, self._read_exit_file = queue, listener, read_exit_file

    def __reduce__(self) -> tuple[type[tune.Callback], tuple[()]]:
        """Pickle as a callback that does nothing: Tune pickles its callbacks for a restore that never happens."""
        return tune.Callback, ()

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._guarded(self._listener.started, _cohort(trial))

    def on_trial_result(
        self, iteration: int, trials: list[Any], trial: Any, result: dict[str, Any], **info: Any
    ) -> None:
        # Tune keeps the last result of every trial: without the message, which may have some MB of pictures.
        self._guarded(self._received, _cohort(trial), result.pop(KEY, None))

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        failure = Failure("error", "its training ended without a last report")  # ignored after a last report
        self._guarded(self._lost, _cohort(trial), failure)

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self._guarded(self._lost, _cohort(trial), failure_in(trial.error_file))

    def _received(self, cohort: str, message: object) -> None:
        if isinstance(message, CohortReport):
            self._listener.reported(cohort, message)
            self._queue.reported(cohort, message.report.epoch, message.report.done)
        elif isinstance(message, Heartbeat):
            self._listener.advanced(cohort, message)

    def _lost(self, cohort: str, failure: Failure) -> None:
        if not self._queue.runs(cohort):
            return
        failure = self._read_exit_file(cohort) or failure
        decision = self._queue.lost(cohort, failure.cause)
        if decision.kind == "again":
            self._listener.interrupted(cohort, failure)
        elif decision.kind == "smaller":
            self._listener.split(cohort, decision.parts, failure)
        else:
            self._listener.failed(cohort, failure)

    def _guarded(self, handle: Callable[..., None], *arguments: object) -> None:
        """Call `handle`, unless it or another one has raised before."""
        if self.error is None:
            try:
                handle(*arguments)
            except Exception as error:
                self.error = error


class SweepStopper(tune.Stopper):
    """Stops all cohorts after an exception in the callback, or when the process was asked to stop."""

    def __init__(self, callback: TuneCallback, stopping: StopSignal) -> None:
        self._callback, self._stopping = callback, stopping

    def __reduce__(self) -> tuple[type[tune.Stopper], tuple[()]]:
        """See `TuneCallback.__reduce__`."""
        return tune.Stopper, ()

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return False

    def stop_all(self) -> bool:
        return self._callback.error is not None or self._stopping.asked


class CohortSearcher(Searcher):
    """Gives Tune the next cohort with a slot, up to `limit` cohorts.

    Results do not come back through the searcher, but through `TuneCallback`.
    """

    def __init__(
        self,
        slot_assigner: SlotAssigner,
        task: Callable[[Attempt, int | None], CohortTask],
        resources: Mapping[str, float] | None,
        limit: int,
    ) -> None:
        """`task` makes the task of an attempt with a memory limit. `resources` are the Ray resources of every cohort;
        None takes those of the cohort's slot."""
        super().__init__()
        self._slot_assigner, self._task, self._resources, self._left = slot_assigner, task, resources, limit

    def __reduce__(self) -> tuple[type[Searcher], tuple[()]]:
        """See `TuneCallback.__reduce__`."""
        return Searcher, ()

    def suggest(self, trial_id: str) -> Any:
        assignment = self._slot_assigner.next(trial_id) if self._left else None
        if assignment is None:
            return None if self._left and not self._slot_assigner.ended else Searcher.FINISHED
        self._left -= 1
        attempt, slot = assignment
        return {
            "cohort": attempt.cohort.id,
            "resources": dict(self._resources or slot.resources),
            "task": self._task(attempt, slot.memory),
        }

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        self._slot_assigner.release(trial_id)

    def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
        """Save nothing: a sweep is continued from the store."""


def cohort_trainable(train: Callable[[CohortTask], None]) -> Any:
    """Return a Tune trainable that calls `train(task)`, with the resources of the trial's configuration."""

    def cohort(config: dict[str, Any]) -> None:
        train(config["task"])

    return tune.with_resources(cohort, lambda config: tune.PlacementGroupFactory([config["resources"]]))


def _cohort(trial: Any) -> str:
    """Id of a trial's cohort."""
    cohort: str = trial.config["cohort"]
    return cohort
