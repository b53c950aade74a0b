"""A population that trains: what members copy, what is reported, and resuming from a checkpoint.

The members are `six`, on three streams of data.
"""

from functools import cache

import pytest
import torch

from tests.trainables.small import HERE, at_ends, content_of, metrics_of
from tests.trainables.training.judged import State, float64, six, tensors_of, without_seconds
from trainables.reports import Judge, Move, Report, Verdict
from trainables.training.population import Population, parse_schedule
from trainables.training.train import train

RANGES = {"beta": (0.4, 2.0), "nu": (0.5, 4.0), "lr": (0.005, 0.05), "weight_decay": (0.001, 0.1)}
RULE = Population("auroc_joint", "maximize", 1, 0.34, 1.6, RANGES)
HYPER = {key: f"buffers.method.{key}" if key in ("beta", "nu") else f"rates.{key}" for key in RANGES}
"""Key -> the name of its tensor in `State`."""


@cache
def _run(width: int | None = None, moving: bool = True) -> tuple[list[Report], list[State]]:
    """The reports of four epochs with moves after the first three, and the members' state after each of these."""
    reports, saved = _saved(width, RULE.judge_of(six()) if moving else None)
    return reports, [tensors_of(content_of(checkpoint)["state"], range(6)) for checkpoint in saved]


def _saved(width: int | None, judge: Judge | None, resume: bytes | None = None) -> tuple[list[Report], list[bytes]]:
    saved: list[bytes] = []
    reports = train(six(), HERE, width=width, judge=judge, resume=resume, save=at_ends(saved), save_every=0.0)
    return list(reports), saved


@pytest.mark.parametrize("width", [None, 1, 4])
def test_a_moved_member_has_the_weights_and_momenta_of_its_source(width: int | None) -> None:
    reports, states = _run(width)
    _, unmoved = _run(width, moving=False)
    moved = {
        (index, entry["epoch"], entry["from"])
        for index, member in enumerate(reports[-1].members)
        for entry in parse_schedule(member.schedule)
    }
    assert len(moved) == 6  # two of six, three times
    for index, epoch, source in moved:
        for name, tensor in states[epoch - 1][index].items():
            if name not in HYPER.values():
                assert torch.equal(tensor, states[epoch - 1][source][name]), name
    for index in set(range(6)) - {index for index, epoch, _ in moved if epoch == 1}:
        assert all(torch.equal(tensor, unmoved[0][index][name]) for name, tensor in states[0][index].items())


def test_members_have_the_hyperparameters_that_their_schedules_say() -> None:
    reports, states = _run()
    for index, member in enumerate(reports[-1].members):
        entries = parse_schedule(member.schedule)
        assert (member.schedule is None) == (not entries)
        for epoch, state in enumerate(states, start=1):
            present = six()[index].flat() | {
                k: v for move in entries if move["epoch"] <= epoch for k, v in move.items()
            }
            for key, name in HYPER.items():
                assert state[index][name].item() == pytest.approx(present[key], rel=1e-6)


def test_hyperparameters_of_moved_members_are_in_their_ranges() -> None:
    for member in _run()[0][-1].members:
        for entry in parse_schedule(member.schedule):
            assert set(entry) == {"epoch", "from", *RANGES}
            assert all(low <= entry[key] <= high for key, (low, high) in RANGES.items())


def test_a_report_includes_the_moves_that_follow_from_it() -> None:
    reports, _ = _run()
    for report in reports:
        entries = [entry for member in report.members for entry in parse_schedule(member.schedule)]
        assert max(entry["epoch"] for entry in entries) == min(report.epoch, 3)
        assert {member.status for member in report.members} == {"finished" if report.done else "running"}


def test_the_worst_of_each_report_move_to_the_best() -> None:
    for report in _run()[0][:-1]:
        ranked = sorted(range(6), key=lambda index: (-(report.members[index].metrics["auroc_joint"] or 0.0), index))
        moved = {
            index: entry["from"]
            for index, member in enumerate(report.members)
            for entry in parse_schedule(member.schedule)
            if entry["epoch"] == report.epoch
        }
        assert set(moved) == set(ranked[4:]) and set(moved.values()) <= set(ranked[:2])


@pytest.mark.parametrize("width", [None, 1, 4])
def test_a_population_is_reproducible(width: int | None) -> None:
    assert without_seconds(_saved(width, RULE.judge_of(six()))[0]) == without_seconds(_run(width)[0])


@pytest.mark.parametrize("width", [None, 4])
@pytest.mark.parametrize("epoch", [1, 2, 3])
def test_resuming_a_population_is_exact(epoch: int, width: int | None) -> None:
    judge = RULE.judge_of(six())
    reports, saved = _saved(width, judge)
    resumed, again = _saved(width, judge, resume=saved[epoch - 1])
    assert without_seconds(resumed) == without_seconds(reports)
    for mine, theirs in zip(again, saved[epoch:], strict=True):
        states = [tensors_of(content_of(checkpoint)["state"], range(6)) for checkpoint in (mine, theirs)]
        assert all(torch.equal(states[0][i][name], tensor) for i in range(6) for name, tensor in states[1][i].items())


@pytest.mark.parametrize("width", [1, 2, 4])
def test_the_stack_width_does_not_change_a_population(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whom a member moves to does not hang on the stack that it is in."""
    moves = {
        1: {0: Move(5, {"lr": 0.03, "beta": 1.7}), 2: Move(4, {"weight_decay": 0.02})},
        3: {4: Move(0, {"lr": 0.01})},
    }

    def judge(report: Report) -> Verdict:
        return Verdict(pruned={1: "slow"} if report.epoch == 2 else {}, moves=moves.get(report.epoch, {}))

    with float64(monkeypatch):
        stacked, cut = (list(train(six(), HERE, width=stack_width, judge=judge)) for stack_width in (None, width))
    for index in range(6):
        assert [report.members[index].schedule for report in cut] == [
            report.members[index].schedule for report in stacked
        ]
        for actual, expected in zip(metrics_of(cut, index), metrics_of(stacked, index), strict=True):
            assert actual == pytest.approx(expected, rel=1e-7, abs=1e-9)
    assert cut[-1].members[1].status == "pruned"


def test_a_member_may_copy_one_that_the_same_verdict_prunes() -> None:
    reports = list(
        train(
            six()[:3], HERE,
            judge=lambda report: Verdict({0: "slow"}, {2: Move(0, {"lr": 0.03})}) if report.epoch == 1 else Verdict(),
        )
    )  # fmt: skip
    assert [member.status for member in reports[-1].members] == ["pruned", "finished", "finished"]
    assert parse_schedule(reports[-1].members[2].schedule) == ({"epoch": 1, "from": 0, "lr": 0.03},)
    assert reports[0].members[0].schedule is None and reports[0].members[2].schedule is not None


def test_copying_a_member_that_has_ended_is_refused() -> None:
    def judge(report: Report) -> Verdict:
        return Verdict({0: "slow"}) if report.epoch == 1 else Verdict(moves={2: Move(0, {})})

    with pytest.raises(
        ValueError, match=r"^a member can only copy another running one, but got 2 copying 0; .*: 1, 2$"
    ):
        list(train(six()[:3], HERE, judge=judge))
