"""Progress of the cohorts that are training: epoch, loss, and the metric of the last report."""

import math
from dataclasses import dataclass, replace

MAX_LINES = 4
"""Most cohorts that get a line of their own in the live view."""


@dataclass(frozen=True)
class RunningCohort:
    trials: int
    epoch: float = 0.0
    """Completed epochs, including the fraction of the current one."""
    epochs: int | None = None
    """Epochs of the whole training; None if unknown."""
    loss: float | None = None
    """Mean training loss of the current epoch so far; None if no finite loss is known."""
    value: float | None = None
    """Headline metric in the last report, the mean over the members; None before a report has one."""
    begun: float | None = None
    """Epochs that were completed when its process began; None if nothing has been said of it."""

    @property
    def share_trained(self) -> float:
        """The share of its training that is completed, in [0, 1]; 0 if its length is unknown."""
        return min(1.0, self.epoch / self.epochs) if self.epochs else 0.0

    @property
    def share_begun(self) -> float:
        """The share of its training that was completed when its process began."""
        return min(1.0, self.begun / self.epochs) if self.epochs and self.begun else 0.0

    @property
    def trials_trained(self) -> float:
        """Completed training in units of whole trials: half the epochs of a cohort of 8 trials count as 4."""
        return self.trials * self.share_trained

    def text(self, metric: str) -> str:
        """Text such as `56 trials  epoch 37.2 of 800  loss 1.25  mean auroc 0.913`."""
        parts = [f"{self.trials} trial{'s' if self.trials != 1 else ''}", _epoch(self.epoch, self.epoch, self.epochs)]
        if self.loss is not None:
            parts.append(f"loss {self.loss:.4g}")
        if self.value is not None:
            parts.append(f"mean {metric} {self.value:.4g}")
        return "  ".join(parts)


class RunningCohorts:
    """Cohorts that have started and not ended, in the order in which they started."""

    def __init__(self) -> None:
        self._cohorts: dict[str, RunningCohort] = {}

    def __contains__(self, cohort: str) -> bool:
        return cohort in self._cohorts

    def advance(self, cohort: str, latest: RunningCohort) -> None:
        """Update a cohort, or add it. `epochs`, `loss`, `value` and `begun` keep what is known where they are None."""
        known = self._cohorts.get(cohort, latest)
        self._cohorts[cohort] = replace(
            latest,
            epochs=latest.epochs or known.epochs,
            loss=known.loss if latest.loss is None else latest.loss,
            value=known.value if latest.value is None else latest.value,
            begun=known.begun if latest.begun is None else latest.begun,
        )

    def __getitem__(self, cohort: str) -> RunningCohort:
        return self._cohorts[cohort]

    def end(self, cohort: str) -> None:
        self._cohorts.pop(cohort, None)

    def lines(self, metric: str) -> list[str]:
        """One line for each of the first `MAX_LINES` cohorts, and one that counts the others."""
        first = list(self._cohorts.items())[:MAX_LINES]
        lines = [f"cohort {cohort}  {state.text(metric)}" for cohort, state in first]
        more = len(self._cohorts) - len(first)
        return [*lines, f"and {more} more cohort{'s' if more > 1 else ''}"] if more else lines

    def summary(self) -> str:
        """Text for all cohorts, such as `epochs 12 to 37 of 800, loss 1.25`; empty if there are none."""
        states = list(self._cohorts.values())
        if not states:
            return ""
        epochs = [state.epoch for state in states]
        totals = {state.epochs for state in states}
        text = _epoch(min(epochs), max(epochs), totals.pop() if len(totals) == 1 else None)
        losses = [state.loss for state in states if state.loss is not None]
        return f"{text}, loss {math.fsum(losses) / len(losses):.4g}" if losses else text

    @property
    def trials_trained(self) -> float:
        return math.fsum(state.trials_trained for state in self._cohorts.values())

    @property
    def values(self) -> list[float]:
        """Last reported metric of each cohort that has reported one."""
        return [state.value for state in self._cohorts.values() if state.value is not None]


def _epoch(low: float, high: float, epochs: int | None) -> str:
    """Text such as `epoch 3.5 of 10` or `epochs 3.5 to 7 of 10`."""
    first, last = (f"{value:.1f}".removesuffix(".0") for value in (low, high))
    total = f" of {epochs}" if epochs else ""
    return f"epoch {first}{total}" if first == last else f"epochs {first} to {last}{total}"
