"""Poison for training processes: with this folder on PYTHONPATH, members with a nu of `poisons.py` complete no step, or
one step before they hang."""

import importlib.abc
import importlib.util
import os
import sys
import time
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from tests.end_to_end.poisons import DIES, EATS, HANGS


def _poison(options: Sequence[Any], steps: int) -> None:
    """`options` are those of the members of a cohort that has completed this number of steps."""
    nus = [getattr(member, "nu", None) for member in options]
    if DIES in nus:
        os._exit(7)
    if HANGS in nus and steps > 0:  # the limit of the first step is longer
        time.sleep(1e6)
    allocated = []
    while EATS in nus:
        import numpy as np

        allocated.append(np.zeros(1 << 30))  # 8 GiB that are never touched, so that other processes keep their memory


class _Finder(importlib.abc.MetaPathFinder):
    """Finds `trainables.training.cohort` as it is, and poisons its steps."""

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != "trainables.training.cohort":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        assert spec and spec.loader
        loader: Any = spec.loader
        exec_module = loader.exec_module

        def exec_poisoned(module: ModuleType) -> None:
            exec_module(module)
            original_init, original_step = module.TrainingCohort.__init__, module.TrainingCohort.step

            def init(self: Any, configs: Any, *args: Any, **kwargs: Any) -> None:
                original_init(self, configs, *args, **kwargs)
                self.options, self.steps_completed = [config.options for config in configs], 0

            def step(self: Any, *args: Any, **kwargs: Any) -> Any:
                _poison([self.options[index] for index in self.members], self.steps_completed)
                losses = original_step(self, *args, **kwargs)
                self.steps_completed += 1
                return losses

            module.TrainingCohort.__init__, module.TrainingCohort.step = init, step

        loader.exec_module = exec_poisoned
        return spec


sys.meta_path.insert(0, _Finder())
