"""Tune's events, as they reach the dispatch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from sweeper.execution.tune_adapter import TuneCallback

TRIAL = SimpleNamespace(config={"cohort": "c0"})


class Events:
    """Records the calls that it gets."""

    def __init__(self, error: Exception | None = None) -> None:
        self.told: list[tuple[Any, ...]] = []
        self._error = error

    def __getattr__(self, event: str) -> Any:
        def tell(*details: Any) -> None:
            self.told.append((event, *details))
            if self._error:
                raise self._error

        return tell


def test_reports_and_heartbeats_are_told_apart_and_nothing_else_is_passed_on() -> None:
    events = Events()
    callback = TuneCallback(events)
    report, heartbeat = {"report": {"epoch": 2}}, {"heartbeat": {"epoch": 2.5}}
    for result in (report, heartbeat, {"done": True}):
        callback.on_trial_result(1, [], TRIAL, result)
    assert events.told == [("reported", "c0", report), ("advanced", "c0", {"epoch": 2.5})]


def test_the_first_error_of_a_listener_stops_everything_and_is_kept() -> None:
    error = ValueError("the disk is gone")
    events = Events(error)
    callback = TuneCallback(events)
    assert not callback.stopper.stop_all()
    callback.on_trial_result(1, [], TRIAL, {"heartbeat": {}})
    callback.on_trial_result(2, [], TRIAL, {"report": {}})
    assert callback.error is error and callback.stopper.stop_all() and len(events.told) == 1
