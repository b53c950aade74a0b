"""The rung server in this process: which cohorts wait for which, and the order of the driver's calls."""

import asyncio
import itertools
from collections.abc import Coroutine
from typing import Any

import pytest

from sweeper.search.rung_server import Rule, RungServer
from sweeper.search.rungs import (
    CohortAnnounced,
    CohortEnded,
    CohortReported,
    CohortRestored,
    CohortSplit,
    CohortStarted,
    CohortStopped,
)
from sweeper.spec.pruners import Halving
from tests.sweeper.search.fast_clock import play

RULE = Rule("auroc", "maximize", Halving(1, 2, brackets=2), ((1, 3), (3,)))
NUMBERS = {bracket: [number for number in range(99) if RULE.brackets([number]) == (bracket,)] for bracket in (0, 1)}
"""Bracket -> numbers of trials that are assigned to it."""


def rung_server(announcement_timeout: float = 5.0, absence: float = 30.0) -> RungServer:
    return RungServer({"one": RULE, "other": RULE}, announcement_timeout, absence)


def announced(study: str, index: int, cohort: str, *brackets: int) -> CohortAnnounced:
    """The announcement of the cohort `index` of a study, whose members are assigned to these brackets."""
    numbers = [NUMBERS[bracket][member] for member, bracket in enumerate(brackets)]
    return CohortAnnounced(study, (index,), cohort, numbers)


async def settled(*waiting: Coroutine[Any, Any, Any]) -> list[asyncio.Task[Any]]:
    """Start the calls, and let them run until each has returned or waits."""
    tasks = [asyncio.ensure_future(call) for call in waiting]
    for _ in range(50):
        await asyncio.sleep(0)
    return tasks


async def pruned(server: RungServer, cohort: str, epoch: int, values: dict[int, float | None]) -> set[int]:
    return set(await server.judge(cohort, epoch, values) or ())


def test_a_cohort_waits_for_earlier_ones_of_its_own_study() -> None:
    async def scene() -> None:
        server = rung_server()
        await server.apply(0, announced("one", 0, "low", 0, 0))
        await server.apply(1, announced("one", 1, "high", 0, 0))
        await server.apply(2, announced("other", 0, "elsewhere", 0, 0))
        (high,) = await settled(server.judge("high", 1, {0: 5.0, 1: 3.0}))
        assert await server.judge("elsewhere", 1, {0: 1.0, 1: 0.0}) == {
            1: "0 at epoch 1 was not among the best 1 of 2 (1 or better)"
        }
        assert not high.done()
        assert await pruned(server, "low", 1, {0: 4.0, 1: 6.0}) == {0}
        assert set(await high) == {1}

    play(scene())


def test_the_end_of_an_earlier_cohort_counts_as_its_report() -> None:
    async def scene() -> None:
        server = rung_server()
        await server.apply(0, announced("one", 0, "low", 0))
        await server.apply(1, announced("one", 1, "high", 0, 0))
        (high,) = await settled(server.judge("high", 1, {0: 5.0, 1: 3.0}))
        assert not high.done()
        await server.apply(2, CohortEnded("low"))
        assert set(await high) == {1}

    play(scene())


def test_a_cohort_that_is_pruned_whole_is_not_waited_for_at_the_next_rung() -> None:
    async def scene() -> None:
        server = rung_server()
        for index, cohort in enumerate(("best", "worst", "good")):
            await server.apply(index, announced("one", index, cohort, 0))
        await server.judge("best", 1, {0: 9.0})
        await server.apply(3, CohortReported("good", 1, {0: 8.0}))
        await server.judge("best", 3, {0: 9.0})
        (good,) = await settled(server.judge("good", 3, {0: 10.0}))
        assert not good.done()
        assert await pruned(server, "worst", 1, {0: 1.0}) == {0}
        assert await good == {}

    play(scene())


def test_a_cohort_is_answered_as_soon_as_what_it_waits_for_is_known() -> None:
    async def scene() -> None:
        server = rung_server()
        for index, brackets in enumerate(([0], [0, 1], [1])):
            await server.apply(index, announced("one", index, ["low", "middle", "high"][index], *brackets))
        (high,) = await settled(server.judge("high", 3, {0: 5.0}))
        assert not high.done()
        (middle,) = await settled(server.judge("middle", 3, {0: 4.0, 1: 6.0}))
        assert set(await high) == {0}, "it shares no bracket with the lowest"
        assert not middle.done()

        server = rung_server()
        for index, cohort in enumerate(("low", "middle", "high")):
            await server.apply(index, announced("one", index, cohort, 0))
        (middle,) = await settled(server.judge("middle", 1, {0: -1.0}))
        (high,) = await settled(server.judge("high", 3, {0: 5.0}))
        (low,) = await settled(server.judge("low", 3, {0: 7.0}))
        assert not middle.done() and await low == {}
        assert await server.judge("low", 1, {0: 7.0}) == {}
        assert set(await middle) == {0}
        assert set(await high) == {0}, "the one between was pruned"

    play(scene())


def test_a_call_of_a_worker_that_died_delays_no_cohort() -> None:
    async def scene() -> None:
        server = rung_server()
        await server.apply(0, announced("one", 0, "low", 0))
        await server.apply(1, announced("one", 1, "high", 0, 0))
        dead, cancelled = await settled(*[server.judge("high", 1, {0: 5.0, 1: 6.0}) for _ in range(2)])
        cancelled.cancel()
        (again,) = await settled(server.judge("high", 1, {0: 5.0, 1: 6.0}))
        await server.judge("low", 1, {0: 1.0})
        assert set(await again) == set(await dead) == {0}

    play(scene())


