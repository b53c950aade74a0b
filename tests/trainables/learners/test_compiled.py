"""Compiled steps do what eager ones do, for every method: the graph that is compiled is run operation by operation.

Calls of a library get tensors of the state, then the inputs, in the memory order for which it was compiled.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from tests.trainables.methods.method_configs import trained
from tests.trainables.small import TracingCompiler, config_of
from trainables.catalog import METHODS, method_of
from trainables.config import keys, resolve
from trainables.learners.compiled import CompiledStep, Layout, Run, StepShape
from trainables.learners.data_parallel import Peers
from trainables.learners.members import LATER_KIND
from trainables.learners.stack import CompiledStack
from trainables.reports import Move
from trainables.sections import TrialConfig, Value
from trainables.training.cohort import TrainingCohort
from trainables.training.compiled_steps import StepCompiler

BY_GRADIENTS = [name for name, method in METHODS.items() if method.trains() and not method.fitted()]
WITH_PHASES = [name for name in BY_GRADIENTS if METHODS[name].phases(resolve({"method": name}).options)]
"""Methods that are never compiled: phases may have values that are no tensors of a stack's own."""
SMALL: dict[str, Value] = {"epochs": 2, "batch_size": 32, "width": 16, "features": 8, "examples": 128}
SMALL |= {"projector_width": 16, "predictor_width": 16, "projection": 8, "queue": 64, "expander_width": 16}


def two(method: str, **changes: Value) -> list[TrialConfig]:
    """Two members that differ in their learning rate."""
    values = {"method": method} | SMALL | changes
    values = {key: value for key, value in values.items() if key in keys(method)}
    return [resolve(values | {"lr": lr}) for lr in (0.05, 0.02)]


def stepped(cohort: TrainingCohort, steps: int = 2) -> list[Tensor]:
    """All losses of these steps, and all that training changed, but for the norms that only eager steps measure."""
    orders = cohort.orders(0)
    losses = [cohort.step(0, step, orders, 0.3 * (step + 1)) for step in range(steps)]
    states = [{kind: values for kind, values in state.items() if kind != LATER_KIND} for state in cohort.state()]
    return tree_leaves((losses, states))


def assert_close(actual: Sequence[Tensor], expected: Sequence[Tensor]) -> None:
    assert len(actual) == len(expected)
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def cohort_of(configs: Sequence[TrialConfig], compiler: StepCompiler | None = None) -> TrainingCohort:
    return TrainingCohort(configs, Path(), torch.device("cpu"), None, compiler=compiler)


@pytest.mark.parametrize("method", trained([name for name in BY_GRADIENTS if name not in WITH_PHASES]))
def test_steps_of_every_method_are_traced_whole(method: str) -> None:
    compiler = TracingCompiler()
    configs = two(method)
    actual = stepped(cohort_of(configs, compiler))
    assert compiler.compiled
    ((task, library),) = compiler.traced
    assert library.calls == 2
    assert (task.step.size, task.step.part, task.config["method"]) == (2, "step", method)
    assert set(library.parts) <= set(method_of(method).loss_parts)
    assert_close(actual, stepped(cohort_of(configs)))


@pytest.mark.parametrize("method", trained(WITH_PHASES))
def test_a_method_with_phases_is_not_compiled(method: str) -> None:
    compiler = TracingCompiler()
    stepped(cohort_of(two(method), compiler))
    assert not compiler.compiled and not compiler.traced


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"optimiser": "adam", "lr": 0.001, "encoder": "convnet", "channels_last": True},
        {"precision": "bfloat16"},
        {"weight_decay": 0.1, "momentum": 0.0, "encoder": "convnet"},
        {"optimiser": "adamw", "lr": 0.001, "lr_schedule": "exponential", "clip_grad_norm": 0.1, "accumulate": 2},
    ],
    ids=str,
)
def test_with_every_optimiser_precision_and_layout(changes: dict[str, Value]) -> None:
    configs = [config_of(**{"seed": seed, **changes}) for seed in (0, 0, 1)]
    compiler = TracingCompiler()
    actual = stepped(cohort_of(configs, compiler))
    assert compiler.compiled
    assert not compiler.traced[0][0].step.shared, "members of two seeds read two streams"
    expected = stepped(cohort_of(configs))
    if changes.get("precision") == "bfloat16":
        for one, other in zip(actual, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=0.05, atol=0.02)
    else:
        assert_close(actual, expected)


