"""TensorBoard's own reader finds what was written."""

import math
from pathlib import Path
from typing import Any

import pytest

from sweeper.record.tensorboard import TensorBoard
from tests.sweeper.record.tracked import FIRST, SECOND, row_of

pytest.importorskip("tensorboard", reason="tensorboard is not installed: pip install -e '.[test]'")


def read(folder: Path) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(folder))
    accumulator.Reload()
    return accumulator


def folder_of(root: Path, trial_id: str) -> Path:
    (folder,) = root.glob(f"*-{trial_id}")
    return folder


def curve(accumulator: Any, name: str) -> list[tuple[int, float]]:
    return [(point.step, point.value) for point in accumulator.Scalars(name)]


def test_a_trial_has_its_history_hyperparameters_and_final_metrics(tmp_path: Path) -> None:
    tracker = TensorBoard(tmp_path)
    for trial in (FIRST, SECOND):
        assert tracker.start(trial, anew=False) == -1
    tracker.report(FIRST, {1: {"loss": 2.0}})
    tracker.report(SECOND, {1: {"loss": 4.0}})
    tracker.report(FIRST, {2: {"loss": 1.0, "auroc": 0.75}})
    tracker.end(FIRST, row_of(FIRST))
    events = read(folder_of(tmp_path, FIRST.id))
    assert curve(events, "loss") == [(1, 2.0), (2, 1.0)] and curve(events, "auroc") == [(2, 0.75)]
    assert curve(events, "seconds") == [(2, 1.5)], "what was not reported is added at the end"
    assert curve(read(folder_of(tmp_path, SECOND.id)), "loss") == [(1, 4.0)]
    content = events.summary_metadata["_hparams_/session_start_info"].plugin_data.content
    assert b"normal_class" in content and b"inf" in content and b"finished" in content
    assert set(tracker.ended()) == {FIRST.id} and math.isinf(float(str(FIRST.hyperparameters["nu"])))


def test_a_trial_that_is_started_again_has_no_point_twice(tmp_path: Path) -> None:
    for _ in range(2):
        tracker = TensorBoard(tmp_path)
        assert tracker.start(FIRST, anew=False) == -1
        tracker.report(FIRST, {1: {"loss": 2.0}, 2: {"loss": 1.0}})
    assert curve(read(folder_of(tmp_path, FIRST.id)), "loss") == [(1, 2.0), (2, 1.0)]
    assert tracker.ended() == {}
