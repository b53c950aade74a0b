"""The rung server on a real cluster: its driver's side and its workers' side, in processes of their own."""

import os
import pickle
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import pytest
import ray
from ray.exceptions import RayActorError

from sweeper.execution.ray_backend import RayBackend
from sweeper.execution.session import connected
from sweeper.search.rung_server import JudgeFactory, Rule, RungClient, RungServer
from sweeper.search.rungs import (
    CohortAnnounced,
    CohortReported,
    CohortRestored,
    CohortStarted,
    CohortStopped,
    Position,
)
from sweeper.spec.pruners import Halving
from trainables.reports import Member, Report, Stopped, Verdict

pytestmark = pytest.mark.slow

RULE = Rule("auroc", "maximize", Halving(2, 2), ((2,),))
Status = Literal["running", "diverged", "pruned"]


def client_of(rules: Mapping[str, Rule], *limits: float) -> RungClient:
    return RungClient(RayBackend.serve(RungServer, rules, *limits))


def actor_of(client: RungClient) -> Any:
    service: Any = client.judge_factory.server
    return service.actor


class Worker:
    """Shows reports to its cohort's judge, in a process of its own."""

    def judged(self, judge_factory: JudgeFactory, cohort: str, cohort_report: Report) -> tuple[Verdict, int]:
        return judge_factory(cohort)(cohort_report), os.getpid()


def report(epoch: int, values: Sequence[float | None], status: Status = "running", name: str = "auroc") -> Report:
    """A report in which the last member has this status, and all others run."""
    running: Status = "running"
    statuses = [*[running] * (len(values) - 1), status]
    members = tuple(
        Member(member_status, epoch, {name: value}) for member_status, value in zip(statuses, values, strict=True)
    )
    return Report(epoch, members, seconds=1.0, done=False)


@pytest.fixture(scope="module")
def workers() -> Iterator[list[Any]]:
    """Three processes of a cluster that ends with this module. A test may end the last one."""
    with connected(None):
        yield [ray.remote(Worker).options(num_cpus=0).remote() for _ in range(3)]


def ask(client: RungClient, cohort: str, *values: float) -> Any:
    """Call the server from this process, and return the reference to its answer."""
    return actor_of(client).judge.remote(cohort, 2, dict(enumerate(values)))


def waits(client: RungClient, call: Any, position: Position = (1,)) -> bool:
    """Whether the call of the cohort at `position` has no answer, once it has reached the server."""
    deadline = time.monotonic() + 300
    call_server = actor_of(client).__ray_call__

    def has_values(server: RungServer) -> bool:
        return any(
            position in rungs._positions and rungs._positions[position].known for rungs in server._rungs.values()
        )

    while not ray.get(call_server.remote(has_values), timeout=300):
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.05)
    return not ray.wait([call], timeout=0.1)[0]


