"""Progress of a sweep: a live display in a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self

import rich.progress
from rich.console import Console, RenderableType
from rich.text import Text

from sweeper.definition.metric import VALIDATION, is_finite
from sweeper.definition.space import parts_of
from sweeper.masking import masked
from sweeper.planning.changes import format_value
from sweeper.planning.cohorts import Cohort
from sweeper.planning.plan import Plan
from sweeper.printing import printable
from sweeper.record.listener import CohortListener, Row
from sweeper.record.time_left import DONE, TimeLeft
from sweeper.report.figures import figures_of
from sweeper.results.best_trials import settings_of

if TYPE_CHECKING:
    from sweeper.planning.sources import TrainedElsewhere
    from sweeper.results.best import BestSetting, NoneFeasible
    from trainables.reports import Heartbeat
    from trainables.worker.messages import CohortReport, Failure

INTERVAL = 30.0
"""Time between two plain lines, in seconds."""
MAX_WIDTH = 120
"""Most characters of a plain line."""
MAX_BEST = 3
"""Most data sets or studies whose best setting the live view shows."""


class SweepProgress(CohortListener):
    """Context manager that shows how far a sweep is, and what happens to its cohorts."""

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
        display, in which nobody could type."""
        self.total, self.label, self.cohorts = plan.total, f"{plan.name} ({plan.request})", cohorts
        figures, self._settings = figures_of(plan.sweep, plan.preset), settings_of(plan)
        self._headline, self._naming, self._ranks = figures.headline, figures.naming, figures.ranks
        self.metric = figures.headline.name
        self._found: tuple[list[BestSetting], list[NoneFeasible]] | None = ([], [])
        """The best settings, and the questions without one; None if rows have come since."""
        self._best: list[str] | None = []
        """What is said of them; None if rows have come since."""
        counts = plan.counts
        self._before = Counter({status: counts[status] for status in DONE})
        self._console = console or Console(file=sys.stdout, highlight=False, force_terminal=None if live else False)
        self._clock, self._printed_at = clock, clock()
        self._name_keys = _keys_of_names(plan, figures.naming)
        self._status: dict[str, str] = {}
        self._counts: Counter[str] = Counter()
        """Statuses in `_status` -> number of trials."""
        self._running = self._cohorts_done = 0
        self.running_cohorts = RunningCohorts()
        """Cohorts that are training and have reported their progress."""
        self._bar = ProgressBar(plan.total, self.done, self._console, clock, self._display)
        self._time_left = TimeLeft(plan, clock)
        self._about_steps: set[str] = set()
        """Reasons why steps are not compiled that have been printed."""

    def __enter__(self) -> Self:
        self._bar.begin()
        self._printed_at = self._clock()
        self._time_left.started()
        return self

    def __exit__(self, *_: object) -> None:
        self._running = 0
        if self._console.is_terminal:
            self._bar.stop()
        else:
            self._print_state(last=True)

    def started(self, cohort: Cohort) -> None:
        self._running += len(cohort.trials)
        self._time_left.started()
        self._update()

    def advanced(self, cohort: Cohort, heartbeat: Heartbeat) -> None:
        latest = RunningCohort(len(cohort.trials), heartbeat.epoch, heartbeat.epochs, heartbeat.loss)
        self._advance(cohort, replace(latest, begun=heartbeat.begun))

    def reported(self, cohort: Cohort, message: CohortReport) -> None:
        if message.notice:
            self.print_line(f"cohort {cohort.id}: {message.notice}")
        if message.about_steps and message.about_steps not in self._about_steps:
            self._about_steps.add(message.about_steps)
            self.print_line(message.about_steps)
        if message.report.done:
            self._left_worker(cohort)
            return
        of_each = [trial.config.get("epochs") for trial in cohort.trials]
        known = [epochs for epochs in of_each if isinstance(epochs, int)]
        in_turn = message.report.records is not None and len(known) == len(of_each)
        epochs = sum(known) if in_turn else of_each[0]
        value = self._mean(member.metrics.get(self.metric) for member in message.report.members)
        latest = RunningCohort(len(cohort.trials), message.report.epoch, epochs if isinstance(epochs, int) else None)
        self._advance(cohort, replace(latest, value=value))

    def waits(self, cohort: Cohort) -> None:
        self._stopped(cohort)

    def interrupted(self, cohort: Cohort, failure: Failure) -> None:
        self._stopped(cohort)
        event = "was cut off and goes on from its checkpoint, if there is one"
        self.print_line(f"{_named(cohort)} {event}: {failure.reason}")

    def split(self, cohort: Cohort, parts: Sequence[Cohort], failure: Failure) -> None:
        if self.cohorts is not None:
            self.cohorts += len(parts) - 1
        self._stopped(cohort)
        form = f"{len(parts)} halves" if len(parts) > 1 else f"stacks of {parts[0].width}"
        self.print_line(f"{_named(cohort)} begins anew in {form}: {failure.reason}")

    def failed(self, cohort: Cohort, failure: Failure) -> None:
        self._left_worker(cohort)
        self.print_line(f"{_named(cohort)} failed for good: {failure.reason}")

    def recorded(self, cohort: Cohort, rows: Sequence[Row]) -> None:
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

    def trained_elsewhere(self, trials: TrainedElsewhere) -> None:
        self._before.update(trials.statuses.values())
        if self.cohorts is not None:
            self.cohorts -= trials.cohorts
        self._time_left.left_out(trials.statuses)
        self._update()

    def rank(self, rows: Sequence[Mapping[str, object]]) -> None:
        """Consider rows for the best setting without counting them. Those of pruned trials have no part in it."""
        if self._ranks:
            self._settings.add(row for row in rows if row.get("status") != "pruned")
            self._found = self._best = None

    def print_line(self, text: str) -> None:
        """Print a message, above the live display if there is one."""
        self._console.print(_line(text), soft_wrap=True)

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
            from sweeper.results.sentences import sentences  # here: it imports SciPy

            found, infeasible = self._best_settings()
            self._best = sentences(found, MAX_BEST, so_far=self.done < self.total, none_feasible=infeasible)
        return self._best

    def _best_settings(self) -> tuple[list[BestSetting], list[NoneFeasible]]:
        if self._found is None:
            infeasible = self._settings.none_feasible(self._headline)
            self._found = self._settings.best(self._headline, self._naming), infeasible
        return self._found

    def _best_value(self) -> list[str]:
        """Return the best of the best settings in a few words, such as `best knn_z (%) 91.6 (study vje)`, and where it
        is; none without one."""
        found, _ = self._best_settings()
        if not found:
            return []
        best = min(found, key=lambda each: each.metric.cost(each.mean) if is_finite(each.mean) else math.inf)
        about = ", ".join(f"{key} {format_value(value)}" for key, value in best.question.items())  # type: ignore[arg-type]
        value = f"{best.mean * (100.0 if best.metric.percent else 1.0):#.3g}".removesuffix(".")
        at = " ".join(f"{key}={_short(known)}" for key, known in best.at.items())
        return [f"best {best.metric.label} {value}{f' ({about})' if about else ''}", *([f"at {at}"] if at else [])]

    def _advance(self, cohort: Cohort, latest: RunningCohort) -> None:
        """Show how far a cohort has come."""
        self.running_cohorts.advance(cohort.id, replace(latest, name=cohort_name(cohort, self._name_keys)))
        known = self.running_cohorts[cohort.id]
        trials = [trial.id for trial in cohort.trials]
        self._time_left.advanced(cohort.id, trials, known.share_trained, known.share_begun)
        self._update()

    def _stopped(self, cohort: Cohort) -> None:
        """Count the trials of a cohort as running no longer: it has left its worker, and they will start again."""
        self._left_worker(cohort)
        self._running = max(0, self._running - len(cohort.trials))
        self._update()

    def _left_worker(self, cohort: Cohort) -> None:
        """Show a cohort no longer: it has ended, or left its worker."""
        self.running_cohorts.end(cohort.id)
        self._time_left.stopped(cohort.id)

    def _mean(self, values: Iterable[object]) -> float | None:
        """Return the mean of the finite numbers among values of the headline metric, in the unit of its label; None
        without one."""
        finite = [float(value) for value in values if is_finite(value)]
        return math.fsum(finite) / len(finite) * (100.0 if self._headline.percent else 1.0) if finite else None

    def _update(self) -> None:
        """Move the bar; without a live display, print a line unless the last one is too recent."""
        position = self._before.total() + len(self._status) + self.running_cohorts.trials_trained
        self._bar.move(position, self.done, self._time_left.estimate)
        if not self._console.is_terminal and self._clock() - self._printed_at >= INTERVAL:
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

    def _display(self, bar: RenderableType) -> Iterable[RenderableType]:
        """The live display around the bar: label, facts, running cohorts and the best value."""
        colours = {"running": "cyan", "diverged": "yellow", "failed": "red"}
        yield _line(self.label, "bold")
        yield bar
        yield Text("   ").join(
            Text.assemble((f"{name} ", "dim"), (value, colours.get(name, ""))) for name, value in self._facts().items()
        )
        yield from (_line(line, "dim") for line in self.running_cohorts.lines(self._headline.label))
        yield from (_line(line, "green") for line in self.best())

    def _print_state(self, last: bool = False) -> None:
        """Print the state as one line, without what does not fit. In a file rich draws nothing but the end, so this
        text is ours."""
        facts, training = self._facts(), list[str]()
        running, cohorts = (facts.pop(name, "") for name in ("running", "cohorts"))
        facts["elapsed"] = str(self._bar.time_elapsed)
        value, *at = self._best_value() or [""]
        if not last:
            if time_left := self._time_left.estimate:
                facts["left"] = f"about {time_left}"
            training = [f"running {running}", self.running_cohorts.summary()]
            if values := self.running_cohorts.values:
                training.append(f"mean {self._headline.label} so far {math.fsum(values) / len(values):.4g}")
        counts = [f"{self.done} of {self.total} trials", *(" ".join(fact) for fact in facts.items())]
        parts = [*counts, value, *training, *at, f"cohorts {cohorts}" if cohorts else ""]
        self.print_line(_fitting(list(filter(None, parts))))


