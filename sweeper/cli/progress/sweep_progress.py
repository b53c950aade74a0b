"""Progress of a sweep: a live view in a terminal, plain lines elsewhere."""

import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Self

from rich.console import Console, RenderableType
from rich.text import Text

from sweeper.cli.progress.bar import ProgressBar
from sweeper.cli.progress.running_cohorts import RunningCohort, RunningCohorts
from sweeper.cli.progress.time_left import DONE, TimeLeft
from sweeper.plan.best_settings import sentences
from sweeper.plan.best_trials import settings_of
from sweeper.plan.plan import Plan
from sweeper.spec.metric import VALIDATION

MIN_INTERVAL, MAX_INTERVAL = 5.0, 60.0
"""Shortest and longest time between two plain lines, in seconds."""
INTERVAL_SHARE = 0.05
"""Time between two plain lines as a share of the elapsed time, within the limits above."""
MAX_BEST = 3
"""Most data sets or studies whose best setting is shown."""


class Progress:
    """Context manager that shows how far a sweep is. Its methods are called when cohorts start, advance and end."""

    def __init__(
        self,
        plan: Plan,
        cohorts: int | None = None,
        *,
        live: bool = True,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`cohorts` is the number of cohorts in this run; None if unknown. `live`: whether a terminal shows a live
        view, in which nobody could type."""
        self.total, self.label, self.cohorts = plan.total, f"{plan.name} ({plan.request})", cohorts
        self.metric, self._headline = plan.headline.name, plan.headline
        self._settings, self._naming = settings_of(plan), plan.sweep.naming(plan.preset)
        self._ranks = plan.sweep.ranks(plan.preset)
        self._best: list[str] | None = []
        """What is said of the best settings; None if rows have come since."""
        counts = plan.counts
        self._before = Counter({status: counts[status] for status in DONE})
        self._console = console or Console(file=sys.stdout, highlight=False, force_terminal=None if live else False)
        self._clock, self._printed_at = clock, -math.inf
        self._status: dict[str, str] = {}
        self._counts: Counter[str] = Counter()
        """Statuses in `_status` -> number of trials."""
        self._running = self._cohorts_done = 0
        self.running_cohorts = RunningCohorts()
        """Cohorts that are training and have reported their progress."""
        self._bar = ProgressBar(plan.total, self.done, self._console, clock, self._view)
        self._time_left = TimeLeft(plan, clock)

    def __enter__(self) -> Self:
        self._bar.begin()
        self._time_left.started()
        return self

    def __exit__(self, *_: object) -> None:
        self._running = 0
        if self._console.is_terminal:
            self._bar.stop()
        else:
            self._print_state(last=True)

    def started(self, trials: int) -> None:
        """Count `trials` more running trials."""
        self._running += trials
        self._time_left.started()
        self._update()

    def advanced(self, cohort: str, trials: Sequence[str], state: RunningCohort) -> None:
        """Show how far a cohort of these trials has come."""
        self.running_cohorts.advance(cohort, state)
        known = self.running_cohorts[cohort]
        self._time_left.advanced(cohort, trials, known.share_trained, known.share_begun)
        self._update()

    def left_worker(self, cohort: str) -> None:
        """Show a cohort no longer: it has ended, or lost its worker."""
        self.running_cohorts.end(cohort)
        self._time_left.stopped(cohort)

    def mean(self, values: Iterable[object]) -> float | None:
        """Return the mean of the finite numbers among values of the headline metric, in the unit of its label; None
        without one."""
        finite = [float(value) for value in values if isinstance(value, int | float) and math.isfinite(value)]
        return math.fsum(finite) / len(finite) * (100.0 if self._headline.percent else 1.0) if finite else None

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
        statuses = {str(row["trial_id"]): str(row["status"]) for row in rows}
        self._counts.subtract(self._status[trial] for trial in statuses if trial in self._status)
        self._counts.update(statuses.values())
        self._status.update(statuses)
        self._cohorts_done += 1
        self._running = max(0, self._running - len(rows))
        self._time_left.ended(rows)
        self.rank(rows)
        self._update()

    def trained_elsewhere(self, statuses: Mapping[str, str], cohorts: int) -> None:
        """Count trials of this run that another driver has trained, and the number of cohorts that they are."""
        self._before.update(statuses.values())
        if self.cohorts is not None:
            self.cohorts -= cohorts
        self._time_left.left_out(statuses)
        self._update()

    def rank(self, rows: Sequence[Mapping[str, object]]) -> None:
        """Consider rows for the best setting without counting them."""
        if self._ranks:
            self._settings.add(rows)
            self._best = None

    def print_line(self, text: str) -> None:
        """Print a message, above the live view if there is one."""
        self._console.print(Text(text), soft_wrap=True)

    @property
    def done(self) -> int:
        """Number of trials with a result, from this run or before."""
        return sum(self.counts[status] for status in DONE)

    @property
    def counts(self) -> Counter[str]:
        """Number of trials with a row by status, including those from before this run."""
        return self._before + self._counts

    @property
    def ranked(self) -> tuple[str, ...]:
        """The columns of rows that `rank` reads."""
        return (
            *self._settings.columns,
            self.metric.removeprefix(VALIDATION),
            f"{VALIDATION}{self.metric}",
            self.metric,
        )

    def best(self) -> list[str]:
        """Return sentences about the best settings; none if no trial has a value, or for a front."""
        if self._best is None:
            found = self._settings.best(self._headline, self._naming)
            self._best = sentences(found, MAX_BEST, so_far=self.done < self.total)
        return self._best

    def _update(self) -> None:
        """Move the bar; without a live view, print a line unless the last one is too recent."""
        position = self._before.total() + len(self._status) + self.running_cohorts.trials_trained
        self._bar.move(position, self.done, self._time_left.estimate)
        wait = min(MAX_INTERVAL, max(MIN_INTERVAL, INTERVAL_SHARE * self._bar.time_elapsed.total_seconds()))
        if not self._console.is_terminal and self._clock() - self._printed_at >= wait:
            self._printed_at = self._clock()
            self._print_state()

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

    def _view(self, bar: RenderableType) -> Iterable[RenderableType]:
        """The live view around the bar: label, facts, running cohorts and the best value."""
        colours = {"running": "cyan", "diverged": "yellow", "failed": "red"}
        yield Text(self.label, style="bold")
        yield bar
        yield Text("   ").join(
            Text.assemble((f"{name} ", "dim"), (value, colours.get(name, ""))) for name, value in self._facts().items()
        )
        yield from (Text(line, style="dim") for line in self.running_cohorts.lines(self._headline.label))
        yield from (Text(line, style="green") for line in self.best())

    def _print_state(self, last: bool = False) -> None:
        """Print the state as one line. In a file rich draws nothing but the end, so this text is ours."""
        facts = self._facts() | {"elapsed": str(self._bar.time_elapsed)}
        training = []
        if last:
            del facts["running"]
        else:
            if time_left := self._time_left.estimate:
                facts["left"] = f"about {time_left}"
            training = [text] if (text := self.running_cohorts.summary()) else []
            if values := self.running_cohorts.values:
                training.append(f"mean {self._headline.label} so far {math.fsum(values) / len(values):.4g}")
        state = [f"{self.label}: {self.done} of {self.total} trials", *(" ".join(fact) for fact in facts.items())]
        self.print_line(", ".join([*state, *training, *self.best()]))
