"""Members that are pruned or diverge while their cohort trains: what is reported, and how the others continue."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from tests.trainables.small import HERE, at_ends, content_of, metrics_of
from tests.trainables.training.judged import float64, pruning, six, smooth, tensors_of, without_seconds
from trainables.contract import Batch, Losses
from trainables.methods.variational.vje import VJE
from trainables.reports import Report, Verdict
from trainables.training.cohort import Cohort
from trainables.training.train import train

TO_TWO = {1: {0: "slow", 3: "slow"}, 2: {2: "slower", 5: "slower"}}
"""After two epochs of six members 1 and 4 are left."""


@cache
def _whole(width: int | None = None) -> tuple[list[Report], list[bytes]]:
    """The reports of a run with pruning, and its checkpoints after each epoch but the last."""
    saved: list[bytes] = []
    judge = pruning(TO_TWO)
    return list(train(six(), HERE, width=width, judge=judge, save=at_ends(saved), save_every=0.0)), saved


def _trained(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """A list to which the members of each epoch that is trained from now on are appended."""
    trained: list[tuple[int, ...]] = []
    real = Cohort.epoch

    def epoch(self: Cohort, number: int, *begun: Any) -> dict[str, np.ndarray]:
        trained.append(self.members)
        return real(self, number, *begun)

    monkeypatch.setattr(Cohort, "epoch", epoch)
    return trained


def test_a_pruned_member_is_in_the_same_report_and_leaves_the_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    trained = _trained(monkeypatch)
    reports = list(train(six(), HERE, judge=pruning(TO_TWO)))
    assert trained == [(0, 1, 2, 3, 4, 5), (1, 2, 4, 5), (1, 4), (1, 4)]
    statuses = ["".join(member.status[0] for member in report.members) for report in reports]
    assert statuses == ["prrprr", "prpprp", "prpprp", "pfppfp"]
    assert [report.done for report in reports] == [False, False, False, True]
    for index, epoch, reason in ((0, 1, "slow"), (3, 1, "slow"), (2, 2, "slower"), (5, 2, "slower")):
        ended = [report.members[index] for report in reports[epoch - 1 :]]
        assert (ended[0].epochs_run, ended[0].error) == (epoch, reason)
        assert all(member == ended[0] for member in ended)


def test_a_pruned_member_keeps_the_metrics_of_its_last_report() -> None:
    judged_reports: list[Report] = []

    def judge(report: Report) -> Verdict:
        judged_reports.append(report)
        return Verdict(pruned=TO_TWO.get(report.epoch, {}))

    reports = list(train(six(), HERE, judge=judge))
    assert [report.epoch for report in judged_reports] == [1, 2, 3]
    assert [{member.status for member in report.members} for report in judged_reports[:2]] == [
        {"running"},
        {"running", "pruned"},
    ]
    for index, epoch in ((0, 1), (2, 2)):
        judged, ended = judged_reports[epoch - 1].members[index], reports[-1].members[index]
        assert judged.status == "running" and ended.metrics == judged.metrics and None not in ended.metrics.values()


@pytest.mark.parametrize("width", [None, 1, 2, 4])
def test_pruning_does_not_change_the_metrics_of_the_remaining_members(
    width: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with float64(monkeypatch):
        pruned, whole = (list(train(six(), HERE, width=width, judge=judge)) for judge in (pruning(TO_TWO), None))
        for index in (1, 4):
            alone = metrics_of(list(train([six()[index]], HERE)), 0)
            for expected in (metrics_of(whole, index), alone):
                for actual, metrics in zip(metrics_of(pruned, index), expected, strict=True):
                    assert actual == pytest.approx(metrics, rel=1e-7, abs=1e-9)


@pytest.mark.parametrize("width", [None, 2])
def test_a_judge_that_prunes_no_member_changes_nothing(width: int | None) -> None:
    judged, plain = (list(train(six(), HERE, width=width, judge=judge)) for judge in (pruning({}), None))
    assert without_seconds(judged) == without_seconds(plain)


def test_pruning_all_members_ends_training(monkeypatch: pytest.MonkeyPatch) -> None:
    trained = _trained(monkeypatch)
    everyone = {2: dict.fromkeys(range(6), "none good"), 3: {0: "never asked"}}
    reports = list(train(six(), HERE, judge=pruning(everyone)))
    assert [report.epoch for report in reports] == [1, 2] and len(trained) == 2
    assert [report.done for report in reports] == [False, True]
    assert {member.status for member in reports[-1].members} == {"pruned"}
    assert {member.error for member in reports[-1].members} == {"none good"}


def test_a_pruned_member_is_never_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    configs = [smooth(normal_class=None, probe_epochs=1, beta=beta, epochs=2, batch_size=600) for beta in (0.5, 1, 2)]
    reports = list(train(configs, HERE, judge=pruning({1: {1: "slow"}})))
    probed = [any(name.startswith("probe") for name in member.metrics) for member in reports[-1].members]
    assert probed == [True, False, True]
    evaluated: list[bool] = []

    def evaluate(self: Cohort, last: bool) -> dict[str, np.ndarray]:
        evaluated.append(last)
        return {}

    monkeypatch.setattr(Cohort, "evaluate", evaluate)
    list(train(configs, HERE, judge=pruning({1: dict.fromkeys(range(3), "slow")})))
    assert evaluated == [False]


@pytest.mark.parametrize("width", [None, 1, 2])
@pytest.mark.parametrize("epoch", [1, 2, 3])
def test_resuming_a_pruned_cohort_is_exact(epoch: int, width: int | None) -> None:
    reports, saved = _whole(width)
    judged_epochs: list[int] = []

    def judge(report: Report) -> Verdict:
        judged_epochs.append(report.epoch)
        return Verdict(pruned=TO_TWO.get(report.epoch, {}))

    resaved: list[bytes] = []
    keep = at_ends(resaved)
    actual = list(train(six(), HERE, width=width, judge=judge, resume=saved[epoch - 1], save=keep, save_every=0.0))
    assert judged_epochs == [rung for rung in (1, 2, 3) if rung > epoch]
    assert without_seconds(actual) == without_seconds(reports)
    assert actual[:epoch] == reports[:epoch]  # replayed, seconds included
    for mine, theirs, stay in zip(resaved, saved[epoch:], [(1, 4)] * 3, strict=False):
        states = [tensors_of(content_of(checkpoint)["state"], stay) for checkpoint in (mine, theirs)]
        assert all(torch.equal(states[0][i][name], tensor) for i in stay for name, tensor in states[1][i].items())


def test_verdicts_before_a_resume_hold_without_a_judge() -> None:
    reports, saved = _whole()
    assert without_seconds(list(train(six(), HERE, resume=saved[1]))) == without_seconds(reports)


def _spoil(monkeypatch: pytest.MonkeyPatch, beta: float) -> None:
    """Make the loss of the member with this beta not finite."""
    real: Callable[..., Losses] = VJE.losses

    def losses(self: VJE, batch: Batch, noise: Mapping[str, torch.Tensor]) -> Losses:
        losses = real(self, batch, noise)
        return losses._replace(total=torch.where((self.beta - beta).abs() < 1e-6, torch.nan, losses.total))

    monkeypatch.setattr(VJE, "losses", losses)


@pytest.mark.parametrize("width", [None, 2])
@pytest.mark.parametrize("report_every", [1, 3])
def test_a_diverged_member_leaves_the_stack_too(
    report_every: int, width: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with float64(monkeypatch):
        configs = six(report_every=report_every)
        clean = list(train(configs, HERE, width=width))
        _spoil(monkeypatch, 0.8)
        trained = _trained(monkeypatch)
        reports = list(train(configs, HERE, width=width))
    assert trained == [(0, 1, 2, 3, 4, 5), *[(0, 2, 3, 4, 5)] * 3]
    assert {(report.members[1].status, report.members[1].epochs_run) for report in reports} == {("diverged", 1)}
    for index in (0, 2, 3, 4, 5):
        for actual, expected in zip(metrics_of(reports, index), metrics_of(clean, index), strict=True):
            assert actual == pytest.approx(expected, rel=1e-7, abs=1e-9)


def test_a_member_that_has_diverged_cannot_be_pruned(monkeypatch: pytest.MonkeyPatch) -> None:
    """A resumed cohort may receive the same verdict a second time."""
    _spoil(monkeypatch, 0.8)
    reports = list(train(six(), HERE, judge=pruning({1: {1: "slow", 0: "slow"}})))
    assert [member.status for member in reports[-1].members[:2]] == ["pruned", "diverged"]
    assert reports[-1].members[1].error == "loss was not finite in epoch 1"


def test_training_ends_when_all_members_have_diverged_or_were_pruned(monkeypatch: pytest.MonkeyPatch) -> None:
    _spoil(monkeypatch, 0.8)
    (report,) = train(six()[:2], HERE, judge=pruning({1: {0: "slow"}}))
    assert report.done and [member.status for member in report.members] == ["pruned", "diverged"]


def _shares(report: Report) -> list[float]:
    return [member.seconds for member in report.members]


def test_seconds_of_an_epoch_are_shared_by_the_members_that_trained_in_it() -> None:
    reports, _ = _whole()
    for report in reports:
        assert sum(_shares(report)) == pytest.approx(report.seconds)
    first, second, third, last = (report.seconds for report in reports)
    by_epoch = [first / 6, (second - first) / 4, (third - second) / 2, (last - third) / 2]
    expected = [sum(by_epoch[:epochs]) for epochs in (1, 4, 2, 1, 4, 2)]
    assert _shares(reports[-1]) == pytest.approx(expected)


def test_seconds_are_shared_between_reports_and_through_a_resume_too(monkeypatch: pytest.MonkeyPatch) -> None:
    _spoil(monkeypatch, 0.8)
    saved: list[bytes] = []
    configs = six(report_every=3)
    list(train(configs, HERE, save=at_ends(saved), save_every=0.0))
    for report in train(configs, HERE, resume=saved[1]):
        assert sum(_shares(report)) == pytest.approx(report.seconds)
        assert len({round(share, 12) for share in _shares(report)}) == 2
        assert 0 < report.members[1].seconds < report.members[0].seconds


def test_seconds_of_untrained_members_are_shared() -> None:
    (report,) = train([smooth(epochs=0, beta=beta) for beta in (0.5, 1.0)], HERE)
    assert _shares(report) == pytest.approx([report.seconds / 2] * 2) and report.seconds > 0


def test_waiting_for_a_judge_does_not_count_as_training(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def tick() -> float:
        nonlocal now
        now += 1.0
        return now

    def slow(report: Report) -> Verdict:
        nonlocal now
        now += 1000.0
        return Verdict()

    monkeypatch.setattr("trainables.training.train.time.perf_counter", tick)
    assert [report.seconds for report in train([smooth()], HERE, judge=slow)][-1] < 1000.0
