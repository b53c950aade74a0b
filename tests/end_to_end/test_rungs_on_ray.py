"""The board on a real cluster: its driver's side and its workers' side, in processes of their own."""

from __future__ import annotations

import os
import pickle
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Literal

import pytest
import ray
from ray.exceptions import RayActorError, TaskCancelledError, WorkerCrashedError

from sweeper.execution.connection import connected
from sweeper.pruning.rung_client import Judges, RungClient
from sweeper.pruning.rung_server import Rule, RungServer
from trainables.contract import Member, Report, Stopped, Verdict

pytestmark = pytest.mark.slow

RULE = Rule("auroc", "maximize", 2, ((2,),))
Status = Literal["running", "diverged", "pruned"]


class Worker:
    """Shows reports to its cohort's judge, in a process of its own."""

    def judged(self, judges: Judges, cohort: str, shown: Report) -> tuple[Verdict, int]:
        return judges.judge_of(cohort)(shown), os.getpid()


def report(epoch: int, values: Sequence[float | None], status: Status = "running", name: str = "auroc") -> Report:
    """`status` is that of the last member."""
    statuses: list[Status] = [*["running"] * (len(values) - 1), status]  # type: ignore[list-item]
    members = tuple(Member(one, epoch, {name: value}) for one, value in zip(statuses, values, strict=True))
    return Report(epoch, members, seconds=1.0, done=False)


@pytest.fixture(scope="module")
def workers() -> Iterator[list[Any]]:
    """Two processes of a cluster that ends with this module."""
    with connected(None):
        yield [ray.remote(Worker).options(num_cpus=0).remote() for _ in range(2)]


def ask(referee: RungClient, cohort: str, *values: float) -> Any:
    """What the board answers to a process of its own."""
    asking: Any = ray.remote(num_cpus=0)(lambda board: ray.get(board.judge.remote(cohort, 2, dict(enumerate(values)))))
    return asking.remote(referee.judges.board)


def waits(referee: RungClient, call: Any, place: int = 1) -> bool:
    """The cohort has reached the board, and has no answer."""
    deadline = time.monotonic() + 300
    profile_devices = referee.judges.board.__ray_call__

    def there(board: RungServer) -> bool:
        return any(place in rungs._places and rungs._places[place].posts for rungs in board._rungs.values())

    while not ray.get(profile_devices.remote(there), timeout=300):
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.05)
    return not ray.wait([call], timeout=0.1)[0]


