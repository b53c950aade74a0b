"""Training resumes from a checkpoint exactly, and never from a wrong one."""

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

from tests.trainables.small import HERE, at_ends, config_of, content_of, state_of, three
from tests.trainables.training.judged import without_seconds
from trainables.reports import Report
from trainables.sections import TrialConfig
from trainables.training.checkpoint import with_digest
from trainables.training.cohort import Cohort
from trainables.training.train import train


@cache
def _run(width: int | None) -> tuple[list[Report], list[bytes]]:
    """Reports and checkpoints of five epochs: reports after epochs 2, 4 and 5, checkpoints after all but the last."""
    saved: list[bytes] = []
    return list(train(three(), HERE, width=width, save=at_ends(saved), save_every=0.0)), saved


@pytest.mark.parametrize("width", [None, 1, 2])
def test_saving_changes_nothing(width: int | None) -> None:
    assert without_seconds(list(train(three(), HERE, width=width))) == without_seconds(_run(width)[0])


@pytest.mark.parametrize("width", [None, 1, 2])
@pytest.mark.parametrize("epoch", [1, 2, 3, 4])
def test_resuming_from_any_checkpoint_is_exact(epoch: int, width: int | None) -> None:
    reports, saved = _run(width)
    assert len(saved) == 4
    resaved: list[bytes] = []
    resumed = train(three(), HERE, width=width, resume=saved[epoch - 1], save=at_ends(resaved), save_every=0.0)
    actual = list(resumed)
    assert without_seconds(actual) == without_seconds(reports)
    before = [report for report in reports if report.epoch <= epoch]
    assert actual[: len(before)] == before  # replayed, seconds included
    assert [state_of(checkpoint) for checkpoint in resaved] == [state_of(checkpoint) for checkpoint in saved[epoch:]]


def _epochs_trained(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list to which each epoch that is trained from now on is appended."""
    epochs: list[int] = []
    real = Cohort.epoch

    def epoch(self: Cohort, number: int, *begun: Any) -> dict[str, np.ndarray]:
        epochs.append(number)
        return real(self, number, *begun)

    monkeypatch.setattr(Cohort, "epoch", epoch)
    return epochs


def test_a_resumed_run_repeats_no_finished_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    _, saved = _run(None)
    epochs = _epochs_trained(monkeypatch)
    list(train(three(), HERE, resume=saved[2]))
    assert epochs == [3, 4]


def test_seconds_continue_after_a_resume(monkeypatch: pytest.MonkeyPatch) -> None:
    _, saved = _run(None)
    before = content_of(saved[2])["standing"]["seconds"]
    later = [report.seconds for report in train(three(), HERE, resume=saved[2]) if report.epoch > 3]
    assert 0 < before < later[0] < later[1]


def test_checkpoints_keep_their_interval() -> None:
    saved: list[bytes] = []
    list(train([config_of()], HERE, save=at_ends(saved), save_every=3600.0))
    assert saved == []


class _Bomb:
    """Creates a folder when it is unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (str(self.target),)


def _flipped(share: float) -> Callable[[bytes], bytes]:
    """Flip one bit at this share of the length. torch itself reads most such files without complaint."""

    def damage(data: bytes) -> bytes:
        position = int(share * len(data))
        return data[:position] + bytes([data[position] ^ 16]) + data[position + 1 :]

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
    assert without_seconds(list(train(three(), HERE, resume=damage(saved[2])))) == without_seconds(reports)
    assert epochs == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("configs", "width"),
    [
        ([config_of(beta=9.0), *three()[1:]], None),
        (three()[::-1], None),
        (three()[:2], None),
        (three(epochs=6), None),
        (three(), 2),
    ],
)
def test_a_checkpoint_of_another_cohort_is_ignored(configs: list[TrialConfig], width: int | None) -> None:
    _, saved = _run(None)
    fresh = without_seconds(list(train(configs, HERE, width=width)))
    assert without_seconds(list(train(configs, HERE, width=width, resume=saved[2]))) == fresh


@pytest.mark.parametrize("content", [["list"], {}, {"format": 0}, {"format": 1}])
def test_a_foreign_checkpoint_is_ignored(content: Any) -> None:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    reports, _ = _run(None)
    assert without_seconds(list(train(three(), HERE, resume=with_digest(buffer.getvalue())))) == without_seconds(
        reports
    )


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("write", [torch.save, pickle.dump])
def test_a_malicious_checkpoint_is_not_executed(write: Callable[[Any, io.BytesIO], None], tmp_path: Path) -> None:
    buffer = io.BytesIO()
    write({"format": 1, "identity": _Bomb(tmp_path / "executed")}, buffer)
    list(train([config_of(epochs=1)], HERE, resume=with_digest(buffer.getvalue())))
    assert not (tmp_path / "executed").exists()
    pickle.loads(pickle.dumps(_Bomb(tmp_path / "executed")))
    assert (tmp_path / "executed").exists()  # the bomb was live
