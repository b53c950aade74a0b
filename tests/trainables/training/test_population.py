"""Which members of a population copy which, with which hyperparameters, and what they copy and report in a training."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from typing import Any

import pytest
import torch

from tests.cases import for_each
from tests.trainables.small import HERE, at_ends, content_of, metrics_of
from tests.trainables.training.judged import State, float64, six, smooth, tensors_of, without_seconds
from trainables.reports import Judge, Member, Move, Report, Status, Stopped, Verdict
from trainables.sections import TrialConfig
from trainables.training.population import PopulationRule, parse_schedule
from trainables.training.train import Callbacks, Checkpointing, train

RULE = PopulationRule("auroc", "maximize", 2, 0.25, 1.5, {"beta": (0.1, 10.0), "lr": (0.001, 1.0)})
EPOCHS = range(2, 402, 2)


def _configs(count: int) -> list[TrialConfig]:
    return [smooth(beta=1.0 + 0.1 * index, lr=0.01 * (1 + index)) for index in range(count)]


def _report(
    values: Sequence[float | None],
    epoch: int = 2,
    statuses: Mapping[int, Status] | None = None,
    schedules: Mapping[int, str] | None = None,
) -> Report:
    members = [
        Member((statuses or {}).get(index, "running"), epoch, {"auroc": value}, schedule=(schedules or {}).get(index))
        for index, value in enumerate(values)
    ]
    return Report(epoch, tuple(members), 1.0, False)


def _moves(report: Report, population: PopulationRule = RULE, configs: Sequence[TrialConfig] | None = None) -> Any:
    verdict = population.judge_of(configs or _configs(len(report.members)))(report)
    assert not verdict.pruned
    return verdict.moves


@for_each(
    ("count", "share", "movers"),
    [(1, 0.5, 0), (2, 0.25, 1), (3, 0.5, 1), (4, 0.25, 1), (7, 0.25, 1), (8, 0.25, 2), (9, 0.5, 4), (100, 0.29, 29)],
)
def test_the_given_share_of_the_worst_copies_as_many_best(count: int, share: float, movers: int) -> None:
    values = [(37 * index) % 101 / 101 for index in range(count)]
    ranked = sorted(range(count), key=lambda index: values[index])
    sources, judge = set(), replace(RULE, share=share).judge_of(_configs(count))
    for epoch in range(2, 82, 2):
        moves = judge(_report(values, epoch)).moves
        assert set(moves) == set(ranked[:movers])
        sources |= {move.source for move in moves.values()}
    assert sources == set(ranked[count - movers :])


def test_sources_are_drawn_uniformly() -> None:
    values = [index / 8 for index in range(8)]
    drawn = [move.source for epoch in EPOCHS for move in _moves(_report(values, epoch)).values()]
    assert set(drawn) == {6, 7} and 160 < Counter(drawn)[6] < 240  # of 400, within 4 sd


def test_the_worst_have_the_largest_values_if_the_metric_is_minimised() -> None:
    (moved, move), *rest = _moves(_report([0.1, 0.2, 0.3, 0.9]), replace(RULE, direction="minimize")).items()
    assert (moved, move.source) == (3, 0) and not rest


def test_a_member_without_the_metric_ranks_worst_and_is_never_copied() -> None:
    report = _report([0.1, None, 0.5, 0.4])
    assert {moved: move.source for moved, move in _moves(report).items()} == {1: 2}
    less = replace(RULE, direction="minimize")
    assert {moved: move.source for moved, move in _moves(report, less).items()} == {1: 0}
    half = replace(RULE, share=0.5)
    for epoch in EPOCHS:
        moves = _moves(_report([None, None, 0.5, None], epoch), half)
        assert {moved: move.source for moved, move in moves.items()} == {1: 2, 3: 2}
    assert _moves(_report([None, None, None, None]), half) == {}


def test_of_equal_members_the_first_ranks_higher() -> None:
    assert {moved: move.source for moved, move in _moves(_report([0.5] * 4)).items()} == {3: 0}


def test_only_running_members_move_or_are_copied() -> None:
    ended: dict[int, Status] = {0: "diverged", 4: "pruned"}
    report = _report([0.0, 0.3, 0.2, 0.5, 1.0, 0.4], statuses=ended)
    report = replace(report, members=(replace(report.members[0], metrics={"loss": None}), *report.members[1:]))
    assert {moved: move.source for moved, move in _moves(report).items()} == {2: 3}


def test_no_member_moves_in_other_epochs() -> None:
    movers = [bool(_moves(_report([0.1, 0.2, 0.3, 0.4], epoch), replace(RULE, every=3))) for epoch in range(1, 8)]
    assert movers == [False, False, True, False, False, True, False]


def test_hyperparameters_of_the_source_are_multiplied_or_divided_equally_often() -> None:
    configs = _configs(2)
    drawn = []
    for epoch in EPOCHS:
        move = _moves(_report([0.1, 0.9], epoch), configs=configs)[0]
        assert set(move.hyperparameters) == {"beta", "lr"}
        drawn.append((move.hyperparameters["beta"] / 1.1, move.hyperparameters["lr"] / 0.02))
    counts = Counter((round(beta, 6), round(lr, 6)) for beta, lr in drawn)
    assert set(counts) == {(a, b) for a in (1.5, 0.666667) for b in (1.5, 0.666667)}
    assert all(25 < count < 75 for count in counts.values())  # of 200, within 4 sd


def test_hyperparameters_stay_in_their_ranges() -> None:
    narrow = replace(RULE, ranges={"beta": (1.0, 1.2), "lr": (0.03, 0.5)})
    moves = [_moves(_report([0.1, 0.9], epoch), narrow)[0].hyperparameters for epoch in EPOCHS]
    assert {move["beta"] for move in moves} == {1.0, 1.2} and {move["lr"] for move in moves} == {0.03}


def test_a_source_that_has_moved_passes_on_its_current_hyperparameters() -> None:
    entries = [{"epoch": 2, "from": 3, "beta": 5.0, "lr": 0.4}, {"epoch": 4, "from": 2, "beta": 2.0, "lr": 0.2}]
    for epoch in (6, 8, 10):
        move = _moves(_report([0.1, 0.9], epoch, schedules={1: json.dumps(entries)}))[0]
        assert round(move.hyperparameters["beta"], 6) in (3.0, 1.333333)
        assert round(move.hyperparameters["lr"], 6) in (0.3, 0.133333)


def test_a_verdict_depends_on_the_configs_and_the_report_only() -> None:
    values = [index / 20 for index in range(20)]

    def all_of(configs: Sequence[TrialConfig], epochs: Sequence[int] = range(2, 22, 2)) -> dict[int, dict[int, Move]]:
        judge = RULE.judge_of(configs)
        return {epoch: dict(judge(_report(values, epoch)).moves) for epoch in epochs}

    configs = _configs(20)
    assert all_of(configs) == all_of(_configs(20)) == all_of(configs, range(20, 0, -2))
    others = [*configs[:-1], smooth(seed=1)]  # the last is a source, not a mover
    assert all_of(configs) != all_of(others)
    drawn = [
        [(move.source, *move.hyperparameters.values()) for move in moves.values()] for moves in all_of(configs).values()
    ]
    assert len({str(epoch_draws) for epoch_draws in drawn}) == len(drawn)


def test_ranges_from_json_are_accepted() -> None:
    """A cohort's task has passed through JSON."""
    fields = json.loads(json.dumps(asdict(RULE)))
    assert fields["ranges"]["beta"] == [0.1, 10.0]
    assert _moves(_report([0.1, 0.9]), PopulationRule(**fields)) == _moves(_report([0.1, 0.9]))


