"""What every method that trains promises (`trainables.contract`) of a step on one batch."""

import copy
import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from tests.trainables.methods.method_configs import (
    ALL,
    BY_GRADIENTS,
    FITTED,
    TRAINED,
    arguments_of,
    learn,
    model_of,
    outputs,
    rows,
    step_of,
)
from trainables.contract import Losses, Method

pytestmark = pytest.mark.usefixtures("pairs")
every_trained = pytest.mark.parametrize("name", TRAINED)


def _losses(name: str, noise_seed: int = 0) -> Losses:
    return learn(model_of(name), step_of(name).batch, step_of(name, noise_seed).noise)


def _buffers(model: Method) -> dict[str, Tensor]:
    return {key: buffer.clone() for key, buffer in model.named_buffers()}


def _equal(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(tensor, second[key]) for key, tensor in first.items())


@pytest.mark.parametrize("name", ALL)
def test_nothing_draws_random_numbers(name: str) -> None:
    step, model, evaluated = step_of(name), model_of(name), arguments_of(name)
    before = (torch.get_rng_state(), random.getstate(), repr(np.random.get_state()))
    if name in TRAINED:
        learn(model, step.batch, step.noise)
    model.after_step(step.after_noise)
    for verb, arguments in evaluated.items():
        outputs(model.eval(), verb, arguments)
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1:] == (random.getstate(), repr(np.random.get_state()))


@every_trained
def test_losses_are_scalars_with_declared_parts(name: str) -> None:
    losses = _losses(name)
    assert losses.total.shape == () and losses.total.dtype == torch.float32 and losses.total.isfinite()
    assert set(losses.parts) <= set(ALL[name].loss_parts)
    assert all(part.shape == () and part.isfinite() for part in losses.parts.values())


@pytest.mark.parametrize("name", BY_GRADIENTS)
def test_in_bfloat16_networks_alone_are_rounded(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the functions of `trainables.losses` are given and return is float32; the loss is near the exact one."""
    seen: list[torch.dtype] = []
    loss_functions = {
        f"{module}.{key}": value
        for module in {cls.__module__ for cls in ALL[name].__mro__ if issubclass(cls, Method)}
        for key, value in vars(sys.modules[module]).items()
        if callable(value) and str(value.__module__).startswith("trainables.losses")
    }
    for path, function in loss_functions.items():
        monkeypatch.setattr(path, _watched(function, seen))
    exact = _losses(name).total
    with torch.autocast("cpu", torch.bfloat16):
        rough = _losses(name).total
    assert set(seen) == ({torch.float32} if loss_functions else set()) and rough.dtype == torch.float32
    assert not torch.equal(rough, exact)
    torch.testing.assert_close(rough, exact, rtol=0.02, atol=0.02)


def _watched(function: Callable[..., Tensor], seen: list[torch.dtype]) -> Callable[..., Tensor]:
    def watched(*arguments: Any) -> Tensor:
        result = function(*arguments)
        seen.extend(
            tensor.dtype for tensor in (*arguments, result) if isinstance(tensor, Tensor) and tensor.is_floating_point()
        )
        return result

    return watched


def _learned(name: str, noise_seed: int) -> dict[str, Tensor]:
    """What a step returns and leaves: the total of the losses and the buffers."""
    model = model_of(name)
    return {"total": learn(model, step_of(name).batch, step_of(name, noise_seed).noise).total, **_buffers(model)}


@every_trained
def test_noise_is_the_only_source_of_chance(name: str) -> None:
    noise, size = step_of(name).noise, step_of(name).size
    declared = model_of(name).noise(size)
    assert {key: values.shape for key, values in noise.items()} == {key: each.shape for key, each in declared.items()}
    first, again, other = (_learned(name, noise_seed) for noise_seed in (0, 0, 1))
    assert _equal(first, again)
    if noise:
        assert not _equal(first, other)


@every_trained
def test_the_order_of_examples_does_not_matter(name: str) -> None:
    step = step_of(name)
    batch, noise = rows(name, step, torch.arange(step.size).flip(0))
    torch.testing.assert_close(learn(model_of(name), batch, noise).total, _losses(name).total, rtol=1e-4, atol=1e-5)


@every_trained
def test_a_step_leaves_parameters_and_inputs_alone(name: str) -> None:
    step, model = step_of(name), model_of(name)
    tensors = [*tree_leaves((step.batch, step.noise, step.after_noise)), *model.parameters()]
    before = [tensor.clone() for tensor in tensors]
    learn(model, step.batch, step.noise)
    model.after_step(step.after_noise)
    assert all(torch.equal(a, b) for a, b in zip(before, tensors, strict=True))


@pytest.mark.parametrize("name", FITTED)
def test_fitting_moves_buffers_in_place_and_keeps_their_shapes(name: str) -> None:
    """Another tensor in place of a buffer would be lost, for members are views of stacked tensors."""
    step, model = step_of(name), model_of(name)
    assert not list(model.parameters())
    held, before = dict(model.named_buffers()), _buffers(model)
    learn(model, step.batch, step.noise)
    assert all(buffer is held[key] and buffer.shape == before[key].shape for key, buffer in model.named_buffers())
    moved = {key for key, buffer in held.items() if not torch.equal(buffer, before[key])}
    assert moved and moved.isdisjoint(ALL[name].fusible)


@pytest.mark.parametrize("name", BY_GRADIENTS)
def test_a_batch_can_be_split_exactly_where_the_method_says_so(name: str) -> None:
    """The loss is the mean over both halves, and each half changes buffers as the whole does (except BatchNorm's)."""
    step = step_of(name)
    start = model_of(name)
    for module in start.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.momentum = 1.0  # one batch sets the statistics, which evaluation mode then takes for every part
    start.losses(step.batch, step.noise)
    start.eval()

    def outcome(part: slice) -> tuple[Losses, dict[str, Tensor]]:
        model = copy.deepcopy(start)
        return model.losses(*rows(name, step, torch.arange(step.size)[part])), _buffers(model)

    half = step.size // 2
    (whole, left), *halves = (outcome(part) for part in (slice(None), slice(half), slice(half, None)))
    mean = torch.stack([losses.total for losses, _ in halves]).mean()
    splits = torch.allclose(whole.total, mean, rtol=1e-4, atol=1e-5) and all(_equal(left, other) for _, other in halves)
    assert splits == ALL[name].per_example
