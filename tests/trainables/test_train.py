"""The loop: what is reported when, going on from a checkpoint, and members that diverge."""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from trainables.checkpoint import DIGEST_SIZE, sealed
from trainables.cohort import Cohort
from trainables.config import TrialConfig, Value, resolve
from trainables.contract import Losses, Report
from trainables.methods.vje import VJE
from trainables.train import metric_names, train

HERE = Path()
"""The digits need no folder."""


def _config(**changes: Value) -> TrialConfig:
    given: dict[str, Value] = {
        "method": "vje", "normal_class": 3, "width": 16, "features": 8, "bottleneck": 8, "batch_size": 60,
        "epochs": 5, "report_every": 2, "lr": 0.02, "rotation": 10.0, "shift": 0.25,
    }  # fmt: skip
    return resolve({**given, **changes})


def _three(**changes: Value) -> list[TrialConfig]:
    return [_config(beta=beta, **{"seed": seed, **changes}) for beta, seed in ((0.5, 0), (1.0, 1), (2.0, 0))]


def _without_seconds(reports: list[Report]) -> list[Any]:
    return [(report.epoch, report.members, report.done) for report in reports]


def _metrics(reports: list[Report], member: int) -> list[dict[str, float | None]]:
    return [dict(report.members[member].metrics) for report in reports]


@pytest.mark.parametrize(("every", "epochs"), [(1, [1, 2, 3, 4, 5]), (2, [2, 4, 5]), (5, [5]), (9, [5])])
def test_reports_come_every_so_often_and_at_the_end(every: int, epochs: list[int]) -> None:
    reports = list(train([_config(report_every=every)], HERE))
    assert [report.epoch for report in reports] == epochs
    assert [report.done for report in reports] == [False] * (len(epochs) - 1) + [True]
    assert [report.members[0].status for report in reports] == ["running"] * (len(epochs) - 1) + ["finished"]
    assert [report.members[0].epochs_run for report in reports] == epochs
    assert [report.seconds for report in reports] == sorted(report.seconds for report in reports)


def test_how_often_is_reported_changes_no_metric() -> None:
    often, seldom = (list(train(_three(report_every=every), HERE)) for every in (1, 5))
    assert [_metrics(often[-1:], i) for i in range(3)] == [_metrics(seldom, i) for i in range(3)]


@pytest.mark.parametrize("normal_class", [3, None])
def test_every_metric_is_named_beforehand(normal_class: int | None) -> None:
    config = _config(normal_class=normal_class, epochs=1)
    (report,) = train([config], HERE)
    assert tuple(report.members[0].metrics) == metric_names(config)
    assert any("auroc" in name for name in metric_names(config)) == (normal_class is not None)
    assert all(isinstance(value, float) for value in report.members[0].metrics.values())


@cache
def _run(width: int | None) -> tuple[list[Report], list[bytes]]:
    """Five epochs that report at 2, 4, 5 and save at the end of each but the last."""
    saved: list[bytes] = []
    return list(train(_three(), HERE, width=width, save=saved.append, save_every=0.0)), saved


@pytest.mark.parametrize("width", [None, 1, 2])
def test_saving_changes_nothing(width: int | None) -> None:
    assert _without_seconds(list(train(_three(), HERE, width=width))) == _without_seconds(_run(width)[0])


@pytest.mark.parametrize("width", [None, 1, 2])
@pytest.mark.parametrize("epoch", [1, 2, 3, 4])
def test_goes_on_from_any_checkpoint_bit_for_bit(epoch: int, width: int | None) -> None:
    reports, saved = _run(width)
    assert len(saved) == 4
    again: list[bytes] = []
    resumed = train(_three(), HERE, width=width, resume=saved[epoch - 1], save=again.append, save_every=0.0)
    got = list(resumed)
    assert _without_seconds(got) == _without_seconds(reports)
    before = [report for report in reports if report.epoch <= epoch]
    assert got[: len(before)] == before  # replayed, seconds included
    assert [_state(one) for one in again] == [_state(one) for one in saved[epoch:]]


