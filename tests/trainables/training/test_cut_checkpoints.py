"""A part of a cohort continues from a part of its checkpoint as it would have within the whole."""

from collections.abc import Sequence
from functools import cache

import pytest
import torch

from tests.cases import for_each
from tests.trainables.small import HERE, TracingCompiler, content_of
from tests.trainables.training.judged import assert_near, pruning, six, tensors_of, without_seconds
from trainables.reports import Report
from trainables.training.checkpoint import slice_checkpoint, unpack
from trainables.training.train import Callbacks, Checkpointing, train

PRUNED = pruning({1: {0: "low"}, 2: {4: "lower"}})
"""Of six, after these epochs."""


@cache
def _whole(width: int | None, compiled: bool = False) -> tuple[list[Report], list[bytes]]:
    """Reports and all checkpoints of six members over four epochs, two of which are pruned."""
    saved: list[bytes] = []
    return list(
        train(
            six(),
            HERE,
            width=width,
            compiler=_compiler(compiled),
            callbacks=Callbacks(PRUNED),
            checkpointing=Checkpointing(save=saved.append, every=0.0),
        )
    ), saved


def _restricted(report: Report, members: Sequence[int]) -> Report:
    return Report(report.epoch, tuple(report.members[index] for index in members), report.seconds, report.done)


@pytest.mark.slow
@for_each(
    ("width", "new_width", "members", "step"),
    [(None, None, (0, 1, 2), 0), (4, 2, (3, 4, 5), 1), (2, None, range(6), 0)],
)
def test_a_cut_checkpoint_continues_like_the_whole_cohort(
    width: int | None, new_width: int | None, members: Sequence[int], step: int
) -> None:
    """Equal up to rounding, from the end of an epoch and from within one, after members have ended."""
    reports, saved = _whole(width)
    standings = [content_of(checkpoint)["standing"] for checkpoint in saved]
    checkpoint_index = next(
        i for i, standing in enumerate(standings) if standing["epoch"] >= 1 and bool(standing["step"]) == bool(step)
    )
    configs = [six()[index] for index in members]
    cut = slice_checkpoint(saved[checkpoint_index], six(), width, configs, new_width)
    assert cut
    judge = pruning({2: {members.index(4): "lower"}} if 4 in members else {})
    resumed = list(train(configs, HERE, width=new_width, callbacks=Callbacks(judge), checkpointing=Checkpointing(cut)))
    assert [report.epoch for report in resumed] == [report.epoch for report in reports]
    for index, member in enumerate(members):
        assert_near(resumed, reports, index, member)
        assert [report.members[index].status for report in resumed] == [
            report.members[member].status for report in reports
        ]


@pytest.mark.slow
@pytest.mark.parametrize(("whole_compiled", "compiled"), [(False, True), (True, False)])
def test_a_cut_checkpoint_continues_with_compiled_steps_or_without(whole_compiled: bool, compiled: bool) -> None:
    """Members that are left over are stacks of their own where steps are compiled, and one narrower stack else."""
    _, saved = _whole(4, whole_compiled)
    configs, reports = six()[1:], _whole(4)[0]
    data = next(data for data in saved if content_of(data)["standing"]["epoch"] == 1)
    cut = slice_checkpoint(data, six(), 4, configs, 3, whole_compiled=whole_compiled, compiled=compiled)
    assert cut
    judge = pruning({2: {3: "lower"}})
    lines: list[str] = []
    resumed = list(
        train(
            configs,
            HERE,
            width=3,
            compiler=_compiler(compiled),
            callbacks=Callbacks(judge, notify=lines.append),
            checkpointing=Checkpointing(cut),
        )
    )
    assert not lines
    for index in range(5):
        assert_near(resumed, reports, index, index + 1)


def _compiler(compiled: bool) -> TracingCompiler | None:
    return TracingCompiler() if compiled else None


def test_a_checkpoint_of_eager_steps_is_another_one() -> None:
    """To the last bit a cohort continues only with the steps with which it began."""
    _, saved = _whole(4)
    assert unpack(saved[0], six(), 4)
    assert unpack(saved[0], six(), 4, compiled=True) is None


@pytest.mark.slow
def test_cut_checkpoints_of_members_stepped_in_turn_continue_exactly() -> None:
    reports, saved = _whole(1)
    members = (1, 0, 5)  # in an order of their own
    configs = [six()[index] for index in members]
    judge = pruning({1: {1: "low"}})
    for data in saved[::3]:
        cut = slice_checkpoint(data, six(), 1, configs, 1)
        assert cut
        actual = list(train(configs, HERE, width=1, callbacks=Callbacks(judge), checkpointing=Checkpointing(cut)))
        assert without_seconds(actual) == without_seconds([_restricted(report, members) for report in reports])


def test_a_cut_checkpoint_holds_the_state_of_its_own_members() -> None:
    """Weights, buffers, momenta, rates, sums, and seconds."""
    _, saved = _whole(4)
    standing, state = unpack(saved[-1], six(), 4) or pytest.fail("no checkpoint")
    assert standing.running == (1, 2, 3, 5) and standing.step
    cut = slice_checkpoint(saved[-1], six(), 4, six()[2:], 2)
    now, parted = unpack(cut or b"", six()[2:], 2) or pytest.fail("no checkpoint")
    assert now.running == (0, 1, 3) and [len(stack["rates"]["lr"]) for stack in parted] == [2, 1]
    before, after = tensors_of(state, standing.running), tensors_of(parted, (2, 3, 5))
    for index in (2, 3, 5):
        assert all(torch.equal(before[index][name], tensor) for name, tensor in after[index].items())
    assert now.sums["loss"].tolist() == standing.sums["loss"][1:].tolist()
    assert now.shares == standing.shares[2:] and sum(now.shares) == now.seconds < standing.seconds
    assert (now.epoch, now.step, now.ended) == (standing.epoch, standing.step, standing.ended[2:])


def test_members_that_have_all_ended_get_a_last_report() -> None:
    _, saved = _whole(None)
    configs = [six()[4], six()[0]]
    cut = slice_checkpoint(saved[-1], six(), None, configs, None)
    reports = list(train(configs, HERE, checkpointing=Checkpointing(cut)))
    assert [(report.epoch, report.done) for report in reports] == [(1, False), (2, True)]
    assert [member.status for member in reports[-1].members] == ["pruned", "pruned"]
    assert [member.epochs_run for member in reports[-1].members] == [2, 1]


def test_a_checkpoint_that_lacks_a_member_cannot_be_cut() -> None:
    _, saved = _whole(None)
    stranger = six(features=9)[:1]
    assert slice_checkpoint(saved[0], six(), None, [*six()[:2], *stranger], None) is None
    assert slice_checkpoint(saved[0], six(), 3, six()[:2], None) is None
    assert slice_checkpoint(saved[0][:-1], six(), None, six()[:2], None) is None
    assert slice_checkpoint(saved[0], six()[:5], None, six()[:2], None) is None
