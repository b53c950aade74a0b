"""A stack is its members: against plain models with torch's own optimisers, for a method with all that can be awkward.

And noise derives from its key, and nothing else. Shapes: K members, B images.
"""

import copy
import io
from collections.abc import Mapping

import pytest
import torch
from scipy import stats
from torch import Tensor

from tests.cases import for_each
from tests.trainables.awkward import (
    DECAY,
    LR,
    STACKED,
    STEPS,
    Awkward,
    D,
    K,
    awkward,
    inputs_of,
    models,
    one_step,
    plain,
    stack_of,
)
from trainables.contract import Batch, Losses, Noise
from trainables.learners.data_parallel import Peers, draw_noise, seeded_generator

IMAGES = torch.randn(7, 1, 5, 5, generator=torch.Generator().manual_seed(5))
SHIFT = torch.randn(7, D, generator=torch.Generator().manual_seed(6))


@pytest.mark.slow
@for_each("optimiser", STACKED)
@for_each("streams", [(0, 0, 0), (0, 1, 2), (2, 0, 2)])
@for_each("members", [slice(0, 3), slice(1, 3), slice(0, 1), slice(2, 3)])
def test_every_member_is_the_plain_model_with_torchs_optimiser(
    streams: tuple[int, ...], members: slice, optimiser: str
) -> None:
    stack = stack_of(models(), streams, members, optimiser)
    losses = [one_step(stack, step).total for step in range(STEPS)]
    scores = stack.evaluate("score", IMAGES, {"shift": SHIFT})["length"]
    state = stack.state()
    for slot, index in enumerate(range(K)[members]):
        model = models()[index]
        expected = plain(model, LR[index], DECAY[index], streams[index], optimiser)
        torch.testing.assert_close(torch.stack(losses)[:, slot], torch.stack(expected), rtol=1e-4, atol=1e-5)
        tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        actual = {**state["parameters"], **state["buffers"]}
        assert {f"method.{name}" for name in tensors} == set(actual)
        for name, tensor in tensors.items():
            torch.testing.assert_close(actual[f"method.{name}"][slot], tensor.detach(), rtol=1e-3, atol=1e-5)
        with torch.no_grad():
            torch.testing.assert_close(scores[slot], (model.eval()(IMAGES) + SHIFT).norm(dim=-1), rtol=1e-4, atol=1e-5)


def test_buffers_move_in_place_each_members_own() -> None:
    """Moving averages, queues, BatchNorm's statistics and counters."""
    stack = stack_of(models(), (0, 1, 2))
    before = stack.state()["buffers"]
    buffers = dict(stack.buffers)
    for step in range(STEPS):
        one_step(stack, step)
    after = stack.state()["buffers"]
    assert all(stack.buffers[name] is tensor for name, tensor in buffers.items())
    for name in ("average", "queue", "latest", "encoder.layers.1.running_mean", "encoder.layers.1.running_var"):
        moved = after[f"method.{name}"] - before[f"method.{name}"]
        assert all(moved[member].abs().max() > 1e-4 for member in range(K)), name
        assert not any(torch.allclose(moved[i], moved[j]) for i in range(K) for j in range(i)), name
    assert after["method.steps"].tolist() == [STEPS] * K
    assert after["method.encoder.layers.1.num_batches_tracked"].tolist() == [2 * STEPS] * K  # two views a step
    assert torch.equal(after["method.tau"], before["method.tau"])


@pytest.mark.parametrize("members", [slice(0, 3), slice(0, 1)])
def test_scoring_changes_nothing_and_treats_each_image_separately(members: slice) -> None:
    stack = stack_of(models(), (0, 0, 0), members)
    one_step(stack, 0)
    before = stack.state()
    scores = stack.evaluate("score", IMAGES, {"shift": SHIFT})["length"]
    assert not scores.requires_grad
    alone = stack.evaluate("score", IMAGES[2:3], {"shift": SHIFT[2:3]})["length"]
    torch.testing.assert_close(scores[:, 2:3], alone)
    for kind, tensors in stack.state().items():
        assert all(torch.equal(tensor, before[kind][name]) for name, tensor in tensors.items())