MAX_LINES = 4
"""Most cohorts that get a line of their own in the live display."""


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
    name: str = ""
    """What it trains, in a few words."""

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
            name=latest.name or known.name,
        )

    def __getitem__(self, cohort: str) -> RunningCohort:
        return self._cohorts[cohort]

    def end(self, cohort: str) -> None:
        self._cohorts.pop(cohort, None)

    def lines(self, metric: str) -> list[str]:
        """One line for each of the first `MAX_LINES` cohorts, and one that counts the others."""
        first = list(self._cohorts.items())[:MAX_LINES]
        lines = [f"{state.name or f'cohort {cohort}'}  {state.text(metric)}" for cohort, state in first]
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


def _line(text: str, style: str = "") -> Text:
    """One line for the terminal."""
    return Text(printable(masked(text)), style=style)


def _fitting(parts: Sequence[str]) -> str:
    """Return the first parts that fit into a plain line."""
    line, *others = parts
    for part in others:
        if len(line) + len(part) + 2 <= MAX_WIDTH:
            line = f"{line}, {part}"
    return line[:MAX_WIDTH]


MAX_VALUES, MAX_NAME = 3, 60
"""Most values of a hyperparameter and most characters in the name of a cohort."""


def cohort_name(cohort: Cohort, keys: Sequence[str]) -> str:
    """Return what a cohort trains: `vje beta=0.5,1 seed=0…9`, or of a search `study vje, trials 8 to 15`; empty if
    neither is known. `keys` are the hyperparameters that are named."""
    first, last = cohort.trials[0], cohort.trials[-1]
    if "number" in first.facts:
        study = [f"study {first.facts['study']}"] if first.facts.get("study") else []
        numbers = first.facts["number"], last.facts["number"]
        trials = f"trial {numbers[0]}" if numbers[0] == numbers[1] else f"trials {numbers[0]} to {numbers[1]}"
        text = ", ".join([*study, trials])
    else:
        methods = dict.fromkeys(str(trial.config.get("method", "")) for trial in cohort.trials)
        named = [f"{key}={_values(cohort, key)}" for key in keys if key != "method" and key in first.config]
        text = " ".join(filter(None, [",".join(methods), *named]))
    return text if len(text) <= MAX_NAME else f"{text[: MAX_NAME - 1]}…"


