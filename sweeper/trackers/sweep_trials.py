"""The trials of a sweep, as they are passed on to all of its trackers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from sweeper.plan.cohorts import Trial
from sweeper.plan.plan import Plan
from sweeper.storage.load import load_reports, load_trials
from sweeper.storage.store import Store
from sweeper.trackers.tracker import Row, TrackedTrial, Tracker
from sweeper.trackers.tracking import Recorded, Tracking


@dataclass(frozen=True)
class TrackedTrials:
    """Passes the trials of a sweep on to its trackers."""

    trackings: Sequence[Tracking] = ()
    identifying: Sequence[str] = ()
    """Hyperparameters that identify a trial to a reader."""

    def started(self, trials: Sequence[Trial]) -> None:
        for tracking in self.trackings:
            tracking.started([tracked_trial(trial, self.identifying) for trial in trials])

    def reported(self, trial: Trial, epoch: int, metrics: Mapping[str, float]) -> None:
        for tracking in self.trackings:
            tracking.reported(tracked_trial(trial, self.identifying), epoch, metrics)

    def ended(self, trials: Sequence[Trial], rows: Sequence[Row]) -> None:
        for tracking in self.trackings:
            for trial, row in zip(trials, rows, strict=True):
                tracking.ended(tracked_trial(trial, self.identifying), row)


@contextmanager
def tracked(
    connects: Mapping[str, Callable[[], Tracker]], plan: Plan, store: Store, say: Callable[[str], None], *, fresh: bool
) -> Iterator[TrackedTrials]:
    """Context in which trials of a plan are passed on to trackers. Those that the store has are sent first."""
    recorded = _recorded(plan, store) if connects and not fresh else None
    with ExitStack() as stack:
        trackings = [Tracking(name, connect, say, recorded, anew=fresh) for name, connect in connects.items()]
        yield TrackedTrials([stack.enter_context(tracking) for tracking in trackings], plan.identifying_columns)


def tracked_trial(trial: Trial, identifying: Sequence[str]) -> TrackedTrial:
    """Return a trial as trackers show it, named by its values of the `identifying` columns."""
    values = {key: trial.config[key] for key in dict.fromkeys(identifying) if trial.config.get(key) is not None}
    name = ", ".join(f"{key}={value}" for key, value in values.items())
    group = ", ".join(filter(None, (str(trial.facts.get(key) or "") for key in ("preset", "changes"))))
    return TrackedTrial(trial.id, name or trial.id, group, trial.config)


def _recorded(plan: Plan, store: Store) -> Recorded:
    """Return what the store has of a plan."""
    trials = {trial.id: trial for trial in plan.trials}
    done = [trial_id for trial_id in trials if plan.statuses.get(trial_id, "failed") != "failed"]
    rows = load_trials(store.files, plan.name, done).to_dict("records") if done else []
    return Recorded(
        {row["trial_id"]: row for row in rows},
        lambda complete: load_reports(plan.name, store.files, trials.keys() - complete),
        {trial_id: tracked_trial(trials[trial_id], plan.identifying_columns) for trial_id in done},
    )
