"""A trial of a function as steps to measure: a step runs up to the next report."""

import threading
from collections.abc import Mapping
from typing import Any

import torch

from trainables.functions.method import FunctionMethod
from trainables.functions.trial import RunningTrial
from trainables.sections import TrialConfig

LONGEST_STEP = 60.0
"""Seconds after which a step is given up; functions with longer steps are not measured."""


class FunctionSteps:
    """Runs a function in its own thread, which waits after each report and begins again after the last."""

    members = (0,)

    def __init__(self, config: TrialConfig, method: type[FunctionMethod], device: torch.device) -> None:
        self._config, self._method, self._device = config, method, device
        self._go, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self._errors: list[BaseException] = []
        threading.Thread(target=self._run, name="measured", daemon=True).start()

    def orders(self, epoch: int) -> list[torch.Tensor]:
        """The order of a function's examples is unknown."""
        return []

    def state(self) -> list[Mapping[str, Any]]:
        """The state of a function between steps is unknown."""
        return []

    def step(self, *_: object, **__: object) -> None:
        """Run up to the next report. Raises the function's exceptions, and TimeoutError if the step takes too long."""
        self._go.release()
        if not self._done.acquire(timeout=LONGEST_STEP):
            raise TimeoutError(f"it reported nothing within {LONGEST_STEP:g} s")
        if self._errors:
            raise self._errors[0]

    def _run(self) -> None:
        self._go.acquire()
        try:
            while True:
                self._call()
        except BaseException as error:
            self._errors.append(error)
            self._done.release()

    def _call(self) -> None:
        def report(*_: object) -> None:
            self._done.release()
            self._go.acquire()

        trial = RunningTrial(
            *(self._device, 0, 1),
            state=None,
            reserved=frozenset(),
            reported=report,
            saved=lambda pack: None,
            stops=lambda: False,
            saves=lambda: False,
        )
        result = self._method.called(self._config, trial)
        for _ in result if hasattr(result, "__next__") else [result] if result is not None else []:
            report()