@pytest.mark.parametrize("key", ["seed", "normal_class", "width", "tau", "momentum"])
def test_only_fusible_quantities_can_be_adapted(key: str) -> None:
    with pytest.raises(
        ValueError,
        match=rf"^a population of vje can only adapt beta, clip_grad_norm, lr, nu, weight_decay, but got {key}$",
    ):
        replace(RULE, ranges={key: (1, 2)}).judge_of(_configs(2))


@for_each(
    ("changes", "law"),
    [
        ({"direction": "max"}, r"^no direction 'max'.*maximize, minimize$"),
        ({"every": 0}, r"^`every >= 1` must hold, but got every=0$"),
        ({"share": 0.0}, r"^`0 < share <= 0.5` must hold, but got share=0.0$"),
        ({"share": 0.6}, r"^`0 < share <= 0.5` must hold, but got share=0.6$"),
        ({"factor": 1.0}, r"^`factor > 1` must hold, but got factor=1.0$"),
        ({"factor": float("inf")}, r"^factor must be finite, but got factor=inf$"),
        ({"ranges": {"lr": (1.0, 0.1)}}, r"^`low <= high` must hold for each range, but got lr from 1.0 to 0.1$"),
    ],
)
def test_populations_out_of_range_are_refused(changes: Any, law: str) -> None:
    with pytest.raises(ValueError, match=law):
        replace(RULE, **changes)


def test_a_metric_that_is_not_reported_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^no metric 'knn_z' for a population to rank by; there are: auroc$"):
        _moves(_report([0.1, 0.9]), replace(RULE, metric="knn_z"))


def test_a_member_that_never_moved_has_an_empty_schedule() -> None:
    assert parse_schedule(None) == ()
    assert parse_schedule('[{"epoch": 2, "from": 1, "lr": 0.1}]') == ({"epoch": 2, "from": 1, "lr": 0.1},)


@pytest.mark.parametrize("text", ["[" * 10**5, "7", '["x"]', '[{"epoch": "two"}]', '{"epoch": 2}'])
def test_a_schedule_of_other_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"must"):
        parse_schedule(text)


