"""Heartbeats between the steps of a training. For stops and checkpoints see `test_stopping`."""

import pytest

from tests.trainables.small import HERE, at_ends, three
from tests.trainables.training.judged import without_seconds
from trainables.reports import Heartbeat
from trainables.training import train as module
from trainables.training.train import train


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
