"""Training resumes from a checkpoint exactly, and never from a wrong one.

A checkpoint with a valid digest but odd content is ignored: training starts from the beginning and says so in one line.
"""

import contextlib
import io
import math
import os
import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.cases import for_each
from tests.trainables.small import HERE, at_ends, config_of, content_of, state_of, three
from tests.trainables.training.judged import without_seconds
from trainables.learners.data_parallel import Peers
from trainables.reports import CheckpointError, Report, Stopped
from trainables.sections import TrialConfig
from trainables.training.checkpoint import pack, read_progress, unpack, with_digest
from trainables.training.cohort import TrainingCohort
from trainables.training.train import Callbacks, Checkpointing, train


@cache
def _run(width: int | None) -> tuple[list[Report], list[bytes]]:
    """Reports and checkpoints of five epochs: reports after epochs 2, 4 and 5, checkpoints after all but the last."""
    saved: list[bytes] = []
    return list(train(three(), HERE, width=width, checkpointing=Checkpointing(save=at_ends(saved), every=0.0))), saved


@pytest.mark.slow
def test_saving_changes_nothing() -> None:
    """In a stack of two members, and one of one."""
    assert without_seconds(list(train(three(), HERE, width=2))) == without_seconds(_run(2)[0])


@pytest.mark.slow
@for_each(("epoch", "width"), [(1, 2), (2, None), (3, 2), (4, None)])
def test_resuming_from_any_checkpoint_is_exact(epoch: int, width: int | None) -> None:
    reports, saved = _run(width)
    assert len(saved) == 4
    resaved: list[bytes] = []
    resumed = train(
        three(),
        HERE,
        width=width,
        checkpointing=Checkpointing(saved[epoch - 1], save=at_ends(resaved), every=0.0),
    )
    actual = list(resumed)
    assert without_seconds(actual) == without_seconds(reports)
    before = [report for report in reports if report.epoch <= epoch]
    assert actual[: len(before)] == before  # replayed, seconds included
    assert [state_of(checkpoint) for checkpoint in resaved] == [state_of(checkpoint) for checkpoint in saved[epoch:]]


def _with_options() -> list[TrialConfig]:
    """Three members that also differ in the largest norm of their gradients and in the decay of their rates."""
    return [
        replace(
            config,
            training=replace(config.gradient, clip_grad_norm=limit, accumulate=2),
            optimiser=replace(config.optimiser, optimiser="adamw", lr_schedule="exponential", lr_gamma=gamma),
        )
        for config, limit, gamma in zip(three(epochs=3), (0.1, math.inf, 1.0), (0.9, 0.5, 0.7), strict=True)
    ]


@pytest.mark.slow
def test_every_option_of_training_is_resumed_exactly() -> None:
    """In a stack of two members, and one of one."""
    saved, resaved = list[bytes](), list[bytes]()
    whole = list(train(_with_options(), HERE, width=2, checkpointing=Checkpointing(save=at_ends(saved), every=0.0)))
    again = Checkpointing(saved[0], save=at_ends(resaved), every=0.0)
    assert without_seconds(list(train(_with_options(), HERE, width=2, checkpointing=again))) == without_seconds(whole)
    assert [state_of(checkpoint) for checkpoint in resaved] == [state_of(checkpoint) for checkpoint in saved[1:]] != []


def test_a_checkpoint_of_an_earlier_version_has_neither_norms_of_gradients_nor_best_epochs() -> None:
    reports, saved = _run(None)
    progress, (state,) = unpack(saved[1], three(), None) or pytest.fail()
    earlier = {**state, "rates": {name: rate for name, rate in state["rates"].items() if name != "clip_grad_norm"}}
    del earlier["gradient"]
    content, notices = content_of(pack(three(), None, progress, [earlier])), list[str]()
    del content["standing"]["best"]
    packed = _bytes_of(content)
    resumed = train(three(), HERE, checkpointing=Checkpointing(packed), callbacks=Callbacks(notify=notices.append))
    assert without_seconds(list(resumed)) == without_seconds(reports) and notices == []