def test_nothing_that_the_driver_says_waits(workers: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise AssertionError("the driver waits")

    with monkeypatch.context() as patch:
        patch.setattr(ray, "get", refused)
        patch.setattr(ray, "wait", refused)
        referee = RungClient({"one": RULE})
        referee.seed("one", 0, [0, 1], [{1: 0.1, 2: 0.9}, {1: 0.8}])
        referee.expect("one", 1, "high", [2, 3])
        referee.reported("high", asdict(report(1, [0.5, 0.6])))
        referee.end("of a study that is not pruned")
        judges = referee.judges
    del referee
    pruned = judges.judge_of("high")(report(2, [0.95, 0.7])).pruned
    assert pruned == {1: "0.7 at epoch 2 was not among the best 1 of 3 (0.95 or better)"}
    assert not ray.get(judges.board.__ray_call__.remote(lambda _: "torch" in sys.modules))


def test_the_board_is_asked_only_at_rungs_and_an_error_comes_out_where_it_is_gone(workers: list[Any]) -> None:
    referee = RungClient({"one": RULE})
    referee.expect("one", 0, "low", [0, 1])
    referee.expect("one", 1, "high", [2, 3])
    judge = referee.judges.judge_of("high")
    assert judge(report(1, [0.5, 0.6])) == Verdict()
    with pytest.raises(ValueError, match="no metric 'auroc' to prune by at epoch 2; there are: loss"):
        judge(report(2, [0.5, 0.6], name="loss"))
    waiting = ask(referee, "high", 0.5, 0.6)
    assert waits(referee, waiting)
    ray.kill(referee.judges.board)
    with pytest.raises(RayActorError):
        ray.get(waiting)
    assert judge(report(1, [0.5, 0.6])) == Verdict()
    with pytest.raises(RayActorError):
        judge(report(2, [0.5, 0.6]))


def test_a_worker_that_died_waiting_asks_again(workers: list[Any]) -> None:
    referee = RungClient({"one": RULE})
    referee.expect("one", 0, "low", [0, 1])
    referee.expect("one", 1, "high", [2, 3])
    lost = ask(referee, "high", 0.5, 0.9)
    assert waits(referee, lost)
    ray.cancel(lost, force=True)
    with pytest.raises((TaskCancelledError, WorkerCrashedError)):
        ray.get(lost)
    again = ask(referee, "high", 0.5, 0.9)
    assert waits(referee, again)
    low = ask(referee, "low", 0.7, 0.8)
    assert [set(one) for one in ray.get([low, again])] == [{0}, {0}]


def test_who_waits_for_a_cohort_that_lost_its_worker_is_stopped_to_make_room(workers: list[Any]) -> None:
    referee = RungClient({"one": RULE}, absence=0.5)
    for place, cohort in enumerate(("low", "high")):
        referee.expect("one", place, cohort, [2 * place, 2 * place + 1])
        referee.started(cohort)
    waiting = workers[0].judged.remote(referee.judges, "high", report(2, [0.5, 0.9]))
    assert waits(referee, waiting)
    referee.stopped("low")
    with pytest.raises(Stopped, match="it makes room for cohorts that it waits for at epoch 2"):
        ray.get(waiting, timeout=300)


def test_a_cohort_that_went_on_from_a_checkpoint_counts_by_its_reports(workers: list[Any]) -> None:
    """Its judge is not asked again about rungs before the checkpoint; a repeated report says who was judged there."""
    referee = RungClient({"one": RULE})
    referee.expect("one", 0, "low", [0, 1, 2])
    referee.expect("one", 1, "high", [3, 4])
    waiting = ask(referee, "high", 0.7, 0.6)
    assert waits(referee, waiting)
    members = (Member("running", 2, {"auroc": 0.9}), Member("pruned", 2, {"auroc": 0.65}), Member("diverged", 2, {}))
    referee.reported("low", asdict(Report(2, members, seconds=1.0, done=False)))
    assert set(ray.get(waiting)) == {1}


def test_the_board_has_room_for_more_calls_than_ray_gives_by_default(workers: list[Any]) -> None:
    """Which is a thousand; then the call that all of them wait for would not get in."""
    referee = RungClient({"one": RULE})
    referee.expect("one", 0, "low", [0])
    referee.expect("one", 1, "high", [1, 2])
    waiting = [referee.judges.board.judge.remote("high", 2, {0: 0.1, 1: 0.2}) for _ in range(1050)]
    try:
        assert waits(referee, waiting[0])
        referee.end("low")
        assert all(set(pruned) == {0} for pruned in ray.get(waiting, timeout=300))
    finally:
        ray.kill(referee.judges.board)


def test_processes_are_judged_in_their_order_whoever_comes_first(workers: list[Any]) -> None:
    referee = RungClient({"up": RULE, "down": Rule("auroc", "minimize", 2, ((2,),))})
    for study in ("up", "down"):
        referee.expect(study, 0, f"{study} low", [0, 1])
        referee.expect(study, 1, f"{study} high", [2, 3, 4])
    low, high = report(2, [0.4, 0.6]), report(2, [0.7, 0.3, 0.5], status="diverged")
    judges = pickle.loads(ray.cloudpickle.dumps(referee.judges))
    early = workers[1].judged.remote(judges, "up high", high)
    assert waits(referee, early)
    found: list[tuple[Verdict, int]] = ray.get([workers[0].judged.remote(judges, "up low", low), early])
    low_first, pid = ray.get(workers[0].judged.remote(judges, "down low", low))
    then, other = ray.get(workers[1].judged.remote(judges, "down high", high))
    assert len({pid, other, os.getpid()}) == 3 and [one[1] for one in found] == [pid, other]
    assert [set(one.pruned) for one, _ in found] == [{0}, {1}]
    assert [set(one.pruned) for one in (low_first, then)] == [{1}, {0}]
