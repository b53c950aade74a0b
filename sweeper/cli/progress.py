"""How far the sweep is: one calm live view in a terminal, a plain line now and then elsewhere."""

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
"""Seconds between two plain lines at the start of a run, and hours later."""
PLAIN_SHARE = 0.05
"""The wait for the next plain line grows with the run: to this share of the time elapsed."""
DONE = ("finished", "diverged", "pruned")


class Progress:
    """A context manager: tell it what starts and what ends, and it shows it."""

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
        """`before`: trials that the store had before, by status; those that failed are trained again. `where` names the
        row's columns that say where the best value is; `cohorts` are those of this run."""
        self.total, self.metric, self.direction, self.label = total, metric, direction, label
        self._before = Counter({status: before.get(status, 0) for status in DONE})
        self.where, self.cohorts = tuple(where), cohorts
        self._console = console or Console(file=sys.stdout, highlight=False)
        self._clock, self._begun, self._printed = clock, clock(), -math.inf
        self._status: dict[str, str] = {}
        self._running = self._cohorts_done = 0
        self._best: tuple[float, str] | None = None
        self.running_cohorts = RunningCohorts()
        """What trains at the moment, as far as it has said so."""
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
        """So many trials have begun to run."""
        self._running += trials
        self._plain()

    def advanced(
        self, cohort: str, trials: int, epoch: float, epochs: int | None, loss: float | None, values: Sequence[object]
    ) -> None:
        """A cohort of so many trials has got to `epoch`; `values` of the metric are those that its members reported
        there, None where a member has none."""
        known = [float(value) for value in values if isinstance(value, int | float) and math.isfinite(value)]
        best = self._best_of(known)
        self.running_cohorts.advance(cohort, trials, epoch, epochs, loss=loss, value=best)
        self._plain()

    def left(self, cohort: str) -> None:
        """The cohort trains no longer: it has ended, or lost its worker."""
        self.running_cohorts.end(cohort)

    def stopped(self, trials: int, cohorts: int = 0) -> None:
        """So many running trials ended without a row (a lost worker); they may start again, in so many cohorts more."""
        self._running = max(0, self._running - trials)
        if self.cohorts is not None:
            self.cohorts += cohorts
        self._plain()

    def finished(self, rows: Sequence[Mapping[str, object]]) -> None:
        """The rows of one cohort. A trial that comes again replaces its earlier status."""
        for row in rows:
            self._status[str(row["trial_id"])] = str(row["status"])
        self._cohorts_done += 1
        self._running = max(0, self._running - len(rows))
        self.seen(rows)
        self._plain()

    def seen(self, rows: Sequence[Mapping[str, object]]) -> None:
        """Consider rows for the best value without counting them: those that the store had before. What was pruned is
        compared with nothing: its value is of an earlier epoch."""
        for row in rows:
            value = row.get(self.metric)
            if row.get("status") == "pruned":
                continue
            if isinstance(value, int | float) and math.isfinite(value) and self._better(float(value)):
                names = [name for name in self.where if _known(row.get(name))] or ["trial_id"]
                self._best = float(value), ", ".join(f"{name}={_short(row.get(name))}" for name in names)

    def line(self, text: str) -> None:
        """A message above the live view, or a line of its own."""
        self._console.print(Text(text), soft_wrap=True)

    @property
    def done(self) -> int:
        """Trials with a result, in this run or before."""
        return sum(self.counts[status] for status in DONE)

    @property
    def counts(self) -> Counter[str]:
        """Trials with a row by status, those of before included: what the summary at the end counts."""
        return self._before + Counter(self._status.values())

    @property
    def seconds_left(self) -> float | None:
        """From the rate of this run alone, cohorts that train counted by their epochs; None before any is known."""
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
        """(name, value, colour) of what there is to say beside how many are done."""
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
        """The live view: a bar, the facts, the best."""
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
        """One line, unless there is a live view or one was just printed."""
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
    """Whether a row has this value; rows of other methods make a table's missing values NaN, or pandas' own null."""
    return isinstance(value, bool | int | str) or (isinstance(value, float) and not math.isnan(value))


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _clock_time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