def _epochs_trained(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list to which each epoch that is trained from now on is appended."""
    epochs: list[int] = []
    real = TrainingCohort.epoch

    def epoch(self: TrainingCohort, number: int, *begun: Any) -> dict[str, np.ndarray]:
        epochs.append(number)
        return real(self, number, *begun)

    monkeypatch.setattr(TrainingCohort, "epoch", epoch)
    return epochs


def test_a_resumed_run_repeats_no_finished_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    _, saved = _run(None)
    epochs = _epochs_trained(monkeypatch)
    list(train(three(), HERE, checkpointing=Checkpointing(saved[2])))
    assert epochs == [3, 4]


def test_seconds_continue_after_a_resume(monkeypatch: pytest.MonkeyPatch) -> None:
    _, saved = _run(None)
    before = content_of(saved[2])["standing"]["seconds"]
    later = [
        report.seconds for report in train(three(), HERE, checkpointing=Checkpointing(saved[2])) if report.epoch > 3
    ]
    assert 0 < before < later[0] < later[1]


def test_checkpoints_keep_their_interval() -> None:
    saved: list[bytes] = []
    list(train([config_of()], HERE, checkpointing=Checkpointing(save=at_ends(saved), every=3600.0)))
    assert saved == []


def _first_step(
    configs: list[TrialConfig], width: int | None, resume: bytes | None
) -> tuple[tuple[tuple[int, int], Any], list[str]]:
    """Where a training that is given this checkpoint is after its first step, its state there, and the lines that were
    said about the checkpoint."""
    saved, notices = list[bytes](), list[str]()
    callbacks = Callbacks(stop=lambda: True, notify=notices.append)
    with pytest.raises(Stopped):
        list(train(configs, HERE, width=width, checkpointing=Checkpointing(resume, saved.append), callbacks=callbacks))
    standing = content_of(saved[-1])["standing"]
    return ((standing["epoch"], standing["step"]), state_of(saved[-1])), notices


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


@pytest.mark.slow
@for_each(
    "damage",
    [
        lambda data: data[: len(data) // 2],
        lambda data: data[:-1],
        lambda data: data + b"more",
        lambda data: b"",
        lambda data: b"no checkpoint",
        *(_flipped(share) for share in (0.0, 0.1, 0.5, 0.99)),
    ],
)
def test_a_damaged_checkpoint_is_ignored(damage: Callable[[bytes], bytes]) -> None:
    _, saved = _run(None)
    damaged = damage(saved[2])
    begun, notices = _first_step(three(), None, damaged)
    assert len(notices) == bool(damaged) and (begun, []) == _first_step(three(), None, None)


@for_each(
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
    assert _first_step(configs, width, saved[2]) == _first_step(configs, width, None)


@for_each("content", [["list"], {}, {"format": 0}, {"format": 1}])
def test_a_foreign_checkpoint_is_ignored(content: Any) -> None:
    begun, notices = _first_step(three(), None, _bytes_of(content))
    assert len(notices) == 1 and (begun, []) == _first_step(three(), None, None)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("write", [torch.save, pickle.dump])
def test_a_malicious_checkpoint_is_not_executed(write: Callable[[Any, io.BytesIO], None], tmp_path: Path) -> None:
    buffer = io.BytesIO()
    write({"format": 1, "identity": _Bomb(tmp_path / "executed")}, buffer)
    list(train([config_of(epochs=1)], HERE, checkpointing=Checkpointing(with_digest(buffer.getvalue()))))
    assert not (tmp_path / "executed").exists()
    pickle.loads(pickle.dumps(_Bomb(tmp_path / "executed")))
    assert (tmp_path / "executed").exists()  # the bomb was live


ODD: tuple[Any, ...] = (
    *(None, -1, 3, 0.5, float("nan"), 10**30, True, "", "x", b"x", [], {}, (), [[[]]], {"epoch": 1}, (None,) * 3),
    *(torch.tensor(1.0), torch.ones(3), torch.ones(2, 2, dtype=torch.int64), torch.ones(0)),
)


@cache
def _saved() -> bytes:
    """The last checkpoint within an epoch, which has reports, sums and tensors of all kinds."""
    saved: list[bytes] = []
    list(train(three(), HERE, checkpointing=Checkpointing(save=saved.append, every=0.0)))
    return next(data for data in reversed(saved) if content_of(data)["standing"]["step"])


def _bytes_of(content: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return with_digest(buffer.getvalue())


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list | tuple) else ()
    for key, part_of_it in items:
        yield from _paths(part_of_it, (*path, key))


def _with(value: Any, path: tuple[Any, ...], change: Any) -> Any:
    """A copy of `value` in which the value at `path` is replaced by `change(value)`."""
    if not path:
        return change(value)
    key, *rest = path
    inner = _with(value[key], tuple(rest), change)
    if isinstance(value, dict):
        return value | {key: inner}
    return type(value)(inner if index == key else part_of_it for index, part_of_it in enumerate(value))


def _begin(data: bytes) -> list[str]:
    """Train one step from this checkpoint and return the lines that were said about it."""
    notices: list[str] = []
    with contextlib.suppress(Stopped):
        list(
            train(
                three(),
                HERE,
                checkpointing=Checkpointing(data),
                callbacks=Callbacks(stop=lambda: True, notify=notices.append),
            )
        )
    assert all("\n" not in line for line in notices)
    return notices


def test_a_sound_checkpoint_causes_no_notice() -> None:
    assert _begin(_saved()) == []
    assert unpack(_saved(), three()[:2], None, pytest.fail) is None, "one of other configs is no damage"


def test_any_odd_value_in_any_field_raises_only_checkpoint_errors() -> None:
    """A sample of the fields and odd values: loading either works or raises CheckpointError with a one-line message."""
    content, cohort = content_of(_saved()), TrainingCohort(three(), HERE, torch.device("cpu"), None)
    tried = [(path, odd, "standing") for path in _paths(content["standing"]) for odd in ODD]
    tried += [(path, odd, "state") for path in _paths(content["state"]) for odd in ODD[::4]]
    refused, tried = 0, tried[::7]
    for path, odd, part_of_it in tried:
        changed = _with(content[part_of_it], path, lambda _, odd=odd: odd)
        try:
            if part_of_it == "standing":
                read_progress(changed, 3, 5)
            else:
                cohort.load_state(changed)
        except CheckpointError as error:
            refused += 1
            assert "\n" not in str(error)
    assert len(tried) > 400 and refused > 0.7 * len(tried), "some values fit: a metric may be any number"


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: repr(odd)[:20].replace("\n", ""))
def test_any_content_with_a_valid_digest_is_refused_in_one_line(odd: Any) -> None:
    content = content_of(_saved())
    for sealed_content in (odd, {**content, "format": odd}, {**content, "identity": odd}):
        notices: list[str] = []
        assert unpack(_bytes_of(sealed_content), three(), None, notices.append) is None
        assert len(notices) <= 1 and "\n" not in "".join(notices)


@pytest.mark.slow
@for_each(
    ("path", "change", "message"),
    [
        ((), lambda content: list(content), "it must contain a dict, but contains list"),
        ((), lambda content: {"format": content["format"]}, "its content has the wrong type (KeyError)"),
        (("format",), lambda _: 4, "it must have format 5, but has 4"),
        (("standing",), lambda _: None, "its progress has the wrong type: must be object, but is null"),
        (("standing", "epoch"), str, "its progress has the wrong type: epoch: must be int, but is str"),
        (("standing", "epoch"), lambda _: 99, "its progress must have 0 <= epoch <= 5"),
        (("standing", "step"), lambda _: 0, "its progress must have sums if and only if step > 0"),
        (("standing", "step"), lambda _: 1000, "steps, but the checkpoint is at step 1000"),
        (("standing", "sums"), lambda sums: {"other": sums["loss"]}, "its sums must be those of loss, "),
        (("standing", "sums", "loss"), lambda loss: loss[:1], "a sum of losses for each running member"),
        (("standing", "shares"), lambda shares: shares[:1], "its progress must have 3 members"),
        (("standing", "reports"), lambda reports: reports[::-1], "reports in the order of their epochs"),
        (
            ("standing", "reports", 0, "members", 0, "status"),
            lambda _: "fine",
            "status: must be one of 'diverged', 'failed', 'finished', 'pruned', 'running', but is 'fine'",
        ),
        (("standing", "ended"), lambda _: (1, 2, 3), "ended[0]: must be object | null, but is int"),
        (("state",), lambda _: None, "its state must contain 1 stacks"),
        (("state", 0), lambda _: {}, "a stack must contain parameters, buffers, velocity, gradient, rates"),
        (("state", 0, "buffers"), lambda buffers: {**buffers, "more": torch.ones(3)}, "the names of its buffers"),
        (("state", 0, "rates", "lr"), lambda lr: lr[:1], "rates lr must be torch.float64 of shape [3]"),
        (("state", 0, "rates", "lr"), lambda lr: lr.float(), "rates lr must be torch.float64 of shape [3]"),
    ],
)
def test_the_notice_says_what_is_wrong(path: tuple[Any, ...], change: Any, message: str) -> None:
    (notice,) = _begin(_bytes_of(_with(content_of(_saved()), path, change)))
    assert message in notice and notice.startswith("its checkpoint cannot be used: ")


@pytest.mark.parametrize("path", [("standing", "sums"), ("state",)])
def test_training_starts_again_from_the_beginning(path: tuple[Any, ...]) -> None:
    """Both for faults that the first step shows, after the reports were repeated, and for faults found earlier."""
    notices: list[str] = []
    odd = _with(content_of(_saved()), path, lambda _: {"other": torch.ones(3)})
    reports = without_seconds(
        list(
            train(
                three(),
                HERE,
                checkpointing=Checkpointing(_bytes_of(odd)),
                callbacks=Callbacks(notify=notices.append),
            )
        )
    )
    fresh = without_seconds(list(train(three(), HERE)))
    assert len(notices) == 1 and reports[-len(fresh) :] == fresh


def test_if_one_process_cannot_use_its_checkpoint_no_peer_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """If one peer cannot use its copy of the checkpoint, the others ignore theirs, too."""
    requests: list[int] = []

    def agree(self: Peers, request: int) -> int:
        requests.append(request)
        return max(request, len(requests) == 1)  # in the first agreement another peer could not use its copy

    monkeypatch.setattr(Peers, "maximum", agree)
    monkeypatch.setattr(Peers, "average", lambda self, tensors: None)
    monkeypatch.setattr(Peers, "gather", lambda self, part_KB, count: part_KB)
    monkeypatch.setattr(Peers, "slice_of", lambda self, count: slice(0, count))
    notices: list[str] = []
    configs = [config_of(batch_size=60, workers=2)]
    saved: list[bytes] = []
    list(train(configs, HERE, checkpointing=Checkpointing(save=saved.append, every=0.0)))
    reports: list[Report] = list(
        train(
            configs,
            HERE,
            checkpointing=Checkpointing(saved[-1]),
            peers=Peers(0, 2),
            callbacks=Callbacks(notify=notices.append),
        )
    )
    assert notices == ["its checkpoint cannot be used: another process of the cohort could not read it"]
    assert [report.epoch for report in reports] == [2, 4, 5] and requests[0] == 0


def test_a_checkpoint_is_read_as_it_was_packed() -> None:
    unpacked = unpack(_saved(), three(), None)
    assert unpacked
    assert content_of(pack(three(), None, *unpacked))["standing"].keys() == content_of(_saved())["standing"].keys()
    again = unpack(pack(three(), None, *unpacked), three(), None)
    assert again and again[0].reports == unpacked[0].reports
