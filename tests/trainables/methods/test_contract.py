"""What every method promises (`trainables.contract`), once, over every entry of METHODS: a model and one batch.

What takes training is in `test_contract_fused`. Shapes: B images.
"""

import ast
import copy
import dataclasses
import inspect
import random
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.trainables.methods.method_configs import TRAINED, UNTRAINED, B, config_of, images_of_tests, inputs, model_of
from trainables.catalog import METHODS
from trainables.config.trial import fusible_keys, keys
from trainables.contract import Losses, Method

every_method = pytest.mark.parametrize("name", sorted(METHODS))
every_trained = pytest.mark.parametrize("name", TRAINED)


def _losses(name: str, noise: Tensor | None = None) -> Losses:
    views, drawn = inputs(name)
    losses: Losses = model_of(name).losses(*views, noise=drawn if noise is None else noise)
    return losses


def _buffers(model: Method) -> dict[str, Tensor]:
    return {key: buffer.clone() for key, buffer in model.named_buffers()}


def _equal(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(tensor, second[key]) for key, tensor in first.items())


def test_all_but_the_pixels_and_the_random_encoder_train() -> None:
    assert UNTRAINED == ["pixels", "random"] and len(TRAINED) == len(METHODS) - 2


@every_method
def test_fusible_hyperparameters_are_scalar_buffers_and_fields(name: str) -> None:
    fields = {field.name for field in dataclasses.fields(METHODS[name].Config)}
    model = model_of(name)
    for hyperparameter in METHODS[name].fusible:
        buffer = model.get_buffer(hyperparameter)
        assert hyperparameter in fields and buffer.shape == () and buffer.is_floating_point()
        assert buffer.item() == pytest.approx(getattr(model.config, hyperparameter))
    assert fusible_keys(name) >= METHODS[name].fusible and fusible_keys(name) <= set(keys(name))


@every_method
def test_buffers_come_in_one_order_in_every_process(name: str) -> None:
    """The iteration order of a set differs between processes, but peers average buffers by position."""
    own = [key for key, _ in model_of(name).named_buffers() if key in METHODS[name].fusible]
    assert own == sorted(METHODS[name].fusible)


@every_method
def test_config_is_frozen_and_documents_every_field(name: str) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        METHODS[name].Config().anything = 1
    (body,) = [node.body for node in ast.walk(_source(METHODS[name].Config)) if isinstance(node, ast.ClassDef)]
    for index, node in enumerate(body):
        if isinstance(node, ast.AnnAssign):
            docstring = body[index + 1]
            assert isinstance(docstring, ast.Expr) and isinstance(docstring.value, ast.Constant), ast.unparse(node)
            assert str(docstring.value.value).strip().endswith("."), ast.unparse(node)


def _source(cls: type) -> ast.Module:
    return ast.parse(textwrap.dedent(inspect.getsource(cls)))


@every_method
def test_embed_gives_every_declared_vector(name: str) -> None:
    """Float32 `[B, D]` in any precision of the encoder; z is what `forward` returns, of the declared size."""
    method, model, images = METHODS[name], model_of(name).eval(), images_of_tests()[:B]
    with torch.no_grad():
        vectors = model.embed(images)
        with torch.autocast("cpu", torch.bfloat16):
            rough = model.embed(images)
    declared = {*method.representations, *([method.variance] if method.variance else [])}
    assert set(vectors) >= declared >= {"z"}
    assert torch.equal(vectors["z"], model(images)) and vectors["z"].shape == (B, model.features)
    for key in vectors:
        assert vectors[key].dtype == rough[key].dtype == torch.float32
        assert vectors[key].shape[0] == B and vectors[key].dim() == 2 and vectors[key].isfinite().all()
        torch.testing.assert_close(rough[key], vectors[key], rtol=0.1, atol=0.1)
    if method.variance:
        assert (vectors[method.variance] > 0).all()


@every_method
def test_evaluation_sees_each_image_alone_and_leaves_no_trace(name: str) -> None:
    model, images = model_of(name), images_of_tests()[:B]
    model.train()(images + 1)  # statistics of BatchNorm other than the initial ones
    model.eval()
    before = _buffers(model)
    with torch.no_grad():
        together, alone = model.embed(images), model.embed(images[2:3])
    for key, vectors in together.items():
        torch.testing.assert_close(alone[key], vectors[2:3], rtol=1e-4, atol=1e-5)
        assert (vectors - vectors[2:3]).abs().amax(1).gt(1e-3).sum() == B - 1  # images are told apart
    assert _equal(before, _buffers(model))


@every_method
def test_score_gives_exactly_the_declared_scores_one_an_image(name: str) -> None:
    model, images = model_of(name).eval(), images_of_tests()[:7]
    assert set(model.score_means.values()) <= set(model.scores)
    if not model.scores:
        return
    with torch.no_grad():
        scores = model.score(images, torch.zeros(model.score_noise_shape(7)))
        alone = model.score(images[2:3], torch.zeros(model.score_noise_shape(1)))
    assert tuple(scores) == METHODS[name].scores
    assert all(score.shape == (7,) and score.isfinite().all() for score in scores.values())
    for key, score in scores.items():  # an image's score does not depend on its neighbours in the batch
        torch.testing.assert_close(alone[key], score[2:3], rtol=1e-4, atol=1e-5)


