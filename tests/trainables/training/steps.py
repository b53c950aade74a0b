"""A step to compile: that of two small members."""

from collections.abc import Callable
from pathlib import Path

import torch

from tests.trainables.small import HERE, config_of
from trainables.learners.compiled import Library
from trainables.sections import Value
from trainables.training.cohort import Cohort
from trainables.training.compile_step import StepTask
from trainables.training.compiled_steps import LibraryFolder, StepCompiler


class _AskedError(Exception):
    """Ends a cohort at its first step, whose task is the argument."""


class _AskedCompiler(StepCompiler):
    def _library(self, task: StepTask, wait: Callable[[], None]) -> Library:
        raise _AskedError(task)


def task_of(**changes: Value) -> StepTask:
    """The task of the first step of a cohort of two members, which is neither traced nor made."""
    compiler = _AskedCompiler(folder=LibraryFolder(Path("nobody's")))
    cohort = Cohort([config_of(**changes)] * 2, HERE, torch.device("cpu"), None, compiler=compiler)
    try:
        cohort.step(0, 0, cohort.orders(0), 0.1)
    except _AskedError as asked:
        (task,) = asked.args
        assert isinstance(task, StepTask)
        return task
    raise AssertionError("a step needs a library")
