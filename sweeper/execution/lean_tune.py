"""Leaves out of Ray Tune what takes time and serves nothing here."""

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import ray
from ray.air._internal import usage
from ray.tune.execution.class_cache import _ActorClassCache
from ray.tune.execution.tune_controller import TuneController
from ray.tune.experiment import trial
from ray.tune.progress_reporter import TrialProgressCallback

from sweeper.execution.driver.replaced_attribute import replaced


@contextlib.contextmanager
def lean_tune(local: bool = False) -> Iterator[None]:
    """Context in which one Tuner

    - does not count callbacks. To count them it imports MLflow, W&B and the like where they are installed, which takes
      seconds, and what it counts is sent nowhere (see `ray_environment.QUIET`).
    - asks Ray's control store for the trainable once, not five times for every cohort.
    - saves its state at its start only, which its result asks for: saving takes milliseconds for every cohort, and a
      sweep is continued from the store.
    - prints no line for every cohort that ends: the sweep has a progress line of its own.
    - on a `local` cluster asks for no environment of its own for the workers, which have this process's. With one, Ray
      starts further processes instead of using those that it has started for each core.
    """
    checkpoint, saved = TuneController.checkpoint, list[TuneController]()

    def first_checkpoint(self: TuneController, *arguments: Any, **options: Any) -> None:
        if not saved:
            saved.append(self)
            checkpoint(self, *arguments, **options)

    without_environment = functools.cache(ray.remote)
    with (
        replaced(usage, "tag_callbacks", lambda callbacks: False),
        replaced(trial, "get_trainable_cls", functools.cache(trial.get_trainable_cls)),
        replaced(trial, "validate_trainable", functools.cache(trial.validate_trainable)),
        replaced(TuneController, "checkpoint", first_checkpoint),
        replaced(TrialProgressCallback, "_print", lambda self, line: None),
        contextlib.ExitStack() as stack,
    ):
        if local:
            stack.enter_context(
                replaced(_ActorClassCache, "get", lambda self, trainable: without_environment(trainable))
            )
        yield