@every_method
def test_noise_has_the_batch_as_its_last_dimension_but_one(name: str) -> None:
    shape, larger_shape = model_of(name).noise_shape(B), model_of(name).noise_shape(B + 7)
    if len(shape) > 1:
        assert shape[-2] == B and larger_shape == (*shape[:-2], B + 7, shape[-1])
    else:
        assert shape == larger_shape == (0,)


@every_method
def test_nothing_draws_random_numbers(name: str) -> None:
    views, noise = inputs(name)
    model, images = model_of(name), images_of_tests()[:B]
    before = (torch.get_rng_state(), random.getstate(), repr(np.random.get_state()))
    if name in TRAINED:
        model.losses(*views, noise=noise)
    model.after_step()
    model.eval().embed(images)
    if model.scores:
        model.score(images, torch.zeros(model.score_noise_shape(B)))
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1:] == (random.getstate(), repr(np.random.get_state()))


@every_trained
def test_losses_are_scalars_with_declared_parts(name: str) -> None:
    losses = _losses(name)
    assert losses.total.shape == () and losses.total.dtype == torch.float32 and losses.total.isfinite()
    assert set(losses.parts) <= set(METHODS[name].loss_parts)
    assert all(part.shape == () and part.isfinite() for part in losses.parts.values())


@every_trained
def test_in_bfloat16_networks_alone_are_rounded(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the functions of `trainables.losses` are given and return is float32; the loss is near the exact one."""
    seen: list[torch.dtype] = []
    for key, value in vars(sys.modules[METHODS[name].__module__]).items():
        if callable(value) and value.__module__.startswith("trainables.losses"):
            monkeypatch.setattr(f"{METHODS[name].__module__}.{key}", _watched(value, seen))
    exact = _losses(name).total
    with torch.autocast("cpu", torch.bfloat16):
        rough = _losses(name).total
    assert set(seen) == {torch.float32} and rough.dtype == torch.float32
    assert not torch.equal(rough, exact)
    torch.testing.assert_close(rough, exact, rtol=0.02, atol=0.02)


def _watched(function: Callable[..., Tensor], seen: list[torch.dtype]) -> Callable[..., Tensor]:
    def watched(*arguments: Any) -> Tensor:
        result = function(*arguments)
        seen.extend(tensor.dtype for tensor in (*arguments, result) if isinstance(tensor, Tensor))
        return result

    return watched


@every_trained
def test_noise_is_the_only_source_of_chance(name: str) -> None:
    _, noise = inputs(name)
    assert noise.shape == model_of(name).noise_shape(B)
    first = _losses(name, noise).total
    assert torch.equal(first, _losses(name, noise).total)
    if noise.numel():
        assert not torch.equal(first, _losses(name, noise.flip(-1)).total)


@every_trained
def test_the_order_of_images_does_not_matter(name: str) -> None:
    views, noise = inputs(name)
    flipped = noise.flip(-2) if noise.numel() else noise
    actual = model_of(name).losses(*(view.flip(0) for view in views), noise=flipped).total
    torch.testing.assert_close(actual, _losses(name).total, rtol=1e-4, atol=1e-5)


@every_trained
def test_losses_and_after_step_leave_parameters_and_inputs_alone(name: str) -> None:
    views, noise = inputs(name)
    model = model_of(name)
    before = [tensor.clone() for tensor in (*views, noise, *model.parameters())]
    model.losses(*views, noise=noise)
    model.after_step()
    assert all(torch.equal(a, b) for a, b in zip(before, (*views, noise, *model.parameters()), strict=True))


@every_trained
def test_a_batch_can_be_split_exactly_where_the_method_says_so(name: str) -> None:
    """The loss is the mean over both halves, and each half changes buffers as the whole does (except BatchNorm's)."""
    views, noise = inputs(name)
    start = model_of(name)
    for module in start.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.momentum = 1.0  # one batch sets the statistics, which evaluation mode then takes for every part
    start.losses(*views, noise=noise)
    start.eval()

    def outcome(part: slice) -> tuple[Losses, dict[str, Tensor]]:
        model = copy.deepcopy(start)
        drawn = noise[..., part, :] if noise.numel() else noise
        return model.losses(*(view[part] for view in views), noise=drawn), _buffers(model)

    (whole, left), *halves = (outcome(part) for part in (slice(0, B), slice(0, B // 2), slice(B // 2, B)))
    mean = torch.stack([losses.total for losses, _ in halves]).mean()
    splits = torch.allclose(whole.total, mean, rtol=1e-4, atol=1e-5) and all(_equal(left, other) for _, other in halves)
    assert splits == METHODS[name].per_image


@pytest.mark.parametrize("name", UNTRAINED)
def test_methods_that_do_not_train_refuse_epochs(name: str) -> None:
    model = model_of(name)
    assert not model.fusible and not model.loss_parts and not model.per_image
    with pytest.raises(NotImplementedError):
        model.losses(images_of_tests()[:B], images_of_tests()[:B], noise=torch.zeros(0))
    with pytest.raises(ValueError, match="does not train, so epochs must be 0, but got epochs=3"):
        config_of(name, epochs=3)
