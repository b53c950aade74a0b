"""Members that change their stack, or what they are in it: against plain models with torch's own optimisers.

Shapes: K members.
"""

import copy
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from tests.cases import for_each
from tests.trainables.awkward import (
    DECAY,
    LR,
    MOMENTUM,
    STACKED,
    STEPS,
    Awkward,
    K,
    models,
    one_step,
    plain,
    plain_step,
    stack_of,
)
from trainables.learners.data_parallel import Peers
from trainables.learners.stack import Stack

STREAMS = (0, 1, 2)
HALF = STEPS // 2


def _halfway(optimiser: str = "sgd") -> list[Stack]:
    """Members 0 and 1 in one stack, member 2 alone in another, after half of the steps."""
    stacks = [stack_of(models(), STREAMS, part, optimiser) for part in (slice(0, 2), slice(2, 3))]
    for step in range(HALF):
        for stack in stacks:
            one_step(stack, step)
    return stacks


def _tensors(stack: Stack) -> dict[str, Tensor]:
    return {name: tensor.detach() for name, tensor in {**stack.parameters, **stack.buffers}.items()}


def _assert_plain(stack: Stack, slot: int, model: Awkward) -> None:
    named = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    for name, tensor in named.items():
        actual = _tensors(stack)[f"method.{name}"][slot]
        torch.testing.assert_close(actual, tensor.detach(), rtol=1e-3, atol=1e-5)


@pytest.mark.slow
@for_each("optimiser", STACKED)
@for_each("chosen", [(0, 1, 2), (2, 0), (1, 2), (0, 1), (1,), (2,)])
def test_members_continue_in_a_new_stack_like_plain_models(chosen: tuple[int, ...], optimiser: str) -> None:
    """Merges whole stacks and slices of stacks, and takes single members out of a stack."""
    stacks = _halfway(optimiser)
    slots = {0: (stacks[0], 0), 1: (stacks[0], 1), 2: (stacks[1], 0)}
    merged = Stack.from_members([slots[index] for index in chosen], streams=[STREAMS[index] for index in chosen])
    assert merged.size == len(chosen) and merged.optimiser.lr == tuple(LR[index] for index in chosen)
    losses = [one_step(merged, step).total for step in range(HALF, STEPS)]
    for slot, index in enumerate(chosen):
        model = models()[index]
        expected = plain(model, LR[index], DECAY[index], STREAMS[index], optimiser)[HALF:]
        torch.testing.assert_close(torch.stack(losses)[:, slot], torch.stack(expected), rtol=1e-4, atol=1e-5)
        _assert_plain(merged, slot, model)


def test_streams_are_numbered_anew() -> None:
    stacks = _halfway()
    merged = Stack.from_members([(stacks[0], 1), (stacks[1], 0)], streams=(0, 1))
    actual = one_step(merged, HALF, streams=(1, 2)).total
    for stack, slot, member in ((stacks[0], 1, 0), (stacks[1], 0, 1)):
        torch.testing.assert_close(actual[member], one_step(stack, HALF).total[slot], rtol=1e-4, atol=1e-5)


def test_a_new_stack_holds_copies() -> None:
    stacks = _halfway()
    before = copy.deepcopy(stacks[0].state())
    merged = Stack.from_members([(stacks[0], 0), (stacks[0], 1)], streams=(0, 1))
    assert all(torch.equal(merged.state()[kind][name], before[kind][name]) for kind in before for name in before[kind])
    one_step(merged, HALF, streams=(0, 1))
    after = stacks[0].state()
    assert all(torch.equal(after[kind][name], before[kind][name]) for kind in before for name in before[kind])


def test_a_member_that_is_alone_runs_without_vmap(monkeypatch: pytest.MonkeyPatch) -> None:
    stacks = _halfway()
    alone = Stack.from_members([(stacks[0], 1)], streams=(1,))
    monkeypatch.delattr(torch, "vmap")
    assert one_step(alone, HALF).total.isfinite().all()
    with pytest.raises(AttributeError, match="vmap"):
        one_step(stacks[0], HALF)


def test_a_member_copies_one_of_another_stack_and_trains_with_its_own_hyperparameters() -> None:
    """Member 0 copies member 2 and gets a tau, a learning rate and a weight decay that neither had."""
    stacks = _halfway()
    untouched = {name: tensor[1].clone() for name, tensor in _tensors(stacks[0]).items()}
    stacks[0].load_member(0, stacks[1].copy_member(0), {"tau": 0.7, "lr": 0.03, "weight_decay": 0.2})
    assert all(torch.equal(tensor[1], untouched[name]) for name, tensor in _tensors(stacks[0]).items())
    for name, tensor in _tensors(stacks[0]).items():
        if name == "method.tau":
            torch.testing.assert_close(tensor, torch.tensor([0.7, 0.5]))
        else:
            assert torch.equal(tensor[0], _tensors(stacks[1])[name][0])
    velocity = stacks[1].optimiser.moments()["velocity"]
    for mine, theirs in zip(stacks[0].optimiser.moments()["velocity"], velocity, strict=True):
        assert torch.equal(mine[0], theirs[0]) and mine[0].abs().max() > 0
    assert stacks[0].optimiser.lr == (0.03, LR[1]) and stacks[0].optimiser.weight_decay == (0.2, DECAY[1])

    model = models(taus=(0.7,) * K)[2]  # its tau has no say in a plain step's gradients, but in its average
    sgd = torch.optim.SGD(model.parameters(), lr=1.0, momentum=MOMENTUM, weight_decay=0.2)
    source = {**_tensors(stacks[1]), "method.tau": torch.tensor([0.7])}
    model.load_state_dict({name.removeprefix("method."): tensor[0] for name, tensor in source.items()})
    for parameter, theirs in zip(model.parameters(), velocity, strict=True):
        sgd.state[parameter]["momentum_buffer"] = theirs[0].clone()
    for step in range(HALF, STEPS):
        plain_step(model, sgd, 0.03, step, stream=0)
        one_step(stacks[0], step)
    _assert_plain(stacks[0], 0, model)


def test_a_taken_state_is_a_copy() -> None:
    stack = _halfway()[0]
    state = stack.copy_member(1)
    copied = copy.deepcopy(state)
    one_step(stack, HALF)
    assert all(torch.equal(state[kind][name], copied[kind][name]) for kind in copied for name in copied[kind])
    assert "method.tau" not in state["buffers"] and "method.queue" in state["buffers"]


def test_only_fusible_hyperparameters_can_change() -> None:
    stack = _halfway()[0]
    with pytest.raises(
        ValueError, match=r"^a member can only change its lr, weight_decay, clip_grad_norm, tau, but got width=8$"
    ):
        stack.load_member(0, stack.copy_member(1), {"width": 8})


def test_buffers_that_are_equal_in_all_processes_stay_as_they_are() -> None:
    """Frozen weights are buffers, and the float32 mean of three equal numbers need not be that number."""

    class Equal(Peers):
        def average(self, tensors: Sequence[Tensor]) -> None:
            for tensor in tensors:
                tensor.copy_(sum([tensor] * self.size, torch.zeros_like(tensor)) / self.size)

    stack = stack_of(models(), STREAMS)
    numbers = torch.rand(1000, generator=torch.Generator().manual_seed(0))
    assert not torch.equal((numbers + numbers + numbers) / 3, numbers)
    stack.buffers["frozen"], stack._peers = numbers.clone(), Equal(0, 3)
    stack.average_buffers()
    assert torch.equal(stack.buffers["frozen"], numbers)
