"""What a tracker of experiments is: the runs of a sweep's trials in TensorBoard, MLflow or W&B."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sweeper.definition import Value
from sweeper.record.listener import Row
from sweeper.storage.rows import plain_value

Reports = Mapping[int, Mapping[str, float]]
"""Epoch -> metric -> value."""


@dataclass(frozen=True)
class TrackedTrial:
    """A trial as a tracker shows it: a run of its own."""

    id: str
    name: str
    """What tells the trial from others, for a reader: `beta=0.5, nu=1`."""
    group: str
    """The preset and what the request changes in it: `digits, epochs=5`."""
    hyperparameters: Mapping[str, Value]
    """Those that have a value. While the trial has no row, only those that identify it."""

    def outcome(self, row: Row) -> tuple[dict[str, float], dict[str, str]]:
        """Return the numbers of the trial's row (metrics, seconds, cost, ...) and its texts (status, host, ...).

        Hyperparameters and nulls are left out.
        """
        values = {
            key: value
            for key, value in row.items()
            if key not in self.hyperparameters and plain_value(value) is not None
        }
        numbers = {key: float(value) for key, value in values.items() if isinstance(value, int | float)}
        return numbers, {key: str(value) for key, value in values.items() if key not in numbers}


class Tracker:
    """Sends the trials of one sweep to a tracker. Modelled on the logger callbacks of Ray Tune.

    All methods are called from one thread, and no sweep waits for them, so they may take their time. Any of them may
    raise any exception: it is reported once, and after a while the trial is started again. A run is found by the id of
    its trial, so a trial that is started again continues its run.
    """

    def ended(self) -> Mapping[str, str]:
        """Return trial_id -> `end_of` its row, for each run that is complete."""
        raise NotImplementedError

    def start(self, trial: TrackedTrial, anew: bool) -> int:
        """Begin the run of a trial, or continue it, or with `anew` replace it by an empty one.

        Returns the last epoch that the run has, -1 if it has none. What follows that epoch is reported next.
        """
        raise NotImplementedError

    def report(self, trial: TrackedTrial, reports: Reports) -> None:
        """Add metrics at further epochs, in ascending order, to a run that was started."""
        raise NotImplementedError

    def end(self, trial: TrackedTrial, row: Row) -> None:
        """Add what the trial's row has in addition, hyperparameters included, and its status, and end the run."""
        raise NotImplementedError

    def close(self) -> None:
        """Send what is still buffered. No call follows."""


def end_of(row: Row) -> str:
    """Return the time at which the trial of a row ended, as text that identifies this training of the trial."""
    ended = row["ended"]
    return f"{ended:%Y-%m-%dT%H:%M:%S.%fZ}" if isinstance(ended, datetime) else str(ended)


def plain(value: Value) -> Value:
    """Return a hyperparameter as a value that every tracker takes: infinity becomes text."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
