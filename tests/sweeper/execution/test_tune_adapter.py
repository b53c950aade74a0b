"""Tune's events, as they reach the retry queue and the listener, and the cohorts that Tune gets."""

import pickle
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, call

import pytest
from ray import tune
from ray.tune.search import Searcher

from sweeper.execution.listener import CohortListener
from sweeper.execution.process.stop_signal import StopSignal
from sweeper.execution.retries import Attempt, RetryQueue
from sweeper.execution.slot_assignment import SlotAssigner
from sweeper.execution.tune_adapter import CohortSearcher, TuneCallback
from sweeper.packing.slots import SlotResources, Slots
from sweeper.plan.cohort_source import CohortQueue
from sweeper.plan.cohorts import Cohort, Cut, cut
from tests.sweeper.packing.measured import members
from trainables.reports import Heartbeat, Report
from trainables.worker.messages import KEY, CohortReport, CohortSpec, CohortTask, Failure, Origin

ORIGIN = Origin("cpu", "here", 1, datetime(2026, 1, 1, tzinfo=UTC))


class Scene:
    """A queue with one cohort of two trials that is given, a listener that records its calls, and the callback."""

    def __init__(self, retries: int = 0, exit_failure: Failure | None = None) -> None:
        self.cohort = cut([members(2)], [Cut(2, 2)])[0]
        self.queue = RetryQueue(CohortQueue([self.cohort]), retries)
        self.listener, self.stopping = Mock(spec=CohortListener), StopSignal()
        self.callback = TuneCallback(self.queue, self.listener, lambda cohort: exit_failure, self.stopping)
        self.queue.next()
        self.trial: Any = SimpleNamespace(config={"cohort": self.cohort.id}, error_file=None)

    def report(self, epoch: int, done: bool = False) -> CohortReport:
        message = CohortReport(Report(epoch, (), 1.0, done), ORIGIN)
        self.callback.on_trial_result(1, [], self.trial, {KEY: message})
        return message

    def fail(self, folder: Path, text: str) -> None:
        self.trial.error_file = str(folder / "error.txt")
        Path(self.trial.error_file).write_text(text)
        self.callback.on_trial_error(1, [], self.trial)


def test_reports_and_heartbeats_reach_the_listener_and_nothing_else_does() -> None:
    scene, heartbeat = Scene(), Heartbeat(2.5, 4, 1.0)
    scene.callback.on_trial_start(1, [], scene.trial)
    message = scene.report(2)
    scene.callback.on_trial_result(1, [], scene.trial, {KEY: heartbeat})
    scene.callback.on_trial_result(1, [], scene.trial, {"done": True})
    cohort = scene.cohort.id
    assert scene.listener.method_calls == [
        call.started(cohort), call.reported(cohort, message), call.advanced(cohort, heartbeat)
    ]  # fmt: skip


def test_tune_does_not_keep_a_message_which_may_have_large_pictures() -> None:
    scene = Scene()
    result = {KEY: Heartbeat(1.0, 2, 0.5), "training_iteration": 1}
    scene.callback.on_trial_result(1, [], scene.trial, result)
    assert result == {"training_iteration": 1}


def test_a_cohort_that_fails_is_retried_then_split_and_the_listener_gets_the_reason(tmp_path: Path) -> None:
    scene, failure = Scene(retries=1), Failure("error", "ValueError: out of luck")
    scene.fail(tmp_path, "Traceback\nValueError: out of luck\n")
    assert scene.listener.method_calls == [call.interrupted(scene.cohort.id, failure)]
    scene.queue.next()
    scene.fail(tmp_path, "Traceback\nValueError: out of luck\n")
    (_, parts, last), _ = scene.listener.split.call_args
    assert last == failure and [len(part.trials) for part in parts] == [1, 1]


def test_a_trial_that_stands_alone_fails_for_good(tmp_path: Path) -> None:
    scene = Scene()
    scene.fail(tmp_path, "ValueError: out of luck")
    part = scene.queue.next()
    assert part is not None
    scene.trial.config["cohort"] = part.cohort.id
    scene.fail(tmp_path, "ValueError: out of luck")
    assert scene.listener.failed.call_args == call(part.cohort.id, Failure("error", "ValueError: out of luck"))