def _content(data: bytes) -> dict[str, Any]:
    content: dict[str, Any] = torch.load(io.BytesIO(data[DIGEST_SIZE:]), weights_only=True)
    return content


def _state(data: bytes) -> Any:
    """The weights, buffers and momenta of a checkpoint as numbers."""
    state = _content(data)["state"]
    return [{kind: {key: t.tolist() for key, t in stack[kind].items()} for kind in stack} for stack in state]


def _epochs_trained(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The epochs that are trained from now on."""
    epochs: list[int] = []
    real = Cohort.epoch

    def epoch(self: Cohort, number: int) -> dict[str, np.ndarray]:
        epochs.append(number)
        return real(self, number)

    monkeypatch.setattr(Cohort, "epoch", epoch)
    return epochs


def test_a_resumed_run_does_not_train_again_what_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    _, saved = _run(None)
    epochs = _epochs_trained(monkeypatch)
    list(train(_three(), HERE, resume=saved[2]))
    assert epochs == [3, 4]


def test_seconds_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    _, saved = _run(None)
    before = _content(saved[2])["standing"]["seconds"]
    later = [report.seconds for report in train(_three(), HERE, resume=saved[2]) if report.epoch > 3]
    assert 0 < before < later[0] < later[1]


def test_saves_no_more_often_than_asked() -> None:
    saved: list[bytes] = []
    list(train([_config()], HERE, save=saved.append, save_every=3600.0))
    assert saved == []


class _Bomb:
    """Unpickled it makes a folder."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (str(self.target),)


def _flipped(share: float) -> Callable[[bytes], bytes]:
    """One bit flips at this share of the length: torch itself reads most of such files without complaint."""

    def damage(data: bytes) -> bytes:
        place = int(share * len(data))
        return data[:place] + bytes([data[place] ^ 16]) + data[place + 1 :]

    return damage


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: data[:-1],
        lambda data: data + b"more",
        lambda data: b"",
        lambda data: b"no checkpoint",
        *(_flipped(share) for share in (0.0, 0.01, 0.1, 0.3, 0.5, 0.8, 0.99)),
    ],
)
def test_a_damaged_checkpoint_is_ignored(damage: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    reports, saved = _run(None)
    epochs = _epochs_trained(monkeypatch)
    assert _without_seconds(list(train(_three(), HERE, resume=damage(saved[2])))) == _without_seconds(reports)
    assert epochs == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("configs", "width"),
    [
        ([_config(beta=9.0), *_three()[1:]], None),
        (_three()[::-1], None),
        (_three()[:2], None),
        (_three(epochs=6), None),
        (_three(), 2),
    ],
)
def test_a_checkpoint_of_another_cohort_is_ignored(configs: list[TrialConfig], width: int | None) -> None:
    _, saved = _run(None)
    fresh = _without_seconds(list(train(configs, HERE, width=width)))
    assert _without_seconds(list(train(configs, HERE, width=width, resume=saved[2]))) == fresh


@pytest.mark.parametrize("content", [["list"], {}, {"format": 0}, {"format": 1}])
def test_a_foreign_checkpoint_is_ignored(content: Any) -> None:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    reports, _ = _run(None)
    assert _without_seconds(list(train(_three(), HERE, resume=sealed(buffer.getvalue())))) == _without_seconds(reports)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("write", [torch.save, pickle.dump])
def test_a_malicious_checkpoint_is_not_executed(write: Callable[[Any, io.BytesIO], None], tmp_path: Path) -> None:
    buffer = io.BytesIO()
    write({"format": 1, "identity": _Bomb(tmp_path / "executed")}, buffer)
    list(train([_config(epochs=1)], HERE, resume=sealed(buffer.getvalue())))
    assert not (tmp_path / "executed").exists()
    pickle.loads(pickle.dumps(_Bomb(tmp_path / "executed")))
    assert (tmp_path / "executed").exists()  # the bomb was live


