import sys
from unittest.mock import Mock

import pytest
from ray import tune
from ray.air._internal import usage
from ray.tune.execution.class_cache import _ActorClassCache
from ray.tune.execution.tune_controller import TuneController
from ray.tune.experiment import trial
from ray.tune.progress_reporter import TrialProgressCallback

from sweeper.execution.lean_tune import lean_tune


def test_callbacks_are_not_counted_because_that_imports_every_tracker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray.air.integrations.mlflow", None)  # importing it fails
    with lean_tune():
        assert usage.tag_callbacks([tune.Callback()]) is False


def test_the_trainable_is_looked_up_once_in_each_context(monkeypatch: pytest.MonkeyPatch) -> None:
    look_up = Mock(side_effect=["first", "second"])
    monkeypatch.setattr(trial, "get_trainable_cls", look_up)
    for expected in ("first", "second"):
        with lean_tune():
            assert [trial.get_trainable_cls("cohort") for _ in range(3)] == [expected] * 3


def test_tune_saves_its_state_once_and_is_afterwards_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    save = Mock()
    monkeypatch.setattr(TuneController, "checkpoint", save)
    with lean_tune():
        for _ in range(3):
            TuneController.checkpoint(Mock(), force=True)
    assert save.call_count == 1 and TuneController.checkpoint is save


@pytest.mark.parametrize("local", [True, False])
def test_workers_of_a_local_cluster_have_no_environment_of_their_own(local: bool) -> None:
    """They inherit this process's, and others are started for another."""
    with lean_tune(local):
        cache = _ActorClassCache()
        cohort, again = cache.get(tune.Trainable), cache.get(tune.Trainable)
    assert cohort is again and bool(cohort._default_options.get("runtime_env")) != local


def test_tune_prints_no_line_for_a_cohort_that_ends(capsys: pytest.CaptureFixture[str]) -> None:
    """Without the context it does, whatever its verbosity."""
    cohort = Mock(last_result={}, spec=["last_result", "local_path"])
    with lean_tune():
        TrialProgressCallback().on_trial_complete(1, [cohort], cohort)
    assert not capsys.readouterr().out
    TrialProgressCallback().on_trial_complete(1, [cohort], cohort)
    assert "completed" in capsys.readouterr().out
