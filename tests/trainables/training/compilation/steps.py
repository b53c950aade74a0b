"""A step to compile: that of two small members."""

import torch

from tests.trainables.small import HERE, config_of
from tests.trainables.traced import TracingCompiler
from trainables.config.trial_config import Value
from trainables.training.cohort import Cohort
from trainables.training.compilation.task import StepTask


def task_of(**changes: Value) -> StepTask:
    """The task of the first step of a cohort of two members."""
    compiler = TracingCompiler()
    cohort = Cohort([config_of(**changes)] * 2, HERE, torch.device("cpu"), None, compiler=compiler)
    cohort.step(0, 0, cohort.orders(0), 0.1)
    ((task, _),) = compiler.traced
    return task
