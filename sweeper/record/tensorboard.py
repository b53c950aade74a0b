"""TensorBoard: a folder of event files for each trial."""

import shutil
import struct
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.proto.summary_pb2 import Summary
from tensorboardX.record_writer import masked_crc32c
from tensorboardX.summary import hparams

from sweeper.record.listener import Row
from sweeper.record.tracker import Reports, TrackedTrial, Tracker, end_of, plain

EVENTS, ENDED = "events.out.tfevents", "ended.txt"
"""Prefix of the names of event files, and the file that says when a trial ended."""


class TensorBoard(Tracker):
    """Writes `FOLDER/NAME-TRIAL/`.

    Events are appended directly instead of by tensorboardX's writer, whose threads lose the error of a full disk. A
    trial that is started again gets a new file with all of its reports, so no point is there twice.
    """

    def __init__(self, folder: Path) -> None:
        """`folder` is that of the sweep."""
        self._folder = folder
        self._reported: dict[str, set[str]] = {}
        """trial_id -> metrics that its events have."""

    def ended(self) -> Mapping[str, str]:
        return {file.parent.name.rpartition("-")[2]: file.read_text() for file in self._folder.glob(f"*/{ENDED}")}

    def start(self, trial: TrackedTrial, anew: bool) -> int:
        for folder in self._folder.glob(f"*-{trial.id}"):
            shutil.rmtree(folder)
        file = self._file(trial, f"{EVENTS}.{time.time_ns() // 1000}")
        file.parent.mkdir(parents=True)
        self._reported[trial.id] = set()
        restart = SessionLog(status=SessionLog.START)  # a TensorBoard that shows the removed file forgets its points
        _append(file, [Event(wall_time=time.time(), file_version="brain.Event:2"), Event(step=0, session_log=restart)])
        return -1

    def report(self, trial: TrackedTrial, reports: Reports) -> None:
        self._reported[trial.id].update(*reports.values())
        _append(self._events(trial), (_event(epoch, _scalars(metrics)) for epoch, metrics in reports.items()))

    def end(self, trial: TrackedTrial, row: Row) -> None:
        numbers, texts = trial.outcome(row)
        reported, epoch = self._reported[trial.id], int(numbers.get("epochs_run", 0))
        unreported = {name: value for name, value in numbers.items() if name not in reported}
        parameters = {key: plain(value) for key, value in trial.hyperparameters.items()}
        summaries = (*hparams({**parameters, "status": texts["status"]}, numbers), _scalars(unreported))
        _append(self._events(trial), (_event(epoch, summary) for summary in summaries))
        self._file(trial, ENDED).write_text(end_of(row))

    def _file(self, trial: TrackedTrial, name: str) -> Path:
        readable = "".join(char if char.isalnum() or char in "=.,+ " else "_" for char in trial.name)[:120]
        return self._folder / f"{readable}-{trial.id}" / name

    def _events(self, trial: TrackedTrial) -> Path:
        return next(self._file(trial, "").glob(f"{EVENTS}.*"))


def _scalars(values: Mapping[str, float]) -> Summary:
    return Summary(value=[Summary.Value(tag=name, simple_value=value) for name, value in values.items()])


def _event(epoch: int, summary: Summary) -> Event:
    return Event(wall_time=time.time(), step=epoch, summary=summary)


def _append(file: Path, events: Iterable[Event]) -> None:
    """Append events as TFRecords: length, its checksum, data, their checksum."""
    with file.open("ab") as stream:
        for event in events:
            data = event.SerializeToString()
            length = struct.pack("<Q", len(data))
            stream.write(length + _checksum(length) + data + _checksum(data))


def _checksum(data: bytes) -> bytes:
    return struct.pack("<I", masked_crc32c(data))
