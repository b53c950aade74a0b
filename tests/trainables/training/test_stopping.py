"""Between the steps of a training: it stops within an epoch and resumes from there exactly, and sends heartbeats.

Members that are pruned or diverge while their cohort trains: what is reported, and how the others continue.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from tests.cases import for_each
from tests.trainables.small import HERE, at_ends, config_of, content_of, metrics_of, state_of, three
from tests.trainables.training.judged import float64, pruning, six, smooth, tensors_of, without_seconds
from trainables.contract import Batch, Losses
from trainables.methods.variational.vje import VJE
from trainables.reports import SAVE_EVERY, Heartbeat, Report, Stopped, Verdict
from trainables.sections import TrialConfig
from trainables.training import train as module
from trainables.training.cohort import TrainingCohort
from trainables.training.train import Callbacks, Checkpointing, train

STEPS = 2
"""Steps of an epoch of `three`."""


@cache
def _whole(width: int | None) -> tuple[list[Report], list[bytes]]:
    saved: list[bytes] = []
    return list(train(three(), HERE, width=width, checkpointing=Checkpointing(save=at_ends(saved), every=0.0))), saved


def _counted(limit: int) -> Callable[[], bool]:
    """A stop callback that returns True from its call number `limit` on."""
    calls: Iterator[int] = iter(range(1, 10**9))
    return lambda: next(calls) >= limit


def _stopped(
    at: int, configs: list[TrialConfig], save_every: float = SAVE_EVERY, **options: Any
) -> tuple[list[Report], bytes, str]:
    """Reports, last checkpoint and message of a training that stops when it asks for the `at`-th time."""
    saved: list[bytes] = []
    reports: list[Report] = []
    with pytest.raises(Stopped) as stopped:
        reports += train(
            configs,
            HERE,
            checkpointing=Checkpointing(save=saved.append, every=save_every),
            callbacks=Callbacks(stop=_counted(at)),
            **options,
        )
    return reports, saved[-1], str(stopped.value)


@pytest.mark.slow
@for_each(("at", "width"), [(2, None), (3, 2), (7, None)])
def test_resuming_after_a_stop_at_any_step_is_exact(at: int, width: int | None) -> None:
    """Stopped at steps and within the evaluation after the second epoch; the resumed run saves after each epoch."""
    reports, ends = _whole(width)
    _, saved, _ = _stopped(at, three(), width=width)
    resaved: list[bytes] = []
    actual = list(
        train(three(), HERE, width=width, checkpointing=Checkpointing(saved, save=at_ends(resaved), every=0.0))
    )
    assert without_seconds(actual) == without_seconds(reports)
    assert [state_of(checkpoint) for checkpoint in resaved] == [
        state_of(checkpoint) for checkpoint in ends[-len(resaved) :]
    ]


def test_a_stop_takes_effect_within_a_step_and_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[tuple[int, int]] = []
    real = TrainingCohort.step

    def step(self: TrainingCohort, epoch: int, number: int, *arguments: Any) -> Any:
        steps.append((epoch, number))
        return real(self, epoch, number, *arguments)

    monkeypatch.setattr(TrainingCohort, "step", step)
    _, saved, message = _stopped(3, three())
    assert steps == [(0, 0), (0, 1), (1, 0)] and message == "checkpoint saved at epoch 1 step 1"
    list(train(three(epochs=5), HERE, checkpointing=Checkpointing(saved)))
    assert steps[3:5] == [(1, 1), (2, 0)] and len(steps) == 5 * STEPS


def test_checkpoints_are_saved_within_an_epoch() -> None:
    saved: list[bytes] = []
    list(train(three(epochs=2), HERE, checkpointing=Checkpointing(save=saved.append, every=0.0)))
    standings = [content_of(checkpoint)["standing"] for checkpoint in saved]
    assert [(standing["epoch"], standing["step"]) for standing in standings] == [(0, 1), (1, 0), (1, 1)]
    seconds = [standing["seconds"] for standing in standings]
    assert 0 < seconds[0] < seconds[1] < seconds[2]
    assert all(sum(standing["shares"]) == pytest.approx(standing["seconds"]) for standing in standings)


def test_a_stop_ends_an_evaluation_which_a_resume_repeats() -> None:
    """With classifiers, a stop takes effect between batches, between members and between epochs of a probe."""
    configs = [
        config_of(normal_class=None, knn=3, probe_epochs=4, epochs=1, report_every=1, batch_size=400, seed=s)
        for s in (0, 1)
    ]
    whole = list(train(configs, HERE))
    for at in (4, 14, 19):
        _, saved, message = _stopped(at, configs, save_every=1e9)
        assert message == "checkpoint saved at epoch 0 step 3"
    assert without_seconds(list(train(configs, HERE, checkpointing=Checkpointing(saved)))) == without_seconds(whole)


def test_a_judge_interrupted_by_a_stop_is_asked_again() -> None:
    judged_epochs: list[int] = []

    def judge(report: Report) -> Verdict:
        judged_epochs.append(report.epoch)
        return Verdict(pruned={0: "late", 3: "late"} if report.epoch == 2 else {})

    def interrupted(report: Report) -> Verdict:
        if report.epoch == 2:
            raise Stopped
        return judge(report)

    whole = list(train(six(), HERE, callbacks=Callbacks(judge)))
    saved: list[bytes] = []
    with pytest.raises(Stopped, match=r"^checkpoint saved at epoch 1 step \d+$"):
        list(train(six(), HERE, callbacks=Callbacks(interrupted), checkpointing=Checkpointing(save=saved.append)))
    assert judged_epochs == [1, 2, 3, 1]
    assert without_seconds(
        list(train(six(), HERE, callbacks=Callbacks(judge), checkpointing=Checkpointing(saved[-1])))
    ) == without_seconds(whole)
    assert judged_epochs[4:] == [2, 3]


def test_training_stops_without_a_save_callback() -> None:
    with pytest.raises(Stopped):
        list(train(three(), HERE, callbacks=Callbacks(stop=lambda: True)))


def test_heartbeats_come_between_reports_and_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """`three` trains five epochs of two steps each, and reports after the second, the fourth and the last."""
    monkeypatch.setattr(module, "HEARTBEAT_SECONDS", 0.0)
    heartbeats: list[Heartbeat] = []
    reports = list(train(three(), HERE, callbacks=Callbacks(send_heartbeat=heartbeats.append)))
    assert [heartbeat.epoch for heartbeat in heartbeats] == [0.5 * step for step in range(1, 11)]
    assert {heartbeat.epochs for heartbeat in heartbeats} == {5}
    assert without_seconds(reports) == without_seconds(_whole(None)[0])
    second = [float(member.metrics["loss"] or 0.0) for member in reports[0].members]
    assert heartbeats[3].loss == pytest.approx(sum(second) / 3)  # at the end of the second epoch


def test_heartbeats_keep_their_minimum_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 1.0  # asked once a step, and once more at the start and after a heartbeat
        return now

    monkeypatch.setattr("trainables.training.train.time.monotonic", clock)
    heartbeats: list[Heartbeat] = []
    list(train(three(), HERE, callbacks=Callbacks(send_heartbeat=heartbeats.append)))
    assert [heartbeat.epoch for heartbeat in heartbeats] == [2.5, 5.0]


def test_a_heartbeat_leaves_out_a_loss_that_is_not_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEARTBEAT_SECONDS", 0.0)
    heartbeats: list[Heartbeat] = []
    list(train(three(lr=1e30, epochs=2), HERE, callbacks=Callbacks(send_heartbeat=heartbeats.append)))
    assert heartbeats[-1].loss is None and heartbeats[0].loss is not None


def test_a_checkpoint_comes_before_a_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEARTBEAT_SECONDS", 0.0)
    heartbeats: list[Heartbeat] = []
    saved: list[bytes] = []
    list(
        train(
            three(),
            HERE,
            callbacks=Callbacks(send_heartbeat=heartbeats.append),
            checkpointing=Checkpointing(save=at_ends(saved), every=0.0),
        )
    )
    assert len(saved) == 4  # none after the last epoch
    assert [heartbeat.epoch for heartbeat in heartbeats] == [1.0, 2.0, 3.0, 4.0, 5.0]  # other steps save


def test_a_training_that_continues_says_first_where_it_begins() -> None:
    """Before the reports of the first process come again."""
    _, saved = _whole(None)
    sent: list[object] = []
    for report in train(
        three(), HERE, checkpointing=Checkpointing(saved[2]), callbacks=Callbacks(send_heartbeat=sent.append)
    ):
        sent.append(report.epoch)
    first, *later = sent
    assert isinstance(first, Heartbeat) and first.epoch == first.begun > 0 and first.loss is None
    assert later and not any(isinstance(one, Heartbeat) for one in later)


TO_TWO = {1: {0: "slow", 3: "slow"}, 2: {2: "slower", 5: "slower"}}
"""After two epochs of six members 1 and 4 are left."""


@cache
def _pruning_whole(width: int | None = None) -> tuple[list[Report], list[bytes]]:
    """The reports of a run with pruning, and its checkpoints after each epoch but the last."""
    saved: list[bytes] = []
    judge = pruning(TO_TWO)
    return list(
        train(
            six(),
            HERE,
            width=width,
            callbacks=Callbacks(judge),
            checkpointing=Checkpointing(save=at_ends(saved), every=0.0),
        )
    ), saved


def _trained(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """A list to which the members of each epoch that is trained from now on are appended."""
    trained: list[tuple[int, ...]] = []
    real = TrainingCohort.epoch

    def epoch(self: TrainingCohort, number: int, *begun: Any) -> dict[str, np.ndarray]:
        trained.append(self.members)
        return real(self, number, *begun)

    monkeypatch.setattr(TrainingCohort, "epoch", epoch)
    return trained


def test_a_pruned_member_is_in_the_same_report_and_leaves_the_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    trained = _trained(monkeypatch)
    reports = list(train(six(), HERE, callbacks=Callbacks(pruning(TO_TWO))))
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

    reports = list(train(six(), HERE, callbacks=Callbacks(judge)))
    assert [report.epoch for report in judged_reports] == [1, 2, 3]
    assert [{member.status for member in report.members} for report in judged_reports[:2]] == [
        {"running"},
        {"running", "pruned"},
    ]
    for index, epoch in ((0, 1), (2, 2)):
        judged, ended = judged_reports[epoch - 1].members[index], reports[-1].members[index]
        assert judged.status == "running" and ended.metrics == judged.metrics and None not in ended.metrics.values()


@pytest.mark.slow
@for_each("width", [None, 4])
def test_pruning_does_not_change_the_metrics_of_the_remaining_members(
    width: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with float64(monkeypatch):
        pruned, whole = (
            list(train(six(), HERE, width=width, callbacks=Callbacks(judge))) for judge in (pruning(TO_TWO), None)
        )
        for index in (1, 4):
            for actual, metrics in zip(metrics_of(pruned, index), metrics_of(whole, index), strict=True):
                assert actual == pytest.approx(metrics, rel=1e-7, abs=1e-9)


@pytest.mark.slow
def test_a_judge_that_prunes_no_member_changes_nothing() -> None:
    judged, plain = (list(train(six(), HERE, width=2, callbacks=Callbacks(judge))) for judge in (pruning({}), None))
    assert without_seconds(judged) == without_seconds(plain)


def test_pruning_all_members_ends_training(monkeypatch: pytest.MonkeyPatch) -> None:
    trained = _trained(monkeypatch)
    everyone = {2: dict.fromkeys(range(6), "none good"), 3: {0: "never asked"}}
    reports = list(train(six(), HERE, callbacks=Callbacks(pruning(everyone))))
    assert [report.epoch for report in reports] == [1, 2] and len(trained) == 2
    assert [report.done for report in reports] == [False, True]
    assert {member.status for member in reports[-1].members} == {"pruned"}
    assert {member.error for member in reports[-1].members} == {"none good"}


def test_a_pruned_member_is_never_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    configs = [smooth(normal_class=None, probe_epochs=1, beta=beta, epochs=2, batch_size=600) for beta in (0.5, 1, 2)]
    reports = list(train(configs, HERE, callbacks=Callbacks(pruning({1: {1: "slow"}}))))
    probed = [any(name.startswith("probe") for name in member.metrics) for member in reports[-1].members]
    assert probed == [True, False, True]
    evaluated: list[bool] = []

    def evaluate(self: TrainingCohort, last: bool) -> dict[str, np.ndarray]:
        evaluated.append(last)
        return {}

    monkeypatch.setattr(TrainingCohort, "evaluate", evaluate)
    list(train(configs, HERE, callbacks=Callbacks(pruning({1: dict.fromkeys(range(3), "slow")}))))
    assert evaluated == [False]


@pytest.mark.slow
@for_each(("epoch", "width"), [(1, None), (2, 2), (3, None)])
def test_resuming_a_pruned_cohort_is_exact(epoch: int, width: int | None) -> None:
    reports, saved = _pruning_whole(width)
    judged_epochs: list[int] = []

    def judge(report: Report) -> Verdict:
        judged_epochs.append(report.epoch)
        return Verdict(pruned=TO_TWO.get(report.epoch, {}))

    resaved: list[bytes] = []
    keep = at_ends(resaved)
    actual = list(
        train(
            six(),
            HERE,
            width=width,
            callbacks=Callbacks(judge),
            checkpointing=Checkpointing(saved[epoch - 1], save=keep, every=0.0),
        )
    )
    assert judged_epochs == [rung for rung in (1, 2, 3) if rung > epoch]
    assert without_seconds(actual) == without_seconds(reports)
    assert actual[:epoch] == reports[:epoch]  # replayed, seconds included
    for mine, theirs, stay in zip(resaved, saved[epoch:], [(1, 4)] * 3, strict=False):
        states = [tensors_of(content_of(checkpoint)["state"], stay) for checkpoint in (mine, theirs)]
        assert all(torch.equal(states[0][i][name], tensor) for i in stay for name, tensor in states[1][i].items())


def test_verdicts_before_a_resume_hold_without_a_judge() -> None:
    reports, saved = _pruning_whole()
    assert without_seconds(list(train(six(), HERE, checkpointing=Checkpointing(saved[1])))) == without_seconds(reports)


def _spoil(monkeypatch: pytest.MonkeyPatch, beta: float) -> None:
    """Make the loss of the member with this beta not finite."""
    real: Callable[..., Losses] = VJE.losses

    def losses(self: VJE, batch: Batch, noise: Mapping[str, torch.Tensor]) -> Losses:
        losses = real(self, batch, noise)
        return losses._replace(total=torch.where((self.beta - beta).abs() < 1e-6, torch.nan, losses.total))

    monkeypatch.setattr(VJE, "losses", losses)


@pytest.mark.slow
@for_each(("report_every", "width"), [(1, None), (3, 2)])
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
    reports = list(train(six(), HERE, callbacks=Callbacks(pruning({1: {1: "slow", 0: "slow"}}))))
    assert [member.status for member in reports[-1].members[:2]] == ["pruned", "diverged"]
    assert reports[-1].members[1].error == "loss was not finite in epoch 1, first at step 1 of 2 (loss)"


def test_training_ends_when_all_members_have_diverged_or_were_pruned(monkeypatch: pytest.MonkeyPatch) -> None:
    _spoil(monkeypatch, 0.8)
    (report,) = train(six()[:2], HERE, callbacks=Callbacks(pruning({1: {0: "slow"}})))
    assert report.done and [member.status for member in report.members] == ["pruned", "diverged"]


def _shares(report: Report) -> list[float]:
    return [member.seconds for member in report.members]


def test_seconds_of_an_epoch_are_shared_by_the_members_that_trained_in_it() -> None:
    reports, _ = _pruning_whole()
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
    list(train(configs, HERE, checkpointing=Checkpointing(save=at_ends(saved), every=0.0)))
    for report in train(configs, HERE, checkpointing=Checkpointing(saved[1])):
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
    assert [report.seconds for report in train([smooth()], HERE, callbacks=Callbacks(slow))][-1] < 1000.0