def _values(cohort: Cohort, key: str) -> str:
    """Return the values of a hyperparameter in a cohort; of more than a few the first and the last."""
    texts = [*dict.fromkeys(_short(trial.config.get(key)) for trial in cohort.trials)]
    return ",".join(texts) if len(texts) <= MAX_VALUES else f"{texts[0]}…{texts[-1]}"


def _short(value: Any) -> str:
    return f"{value:.4g}".replace("e-0", "e-") if isinstance(value, float) and is_finite(value) else format_value(value)


def _keys_of_names(plan: Plan, naming: Sequence[str]) -> tuple[str, ...]:
    """Return the hyperparameters that tell the cohorts of a plan's grids apart: those with several values, first the
    ones that name a setting."""
    values: dict[str, set[Any]] = {}
    for part in parts_of(plan.space):
        for key, own in (*part.fixed.items(), *((key, value) for key, of in part.axes.items() for value in of)):
            values.setdefault(key, set()).add(own)
    return tuple(key for key in dict.fromkeys((*naming, *values)) if len(values.get(key, ())) > 1)


def _named(cohort: Cohort) -> str:
    return f"cohort {cohort.id} ({len(cohort.trials)} trials)"


def _epoch(low: float, high: float, epochs: int | None) -> str:
    """Text such as `epoch 3.5 of 10` or `epochs 3.5 to 7 of 10`."""
    first, last = (f"{value:.1f}".removesuffix(".0") for value in (low, high))
    total = f" of {epochs}" if epochs else ""
    return f"epoch {first}{total}" if first == last else f"epochs {first} to {last}{total}"


