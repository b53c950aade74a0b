"""Small cohorts whose members leave or move, and helpers that compare their reports without seconds.

A step to compile: that of two small members.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.trainables.small import HERE, config_of
from trainables.config import resolve
from trainables.learners.compiled import Library
from trainables.reports import Judge, Member, Report, Verdict
from trainables.sections import TrialConfig, Value
from trainables.training.cohort import TrainingCohort
from trainables.training.compile_step import StepTask
from trainables.training.compiled_steps import LibraryFolder, StepCompiler

State = dict[int, dict[str, Tensor]]
"""Index of a member -> its tensors, named by kind and name."""


def smooth(**changes: Value) -> TrialConfig:
    """A config whose encoder has neither ReLU nor BatchNorm, so that rounding errors do not grow."""
    defaults: dict[str, Value] = {
        "method": "vje", "normal_class": 3, "encoder": "mlp", "width": 16, "features": 8, "bottleneck": 8,
        "batch_size": 60, "epochs": 4, "report_every": 1, "lr": 0.02, "rotation": 10.0,
    }  # fmt: skip
    return resolve({**defaults, **changes})


def six(**changes: Value) -> list[TrialConfig]:
    """Six members on three streams that differ in beta, learning rate and weight decay."""
    return [
        smooth(seed=seed, beta=0.5 + 0.3 * index, lr=0.01 + 0.004 * index, weight_decay=0.002 * index, **changes)
        for index, seed in enumerate((0, 1, 0, 1, 2, 2))
    ]


def pruning(at: Mapping[int, Mapping[int, str]]) -> Judge:
    """A judge that prunes members after the report of an epoch. `at`: epoch -> index of a member -> reason."""
    return lambda report: Verdict(pruned=at.get(report.epoch, {}))


def without_seconds(reports: Sequence[Report]) -> list[Any]:
    return [(report.epoch, untimed(report.members), report.done) for report in reports]


def untimed(members: Sequence[Member]) -> list[Member]:
    return [replace(member, seconds=0.0) for member in members]


def assert_near(
    reports: Sequence[Report], expected: Sequence[Report], member: int, expected_member: int | None = None
) -> None:
    """The metrics of `member` equal those of `expected_member` (by default the same index) in the expected reports, up
    to the rounding of another stack."""
    other_member = member if expected_member is None else expected_member
    for report, other in zip(reports, expected, strict=True):
        own, others = (
            {name: math.nan if value is None else value for name, value in metrics.items()}
            for metrics in (report.members[member].metrics, other.members[other_member].metrics)
        )
        assert own == pytest.approx(others, rel=1e-3, abs=1e-3, nan_ok=True)


def tensors_of(state: Sequence[Mapping[str, Mapping[str, Tensor]]], members: Sequence[int]) -> State:
    """Weights, buffers, momentum and rates of these members, from the state of a cohort or a checkpoint."""
    kinds = [(kind, name) for kind in state[0] for name in state[0][kind]]
    joined = {f"{kind}.{name}": torch.cat([stack[kind][name] for stack in state]) for kind, name in kinds}
    assert all(len(tensor) == len(members) for tensor in joined.values())
    return {index: {name: joined[name][position] for name in joined} for position, index in enumerate(members)}


def members_of(cohort: TrainingCohort) -> State:
    return tensors_of(cohort.state(), cohort.members)


@contextmanager
def float64(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compute everything in double precision, where a difference above 1e-8 is not a rounding error."""
    with monkeypatch.context() as patch:
        patch.setattr(Tensor, "float", Tensor.double)
        torch.set_default_dtype(torch.float64)
        try:
            yield
        finally:
            torch.set_default_dtype(torch.float32)


class _AskedError(Exception):
    """Ends a cohort at its first step, whose task is the argument."""


class _AskedCompiler(StepCompiler):
    def _library(self, task: StepTask, wait: Callable[[], None]) -> Library:
        raise _AskedError(task)


def task_of(**changes: Value) -> StepTask:
    """The task of the first step of a cohort of two members, which is neither traced nor made."""
    compiler = _AskedCompiler(folder=LibraryFolder(Path("nobody's")))
    cohort = TrainingCohort([config_of(**changes)] * 2, HERE, torch.device("cpu"), None, compiler=compiler)
    try:
        cohort.step(0, 0, cohort.orders(0), 0.1)
    except _AskedError as asked:
        (task,) = asked.args
        assert isinstance(task, StepTask)
        return task
    raise AssertionError("a step needs a library")