def test_cohorts_that_wait_for_one_without_a_worker_make_room_the_last_first() -> None:
    async def scene() -> None:
        server, turn = rung_server(absence=0.5), itertools.count()
        cohorts = ("lost", "middle", "high")
        for index, cohort in enumerate(cohorts):
            await server.apply(next(turn), announced("one", index, cohort, 0, 0))
        for cohort in cohorts:
            await server.apply(next(turn), CohortStarted(cohort))
        waiting = [server.judge(cohort, 1, {0: 5.0, 1: 3.0}) for cohort in ("middle", "high", "high")]
        middle, high, its_peer = await settled(*waiting)
        await asyncio.sleep(0.8)
        assert not any(call.done() for call in (middle, high, its_peer)), "all three have a worker"
        await server.apply(next(turn), CohortStopped("lost"))
        assert await high is None and await its_peer is None and not middle.done()
        assert await server.judge("high", 1, {0: 5.0, 1: 3.0}) is None, "a later call of its other process"
        await server.apply(next(turn), CohortStopped("high"))
        await server.apply(next(turn), CohortStarted("lost"))
        await asyncio.sleep(0.8)
        assert not middle.done(), "what it waits for has a worker again"
        assert await pruned(server, "lost", 1, {0: 9.0, 1: 1.0}) == {1}
        assert set(await middle) == {1}
        await server.apply(next(turn), CohortStarted("high"))
        assert await pruned(server, "high", 1, {0: 5.0, 1: 3.0}) == {1}

    play(scene())


def test_a_call_of_a_dead_worker_makes_no_room() -> None:
    async def scene() -> None:
        server, turn = rung_server(absence=0.5), itertools.count()
        for index, cohort in enumerate(("lost", "middle", "dead")):
            await server.apply(next(turn), announced("one", index, cohort, 0))
        await server.apply(next(turn), CohortStarted("middle"))
        middle, dead = await settled(*[server.judge(cohort, 1, {0: 5.0}) for cohort in ("middle", "dead")])
        assert await middle is None and not dead.done()

    play(scene())


def test_the_drivers_calls_count_in_their_order_however_they_arrive() -> None:
    async def scene() -> None:
        server = rung_server()
        late = await settled(
            server.apply(2, CohortEnded("low")),
            server.apply(1, announced("one", 1, "high", 0, 0)),
            server.judge("high", 1, {0: 5.0, 1: 3.0}),
        )
        assert not any(task.done() for task in late)
        await server.apply(0, CohortRestored("one", (0,), NUMBERS[0][:2], [{1: 9.0}, {1: 4.0}]))
        with pytest.raises(KeyError, match="low"):
            await late[0]
        assert set(await late[2]) == {1}, "compared with what was restored before"
        await server.apply(3, CohortEnded("high"))

    play(scene())


def test_the_parts_of_a_cohort_wait_for_each_other_and_make_room_for_each_other() -> None:
    async def scene() -> None:
        server, turn = rung_server(absence=0.5), itertools.count()
        await server.apply(next(turn), announced("one", 0, "whole", 0, 0))
        await server.apply(next(turn), announced("one", 1, "high", 0))
        await server.apply(next(turn), CohortSplit("whole", {"first": 1, "second": 1}))
        await server.apply(next(turn), CohortStarted("first"))
        (high,) = await settled(server.judge("high", 1, {0: 5.0}))
        assert await server.judge("first", 1, {0: 6.0}) is None, "the only slot is for the second"
        await server.apply(next(turn), CohortStopped("first"))
        await server.apply(next(turn), CohortStarted("second"))
        assert await pruned(server, "second", 1, {0: 7.0}) == set() and set(await high) == {0}
        await server.apply(next(turn), CohortStarted("first"))
        assert await pruned(server, "first", 1, {0: 6.0}) == {0}, "compared with the second"

    play(scene())


def test_a_cohort_is_split_into_parts_with_all_its_members() -> None:
    async def scene() -> None:
        server, turn = rung_server(), itertools.count()
        await server.apply(next(turn), announced("one", 0, "whole", 0, 0))
        for sizes in ({"first": 1}, {"first": 1, "second": 2}, {"first": 2, "second": 0}):
            with pytest.raises(ValueError, match="the parts of cohort 'whole' must have its 2 members, but got"):
                await server.apply(next(turn), CohortSplit("whole", sizes))

    play(scene())


def test_a_part_with_all_members_that_remain_takes_the_position_of_its_whole() -> None:
    async def scene() -> None:
        server = rung_server()
        await server.apply(0, announced("one", 0, "whole", 0, 0))
        await server.apply(1, CohortSplit("whole", {"part": 2}))
        assert await pruned(server, "part", 1, {0: 4.0, 1: 6.0}) == {0}

    play(scene())


def test_a_report_of_an_epoch_that_is_no_rung_changes_nothing() -> None:
    async def scene() -> None:
        server = rung_server()
        await server.apply(0, announced("one", 0, "low", 0))
        await server.apply(1, CohortReported("low", 2, {0: 9.0}))
        assert await server.judge("low", 1, {0: 5.0}) == {}

    play(scene())


def test_a_cohort_that_was_never_announced_is_refused_in_one_line() -> None:
    async def scene() -> None:
        server = rung_server(announcement_timeout=0.05)
        await server.apply(0, announced("one", 0, "low", 0))
        with pytest.raises(LookupError, match="no cohort 'stray' is expected at any rung; there are: low"):
            await server.judge("stray", 1, {0: 1.0})
        assert await server.rule("low") == RULE

    play(scene())


def test_a_rule_assigns_brackets_by_its_ladders() -> None:
    assert RULE.epochs == {1, 3}
    assert set(RULE.brackets(range(100))) == {0, 1}
    assert Rule("auroc", "maximize", Halving(2), ((2, 6),)).brackets(range(5)) == (0,) * 5
