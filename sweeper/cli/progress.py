"""Progress of a sweep: a live view in a terminal, plain lines elsewhere."""

import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Literal, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from sweeper.cli.running_cohorts import RunningCohorts

EVERY_SECONDS, LONGEST_SECONDS = 5.0, 60.0
"""Shortest and longest time between two plain lines, in seconds."""
PLAIN_SHARE = 0.05
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
        self.total, self.metric, self.direction, self.label = total, metric, direction, label
        self._before = Counter({status: before.get(status, 0) for status in DONE})
        self.where, self.cohorts = tuple(where), cohorts
        self._console = console or Console(file=sys.stdout, highlight=False)
        self._clock, self._begun, self._printed = clock, clock(), -math.inf
        self._status: dict[str, str] = {}
        self._running = self._cohorts_done = 0
        self._best: tuple[float, str] | None = None
        self.running_cohorts = RunningCohorts()
        """Cohorts that are training and have reported their progress."""
        self._live: Live | None = None

    def __enter__(self) -> Self:
        self._begun = self._clock()
        if self._console.is_terminal:
            self._live = Live(get_renderable=self._view, console=self._console, refresh_per_second=2)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running = 0
        if self._live is not None:
            self._live.stop()
            self._live = None
        else:
            self._plain(last=True)

    def started(self, trials: int) -> None:
        """Count `trials` more running trials."""
        self._running += trials
        self._plain()

    def advanced(
        self, cohort: str, trials: int, epoch: float, epochs: int | None, loss: float | None, values: Sequence[object]
    ) -> None:
        """Show that a cohort of `trials` members has reached `epoch`.

        `values` holds the metric that each member reported at this epoch, None for a member without one.
        """
        finite = [float(value) for value in values if isinstance(value, int | float) and math.isfinite(value)]
        best = self._best_of(finite)
        self.running_cohorts.advance(cohort, trials, epoch, epochs, loss=loss, value=best)
        self._plain()

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
        self._plain()

    def finished(self, rows: Sequence[Mapping[str, object]]) -> None:
        """Count the rows of a cohort that has ended. A trial that was counted before takes its new status."""
        for row in rows:
            self._status[str(row["trial_id"])] = str(row["status"])
        self._cohorts_done += 1
        self._running = max(0, self._running - len(rows))
        self.seen(rows)
        self._plain()

    def seen(self, rows: Sequence[Mapping[str, object]]) -> None:
        """Consider rows for the best value without counting them.

        Pruned trials are not considered, because their metrics are from an earlier epoch.
        """
        for row in rows:
            value = row.get(self.metric)
            if row.get("status") == "pruned":
                continue
            if isinstance(value, int | float) and math.isfinite(value) and self._better(float(value)):
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

    @property
    def seconds_left(self) -> float | None:
        """Estimate of the remaining time in seconds; None while nothing has been trained.

        It follows from the rate of this run, in which training cohorts count by their epochs.
        """
        ended = len(self._status)
        trained = ended + self.running_cohorts.trials_trained(since_first=True)
        if not trained:
            return None
        left = self.total - self._before.total() - ended - self.running_cohorts.trials_trained(since_first=False)
        return (self._clock() - self._begun) / trained * max(0.0, left)

    def _better(self, value: float) -> bool:
        if self._best is None:
            return True
        return value > self._best[0] if self.direction == "maximize" else value < self._best[0]

    def _best_of(self, values: Sequence[float]) -> float | None:
        if not values:
            return None
        return max(values) if self.direction == "maximize" else min(values)

    def _facts(self) -> list[tuple[str, str, str]]:
        """Facts shown beside the number of trials done, as (name, value, colour)."""
        counts = self.counts
        facts = [("running", str(self._running), "cyan" if self._running else "")]
        facts += [
            (name, str(counts[name]), colour)
            for name, colour in (("finished", ""), ("pruned", ""), ("diverged", "yellow"), ("failed", "red"))
            if counts[name] and counts[name] < (counts.total() if name == "finished" else math.inf)
        ]
        if self.cohorts is not None:
            facts.append(("cohorts", f"{min(self._cohorts_done, self.cohorts)} of {self.cohorts}", ""))
        facts.append(("elapsed", _clock_time(self._clock() - self._begun), ""))
        left = self.seconds_left
        if left:
            facts.append(("left", f"about {_clock_time(left)}", ""))
        return facts

    def _view(self) -> Group:
        """The live view: progress bar, facts, running cohorts and the best value."""
        bar = Table.grid(padding=(0, 2))
        share = self.done / self.total if self.total else 1.0
        bar.add_row(
            Text(self.label, style="bold"),
            ProgressBar(
                max(self.total, 1),
                self.done if self.total else 1,
                width=36,
                complete_style="cyan",
                finished_style="green",
            ),
            Text.assemble((f"{self.done:,}", "bold"), f" of {self.total:,} trials"),
            Text(f"{math.floor(100 * share)} %", style="dim"),
        )
        facts = Text("   ").join(
            Text.assemble((f"{name} ", "dim"), (value, colour)) for name, value, colour in self._facts()
        )
        lines: list[RenderableType] = [bar, facts]
        lines += [Text(line, style="dim") for line in self.running_cohorts.lines(self.metric)]
        if self._best is not None:
            lines.append(
                Text.assemble(
                    (f"best {self.metric} ", "dim"),
                    (_short(self._best[0]), "bold green"),
                    (f"  at {self._best[1]}", "dim"),
                )
            )
        return Group(*(Padding(line, (0, 0, 0, 1)) for line in lines))

    def _plain(self, last: bool = False) -> None:
        """Print a plain line, unless there is a live view or the last line is too recent."""
        now = self._clock()
        wait = min(LONGEST_SECONDS, max(EVERY_SECONDS, PLAIN_SHARE * (now - self._begun)))
        if self._live is not None or (not last and now - self._printed < wait):
            return
        self._printed = now
        parts = [f"{self.label}: {self.done} of {self.total} trials"]
        parts += [f"{name} {value}" for name, value, _ in self._facts() if not (last and name in ("running", "left"))]
        best = self._best_of(self.running_cohorts.values)
        if not last and (training := self.running_cohorts.summary(self.metric, () if best is None else (best,))):
            parts.append(training)
        if self._best is not None:
            parts.append(f"best {self.metric} {_short(self._best[0])} at {self._best[1]}")
        self._console.print(Text(", ".join(parts)), soft_wrap=True)


def _known(value: object) -> bool:
    """Whether a row has this value. In tables of several methods, missing values are NaN or pandas' null."""
    return isinstance(value, bool | int | str) or (isinstance(value, float) and not math.isnan(value))


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _clock_time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
