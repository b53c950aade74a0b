"""Stacks of initial models, each member with its own hyperparameters."""

import torch

from tests.trainables.training.test_models import SHAPES
from trainables.config import resolve
from trainables.learners.members import StackedMembers
from trainables.sections import Value
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