@pytest.mark.parametrize("members", [slice(0, 3), slice(0, 1)])
def test_each_member_can_be_evaluated_on_inputs_of_its_own(members: slice) -> None:
    stack = stack_of(models(), (0, 0, 0), members)
    images = torch.stack([IMAGES + 0.5 * member for member in range(K)])[members]
    vectors = stack.evaluate_each("embed", images)["z"]
    for member, model in enumerate(models()[members]):
        torch.testing.assert_close(vectors[member], model.eval()(images[member]).detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("optimiser", STACKED)
@pytest.mark.parametrize("members", [slice(0, 3), slice(0, 1)])
def test_resuming_from_the_state_is_exact(members: slice, optimiser: str) -> None:
    whole = stack_of(models(), (0, 1, 0), members, optimiser)
    for step in range(4):
        one_step(whole, step)
    buffer = io.BytesIO()
    torch.save(whole.state(), buffer)
    other = stack_of(models(taus=(0.1, 0.2, 0.3), seeds=(7, 8, 9)), (0, 1, 0), members, optimiser)
    other.load_state(torch.load(io.BytesIO(buffer.getvalue()), weights_only=True))
    for step in range(4, 8):
        assert torch.equal(one_step(whole, step).total, one_step(other, step).total)
    for kind, tensors in whole.state().items():
        assert all(torch.equal(tensor, other.state()[kind][name]) for name, tensor in tensors.items())


def test_state_is_a_copy() -> None:
    stack = stack_of(models(), (0, 0, 0))
    state = stack.state()
    copied = copy.deepcopy(state)
    one_step(stack, 0)
    assert all(torch.equal(state[kind][name], copied[kind][name]) for kind in copied for name in copied[kind])


@pytest.mark.parametrize("streams", [(0, 0, 0), (0, 1, 2)])
def test_a_member_with_nan_weights_affects_no_other(streams: tuple[int, ...]) -> None:
    clean, spoilt_models = stack_of(models(), streams), models()
    with torch.no_grad():
        spoilt_models[1].head.weight.fill_(torch.nan)
    spoilt = stack_of(spoilt_models, streams)
    for step in range(3):
        good, bad = one_step(clean, step).total, one_step(spoilt, step).total
        assert torch.equal(good[[0, 2]], bad[[0, 2]]) and bad[1].isnan()


def test_losses_are_those_before_the_step_and_hold_no_graph() -> None:
    stack = stack_of(models(), (0, 0, 0))
    losses = one_step(stack, 0)
    batch, noise, _ = inputs_of(0, 0)
    for slot, model in enumerate(models()):
        torch.testing.assert_close(losses.total[slot], model.train().losses(batch, noise).total.detach())
    assert not any(loss.requires_grad for loss in (losses.total, *losses.parts.values()))
    assert set(losses.parts) == {"pull", "push"} and all(part.shape == (K,) for part in losses.parts.values())


class Drawing(Awkward):
    """A method that draws random numbers, which the contract forbids."""

    def losses(self, batch: Batch, noise: Mapping[str, Tensor]) -> Losses:
        return super().losses(batch, {name: values + torch.randn_like(values) for name, values in noise.items()})


def test_a_method_that_draws_in_a_stack_is_refused() -> None:
    drawing = [awkward(method=Drawing) for _ in range(K)]
    with pytest.raises(RuntimeError, match="random"):
        one_step(stack_of(drawing, (0, 0, 0)), 0)


B = 20
NOISES = {
    "sample": Noise((2, B, 4), batch_dim=1),
    "jitter": Noise((B, 3), batch_dim=0, kind="uniform"),
    "shared": Noise((5,)),
}


def test_generators_are_known_numbers() -> None:
    """A change of the hashing would silently make every sweep on record irreproducible."""
    assert seeded_generator("order", ("digits", 3, 0), 0).initial_seed() == 10536567748675528602


def test_the_first_noise_is_what_its_generator_draws() -> None:
    """So sweeps on record, whose methods have one noise, stay reproducible."""
    first = draw_noise(NOISES, "noise", ("digits", 3, 0), 2, 1)["sample"]
    generator = seeded_generator("noise", ("digits", 3, 0), 2, 1)
    assert torch.equal(first, torch.randn(2, B, 4, generator=generator))


@pytest.mark.parametrize(
    "other", [("after_step", "key", 0, 0), ("noise", "k", 0, 0), ("noise", "key", 1, 0), ("noise", "key", 0, 1)]
)
def test_another_purpose_stream_epoch_or_step_has_other_numbers(other: tuple[object, ...]) -> None:
    drawn, again, changed = (
        draw_noise(NOISES, *key) for key in (("noise", "key", 0, 0), ("noise", "key", 0, 0), other)
    )
    assert drawn.keys() == NOISES.keys()
    assert all(torch.equal(drawn[name], again[name]) for name in NOISES)
    assert not any((drawn[name] == changed[name]).any() for name in NOISES)


def test_each_kind_has_its_distribution() -> None:
    drawn = draw_noise({"normal": Noise((4000,)), "uniform": Noise((4000,), kind="uniform")}, "kinds")
    assert stats.kstest(drawn["normal"], "norm").pvalue > 0.01
    assert stats.kstest(drawn["uniform"], "uniform").pvalue > 0.01


@pytest.mark.parametrize("size", [2, 3])
def test_several_processes_draw_what_one_draws(size: int) -> None:
    """Each has its part along the dimension of the batch, and all of what has no such dimension."""
    whole = draw_noise(NOISES, "noise", 1)
    parts = [draw_noise(NOISES, "noise", 1, peers=Peers(rank, size)) for rank in range(size)]
    assert torch.equal(torch.cat([part["sample"] for part in parts], dim=1), whole["sample"])
    assert torch.equal(torch.cat([part["jitter"] for part in parts]), whole["jitter"])
    assert all(torch.equal(part["shared"], whole["shared"]) for part in parts)


def test_draws_neither_read_nor_move_torchs_own_generator() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = draw_noise(NOISES, "noise")
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(2)
    assert all(torch.equal(values, first[name]) for name, values in draw_noise(NOISES, "noise").items())
