"""What workers read and write in a store: checkpoints, models, and what trials print."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sweeper.errors import DamagedError, StoreError
from sweeper.storage.checkpoints import labelled, without_label
from sweeper.storage.files import Files
from sweeper.storage.layout import log_path, model_path
from sweeper.storage.logs import LARGEST_LOG
from sweeper.storage.retry import NO_RETRIES
from trainables.reports import CheckpointError, EpochRanking, LogError, ModelError

if TYPE_CHECKING:  # it imports torch
    from trainables.worker.messages import Kept


@dataclass(frozen=True)
class CheckpointStorage:
    """The store's checkpoints, for a worker.

    A checkpoint that cannot be read counts as absent, and one that cannot be written is skipped, so neither costs a
    cohort its retries. If the store takes no files at all, the driver notices when it writes the next row.
    """

    files: Files

    def read(self, path: str) -> bytes | None:
        """Raises CheckpointError if the file cannot be read, after the retries of `files`."""
        try:
            data = self.files.read(path)
        except StoreError as error:
            raise CheckpointError(str(error)) from error
        return None if data is None else without_label(data)

    def write(self, path: str, data: bytes, trials: Sequence[str]) -> None:
        with contextlib.suppress(StoreError):
            self.files.write(path, labelled(trials, data))


@dataclass(frozen=True)
class ModelStorage:
    """Where workers write the models of trials that have finished."""

    files: Files
    sweep: str
    kept: Kept
    """Which trials' models will stay."""
    ranking: EpochRanking | None = None
    """A trial's model is that of its best epoch by this ranking. With None it is that of its last epoch."""

    def write(self, trial: str, data: bytes, *, retry: bool) -> None:
        """Write the model of a trial. Raises ModelError if it cannot be written, with `retry` after the retries of
        `files`."""
        files = self.files if retry else self.files.with_retries(NO_RETRIES)
        try:
            files.write(model_path(self.sweep, trial), data)
        except StoreError as error:
            raise ModelError(str(error)) from error

    def has(self, trial: str) -> bool:
        """Return whether there is a model of the trial. Raises ModelError if that cannot be read."""
        try:
            return self.files.read_start(model_path(self.sweep, trial), 1) is not None
        except StoreError as error:
            raise ModelError(str(error)) from error


@dataclass(frozen=True)
class LogStorage:
    """Where workers write what trials print."""

    files: Files
    sweep: str

    def read(self, trial: str) -> bytes | None:
        """Return the log of a trial; None if there is none, or it is damaged. Raises LogError if it cannot be read."""
        try:
            return self.files.read(log_path(self.sweep, trial), LARGEST_LOG)
        except DamagedError:
            return None
        except StoreError as error:
            raise LogError(str(error)) from error

    def write(self, trial: str, data: bytes) -> None:
        """Replace the log of a trial. Raises LogError if it cannot be written."""
        try:
            self.files.write(log_path(self.sweep, trial), data)
        except StoreError as error:
            raise LogError(str(error)) from error
