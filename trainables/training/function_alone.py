"""Train one trial of a function in this process, to inspect or keep it, without a sweep."""

from collections.abc import Callable, Mapping
from typing import NoReturn

import torch

from trainables.catalog import method_of
from trainables.functions.cohort import FunctionCallbacks, FunctionCohort
from trainables.functions.method import FunctionMethod
from trainables.reports import Member, Report
from trainables.sections import TrialConfig


def train_function_alone(
    config: TrialConfig,
    device: torch.device,
    emit: Callable[[Report], None] = lambda report: None,
    folder: str = ".",
) -> tuple[Member, Mapping[str, torch.Tensor]]:
    """Train a trial to its end, and return it and what it passed to `trial.keep`. `emit` is called with its reports;
    `folder` is the folder of the sweep's file. Raises the function's exceptions."""
    last, kept = list[Report](), dict[str, torch.Tensor]()
    method = method_of(config.method)
    assert issubclass(method, FunctionMethod)

    def take(report: Report) -> None:
        last[:] = [report]
        emit(report)

    def fail(error: BaseException) -> NoReturn:
        raise error

    callbacks = FunctionCallbacks(take, keep=lambda _, tensors: kept.update(tensors), failed=fail)
    FunctionCohort([config], method, device, callbacks, retries=0, folder=folder).train()
    return last[0].members[0], kept
