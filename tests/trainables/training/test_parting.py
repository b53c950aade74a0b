"""A half of a cohort goes on from the whole's checkpoint as it would have gone on within."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import pytest
import torch

from tests.trainables.small import HERE, content_of
from tests.trainables.training.judged import assert_near, pruning, six, tensors_of, without_seconds
from trainables.contract import Report
from trainables.training.checkpoint import unpack
from trainables.training.parting import part
from trainables.training.train import train

PRUNED = pruning({1: {0: "low"}, 2: {4: "lower"}})
"""Of six, after these epochs."""


@cache
def _whole(width: int | None) -> tuple[list[Report], list[bytes]]:
    """Six members over four epochs, two of them pruned, and every checkpoint of them."""
    saved: list[bytes] = []
    return list(train(six(), HERE, width=width, judge=PRUNED, save=saved.append, save_every=0.0)), saved


def _restricted(report: Report, members: Sequence[int]) -> Report:
    return Report(report.epoch, tuple(report.members[index] for index in members), report.seconds, report.done)


@pytest.mark.parametrize(("then", "now", "members"), [(None, None, (0, 1, 2)), (4, 2, (3, 4, 5)), (2, None, range(6))])
@pytest.mark.parametrize("step", [0, 1])
def test_a_cut_checkpoint_continues_like_the_whole_cohort(
    then: int | None, now: int | None, members: Sequence[int], step: int
) -> None:
    """To rounding in other company; from the end of an epoch and from within one, after members have ended."""
    reports, saved = _whole(then)
    found = [content_of(one)["standing"] for one in saved]
    place = next(i for i, one in enumerate(found) if one["epoch"] >= 1 and bool(one["step"]) == bool(step))
    configs = [six()[index] for index in members]
    taken = part(saved[place], six(), then, configs, now)
    assert taken
    judge = pruning({2: {members.index(4): "lower"}} if 4 in members else {})
    got = list(train(configs, HERE, width=now, judge=judge, resume=taken))
    assert [one.epoch for one in got] == [one.epoch for one in reports]
    for index, member in enumerate(members):
        assert_near(got, reports, index, member)
        assert [one.members[index].status for one in got] == [one.members[member].status for one in reports]


def test_cut_checkpoints_of_members_stepped_in_turn_continue_exactly() -> None:
    reports, saved = _whole(1)
    members = (1, 0, 5)  # in an order of their own
    configs = [six()[index] for index in members]
    judge = pruning({1: {1: "low"}})
    for data in saved:
        taken = part(data, six(), 1, configs, 1)
        assert taken
        got = list(train(configs, HERE, width=1, judge=judge, resume=taken))
        assert without_seconds(got) == without_seconds([_restricted(one, members) for one in reports])


def test_a_cut_checkpoint_holds_the_state_of_its_own_members() -> None:
    """Weights, buffers, momenta, rates, sums, and seconds."""
    _, saved = _whole(4)
    standing, state = unpack(saved[-1], six(), 4) or pytest.fail("no checkpoint")
    assert standing.running == (1, 2, 3, 5) and standing.step
    taken = part(saved[-1], six(), 4, six()[2:], 2)
    now, parted = unpack(taken or b"", six()[2:], 2) or pytest.fail("no checkpoint")
    assert now.running == (0, 1, 3) and [len(one["rates"]["lr"]) for one in parted] == [2, 1]
    there, here = tensors_of(state, standing.running), tensors_of(parted, (2, 3, 5))
    for index in (2, 3, 5):
        assert all(torch.equal(there[index][name], tensor) for name, tensor in here[index].items())
    assert now.sums["loss"].tolist() == standing.sums["loss"][1:].tolist()
    assert now.shares == standing.shares[2:] and sum(now.shares) == now.seconds < standing.seconds
    assert (now.epoch, now.step, now.ended) == (standing.epoch, standing.step, standing.ended[2:])


def test_members_that_have_all_ended_get_a_last_report() -> None:
    _, saved = _whole(None)
    configs = [six()[4], six()[0]]
    taken = part(saved[-1], six(), None, configs, None)
    reports = list(train(configs, HERE, resume=taken))
    assert [(one.epoch, one.done) for one in reports] == [(1, False), (2, True)]
    assert [one.status for one in reports[-1].members] == ["pruned", "pruned"]
    assert [one.epochs_run for one in reports[-1].members] == [2, 1]


def test_a_checkpoint_that_lacks_a_member_cannot_be_cut() -> None:
    _, saved = _whole(None)
    stranger = six(features=9)[:1]
    assert part(saved[0], six(), None, [*six()[:2], *stranger], None) is None
    assert part(saved[0], six(), 3, six()[:2], None) is None
    assert part(saved[0][:-1], six(), None, six()[:2], None) is None
    assert part(saved[0], six()[:5], None, six()[:2], None) is None