def _spoil(monkeypatch: pytest.MonkeyPatch, verb: str, spoilt: Callable[[Any, Tensor], Any]) -> None:
    """Members with beta = 7 get what `spoilt` makes of the result of this verb of VJE; it is given which they are."""
    real = getattr(VJE, verb)

    def call(self: VJE, *tensors: Tensor, **noise: Tensor) -> Any:
        return spoilt(real(self, *tensors, **noise), self.beta == 7)

    monkeypatch.setattr(VJE, verb, call)


def _nan_loss(losses: Losses, bad: Tensor) -> Losses:
    return losses._replace(total=torch.where(bad, torch.nan, losses.total))


def _infinite_score(scores: dict[str, Tensor], bad: Tensor) -> dict[str, Tensor]:
    return scores | {"rad": torch.where(bad, torch.inf, scores["rad"])}


def _neighbours() -> list[TrialConfig]:
    return [_config(beta=0.5), _config(beta=7.0), _config(beta=2.0, seed=1)]


@pytest.mark.parametrize("width", [None, 1])
def test_a_loss_that_is_not_finite_diverges_that_member_alone(
    width: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    clean = list(train(_neighbours(), HERE, width=width))
    _spoil(monkeypatch, "losses", _nan_loss)
    reports = list(train(_neighbours(), HERE, width=width))
    for member in (0, 2):
        assert _metrics(reports, member) == _metrics(clean, member)
    assert [report.members[0].status for report in reports] == ["running", "running", "finished"]
    for report in reports:
        bad = report.members[1]
        assert (bad.status, bad.epochs_run, bad.error) == ("diverged", 1, "loss was not finite in epoch 1")
        assert set(bad.metrics.values()) == {None} and set(bad.metrics) <= set(metric_names(_config()))
    assert [report.epoch for report in reports] == [2, 4, 5]


def test_diverging_is_noticed_in_the_epoch_between_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Cohort.epoch

    def epoch(self: Cohort, number: int) -> dict[str, np.ndarray]:
        losses = real(self, number)
        losses["loss"][1] = np.nan if number == 2 else losses["loss"][1]  # the third epoch alone
        return losses

    monkeypatch.setattr(Cohort, "epoch", epoch)
    reports = list(train(_three(), HERE))
    assert [report.members[1].status for report in reports] == ["running", "diverged", "diverged"]
    assert {report.members[1].error for report in reports[1:]} == {"loss was not finite in epoch 3"}
    assert {report.members[1].epochs_run for report in reports[1:]} == {3}


def test_a_diverged_member_stays_diverged_through_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    _spoil(monkeypatch, "losses", _nan_loss)
    saved: list[bytes] = []
    reports = list(train(_neighbours(), HERE, save=saved.append, save_every=0.0))
    monkeypatch.undo()
    resumed = list(train(_neighbours(), HERE, resume=saved[2]))
    assert _without_seconds(resumed) == _without_seconds(reports)


def test_a_huge_learning_rate_diverges_and_leaves_its_neighbours_as_they_would_be() -> None:
    def cohort(lr: float) -> list[TrialConfig]:
        return [_config(beta=0.5), _config(lr=lr), _config(beta=2.0, lr=0.01)]

    clean, spoilt = list(train(cohort(0.03), HERE)), list(train(cohort(1e30), HERE))
    assert spoilt[-1].members[1].status == "diverged" and "\n" not in (spoilt[-1].members[1].error or "\n")
    without = list(train([cohort(0.03)[0], cohort(0.03)[2]], HERE))
    for member, alone in ((0, 0), (2, 1)):
        assert _metrics(spoilt, member) == _metrics(clean, member)  # bit for bit in a cohort of that size
        for got, expected in zip(_metrics(spoilt, member), _metrics(without, alone), strict=True):
            assert got == pytest.approx(expected, rel=1e-3, abs=1e-3)


def test_a_score_that_is_not_finite_diverges(monkeypatch: pytest.MonkeyPatch) -> None:
    clean = list(train(_neighbours(), HERE))
    _spoil(monkeypatch, "score", _infinite_score)
    reports = list(train(_neighbours(), HERE))
    bad = reports[-1].members[1]
    assert (bad.status, bad.epochs_run, bad.error) == ("diverged", 2, "auroc_rad was not finite in epoch 2")
    assert bad.metrics == dict.fromkeys(metric_names(_config()))
    assert _metrics(reports, 0) == _metrics(clean, 0) and _metrics(reports, 2) == _metrics(clean, 2)


@pytest.mark.parametrize(("verb", "spoilt", "epoch"), [("losses", _nan_loss, 1), ("score", _infinite_score, 2)])
def test_when_all_have_diverged_it_stops(
    verb: str, spoilt: Callable[[Any, Tensor], Any], epoch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _spoil(monkeypatch, verb, spoilt)
    (report,) = train([_config(beta=7.0), _config(beta=7.0, seed=1)], HERE)
    assert report.done and report.epoch == epoch
    assert [member.status for member in report.members] == ["diverged"] * 2


@pytest.mark.parametrize("width", [None, 1])
def test_bfloat16_is_close_to_float32_and_not_the_same(width: int | None) -> None:
    full, half = (list(train(_three(precision=kind), HERE, width=width)) for kind in ("float32", "bfloat16"))
    for member in range(3):
        got, expected = _metrics(half, member)[-1], _metrics(full, member)[-1]
        assert got["loss"] == pytest.approx(expected["loss"], rel=0.02, abs=0.02) and got["loss"] != expected["loss"]
        assert got["auroc_joint"] == pytest.approx(expected["auroc_joint"], abs=0.03)


def test_bfloat16_keeps_weights_in_float32() -> None:
    saved: list[bytes] = []
    list(train([_config(precision="bfloat16")], HERE, save=saved.append, save_every=0.0))
    state = _content(saved[0])["state"][0]
    assert {tensor.dtype for kind in state.values() for tensor in kind.values()} == {torch.float32}


def test_channels_last_gives_the_same() -> None:
    plain, last = (list(train(_three(channels_last=flag), HERE)) for flag in (False, True))
    assert _without_seconds(plain) == _without_seconds(last)


def test_sampled_scores_are_reproducible_alone_or_fused() -> None:
    configs = _three(score_samples=4)
    fused, again = list(train(configs, HERE)), list(train(configs, HERE))
    assert _without_seconds(fused) == _without_seconds(again)
    for member, config in enumerate(configs):
        for got, expected in zip(_metrics(list(train([config], HERE)), 0), _metrics(fused, member), strict=True):
            assert got == pytest.approx(expected, rel=1e-3, abs=1e-3)
    means = _metrics(list(train(_three(), HERE)), 0)[-1]
    sampled = _metrics(fused, 0)[-1]
    assert sampled["auroc_joint"] != means["auroc_joint"] and sampled["auroc_variance"] == means["auroc_variance"]


def test_members_with_unequal_steps_are_no_cohort() -> None:
    with pytest.raises(ValueError, match=r"^the members of a cohort must have equally many steps an epoch, but these"):
        list(train([_config(), _config(normal_class=None)], HERE))


def test_learning_rate_falls_to_nearly_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop counts steps, not epochs, and the warm-up's too: 5 epochs of 2 steps, 2 epochs of warm-up."""
    rates: list[float] = []
    real = Cohort.step

    def step(self: Cohort, epoch: int, number: int, orders: Any, rate: float) -> dict[str, Tensor]:
        rates.append(rate)
        return real(self, epoch, number, orders, rate)

    monkeypatch.setattr(Cohort, "step", step)
    list(train([_config(warmup_epochs=2)], HERE))
    assert rates == pytest.approx([0, 0.25, 0.5, 0.75, 1, 0.933013, 0.75, 0.5, 0.25, 0.066987], abs=1e-6)
