"""The loop over a backend's events, and the assignment of slots.

What studies have left to train, and in which shapes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unittest.mock import Mock, call

import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from sweeper.definition import Halving, Metric, Population, Search, When
from sweeper.definition.space import Study
from sweeper.errors import ClusterError
from sweeper.execution import loop
from sweeper.execution.backend import Backend, Emit, Ended, Event, MessageReceived, Started
from sweeper.execution.loop import CohortFiles, Limits, SlotAssigner, dispatch
from sweeper.execution.retries import RetryQueue
from sweeper.execution.signals import StopSignal
from sweeper.execution.stages import Stage, least_share, shapes, study_work
from sweeper.packing.cluster import SlotResources, Slots
from sweeper.planning.cohorts import Cohort, Cut, Trial, cut
from sweeper.planning.sources import CohortQueue
from sweeper.record.listener import CohortListener
from sweeper.search.ask_tell import TrialResult
from sweeper.search.study_run import Recorded, StudyRun, WarmStart
from sweeper.storage.files import Files
from tests.cases import for_each
from tests.sweeper.packing.fake_cluster import members
from trainables.config import resolve
from trainables.reports import Heartbeat, Report
from trainables.worker.messages import CohortReport, CohortTask, Failure, Origin, write_failure

ORIGIN = Origin("cpu", "here", 1, datetime(2026, 1, 1, tzinfo=UTC))
LUCK = Failure("error", "ValueError: out of luck")
LAST = CohortReport(Report(3, (), 1.0, done=True), ORIGIN)


class ScriptedBackend(Backend):
    """Answers each started task with the events that `script` makes of it, one poll later."""

    def __init__(self, script: Callable[[CohortTask], list[Event]]) -> None:
        self._script, self._tasks = script, list[CohortTask]()
        self.at_once: list[int] = []
        """Number of cohorts that it had at each poll."""
        self.tasks: list[CohortTask] = []
        self.dispatches: list[Any] = []
        self.left = False

    def cluster(self) -> Any:
        raise NotImplementedError

    def serve(self, server: Callable[..., Any], *arguments: object) -> Any:
        raise NotImplementedError

    @contextmanager
    def training(self, dispatch: Any) -> Iterator[None]:
        self.dispatches.append(dispatch)
        try:
            yield
        finally:
            self.left = True

    def start(self, task: CohortTask, slot: SlotResources) -> None:
        self._tasks.append(task)
        self.tasks.append(task)

    def advance(self, emit: Emit) -> None:
        assert self._tasks, "nothing trains, and nothing ever will"
        self.at_once.append(len(self._tasks))
        task = self._tasks.pop(0)
        for event in [Started(task.cohort), *self._script(task)]:
            emit(event)


def finished(task: CohortTask) -> list[Event]:
    return [MessageReceived(task.cohort, LAST), Ended(task.cohort)]


def failing(task: CohortTask) -> list[Event]:
    return [Ended(task.cohort, LUCK)]


def run(
    backend: Backend,
    folder: Path,
    *,
    sizes: int = 1,
    trials: int = 1,
    retries: int = 0,
    local: bool = True,
    count: int = 1,
    listener: Any = None,
    stopping: StopSignal | None = None,
    slot: Mapping[str, float] = MappingProxyType({"CPU": 1.0}),
) -> Any:
    """Run `trials` trials in cohorts of `sizes`; return the listener."""
    listener = listener or Mock(spec=CohortListener)
    source = CohortQueue(cut([members(trials)], [Cut(sizes, sizes)]))
    files = CohortFiles("data", Files(folder), lambda cohort: f"{cohort}.pt")
    slots = Slots((SlotResources(slot, count),), local)
    dispatch(Stage(source, slots), backend, files, Limits(retries, 60, 600), [listener], stopping or StopSignal())
    return listener


def test_reports_and_heartbeats_reach_the_listener_in_order(tmp_path: Path) -> None:
    heartbeat = Heartbeat(2.5, 4, 1.0)
    backend = ScriptedBackend(lambda task: [MessageReceived(task.cohort, heartbeat), *finished(task)])
    listener = run(backend, tmp_path)
    (cohort,), _ = listener.started.call_args
    assert cohort.id == backend.tasks[0].cohort and listener.method_calls == [
        call.started(cohort),
        call.advanced(cohort, heartbeat),
        call.reported(cohort, LAST),
    ]
    assert backend.left and len(backend.tasks) == 1


def test_a_cohort_that_fails_is_retried_then_split_until_the_trial_alone_fails(tmp_path: Path) -> None:
    backend = ScriptedBackend(failing)
    listener = run(backend, tmp_path, sizes=2, trials=2, retries=1)
    names = [name for name, _, _ in listener.method_calls if name != "started"]
    assert names == ["interrupted", "split", "interrupted", "interrupted", "failed", "failed"] or (
        sorted(names) == sorted(["interrupted", "split", "interrupted", "interrupted", "failed", "failed"])
    )
    assert all(arguments[-1] == LUCK for name, arguments, _ in listener.method_calls if name != "started")
    assert [len(task.spec.own) for task in backend.tasks] == [2, 2, 1, 1, 1, 1]


def test_a_training_that_returns_without_a_last_report_has_failed(tmp_path: Path) -> None:
    listener = run(ScriptedBackend(lambda task: [Ended(task.cohort)]), tmp_path)
    (_, failure), _ = listener.failed.call_args
    assert failure == Failure("error", "its training ended without a last report")


def test_a_message_that_comes_twice_or_of_a_cohort_that_failed_for_good_changes_nothing(tmp_path: Path) -> None:
    heartbeat = Heartbeat(2.5, 4, 1.0)
    listener = run(
        ScriptedBackend(
            lambda task: [
                *[MessageReceived(task.cohort, LAST)] * 2,
                MessageReceived(task.cohort, heartbeat),
                Ended(task.cohort),
            ]
        ),
        tmp_path,
    )
    assert listener.reported.call_count == 1 and not listener.advanced.called
    second: list[str] = []

    def script(task: CohortTask) -> list[Event]:
        second.append(task.cohort)
        late = [MessageReceived(second[0], LAST), MessageReceived(second[0], heartbeat)] if len(second) > 1 else []
        return [*late, Ended(task.cohort, LUCK)]

    listener = run(ScriptedBackend(script), tmp_path, trials=2)
    assert listener.failed.call_count == 2 and not listener.reported.called and not listener.advanced.called


def test_an_unusable_gpu_costs_no_retry_and_its_node_is_left_out(tmp_path: Path) -> None:
    nodes, left_out = iter(["bad", "good"]), list[tuple[str, str]]()

    class OnNodes(ScriptedBackend):
        def advance(self, emit: Emit) -> None:
            task, node = self._tasks.pop(0), next(nodes)
            emit(Started(task.cohort, node))
            last = [Ended(task.cohort, Failure("device", "no driver"))] if node == "bad" else finished(task)
            for event in last:
                emit(event)

        def leave_out(self, node: str, reason: str) -> None:
            left_out.append((node, reason))

    backend = OnNodes(finished)
    listener = run(backend, tmp_path, retries=0)
    assert left_out == [("bad", "no driver")]
    assert [name for name, _, _ in listener.method_calls] == ["started", "interrupted", "started", "reported"]


def test_an_unusable_gpu_of_the_only_machine_ends_the_run(tmp_path: Path) -> None:
    backend = ScriptedBackend(lambda task: [Ended(task.cohort, Failure("device", "uncorrectable ECC error"))])
    with pytest.raises(ClusterError, match="the GPU of this machine cannot be used: uncorrectable ECC"):
        run(backend, tmp_path)


def test_a_node_on_which_all_cohorts_fail_is_left_out_and_costs_them_no_retry(tmp_path: Path) -> None:
    """Every second cohort starts on the bad node, until it is left out."""
    told = list[str]()

    class OnNodes(ScriptedBackend):
        def advance(self, emit: Emit) -> None:
            task = self._tasks.pop(0)
            node = "good" if len(self.tasks) % 2 or told else "bad"
            emit(Started(task.cohort, node))
            for event in failing(task) if node == "bad" else finished(task):
                emit(event)

        def leave_out(self, node: str, reason: str) -> None:
            told.append(f"{node}: {reason}")

    listener = run(OnNodes(finished), tmp_path, trials=6, retries=1, slot={"GPU": 1.0})
    names = [name for name, _, _ in listener.method_calls]
    assert told == ["bad: 2 cohorts in a row failed there, and none elsewhere, the last by ValueError: out of luck"]
    assert names.count("reported") == 6 and "failed" not in names


def test_a_node_is_used_again_if_its_cohorts_fail_elsewhere_too(tmp_path: Path) -> None:
    told = list[str]()

    class OnNodes(ScriptedBackend):
        def advance(self, emit: Emit) -> None:
            task, poisoned = self._tasks.pop(0), [each.cohort for each in self.tasks[:3:2]]
            emit(Started(task.cohort, "b" if task.cohort not in poisoned or told else "a"))
            for event in failing(task) if task.cohort in poisoned else finished(task):
                emit(event)

        def leave_out(self, node: str, reason: str) -> None:
            told.append(f"without {node}")

        def take_back(self, node: str, reason: str) -> None:
            told.append(f"with {node}")

    listener = run(OnNodes(finished), tmp_path, trials=4, retries=1, count=3, slot={"GPU": 1.0})
    names = [name for name, _, _ in listener.method_calls]
    assert told == ["without a", "with a"] and (names.count("reported"), names.count("failed")) == (2, 2)


def test_a_process_that_dies_after_the_last_report_has_not_failed(tmp_path: Path) -> None:
    listener = run(
        ScriptedBackend(lambda task: [MessageReceived(task.cohort, LAST), Ended(task.cohort, LUCK)]), tmp_path
    )
    assert not listener.failed.called and not listener.interrupted.called


def test_what_a_process_wrote_before_it_ended_itself_counts_more_than_its_death(tmp_path: Path) -> None:
    hung = Failure("hung", "hung: at x.py:3 step")

    def script(task: CohortTask) -> list[Event]:
        write_failure(Files(tmp_path).write, f"{task.cohort}.pt", backend.dispatches[0].settings.run, hung)
        return [Ended(task.cohort, Failure("error", "its process has died"))]

    backend = ScriptedBackend(script)
    listener = run(backend, tmp_path)
    assert listener.failed.call_args[0][1] == hung


@pytest.mark.parametrize(("local", "most"), [(True, 2), (False, loop.MOST_PENDING)])
def test_as_many_cohorts_are_started_as_run_and_where_nodes_may_come_more(
    local: bool, most: int, tmp_path: Path
) -> None:
    backend = ScriptedBackend(finished)
    run(backend, tmp_path, trials=100, local=local, count=2)
    assert max(backend.at_once) == most and len(backend.tasks) == 100


def test_an_exception_of_the_listener_ends_the_dispatch(tmp_path: Path) -> None:
    listener, backend = Mock(spec=CohortListener), ScriptedBackend(finished)
    listener.reported.side_effect = OSError("the disk is full")
    with pytest.raises(OSError, match="the disk is full"):
        run(backend, tmp_path, trials=3, listener=listener)
    assert backend.left and len(backend.tasks) == 1


def test_a_request_to_stop_ends_the_dispatch(tmp_path: Path) -> None:
    stopping = StopSignal()

    def script(task: CohortTask) -> list[Event]:
        stopping.asked = True
        return finished(task)

    backend = ScriptedBackend(script)
    with pytest.raises(KeyboardInterrupt):
        run(backend, tmp_path, trials=3, stopping=stopping)
    assert backend.left and len(backend.tasks) == 1


LARGE, SMALL = SlotResources({"GPU": 0.5}, 2), SlotResources({"GPU": 1.0}, 1)


def queue(*names: str) -> CohortQueue:
    return CohortQueue([Cohort(name, (Trial(name, {}),), 1) for name in names])


def assigner_of(source: CohortQueue, slots: Slots) -> SlotAssigner:
    return SlotAssigner(RetryQueue(source, 0), slots)


def assigned(assigner: SlotAssigner, times: int) -> Sequence[tuple[str, SlotResources] | None]:
    assignments = [assigner.next() for _ in range(times)]
    return [assignment and (assignment[0].cohort.id, assignment[1]) for assignment in assignments]


def test_a_single_kind_is_always_assigned() -> None:
    """The backend holds back cohorts that have no devices yet, and an autoscaler sees how many wait."""
    assigner = assigner_of(queue("a", "b", "c", "d"), Slots((LARGE,), local=True))
    assert assigned(assigner, 5) == [*((name, LARGE) for name in "abcd"), None]


def test_a_kind_with_a_free_share_goes_first_and_then_cohorts_wait() -> None:
    assigner = assigner_of(queue("a", "b", "c", "d"), Slots((LARGE, SMALL), local=True))
    assert assigned(assigner, 4) == [("a", LARGE), ("b", SMALL), ("c", LARGE), None]
    assigner.release("b")
    assert assigned(assigner, 2) == [("d", SMALL), None]


def test_a_cohort_waits_for_a_kind_with_room_while_others_go_ahead() -> None:
    assigner = assigner_of(
        queue("a", "b", "c"), Slots((SMALL, SMALL), local=True, fitting_kinds={"a": (1,), "b": (1,)})
    )
    assert assigned(assigner, 3) == [("a", SMALL), None, ("c", SMALL)]
    assigner.release("a")
    assert assigned(assigner, 1) == [("b", SMALL)]


def test_if_nodes_can_be_added_the_least_busy_kind_is_assigned() -> None:
    assigner = assigner_of(queue(*"abcdef"), Slots((LARGE, SMALL), local=False))
    assignments = assigned(assigner, 6)
    assert [assignment[1] for assignment in assignments if assignment].count(LARGE) == 4 and None not in assignments


def test_no_more_cohorts_wait_than_is_needed() -> None:
    names = [f"c{number}" for number in range(100)]
    source = queue(*names)
    assigner = assigner_of(source, Slots((SMALL, SMALL), local=True, fitting_kinds=dict.fromkeys(names, (1,))))
    assert assigned(assigner, 200)[1:] == [None] * 199
    assert not source.exhausted


RATES: Mapping[str, BaseDistribution] = {"lr": FloatDistribution(1e-3, 0.1), "beta": FloatDistribution(0.1, 2.0)}
WIDTHS = CategoricalDistribution((32, 64, 128))
FIXED: Mapping[str, Any] = {"method": "vje", "dataset": "digits", "epochs": 8, "report_every": 1}


def study_of(space: Mapping[str, BaseDistribution] = RATES, **options: Any) -> Study:
    search = Search(space, FIXED, 20, Metric("loss", "minimize"), wave=8, sampler="random", **options)
    return next(search.studies())


def run_of(study: Study, statuses: Sequence[Any] = ()) -> StudyRun:
    """The study, of whose first trials these are the results."""
    first = StudyRun(study, "s0", WarmStart(None), {}, resolve, steps=50)
    results = [TrialResult(number, status, (0.5,)) for number, status in enumerate(statuses)]
    recorded = {
        result.number: Recorded({key: trial.config[key] for key in study.search.space}, {(): result})
        for result, trial in zip(results, first.trials, strict=False)
    }
    return StudyRun(study, "s0", WarmStart(None), recorded, resolve, steps=50)


def test_trials_that_have_no_result_or_failed_are_left() -> None:
    new, continued = study_work(run_of(study_of())), study_work(run_of(study_of(), ["finished", "failed"]))
    assert (new.steps, new.begun, continued.steps, continued.begun) == (20 * 50, False, 19 * 50, True)
    assert new.waves == {8, 4} and (new.factor, new.together) == (1, False)
    assert study_work(run_of(study_of(population=Population(2)))).together


def test_a_pruner_lowers_the_steps() -> None:
    """Rungs at epochs 2 and 4 of 8: a half of the trials goes on at each."""
    work = study_work(run_of(study_of(pruner=Halving(first=2, factor=2))))
    assert work.factor == 2 and work.steps == pytest.approx(20 * 50 * (2 + 2 / 2 + 4 / 4) / 8)
    assert least_share(Halving(first=2, factor=2, brackets=2), 8, 1) == pytest.approx(0.5)


def test_rates_change_no_shape() -> None:
    (config,) = shapes(study_of())
    assert config["method"] == "vje" and config["epochs"] == 8


def test_a_key_on_a_condition_gives_its_shapes_to_the_trials_that_have_it() -> None:
    space = {**RATES, "lr_schedule": CategoricalDistribution(("one_cycle", "step"))}
    condition = When("lr_schedule", "step", {"warmup_epochs": IntDistribution(1, 2)})
    configs = shapes(study_of(space, conditions=(condition,)))
    assert [(config["lr_schedule"], config["warmup_epochs"]) for config in configs] == [
        ("one_cycle", 0), ("step", 1), ("step", 2)
    ]  # fmt: skip


@for_each(
    ("space", "count"),
    [
        ({"width": WIDTHS}, 3),
        ({"features": IntDistribution(8, 32, step=8)}, 4),
        ({"features": IntDistribution(8, 64)}, 0),
        ({"width": WIDTHS, "features": IntDistribution(8, 16, step=8)}, 0),
        ({"features": IntDistribution(8, 8)}, 1),
        ({"momentum": FloatDistribution(0.8, 0.99)}, 0),
    ],
)
def test_few_shapes_are_counted_and_many_are_not(space: Mapping[str, BaseDistribution], count: int) -> None:
    configs = shapes(study_of({**RATES, **space}))
    assert len({tuple(config[key] for key in space) for config in configs}) == len(configs) == count