def test_no_call_of_the_driver_waits(workers: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise AssertionError("the driver waits")

    with monkeypatch.context() as patch:
        patch.setattr(ray, "get", refused)
        patch.setattr(ray, "wait", refused)
        client = client_of({"one": RULE})
        client.tell(CohortRestored("one", (0,), [0, 1], [{1: 0.1, 2: 0.9}, {1: 0.8}]))
        client.tell(CohortAnnounced("one", (1,), "high", [2, 3]))
        client.tell(CohortReported("high", 1, {0: 0.5, 1: 0.6}))
        judge_factory, server = client.judge_factory, actor_of(client)
    del client
    pruned = judge_factory("high")(report(2, [0.95, 0.7])).pruned
    assert pruned == {1: "0.7 at epoch 2 was not among the best 1 of 3 (0.95 or better)"}
    assert not ray.get(server.__ray_call__.remote(lambda _: "torch" in sys.modules))


def test_the_server_is_asked_only_at_rungs_and_its_loss_is_an_error_there(workers: list[Any]) -> None:
    client = client_of({"one": RULE})
    client.tell(CohortAnnounced("one", (0,), "low", [0, 1]))
    client.tell(CohortAnnounced("one", (1,), "high", [2, 3]))
    judge = client.judge_factory("high")
    assert judge(report(1, [0.5, 0.6])) == Verdict()
    with pytest.raises(ValueError, match="no metric 'auroc' to prune by at epoch 2; there are: loss"):
        judge(report(2, [0.5, 0.6], name="loss"))
    waiting = ask(client, "high", 0.5, 0.6)
    assert waits(client, waiting)
    ray.kill(actor_of(client))
    with pytest.raises(RayActorError):
        ray.get(waiting)
    assert judge(report(1, [0.5, 0.6])) == Verdict()
    with pytest.raises(RayActorError):
        judge(report(2, [0.5, 0.6]))


def test_a_worker_that_died_while_it_waited_asks_again(workers: list[Any]) -> None:
    client = client_of({"one": RULE})
    client.tell(CohortAnnounced("one", (0,), "low", [0, 1]))
    client.tell(CohortAnnounced("one", (1,), "high", [2, 3]))
    worker = workers.pop()
    first_call = worker.judged.remote(client.judge_factory, "high", report(2, [0.5, 0.9]))
    assert waits(client, first_call)
    ray.kill(worker)
    with pytest.raises(RayActorError):
        ray.get(first_call)
    second_call = ask(client, "high", 0.5, 0.9)
    assert waits(client, second_call)
    low = ask(client, "low", 0.7, 0.8)
    assert [set(pruned) for pruned in ray.get([low, second_call])] == [{0}, {0}]


def test_a_cohort_that_waits_for_one_without_a_worker_is_stopped_to_make_room(workers: list[Any]) -> None:
    client = client_of({"one": RULE}, 60.0, 0.5)
    for index, cohort in enumerate(("low", "high")):
        client.tell(CohortAnnounced("one", (index,), cohort, [2 * index, 2 * index + 1]))
        client.tell(CohortStarted(cohort))
    waiting = workers[0].judged.remote(client.judge_factory, "high", report(2, [0.5, 0.9]))
    assert waits(client, waiting)
    client.tell(CohortStopped("low"))
    with pytest.raises(Stopped, match="it makes room for cohorts that it waits for at epoch 2"):
        ray.get(waiting, timeout=300)


def test_a_cohort_that_continued_from_a_checkpoint_counts_by_its_reports(workers: list[Any]) -> None:
    """Its judge is not asked again about rungs before the checkpoint; a repeated report has the values of that rung."""
    client = client_of({"one": RULE})
    client.tell(CohortAnnounced("one", (0,), "low", [0, 1, 2]))
    client.tell(CohortAnnounced("one", (1,), "high", [3, 4]))
    waiting = ask(client, "high", 0.7, 0.6)
    assert waits(client, waiting)
    client.tell(CohortReported("low", 2, {0: 0.9, 1: 0.65}))
    assert set(ray.get(waiting)) == {1}


def test_cohorts_are_judged_in_their_order_whichever_asks_first(workers: list[Any]) -> None:
    client = client_of({"up": RULE, "down": Rule("auroc", "minimize", Halving(2, 2), ((2,),))})
    for study in ("up", "down"):
        client.tell(CohortAnnounced(study, (0,), f"{study} low", [0, 1]))
        client.tell(CohortAnnounced(study, (1,), f"{study} high", [2, 3, 4]))
    low, high = report(2, [0.4, 0.6]), report(2, [0.7, 0.3, 0.5], status="diverged")
    judge_factory = pickle.loads(ray.cloudpickle.dumps(client.judge_factory))
    early = workers[1].judged.remote(judge_factory, "up high", high)
    assert waits(client, early)
    verdicts: list[tuple[Verdict, int]] = ray.get([workers[0].judged.remote(judge_factory, "up low", low), early])
    low_verdict, low_pid = ray.get(workers[0].judged.remote(judge_factory, "down low", low))
    high_verdict, high_pid = ray.get(workers[1].judged.remote(judge_factory, "down high", high))
    assert len({low_pid, high_pid, os.getpid()}) == 3 and [pid for _, pid in verdicts] == [low_pid, high_pid]
    assert [set(verdict.pruned) for verdict, _ in verdicts] == [{0}, {1}]
    assert [set(verdict.pruned) for verdict in (low_verdict, high_verdict)] == [{1}, {0}]