RANGES = {"beta": (0.4, 2.0), "nu": (0.5, 4.0), "lr": (0.005, 0.05), "weight_decay": (0.001, 0.1)}
TRAINING_RULE = PopulationRule("auroc_joint", "maximize", 1, 0.34, 1.6, RANGES)
HYPER = {key: f"buffers.method.{key}" if key in ("beta", "nu") else f"rates.{key}" for key in RANGES}
"""Key -> the name of its tensor in `State`."""


@cache
def _run(width: int | None = None) -> tuple[list[Report], list[State]]:
    """The reports of four epochs with moves after the first three, and the members' state after each of these."""
    reports, saved = _whole(width)
    return reports, [tensors_of(content_of(checkpoint)["state"], range(6)) for checkpoint in saved]


def _before_any_move(width: int | None) -> State:
    """The members' state after the first epoch, in which a judge stops them."""

    def stop(report: Report) -> Verdict:
        raise Stopped

    saved: list[bytes] = []
    with pytest.raises(Stopped):
        list(train(six(), HERE, width=width, callbacks=Callbacks(stop), checkpointing=Checkpointing(save=saved.append)))
    return tensors_of(content_of(saved[-1])["state"], range(6))


@cache
def _whole(width: int | None) -> tuple[list[Report], list[bytes]]:
    return _saved(width, TRAINING_RULE.judge_of(six()))


def _saved(width: int | None, judge: Judge, resume: bytes | None = None) -> tuple[list[Report], list[bytes]]:
    saved: list[bytes] = []
    reports = train(
        six(),
        HERE,
        width=width,
        callbacks=Callbacks(judge),
        checkpointing=Checkpointing(resume, save=at_ends(saved), every=0.0),
    )
    return list(reports), saved


@pytest.mark.slow
@for_each("width", [None, 4])
def test_a_moved_member_has_the_weights_and_momenta_of_its_source(width: int | None) -> None:
    reports, states = _run(width)
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
    before = _before_any_move(width)
    for index in set(range(6)) - {index for index, epoch, _ in moved if epoch == 1}:
        assert all(torch.equal(tensor, before[index][name]) for name, tensor in states[0][index].items())


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


def test_a_population_is_reproducible() -> None:
    assert without_seconds(_saved(4, TRAINING_RULE.judge_of(six()))[0]) == without_seconds(_whole(4)[0])


@pytest.mark.slow
@for_each(("epoch", "width"), [(1, 4), (2, None), (3, 4)])
def test_resuming_a_population_is_exact(epoch: int, width: int | None) -> None:
    reports, saved = _whole(width)
    resumed, again = _saved(width, TRAINING_RULE.judge_of(six()), resume=saved[epoch - 1])
    assert without_seconds(resumed) == without_seconds(reports)
    for mine, theirs in zip(again, saved[epoch:], strict=True):
        states = [tensors_of(content_of(checkpoint)["state"], range(6)) for checkpoint in (mine, theirs)]
        assert all(torch.equal(states[0][i][name], tensor) for i in range(6) for name, tensor in states[1][i].items())


def test_the_stack_width_does_not_change_a_population(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whom a member moves to does not hang on the stack that it is in."""
    moves = {
        1: {0: Move(5, {"lr": 0.03, "beta": 1.7}), 2: Move(4, {"weight_decay": 0.02})},
        3: {4: Move(0, {"lr": 0.01})},
    }

    def judge(report: Report) -> Verdict:
        return Verdict(pruned={1: "slow"} if report.epoch == 2 else {}, moves=moves.get(report.epoch, {}))

    with float64(monkeypatch):
        stacked, cut = (list(train(six(), HERE, width=width, callbacks=Callbacks(judge))) for width in (None, 2))
    for index in range(6):
        assert [report.members[index].schedule for report in cut] == [
            report.members[index].schedule for report in stacked
        ]
        for actual, expected in zip(metrics_of(cut, index), metrics_of(stacked, index), strict=True):
            assert actual == pytest.approx(expected, rel=1e-7, abs=1e-9)
    assert cut[-1].members[1].status == "pruned"


def test_a_member_may_copy_one_that_the_same_verdict_prunes() -> None:
    verdict = Verdict({0: "slow"}, {2: Move(0, {"lr": 0.03})})
    callbacks = Callbacks(lambda report: verdict if report.epoch == 1 else Verdict())
    reports = list(train(six()[:3], HERE, callbacks=callbacks))
    assert [member.status for member in reports[-1].members] == ["pruned", "finished", "finished"]
    assert parse_schedule(reports[-1].members[2].schedule) == ({"epoch": 1, "from": 0, "lr": 0.03},)
    assert reports[0].members[0].schedule is None and reports[0].members[2].schedule is not None


def test_copying_a_member_that_has_ended_is_refused() -> None:
    def judge(report: Report) -> Verdict:
        return Verdict({0: "slow"}) if report.epoch == 1 else Verdict(moves={2: Move(0, {})})

    with pytest.raises(
        ValueError, match=r"^a member can only copy another running member, but got 2 copying 0; .*: 1, 2$"
    ):
        list(train(six()[:3], HERE, callbacks=Callbacks(judge)))
