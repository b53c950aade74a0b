"""The cohorts that train at the moment: the epoch of each, its loss, and the metric of its last report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

MOST_SHOWN = 4
"""Cohorts that get a line of their own in the live view."""


@dataclass(frozen=True)
class RunningCohort:
    """How far one cohort is."""

    trials: int
    epoch: float = 0.0
    """Epochs completed, the part of the current one included."""
    first: float = 0.0
    """The epoch that was heard of first: a cohort that continues from a checkpoint does not begin at 0."""
    epochs: int | None = None
    """Epochs of the whole training; None until the cohort has said so."""
    loss: float | None = None
    """Mean training loss of the current epoch so far; None where nothing finite is known."""
    value: float | None = None
    """The sweep's first metric in the cohort's last report, of its best member; None before a report has one."""

    def text(self, metric: str) -> str:
        """For example `56 trials  epoch 37.2 of 800  loss 1.25  auroc 0.913`."""
        parts = [f"{self.trials} trial{'s' if self.trials != 1 else ''}", _epoch(self.epoch, self.epoch, self.epochs)]
        if self.loss is not None:
            parts.append(f"loss {self.loss:.4g}")
        if self.value is not None:
            parts.append(f"{metric} {self.value:.4g}")
        return "  ".join(parts)


class RunningCohorts:
    """The cohorts that have started and not ended, by id, in the order in which they started."""

    def __init__(self) -> None:
        self._cohorts: dict[str, RunningCohort] = {}

    def advance(
        self, cohort: str, trials: int, epoch: float, epochs: int | None, *, loss: float | None, value: float | None
    ) -> None:
        """The cohort has got to this epoch. A loss or value that is None leaves the one that is known."""
        known = self._cohorts.get(cohort, RunningCohort(trials, first=epoch))
        self._cohorts[cohort] = replace(
            known,
            trials=trials,
            epoch=epoch,
            epochs=epochs or known.epochs,
            loss=known.loss if loss is None else loss,
            value=known.value if value is None else value,
        )

    def end(self, cohort: str) -> None:
        """The cohort trains no longer."""
        self._cohorts.pop(cohort, None)

    def lines(self, metric: str) -> list[str]:
        """One line for each of the first cohorts, and how many more there are."""
        shown = list(self._cohorts.items())[:MOST_SHOWN]
        lines = [f"cohort {cohort}  {state.text(metric)}" for cohort, state in shown]
        more = len(self._cohorts) - len(shown)
        return [*lines, f"and {more} more cohort{'s' if more > 1 else ''}"] if more else lines

    def summary(self, metric: str, best: Sequence[float] = ()) -> str:
        """All cohorts in a few words, such as `epochs 12 to 37 of 800, loss 1.25`; empty where none has said anything.

        `best` is what to show of `metric`, of all cohorts; see `values`.
        """
        states = list(self._cohorts.values())
        if not states:
            return ""
        epochs = [state.epoch for state in states]
        totals = {state.epochs for state in states}
        parts = [_epoch(min(epochs), max(epochs), totals.pop() if len(totals) == 1 else None)]
        losses = [state.loss for state in states if state.loss is not None]
        if losses:
            parts.append(f"loss {math.fsum(losses) / len(losses):.4g}")
        parts += [f"{metric} so far {value:.4g}" for value in best]
        return ", ".join(parts)

    def trials_trained(self, since_first: bool) -> float:
        """Training done, in whole trials: half of an 8-trial cohort's epochs count as 4; `since_first` leaves out the
        epochs before the first that was heard of."""
        return math.fsum(
            state.trials * (state.epoch - (state.first if since_first else 0.0)) / state.epochs
            for state in self._cohorts.values()
            if state.epochs
        )

    @property
    def values(self) -> list[float]:
        """The last metric of each cohort that has reported one."""
        return [state.value for state in self._cohorts.values() if state.value is not None]


def _epoch(low: float, high: float, epochs: int | None) -> str:
    """`epoch 3.5 of 10`, or `epochs 3.5 to 7 of 10`."""
    first, last = (f"{value:.1f}".removesuffix(".0") for value in (low, high))
    of = f" of {epochs}" if epochs else ""
    return f"epoch {first}{of}" if first == last else f"epochs {first} to {last}{of}"
