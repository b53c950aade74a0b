"""Between the steps of a training: it stops within an epoch and resumes from there exactly, and sends heartbeats."""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest

from tests.trainables.small import HERE, at_ends, config_of, content_of, state_of, three
from tests.trainables.training.judged import six, without_seconds
from trainables.reports import Heartbeat, Report, Stopped, Verdict
from trainables.sections import TrialConfig
from trainables.training import train as module
from trainables.training.cohort import Cohort
from trainables.training.train import train

STEPS = 2
"""Steps of an epoch of `three`."""


@cache
def _whole(width: int | None) -> tuple[list[Report], list[bytes]]:
    saved: list[bytes] = []
    return list(train(three(), HERE, width=width, save=at_ends(saved), save_every=0.0)), saved


def _counted(limit: int) -> Callable[[], bool]:
    """A stop callback that returns True from its call number `limit` on."""
    calls: Iterator[int] = iter(range(1, 10**9))
    return lambda: next(calls) >= limit


def _stopped(at: int, configs: list[TrialConfig], **options: Any) -> tuple[list[Report], bytes, str]:
    """Reports, last checkpoint and message of a training that stops when it asks for the `at`-th time."""
    saved: list[bytes] = []
    reports: list[Report] = []
    with pytest.raises(Stopped) as stopped:
        reports += train(configs, HERE, save=saved.append, stop=_counted(at), **options)
    return reports, saved[-1], str(stopped.value)


@pytest.mark.parametrize(("at", "width"), [(1, None), (2, 1), (3, 2), (7, None)])
def test_resuming_after_a_stop_at_any_step_is_exact(at: int, width: int | None) -> None:
    """Stopped at steps and within the evaluation after the second epoch; the resumed run saves after each epoch."""
    reports, ends = _whole(width)
    _, saved, _ = _stopped(at, three(), width=width)
    resaved: list[bytes] = []
    actual = list(train(three(), HERE, width=width, resume=saved, save=at_ends(resaved), save_every=0.0))
    assert without_seconds(actual) == without_seconds(reports)
    assert [state_of(checkpoint) for checkpoint in resaved] == [
        state_of(checkpoint) for checkpoint in ends[-len(resaved) :]
    ]


def test_a_stop_takes_effect_within_a_step_and_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[tuple[int, int]] = []
    real = Cohort.step

    def step(self: Cohort, epoch: int, number: int, *arguments: Any) -> Any:
        steps.append((epoch, number))
        return real(self, epoch, number, *arguments)

    monkeypatch.setattr(Cohort, "step", step)
    _, saved, message = _stopped(3, three())
    assert steps == [(0, 0), (0, 1), (1, 0)] and message == "checkpoint saved at epoch 1 step 1"
    list(train(three(epochs=5), HERE, resume=saved))
    assert steps[3:5] == [(1, 1), (2, 0)] and len(steps) == 5 * STEPS


def test_checkpoints_are_saved_within_an_epoch() -> None:
    saved: list[bytes] = []
    list(train(three(epochs=2), HERE, save=saved.append, save_every=0.0))
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
    for at in (4, 9, 14, 19):
        _, saved, message = _stopped(at, configs, save_every=1e9)
        assert message == "checkpoint saved at epoch 0 step 3"
    assert without_seconds(list(train(configs, HERE, resume=saved))) == without_seconds(whole)


def test_a_judge_interrupted_by_a_stop_is_asked_again() -> None:
    judged_epochs: list[int] = []

    def judge(report: Report) -> Verdict:
        judged_epochs.append(report.epoch)
        return Verdict(pruned={0: "late", 3: "late"} if report.epoch == 2 else {})

    def interrupted(report: Report) -> Verdict:
        if report.epoch == 2:
            raise Stopped
        return judge(report)

    whole = list(train(six(), HERE, judge=judge))
    saved: list[bytes] = []
    with pytest.raises(Stopped, match=r"^checkpoint saved at epoch 1 step \d+$"):
        list(train(six(), HERE, judge=interrupted, save=saved.append))
    assert judged_epochs == [1, 2, 3, 1]
    assert without_seconds(list(train(six(), HERE, judge=judge, resume=saved[-1]))) == without_seconds(whole)
    assert judged_epochs[4:] == [2, 3]


def test_training_stops_without_a_save_callback() -> None:
    with pytest.raises(Stopped):
        list(train(three(), HERE, stop=lambda: True))


def test_heartbeats_come_between_reports_and_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """`three` trains five epochs of two steps each, and reports after the second, the fourth and the last."""
    monkeypatch.setattr(module, "HEARTBEAT_SECONDS", 0.0)
    heartbeats: list[Heartbeat] = []
    reports = list(train(three(), HERE, send_heartbeat=heartbeats.append))
    assert [heartbeat.epoch for heartbeat in heartbeats] == [0.5 * step for step in range(1, 11)]
    assert {heartbeat.epochs for heartbeat in heartbeats} == {5}
    assert without_seconds(reports) == without_seconds(list(train(three(), HERE)))
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
    list(train(three(), HERE, send_heartbeat=heartbeats.append))
    assert [heartbeat.epoch for heartbeat in heartbeats] == [2.5, 5.0]


def test_a_heartbeat_leaves_out_a_loss_that_is_not_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEARTBEAT_SECONDS", 0.0)
    heartbeats: list[Heartbeat] = []
    list(train(three(lr=1e30), HERE, send_heartbeat=heartbeats.append))
    assert heartbeats[-1].loss is None and heartbeats[0].loss is not None


def test_a_checkpoint_comes_before_a_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEARTBEAT_SECONDS", 0.0)
    heartbeats: list[Heartbeat] = []
    saved: list[bytes] = []
    list(train(three(), HERE, send_heartbeat=heartbeats.append, save=at_ends(saved), save_every=0.0))
    assert len(saved) == 4  # none after the last epoch
    assert [heartbeat.epoch for heartbeat in heartbeats] == [1.0, 2.0, 3.0, 4.0, 5.0]  # other steps save


def test_a_training_that_continues_says_first_where_it_begins() -> None:
    """Before the reports of the first process come again."""
    saved: list[bytes] = []
    list(train(three(), HERE, save=saved.append, save_every=0.0))
    told: list[object] = []
    for report in train(three(), HERE, resume=saved[4], send_heartbeat=told.append):
        told.append(report.epoch)
    first, *later = told
    assert isinstance(first, Heartbeat) and first.epoch == first.begun > 0 and first.loss is None
    assert later and not any(isinstance(one, Heartbeat) for one in later)
