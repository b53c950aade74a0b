"""The initial models of a cohort: one for all members with equal data and seeds, each with its own hyperparameters."""

import pytest
import torch

from trainables.config import resolve
from trainables.learners.members import StackedMembers
from trainables.sections import TrialConfig, Value
from trainables.training.stacks import build_models, build_stack

VALUES = ((0.5, 3.0), (2.0, 7.0), (0.5, 0.1))
"""Beta and nu of each member."""


def _stack() -> StackedMembers:
    shared: dict[str, Value] = {"method": "vje", "normal_class": 3, "width": 8, "features": 4, "bottleneck": 4}
    configs = [resolve({**shared, "beta": beta, "nu": nu}) for beta, nu in VALUES]
    return build_stack(build_models(configs, SHAPES), configs, [0] * len(configs), torch.device("cpu"))


def test_each_member_has_its_own_fusible_hyperparameters() -> None:
    buffers = _stack().buffers
    values = zip(buffers["method.beta"], buffers["method.nu"], strict=True)
    assert [(beta.item(), nu.item()) for beta, nu in values] == [(beta, torch.tensor(nu).item()) for beta, nu in VALUES]


def test_members_start_with_equal_weights_that_are_their_own() -> None:
    stack = _stack()
    for name, weight_K in stack.parameters.items():
        assert torch.equal(weight_K[0], weight_K[1])
        with torch.no_grad():
            weight_K[0] += 1
        assert not torch.equal(weight_K[0], weight_K[1]), name


SHAPES = {"views": (1, 8, 8)}


def _config(**changes: Value) -> TrialConfig:
    given: dict[str, Value] = {"method": "vje", "normal_class": 3, "width": 8, "features": 4, "bottleneck": 4}
    return resolve({**given, **changes})


def test_members_of_one_stream_share_one_model() -> None:
    first, second, third = build_models([_config(beta=0.5), _config(beta=2.0, nu=7.0), _config(seed=1)], SHAPES)
    assert first is second
    assert not any(torch.equal(a, b) for a, b in zip(first.parameters(), third.parameters(), strict=True) if a.ndim > 1)


def test_weights_do_not_depend_on_the_cohort_or_on_torchs_own_generator() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    together = build_models([_config(seed=1), _config()], SHAPES)[1]
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(2)
    (alone,) = build_models([_config()], SHAPES)
    assert all(torch.equal(a, b) for a, b in zip(together.parameters(), alone.parameters(), strict=True))


def test_the_generators_of_accelerators_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    seeded: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded.append)
    build_models([_config()], SHAPES)
    assert not seeded
