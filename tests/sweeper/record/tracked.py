"""Trials and rows for the tests of trackers."""

from datetime import UTC, datetime

from sweeper.record.trackers import TrackedTrial

FIRST = TrackedTrial("a" * 16, "beta=0.5, nu=inf", "digits", {"beta": 0.5, "nu": float("inf"), "normal_class": None})
SECOND = TrackedTrial("b" * 16, "beta=1.0, nu=1.0", "digits", {"beta": 1.0, "nu": 1.0, "normal_class": 3})


def row_of(trial: TrackedTrial, day: int = 1, **more: object) -> dict[str, object]:
    """The row of a trial that has ended on a day of January."""
    facts = {"status": "finished", "error": None, "host": "here", "epochs_run": 2, "seconds": 1.5}
    ended = {"ended": datetime(2026, 1, day, 12, 0, 0, 1, tzinfo=UTC)}
    return {"trial_id": trial.id, **trial.hyperparameters, **facts, **ended, "auroc": 0.75, **more}