NO_TIME = "-:--:--"
"""Text where the time that is left is not known."""


class ProgressBar(rich.progress.Progress):
    """Bar over all trials of a sweep, which moves with every epoch."""

    def __init__(
        self,
        total: int,
        done: int,
        console: Console,
        clock: Callable[[], float],
        lines: Callable[[RenderableType], Iterable[RenderableType]],
    ) -> None:
        """`done` of `total` trials had a result before. `lines` puts the whole display around the bar."""
        self._lines = lines  # first, because rich draws once when it is set up
        super().__init__(
            rich.progress.BarColumn(28, complete_style="cyan"),
            rich.progress.TextColumn("{task.fields[done]:,} of {task.total:,} trials", style="bold"),
            rich.progress.TaskProgressColumn(),
            rich.progress.TextColumn("elapsed", style="dim"),
            rich.progress.TimeElapsedColumn(),
            rich.progress.TextColumn("left", style="dim"),
            rich.progress.TextColumn("{task.fields[left]}", style="cyan"),
            console=console,
            get_time=clock,
            refresh_per_second=2,
        )
        self._task_id = self.add_task("trials", start=False, total=total, completed=done, done=done, left=NO_TIME)

    def begin(self) -> None:
        """Start the clock, and the live display in a terminal."""
        self.start_task(self._task_id)
        if self.console.is_terminal:
            self.start()

    def move(self, position: float, done: int, left: timedelta | None) -> None:
        """Set the position, and what the text shows: the number of trials that have a result, and the time left."""
        self.update(self._task_id, completed=position, done=done, left=NO_TIME if left is None else str(left))

    @property
    def time_elapsed(self) -> timedelta:
        """Time since `begin`, in whole seconds."""
        return timedelta(seconds=int(self.tasks[0].elapsed or 0))

    def get_renderables(self) -> Iterable[RenderableType]:
        yield from self._lines(self.make_tasks_table(self.tasks))
