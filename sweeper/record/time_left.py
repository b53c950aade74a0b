"""The time to the end of a sweep: from the training steps that are left, and from what steps have cost so far."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from sweeper.planning.plan import Plan

MOST_SECONDS_LEFT = 1e9
"""No time is estimated from this on, in seconds: what has been trained is then as good as nothing."""
DONE = ("finished", "diverged", "pruned")
"""Statuses of trials that have a result."""


@dataclass
class _TrialKind:
    """Trials of one group of a grid, which need the same steps of the same shape; or those of all searches."""

    method: str
    steps: float
    """Steps of one trial, from beginning to end."""
    by_gradients: bool = True
    """Whether these are steps of gradients, which can be compared. Others are fits to all data, or one evaluation."""
    left: float = 0.0
    """Steps that are left to train."""
    trained: float = 0.0
    """Steps that this run has trained."""
    ended: int = 0
    """Trials with a result of this run,"""
    ended_steps: float = 0.0
    """their steps,"""
    ended_seconds: float = 0.0
    """and their seconds: the trials' shares of those of their cohorts."""


class TimeLeft:
    """Estimates when a sweep ends.

    A trial is as much work as its steps by the plan cost. A step costs what those of ended trials of its group took on
    average; while none has ended, those of its method, else of all methods that are trained likewise; where none of
    these has ended, a trial costs as much as any other. At first all steps cost the same. The work that is left takes
    as long, in proportion, as the work took that this run has done. All trials of a search are the same work: their
    steps are only known once they are proposed, and pruned ones end early.
    """

    def __init__(self, plan: Plan, clock: Callable[[], float]) -> None:
        self._clock, self._counted_since = clock, clock()
        self._other = _TrialKind("", 1.0)
        self._kinds: list[_TrialKind] = [self._other]
        self._kind_of: dict[str, _TrialKind] = {}
        """trial_id -> its kind, of the trials of a grid."""
        counts, done = plan.counts, {trial for trial, status in plan.statuses.items() if status in DONE}
        for group, steps in zip(plan.groups, plan.steps, strict=True):
            trials, first = [trial.id for stream in group for trial in stream], group[0][0].config
            epochs = first.get("epochs")
            if plan.unsized:
                steps = epochs if isinstance(epochs, int) else 0
            kind = _TrialKind(str(first.get("method")), max(1, steps), by_gradients="lr" in first and steps > 0)
            kind.left = kind.steps * sum(trial not in done for trial in trials)
            self._kinds.append(kind)
            self._kind_of |= dict.fromkeys(trials, kind)
        others_done = sum(counts[status] for status in DONE) - sum(trial in done for trial in self._kind_of)
        self._other.left = float(plan.total - len(self._kind_of) - others_done)
        self._reached: dict[str, float] = {}
        """Trial that has begun in this run -> the share of its steps that is trained; 1 where it has ended."""
        self._begun: dict[str, float] = {}
        """Cohort that has reported since its process began -> the share that was trained then."""

    def started(self) -> None:
        """Take that a process has begun to train. Its start counts as no time while no work has been done."""
        if not any(kind.trained for kind in self._kinds):
            self._counted_since = self._clock()

    def advanced(self, cohort: str, trials: Sequence[str], share: float, begun: float = 0.0) -> None:
        """Take how far a cohort has come: the share of its steps that is trained, in [0, 1].

        `begun` is the share that was trained when its process began: it comes from a checkpoint, and counts as no work
        of this run. Where training continues, earlier reports come again; they change nothing.
        """
        begins = self._begun.get(cohort) != begun
        self._begun[cohort] = begun
        for trial in trials:
            kind, before = self._kind(trial), self._reached.get(trial, 0.0)
            if begins:
                kind.left += kind.steps * (before - begun)
                before = begun
            self._reached[trial] = reached = max(before, share)
            kind.left -= kind.steps * (reached - before)
            kind.trained += kind.steps * (reached - before)

    def stopped(self, cohort: str) -> None:
        """Take that a cohort has lost its worker, and will report again from its checkpoint or from the start."""
        self._begun.pop(cohort, None)

    def ended(self, rows: Iterable[Mapping[str, object]]) -> None:
        """Take the rows of trials that have ended. One that failed is not trained again in this run."""
        for row in rows:
            trial = str(row["trial_id"])
            kind, before = self._kind(trial), self._reached.get(trial, 0.0)
            self.left_out([trial])
            if row["status"] not in DONE:
                continue
            steps = kind.steps * (1.0 if kind is self._other else _share_run(row))
            kind.trained += max(0.0, steps - kind.steps * before)
            if isinstance(seconds := row.get("seconds"), int | float) and steps > 0:
                kind.ended += 1
                kind.ended_steps += steps
                kind.ended_seconds += seconds

    def left_out(self, trials: Iterable[str]) -> None:
        """Take that this run has nothing left to train of these trials."""
        for trial in trials:
            kind = self._kind(trial)
            kind.left -= kind.steps * (1.0 - self._reached.get(trial, 0.0))
            self._reached[trial] = 1.0

    @property
    def estimate(self) -> timedelta | None:
        """The time to the end, in whole seconds; None while next to nothing has been trained."""
        costs = self._costs()
        left = sum(cost * max(0.0, kind.left) for cost, kind in zip(costs, self._kinds, strict=True))
        trained = sum(cost * kind.trained for cost, kind in zip(costs, self._kinds, strict=True))
        elapsed = self._clock() - self._counted_since
        if trained <= 0 or elapsed <= 0:
            return None
        seconds = left / trained * elapsed
        return timedelta(seconds=int(seconds)) if seconds < MOST_SECONDS_LEFT else None

    def _kind(self, trial: str) -> _TrialKind:
        return self._kind_of.get(trial, self._other)

    def _costs(self) -> list[float]:
        """Seconds of a step of each kind, in `_kinds`."""
        alike: dict[object, list[_TrialKind]] = {}
        for kind in self._kinds:
            alike.setdefault((kind.method, kind.by_gradients), []).append(kind)
            alike.setdefault(kind.by_gradients, []).append(kind)
        means = {key: _mean_cost(kinds) for key, kinds in alike.items()}
        ended = sum(kind.ended for kind in self._kinds)
        of_trial = sum(kind.ended_seconds for kind in self._kinds) / ended if ended else 0.0
        return [
            _mean_cost([kind])
            or means[kind.method, kind.by_gradients]
            or means[kind.by_gradients]
            or of_trial / kind.steps
            or 1.0
            for kind in self._kinds
        ]


def _mean_cost(kinds: Sequence[_TrialKind]) -> float:
    """Mean seconds of a step of the trials that have ended; 0 without any."""
    steps = sum(kind.ended_steps for kind in kinds)
    return sum(kind.ended_seconds for kind in kinds) / steps if steps else 0.0


def _share_run(row: Mapping[str, object]) -> float:
    """The share of its epochs that an ended trial has trained: less than 1 where it diverged."""
    epochs, epochs_run = row.get("epochs"), row.get("epochs_run")
    if row["status"] == "finished" or not isinstance(epochs, int) or not isinstance(epochs_run, int) or epochs <= 0:
        return 1.0
    return min(1.0, epochs_run / epochs)