def test_the_exit_file_of_a_process_counts_more_than_rays_error(tmp_path: Path) -> None:
    own_account = Failure("machine", "stopped: SIGTERM; checkpoint saved at epoch 2 step 1")
    scene = Scene(exit_failure=own_account)
    scene.fail(tmp_path, "The actor died unexpectedly before finishing this task.")
    assert scene.listener.method_calls == [call.interrupted(scene.cohort.id, own_account)]


def test_a_worker_that_returns_without_a_last_report_has_failed() -> None:
    scene = Scene(retries=1)
    scene.report(1)
    scene.callback.on_trial_complete(1, [], scene.trial)
    failure = Failure("error", "its training ended without a last report")
    assert scene.listener.interrupted.call_args == call(scene.cohort.id, failure)


def test_an_error_after_the_last_report_is_no_failure(tmp_path: Path) -> None:
    scene = Scene()
    message = scene.report(2, done=True)
    scene.callback.on_trial_complete(1, [], scene.trial)
    scene.fail(tmp_path, "the actor died")
    assert scene.listener.method_calls == [call.reported(scene.cohort.id, message)]


def test_the_first_error_of_a_listener_stops_everything_and_is_kept() -> None:
    scene, error = Scene(), ValueError("the disk is gone")
    scene.listener.reported.side_effect = error
    assert not scene.callback.stopper.stop_all()
    scene.report(1)
    scene.report(2)
    assert scene.callback.error is error and scene.callback.stopper.stop_all()
    assert scene.listener.reported.call_count == 1


def test_tune_stops_when_the_process_is_asked_to() -> None:
    scene = Scene()
    scene.stopping.asked = True
    assert scene.callback.stopper.stop_all()


def searcher(*cohorts: Cohort, limit: int = 10, resources: dict[str, float] | None = None) -> CohortSearcher:
    def task(attempt: Attempt, memory: int | None) -> CohortTask:
        return CohortTask(attempt.cohort.id, CohortSpec.of([{"seed": 0}], 1, "c.pt"), memory=memory)

    slots = Slots((SlotResources({"CPU": 1.0}, 2, memory=5),), local=True)
    return CohortSearcher(SlotAssigner(RetryQueue(CohortQueue(cohorts), 0), slots), task, resources, limit)


def test_tune_gets_each_cohort_with_its_task_and_the_resources_of_its_slot() -> None:
    first, second = cut([members(2)], [Cut(1, 1)])
    source = searcher(first, second)
    suggested = [source.suggest("t0"), source.suggest("t1")]
    assert [config["cohort"] for config in suggested] == [first.id, second.id]
    assert suggested[0]["resources"] == {"CPU": 1.0} and suggested[0]["task"].memory == 5
    assert source.suggest("t2") is None, "both may fail and come again"


def test_the_starter_of_a_group_of_workers_has_resources_of_its_own() -> None:
    (cohort,) = cut([members(1)], [Cut(1, 1)])
    assert searcher(cohort, resources={"memory": 1.0}).suggest("t0")["resources"] == {"memory": 1.0}


def test_a_tuner_ends_after_its_limit_of_cohorts_or_when_none_is_left() -> None:
    source = searcher(*cut([members(2)], [Cut(1, 1)]), limit=1)
    source.suggest("t0")
    assert source.suggest("t1") == Searcher.FINISHED and searcher().suggest("t0") == Searcher.FINISHED


@pytest.mark.parametrize("name", ["callback", "stopper", "searcher"])
def test_nothing_of_the_driver_is_pickled_by_tune(name: str) -> None:
    scene = Scene()
    adapter = {"callback": scene.callback, "stopper": scene.callback.stopper, "searcher": searcher()}[name]
    assert type(pickle.loads(pickle.dumps(adapter))) in (tune.Callback, tune.Stopper, Searcher)
