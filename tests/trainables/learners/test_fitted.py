"""Members that are fitted without gradients: each is the plain model, whatever stands beside it.

Shapes: K members, B examples, D dimensions.
"""

import copy
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from tests.cases import for_each
from trainables.contract import Batch, Losses, Method, Noise, Noises, Shapes
from trainables.learners.data_parallel import draw_noise
from trainables.learners.members import FittedMembers

K, B, D, STEPS = 3, 8, 2, 4
RATES = (0.5, 0.2, 0.9)


@dataclass(frozen=True)
class RunningMeanConfig:
    rate: float = 0.5


class RunningMean(Method):
    """Moves to the mean of its data and a little noise. It takes numbers out of tensors, which vmap does not allow."""

    Config = RunningMeanConfig
    fusible = frozenset({"rate"})
    loss_parts = ("steps",)

    rate: Tensor
    mean_D: Tensor
    steps: Tensor

    def __init__(self, config: RunningMeanConfig, networks: None, shapes: Shapes) -> None:
        super().__init__(config, networks, shapes)
        self.register_buffer("mean_D", torch.randn(shapes["x"]))
        self.register_buffer("steps", torch.tensor(0))

    def noise(self, batch: int) -> Noises:
        return {"shift": Noise((batch, D), batch_dim=0), "scale": Noise((D,), kind="uniform")}

    def fit(self, data: Batch, noise: Mapping[str, Tensor]) -> Losses:
        target_D = (data["x"] + 0.1 * noise["shift"]).mean(0) * noise["scale"]
        loss = (target_D - self.mean_D).square().sum()
        parts = {"steps": self.steps.float()}
        rate = float(self.rate) if self.steps.item() % 2 else float(self.rate) / 2
        self.mean_D.add_(rate * (target_D - self.mean_D))
        self.steps.add_(1)
        return Losses(loss, parts)

    def distance(self, x_BD: Tensor) -> Tensor:
        return (x_BD - self.mean_D).norm(dim=-1)


def _models(rates: Sequence[float] = RATES) -> list[RunningMean]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return [RunningMean(RunningMeanConfig(rate), None, {"x": (D,)}) for rate in rates]


def _inputs(step: int, stream: int) -> tuple[Batch, dict[str, Tensor]]:
    source = torch.Generator().manual_seed(100 * stream + step)
    noise = draw_noise(_models()[0].noise(B), "noise", step, stream)
    return {"x": torch.randn(B, D, generator=source) + stream}, noise


def _step(stack: FittedMembers, step: int) -> Losses:
    batches, noise = zip(*(_inputs(step, stream) for stream in range(K)), strict=True)
    return stack.step(batches, noise, [{}] * K, 1.0)


def _plain(index: int, stream: int, steps: int = STEPS) -> tuple[RunningMean, list[Tensor]]:
    """The plain model after so many steps, and its losses before each."""
    model = _models()[index]
    return model, [model.fit(*_inputs(step, stream)).total for step in range(steps)]


@for_each("streams", [(0, 0, 0), (0, 1, 2), (2, 0, 2)])
@for_each("members", [slice(0, 3), slice(2, 3)])
def test_every_member_is_the_plain_model(streams: tuple[int, ...], members: slice) -> None:
    stack = FittedMembers(_models()[members], streams=streams[members])
    losses = [_step(stack, step) for step in range(STEPS)]
    assert [loss.parts["steps"].tolist() for loss in losses] == [[step] * stack.size for step in range(STEPS)]
    for slot, index in enumerate(range(K)[members]):
        model, expected = _plain(index, streams[index])
        assert torch.equal(torch.stack([loss.total[slot] for loss in losses]), torch.stack(expected))
        for name, buffer in model.named_buffers():
            assert torch.equal(stack.buffers[f"method.{name}"][slot], buffer), name


def test_members_are_fitted_to_different_numbers_of_examples() -> None:
    """As those of different classes are."""
    stack, counts = FittedMembers(_models(), streams=(0, 1, 2)), (B, B - 3, 2)
    data = [{"x": torch.randn(count, D, generator=torch.Generator().manual_seed(count))} for count in counts]
    noise = [draw_noise(_models()[0].noise(count), "noise", 0) for count in counts]
    losses = stack.step(data, noise, [{}] * K, 1.0)
    for slot, model in enumerate(_models()):
        assert losses.total[slot] == model.fit(data[slot], noise[slot]).total
        assert torch.equal(stack.buffers["method.mean_D"][slot], model.mean_D)


def test_members_are_evaluated_on_the_same_examples_or_each_on_its_own() -> None:
    stack = FittedMembers(_models(), streams=(0, 1, 2))
    x_KBX = torch.randn(K, B, D, generator=torch.Generator().manual_seed(1))
    together, own = stack.evaluate("distance", x_KBX[0]), stack.evaluate_each("distance", x_KBX)
    for slot, model in enumerate(_models()):
        assert torch.equal(together[slot], model.distance(x_KBX[0]))
        assert torch.equal(own[slot], model.distance(x_KBX[slot]))


@pytest.mark.parametrize("members", [slice(0, 3), slice(0, 1)])
def test_resuming_from_the_state_is_exact(members: slice) -> None:
    streams = [0, 1, 0][members]
    whole, other = (FittedMembers(_models(rates)[members], streams=streams) for rates in (RATES, (0.1,) * K))
    _step(whole, 0)
    buffer = io.BytesIO()
    torch.save(whole.state(), buffer)
    other.load_state(torch.load(io.BytesIO(buffer.getvalue()), weights_only=True))
    for step in range(1, STEPS):
        assert torch.equal(_step(whole, step).total, _step(other, step).total)


@pytest.mark.parametrize("chosen", [(0, 1, 2), (2, 0), (1,)])
def test_members_continue_in_a_new_stack_like_plain_models(chosen: tuple[int, ...]) -> None:
    stacks = [FittedMembers(_models()[:2], streams=(0, 1)), FittedMembers(_models()[2:], streams=(2,))]
    for stack in stacks:
        _step(stack, 0)
    before = copy.deepcopy(stacks[0].state())
    slots = {0: (stacks[0], 0), 1: (stacks[0], 1), 2: (stacks[1], 0)}
    merged = FittedMembers.from_members([slots[index] for index in chosen], streams=chosen)
    losses = [_step(merged, step).total for step in range(1, STEPS)]
    for slot, index in enumerate(chosen):
        assert torch.equal(torch.stack(losses)[:, slot], torch.stack(_plain(index, index)[1][1:]))
    after = stacks[0].state()
    assert all(torch.equal(after[kind][name], before[kind][name]) for kind in before for name in before[kind])


def test_a_member_copies_another_one_and_gets_hyperparameters_of_its_own() -> None:
    stack = FittedMembers(_models(), streams=(0, 1, 2))
    _step(stack, 0)
    stack.load_member(0, stack.copy_member(2), {"rate": 0.3})
    assert torch.equal(stack.buffers["method.mean_D"][0], stack.buffers["method.mean_D"][2])
    torch.testing.assert_close(stack.buffers["method.rate"], torch.tensor([0.3, 0.2, 0.9]))
    with pytest.raises(ValueError, match=r"^a member can only change its rate, but got lr=0\.1$"):
        stack.load_member(0, stack.copy_member(2), {"lr": 0.1})
