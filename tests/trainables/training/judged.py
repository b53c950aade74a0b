"""Small cohorts whose members leave or move, and what their reports say apart from how long it took."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from trainables.config.trial import TrialConfig, Value, resolve
from trainables.contract import Judge, Member, Report, Verdict
from trainables.training.cohort import Cohort

State = dict[int, dict[str, Tensor]]
"""Index of a member -> its tensors, named by kind and name."""


def smooth(**changes: Value) -> TrialConfig:
    """A config with an encoder without ReLU and BatchNorm, so that rounding does not grow."""
    given: dict[str, Value] = {
        "method": "vje", "normal_class": 3, "encoder": "mlp", "width": 16, "features": 8, "bottleneck": 8,
        "batch_size": 60, "epochs": 4, "report_every": 1, "lr": 0.02, "rotation": 10.0,
    }  # fmt: skip
    return resolve({**given, **changes})


def six(**changes: Value) -> list[TrialConfig]:
    """Members of three streams that differ in everything that VJE lets differ."""
    return [
        smooth(seed=seed, beta=0.5 + 0.3 * index, lr=0.01 + 0.004 * index, weight_decay=0.002 * index, **changes)
        for index, seed in enumerate((0, 1, 0, 1, 2, 2))
    ]


def pruning(at: Mapping[int, Mapping[int, str]]) -> Judge:
    """Prunes these members with these reasons after the report of an epoch."""
    return lambda report: Verdict(pruned=at.get(report.epoch, {}))


def without_seconds(reports: Sequence[Report]) -> list[Any]:
    return [(report.epoch, untimed(report.members), report.done) for report in reports]


def untimed(members: Sequence[Member]) -> list[Member]:
    return [replace(member, seconds=0.0) for member in members]


def assert_near(reports: Sequence[Report], expected: Sequence[Report], member: int, there: int | None = None) -> None:
    """The metrics of a member are those that it has there (as that member), but for rounding in other company."""
    place = member if there is None else there
    for report, other in zip(reports, expected, strict=True):
        assert dict(report.members[member].metrics) == pytest.approx(
            dict(other.members[place].metrics), rel=1e-3, abs=1e-3
        )


def tensors_of(state: Sequence[Mapping[str, Mapping[str, Tensor]]], members: Sequence[int]) -> State:
    """Of a cohort's state (or a checkpoint's) each of these members' weights, buffers, momentum and rates."""
    kinds = [(kind, name) for kind in state[0] for name in state[0][kind]]
    joined = {f"{kind}.{name}": torch.cat([stack[kind][name] for stack in state]) for kind, name in kinds}
    assert all(len(tensor) == len(members) for tensor in joined.values())
    return {index: {name: joined[name][place] for name in joined} for place, index in enumerate(members)}


def members_of(cohort: Cohort) -> State:
    return tensors_of(cohort.state(), cohort.members)


@contextmanager
def float64(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """All in double precision: what differs by more than 1e-8 then is no rounding."""
    with monkeypatch.context() as patch:
        patch.setattr(Tensor, "float", Tensor.double)
        torch.set_default_dtype(torch.float64)
        try:
            yield
        finally:
            torch.set_default_dtype(torch.float32)
