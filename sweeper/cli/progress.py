"""Progress of a sweep: a live view in a terminal, plain lines elsewhere."""

import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Literal, Self

from rich.console import Console, RenderableType
from rich.text import Text

from sweeper.cli.progress_bar import ProgressBar
from sweeper.cli.running_cohorts import RunningCohort, RunningCohorts

MIN_INTERVAL, MAX_INTERVAL = 5.0, 60.0
"""Shortest and longest time between two plain lines, in seconds."""
INTERVAL_SHARE = 0.05
"""Time between two plain lines as a share of the elapsed time, within the limits above."""
DONE = ("finished", "diverged", "pruned")
"""Statuses of trials that have a result."""


class Progress:
    """Context manager that shows how far a sweep is. Its methods are called when cohorts start, advance and end."""

    def __init__(
        self,
        total: int,
        before: Mapping[str, int],
        metric: str,
        direction: Literal["maximize", "minimize"],
        label: str,
        *,
        where: Sequence[str] = (),
        cohorts: int | None = None,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`total` is the number of trials of the sweep, and `cohorts` that of cohorts in this run, None if unknown.

        `before` counts the trials that the store had before this run, by status; failed ones are trained again.
        `where` names the columns that identify the trial with the best value.
        """
        self.total, self.metric, self.label = total, metric, label
        self._best_of: Callable[[Iterable[float]], float] = max if direction == "maximize" else min
        self._before = Counter({status: before.get(status, 0) for status in DONE})
        self.where, self.cohorts = tuple(where), cohorts
        self._console = console or Console(file=sys.stdout, highlight=False)
        self._clock, self._printed_at = clock, -math.inf
        self._status: dict[str, str] = {}
        self._running = self._cohorts_done = 0
        self._best: tuple[float, str] | None = None
        self.running_cohorts = RunningCohorts()
        """Cohorts that are training and have reported their progress."""
        self._bar = ProgressBar(total, self.done, self._console, clock, self._view)

    def __enter__(self) -> Self:
        self._bar.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running = 0
        if self._console.is_terminal:
            self._bar.stop()
        else:
            self._print_line(last=True)

    def started(self, trials: int) -> None:
        """Count `trials` more running trials."""
        self._running += trials
        self._update()

    def advanced(
        self, cohort: str, trials: int, epoch: float, epochs: int | None, loss: float | None, values: Sequence[object]
    ) -> None:
        """Show that a cohort of `trials` members has reached `epoch`.

        `values` holds the metric that each member reported at this epoch, None for a member without one.
        """
        finite = [float(value) for value in values if isinstance(value, int | float) and math.isfinite(value)]
        continued = cohort not in self.running_cohorts
        best = self._best_of(finite) if finite else None
        self.running_cohorts.advance(cohort, RunningCohort(trials, epoch, epochs, loss, best))
        self._update(trained_before=continued)

    def left(self, cohort: str) -> None:
        """Remove a cohort that has ended or lost its worker from the live view."""
        self.running_cohorts.end(cohort)

    def stopped(self, trials: int, cohorts: int = 0) -> None:
        """Count `trials` fewer running trials: their worker was lost, and they will start again.

        `cohorts` is by how many the number of cohorts grows, because the cohort was split.
        """
        self._running = max(0, self._running - trials)
        if self.cohorts is not None:
            self.cohorts += cohorts
        self._update()

    def finished(self, rows: Sequence[Mapping[str, object]]) -> None:
        """Count the rows of a cohort that has ended. A trial that was counted before takes its new status."""
        for row in rows:
            self._status[str(row["trial_id"])] = str(row["status"])
        self._cohorts_done += 1
        self._running = max(0, self._running - len(rows))
        self.rank(rows)
        self._update()

    def rank(self, rows: Sequence[Mapping[str, object]]) -> None:
        """Consider rows for the best value without counting them.

        Pruned trials are not considered, because their metrics are from an earlier epoch.
        """
        for row in rows:
            value = row.get(self.metric)
            if row.get("status") == "pruned" or not isinstance(value, int | float) or not math.isfinite(value):
                continue
            if self._best is None or self._best_of((float(value), self._best[0])) != self._best[0]:
                names = [name for name in self.where if _known(row.get(name))] or ["trial_id"]
                self._best = float(value), ", ".join(f"{name}={_short(row.get(name))}" for name in names)

    def line(self, text: str) -> None:
        """Print a message, above the live view if there is one."""
        self._console.print(Text(text), soft_wrap=True)

    @property
    def done(self) -> int:
        """Number of trials with a result, from this run or before."""
        return sum(self.counts[status] for status in DONE)

    @property
    def counts(self) -> Counter[str]:
        """Number of trials with a row by status, including those from before this run."""
        return self._before + Counter(self._status.values())

    def _update(self, trained_before: bool = False) -> None:
        """Move the bar; without a live view, print a line unless the last one is too recent."""
        position = self._before.total() + len(self._status) + self.running_cohorts.trials_trained
        self._bar.move(position, self.done, trained_before)
        wait = min(MAX_INTERVAL, max(MIN_INTERVAL, INTERVAL_SHARE * self._bar.time_elapsed.total_seconds()))
        if not self._console.is_terminal and self._clock() - self._printed_at >= wait:
            self._printed_at = self._clock()
            self._print_line()

    def _facts(self) -> dict[str, str]:
        """Name -> value of what is shown beside the number of trials done and the time."""
        counts = self.counts
        facts = {"running": str(self._running)}
        for name in ("finished", "pruned", "diverged", "failed"):
            if counts[name] and (name != "finished" or counts[name] < counts.total()):
                facts[name] = str(counts[name])
        if self.cohorts is not None:
            facts["cohorts"] = f"{min(self._cohorts_done, self.cohorts)} of {self.cohorts}"
        return facts

    def _best_text(self) -> list[str]:
        return [f"best {self.metric} {_short(self._best[0])} at {self._best[1]}"] if self._best else []

    def _view(self, bar: RenderableType) -> Iterable[RenderableType]:
        """The live view around the bar: label, facts, running cohorts and the best value."""
        colours = {"running": "cyan", "diverged": "yellow", "failed": "red"}
        yield Text(self.label, style="bold")
        yield bar
        yield Text("   ").join(
            Text.assemble((f"{name} ", "dim"), (value, colours.get(name, ""))) for name, value in self._facts().items()
        )
        yield from (Text(line, style="dim") for line in self.running_cohorts.lines(self.metric))
        yield from (Text(line, style="green") for line in self._best_text())

    def _print_line(self, last: bool = False) -> None:
        """Print the state as one line. In a file rich draws nothing but the end, so this text is ours."""
        facts = self._facts() | {"elapsed": str(self._bar.time_elapsed)}
        training = []
        if last:
            del facts["running"]
        else:
            if left := self._bar.time_left:
                facts["left"] = f"about {left}"
            training = [text] if (text := self.running_cohorts.summary()) else []
            if values := self.running_cohorts.values:
                training.append(f"{self.metric} so far {_short(self._best_of(values))}")
        state = [f"{self.label}: {self.done} of {self.total} trials", *(" ".join(fact) for fact in facts.items())]
        self.line(", ".join([*state, *training, *self._best_text()]))


def _known(value: object) -> bool:
    """Whether a row has this value. In tables of several methods, missing values are NaN or pandas' null."""
    return isinstance(value, bool | int | str) or (isinstance(value, float) and not math.isnan(value))


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
