"""Poison for training processes: with this folder on PYTHONPATH, a member with one of these nu does no step."""

import importlib.abc
import importlib.util
import os
import sys
import time
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.end_to_end.poisons import BETA, DIES, EATS, HANGS, RAISES


def _poisoned(options: Sequence[Any]) -> None:
    nus = [getattr(one, "nu", None) for one in options]
    limit = Path(os.environ[BETA])
    if RAISES in nus or (limit.exists() and any(one.beta > float(limit.read_text()) for one in options)):
        raise ArithmeticError("a poisoned trial")
    if DIES in nus:
        os._exit(7)
    if HANGS in nus:
        time.sleep(1e6)
    eaten = []
    while EATS in nus:
        import numpy as np

        eaten.append(np.zeros(1 << 30))  # eight gigabytes that are never touched, so that no neighbour suffers


class _Finder(importlib.abc.MetaPathFinder):
    """Finds `trainables.training.cohort` as it is, and poisons its steps."""

    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != "trainables.training.cohort":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        assert spec and spec.loader
        run = spec.loader.exec_module

        def poisoned(module: ModuleType) -> None:
            run(module)
            made, stepped = module.Cohort.__init__, module.Cohort.step

            def init(self: Any, configs: Any, *rest: Any, **more: Any) -> None:
                made(self, configs, *rest, **more)
                self.options = [config.options for config in configs]

            def step(self: Any, *rest: Any, **more: Any) -> Any:
                _poisoned([self.options[index] for index in self.members])
                return stepped(self, *rest, **more)

            module.Cohort.__init__, module.Cohort.step = init, step

        spec.loader.exec_module = poisoned  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, _Finder())
