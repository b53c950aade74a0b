"""Checkpoints with a valid digest but odd content: training starts from the beginning and says so in one line."""

import contextlib
import io
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import torch

from tests.trainables.small import HERE, config_of, content_of, three
from tests.trainables.training.judged import without_seconds
from trainables.learners.data_parallel import Peers
from trainables.reports import CheckpointError, Report, Stopped
from trainables.training.checkpoint import pack, read_progress, slice_checkpoint, unpack, with_digest
from trainables.training.cohort import Cohort
from trainables.training.train import train

ODD: tuple[Any, ...] = (
    *(None, -1, 3, 0.5, float("nan"), 10**30, True, "", "x", b"x", [], {}, (), [[[]]], {"epoch": 1}, (None,) * 3),
    *(torch.tensor(1.0), torch.ones(3), torch.ones(2, 2, dtype=torch.int64), torch.ones(0)),
)


@cache
def _saved() -> bytes:
    """The last checkpoint within an epoch, which has reports, sums and tensors of all kinds."""
    saved: list[bytes] = []
    list(train(three(), HERE, save=saved.append, save_every=0.0))
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
        list(train(three(), HERE, resume=data, stop=lambda: True, notify=notices.append))
    assert all("\n" not in line for line in notices)
    return notices


def test_a_sound_checkpoint_causes_no_notice() -> None:
    assert _begin(_saved()) == []
    assert unpack(_saved(), three()[:2], None, pytest.fail) is None, "one of other configs is no damage"


def test_any_odd_value_in_any_field_raises_only_checkpoint_errors() -> None:
    """A sample of the fields and odd values: loading either works or raises CheckpointError with a one-line message."""
    content, cohort = content_of(_saved()), Cohort(three(), HERE, torch.device("cpu"), None)
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


@pytest.mark.parametrize(
    ("path", "change", "message"),
    [
        ((), lambda content: list(content), "it must hold a dict, but holds list"),
        ((), lambda content: {"format": content["format"]}, "its content is of another kind (KeyError)"),
        (("format",), lambda _: 4, "it must have format 5, but has 4"),
        (("standing",), lambda _: None, "its standing must be Progress, but is of type NoneType"),
        (("standing", "epoch"), str, "its standing.epoch must be int, but is of type str"),
        (("standing", "epoch"), lambda _: 99, "its standing must have 0 <= epoch <= 5"),
        (("standing", "step"), lambda _: 0, "its standing must have sums where step > 0"),
        (("standing", "step"), lambda _: 1000, "steps, but it has made 1000"),
        (("standing", "sums"), lambda sums: {"other": sums["loss"]}, "its sums must be of loss, "),
        (("standing", "sums", "loss"), lambda loss: loss[:1], "a sum of losses for each member"),
        (("standing", "shares"), lambda shares: shares[:1], "its standing must have 3 members"),
        (("standing", "reports"), lambda reports: reports[::-1], "reports in the order of their epochs"),
        (("standing", "reports", 0, "members", 0, "status"), lambda _: "fine", "status must be "),
        (("standing", "ended"), lambda _: (1, 2, 3), "its standing.ended must be Member"),
        (("state",), lambda _: None, "its state must be of 1 stacks"),
        (("state", 0), lambda _: {}, "a stack must have parameters, buffers, velocity, rates"),
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
    reports = without_seconds(list(train(three(), HERE, resume=_bytes_of(odd), notify=notices.append)))
    fresh = without_seconds(list(train(three(), HERE)))
    assert len(notices) == 1 and reports[-len(fresh) :] == fresh


def test_an_odd_checkpoint_cannot_be_cut_into_parts() -> None:
    for path in [("state",), ("state", 0), ("state", 0, "parameters"), ("standing",), ("standing", "reports")]:
        notices: list[str] = []
        odd = _bytes_of(_with(content_of(_saved()), path, lambda _: torch.ones(2)))
        assert slice_checkpoint(odd, three(), None, three()[:1], None, notices.append) is None
        assert len(notices) == 1 and notices[0].startswith("its checkpoint cannot be used: ")


def test_if_one_process_cannot_use_its_checkpoint_no_peer_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """If one peer cannot use its copy of the checkpoint, the others ignore theirs, too."""
    wishes: list[int] = []

    def agree(self: Peers, wish: int) -> int:
        wishes.append(wish)
        return max(wish, len(wishes) == 1)  # in the first agreement another peer could not use its copy

    monkeypatch.setattr(Peers, "maximum", agree)
    monkeypatch.setattr(Peers, "average", lambda self, tensors: None)
    monkeypatch.setattr(Peers, "gather", lambda self, part_KB, count: part_KB)
    monkeypatch.setattr(Peers, "slice_of", lambda self, count: slice(0, count))
    notices: list[str] = []
    configs = [config_of(batch_size=60, workers=2)]
    saved: list[bytes] = []
    list(train(configs, HERE, save=saved.append, save_every=0.0))
    reports: list[Report] = list(train(configs, HERE, resume=saved[-1], peers=Peers(0, 2), notify=notices.append))
    assert notices == ["its checkpoint cannot be used: another of its processes could not read it"]
    assert [report.epoch for report in reports] == [2, 4, 5] and wishes[0] == 0


def test_a_checkpoint_is_read_as_it_was_packed() -> None:
    unpacked = unpack(_saved(), three(), None)
    assert unpacked
    assert content_of(pack(three(), None, *unpacked))["standing"].keys() == content_of(_saved())["standing"].keys()
    again = unpack(pack(three(), None, *unpacked), three(), None)
    assert again and again[0].reports == unpacked[0].reports