@pytest.mark.slow
def test_a_changed_rate_is_that_of_the_next_step() -> None:
    """Rates are arguments of a compiled step, and no part of its code."""
    configs, compiler = two("vje"), TracingCompiler()
    compiled, eager = cohort_of(configs, compiler), cohort_of(configs)
    for cohort in (compiled, eager):
        stepped(cohort)
        cohort.move({0: Move(1, {"lr": 0.5, "weight_decay": 0.01})})
    assert_close(stepped(compiled), stepped(eager))
    assert len(compiler.traced) == 1


@pytest.mark.slow
def test_a_member_that_diverges_affects_no_other() -> None:
    configs = [config_of(lr=lr) for lr in (1e30, 0.02)]
    actual = stepped(cohort_of(configs, TracingCompiler()))
    assert not torch.stack([tensor[0].isfinite().all() for tensor in actual]).all()
    alone = stepped(cohort_of(configs[1:]))
    assert_close([tensor[1] for tensor in actual], [tensor[0] for tensor in alone])


class TwoEqualPeers(Peers):
    """Two processes with equal gradients."""

    averaged: ClassVar[list[int]] = []

    def slice_of(self, count: int) -> slice:
        return slice(0, count)

    def average(self, tensors: Sequence[Tensor]) -> None:
        self.averaged.append(len(tensors))


@pytest.mark.slow
def test_gradients_are_averaged_between_two_compiled_parts() -> None:
    configs, peers, compiler = [config_of()], TwoEqualPeers(0, 2), TracingCompiler()
    peers.averaged.clear()
    cohort = TrainingCohort(configs, Path(), torch.device("cpu"), None, peers, compiler=compiler)
    actual = stepped(cohort)
    assert [task.step.part for task, _ in compiler.traced] == ["gradients", "update"]
    (stack,) = cohort._stacks
    assert isinstance(stack, CompiledStack)
    assert peers.averaged == 2 * [len(stack.parameters)]
    assert_close(actual, stepped(cohort_of(configs)))


@pytest.mark.slow
def test_members_that_are_left_over_are_stepped_one_at_a_time() -> None:
    """So pruning never asks for steps of another shape than the whole stack's and a single member's."""
    configs, compiler = [config_of(lr=lr) for lr in (0.01, 0.02, 0.03, 0.04, 0.05)], TracingCompiler()
    compiled = TrainingCohort(configs, Path(), torch.device("cpu"), 2, compiler=compiler)
    eager = cohort_of(configs)
    for cohort in (compiled, eager):
        stepped(cohort)
        cohort.keep({0, 2, 3})
    losses, expected = (cohort.step(1, 0, cohort.orders(1), 0.5)["loss"] for cohort in (compiled, eager))
    torch.testing.assert_close(losses, expected, rtol=1e-4, atol=1e-5)
    assert [task.step.size for task, _ in compiler.traced] == [2, 1]


class Recorded:
    """A library that returns its arguments."""

    parts = ("kl",)

    def load(self, device: str) -> Run:
        return lambda tensors: tensors


IMAGES, WEIGHT = torch.arange(6.0).view(2, 3), torch.ones(4)
INPUTS = {"views": (IMAGES,), "noise": torch.zeros(2)}


def called(images: Tensor) -> list[Tensor]:
    shape = StepShape.of("step", 1, True, (INPUTS,), torch.device("cpu"))
    return CompiledStep(Recorded(), [WEIGHT], shape)(INPUTS | {"views": (images,)})


def test_the_state_comes_first_and_is_not_copied() -> None:
    weight, images, noise = called(IMAGES)
    assert weight.data_ptr() == WEIGHT.data_ptr() and images is IMAGES and noise is INPUTS["noise"]


def test_inputs_get_the_memory_order_of_the_trace() -> None:
    turned = IMAGES.t().contiguous().t()
    assert turned.stride() != IMAGES.stride()
    _, images, _ = called(turned)
    assert Layout.of(images) == Layout.of(IMAGES) and images.equal(IMAGES)


@pytest.mark.parametrize("wrong", [torch.zeros(3, 3), torch.zeros(2, 3, dtype=torch.float64)])
def test_another_shape_or_type_is_refused(wrong: Tensor) -> None:
    """Compiled code does not check its arguments: it would read beyond them."""
    with pytest.raises(ValueError, match=r"takes torch.float32 of shape \[2, 3\], but got torch.float(32|64) of shape"):
        called(wrong)
