"""What every method promises (`trainables.contract`): what it declares, once, over every entry of METHODS and two
methods without images; its capabilities (embed, score, decode, density, classify, predict); and a step on one batch.
What it does in a training is in `test_contract_fused`.

Shapes: B examples, D features.
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
from torch.utils._pytree import tree_leaves

from tests.cases import for_each
from tests.trainables.methods.method_configs import (
    ALL,
    BY_GRADIENTS,
    FITTED,
    IMAGE_METHODS,
    TRAINED,
    UNTRAINED,
    B,
    arguments_of,
    config_of,
    images_of_tests,
    learn,
    model_of,
    model_shapes,
    noise_rows,
    outputs,
    rows,
    step_of,
)
from trainables.catalog import METHODS
from trainables.config import fusible_keys, keys, resolve, sections
from trainables.contract import Capability, ImageMethod, Losses, Method, Noises, PairsMethod
from trainables.methods.projected import ProjectedMethod
from trainables.sections import Value
from trainables.training.stacks import build_models

pytestmark = pytest.mark.usefixtures("pairs")
every_method = for_each("name", ALL)


def test_every_method_trains_but_the_pixels_and_the_random_encoder() -> None:
    assert UNTRAINED == ["pixels", "random"]
    assert FITTED == ["bayesian_regression", "gaussian_process", "gmje_em", "gmje_gng", "patchcore"]
    assert set(ALL) >= set(METHODS) and len(BY_GRADIENTS) == len(ALL) - 7


@every_method
def test_fusible_hyperparameters_are_scalar_buffers_and_fields(name: str) -> None:
    fields = {field.name for field in dataclasses.fields(ALL[name].Config)}
    model = model_of(name)
    for hyperparameter in ALL[name].fusible:
        buffer = model.get_buffer(hyperparameter)
        assert hyperparameter in fields and buffer.shape == () and buffer.is_floating_point()
        assert buffer.item() == pytest.approx(getattr(model.config, hyperparameter))
    assert fusible_keys(name) >= ALL[name].fusible and fusible_keys(name) <= set(keys(name))


@every_method
def test_buffers_come_in_one_order_in_every_process(name: str) -> None:
    """The iteration order of a set differs between processes, but peers average buffers by position."""
    own = [key for key, _ in model_of(name).named_buffers() if key in ALL[name].fusible]
    assert own == sorted(ALL[name].fusible)


@every_method
def test_config_is_frozen_and_documents_every_field(name: str) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        ALL[name].Config().anything = 1
    (body,) = [node.body for node in ast.walk(_source(ALL[name].Config)) if isinstance(node, ast.ClassDef)]
    for index, node in enumerate(body):
        if isinstance(node, ast.AnnAssign):
            docstring = body[index + 1]
            assert isinstance(docstring, ast.Expr) and isinstance(docstring.value, ast.Constant), ast.unparse(node)
            assert str(docstring.value.value).strip().endswith("."), ast.unparse(node)


def _source(cls: type) -> ast.Module:
    return ast.parse(textwrap.dedent(inspect.getsource(cls)))


@every_method
def test_every_key_is_a_field_of_exactly_one_section(name: str) -> None:
    fields = [field.name for section in sections(name).values() for field in dataclasses.fields(section)]
    assert sorted(["method", *fields]) == sorted(keys(name))
    rates = {"batch_size", "lr", "weight_decay", "optimiser"}
    assert rates <= keys(name).keys() if name not in FITTED else rates.isdisjoint(keys(name))


@every_method
def test_noise_has_the_batch_in_the_declared_dimension_and_in_no_other(name: str) -> None:
    model = model_of(name)
    declarations: list[Callable[[int], Noises]] = [model.noise]
    if isinstance(model, ImageMethod):
        declarations.append(model.score_noise)
    for declare in declarations:
        noises, larger_noises = declare(B), declare(B + 7)
        assert noises.keys() == larger_noises.keys()
        for key, noise in noises.items():
            expected = list(noise.shape)
            if noise.batch_dim is not None:
                assert expected[noise.batch_dim] == B
                expected[noise.batch_dim] = B + 7
            assert larger_noises[key] == dataclasses.replace(noise, shape=tuple(expected)), key


WITHOUT_PROJECTOR = [(name, 0) for name in IMAGE_METHODS if issubclass(ALL[name], ProjectedMethod)]


@for_each(("name", "width"), [*((name, None) for name in IMAGE_METHODS), *WITHOUT_PROJECTOR])
def test_the_loss_compares_representations_unless_the_method_projects(name: str, width: int | None) -> None:
    config, images = config_of(name, **({} if width is None else {"projector_width": width})), images_of_tests()[:4]
    model = build_models([config], model_shapes(name))[0].eval()
    assert isinstance(model, ImageMethod)
    compared, z = model.project(images), model(images)
    assert model.projects(config.options) == (compared.shape != z.shape or not torch.equal(compared, z))


CAPABILITIES: tuple[Capability, ...] = ("embed", "score", "heat", "decode", "density", "classify", "predict")


@every_method
@for_each("capability", CAPABILITIES)
def test_a_method_has_the_capabilities_that_it_declares(name: str, capability: Capability) -> None:
    """It defines the function of that name, and only those can be called."""
    method, model = ALL[name], model_of(name)
    undefined = (None, *(getattr(base, capability, None) for base in (ImageMethod, PairsMethod)))
    defines = getattr(method, capability, None) not in undefined
    assert (capability in method.capabilities) == (defines or (capability == "embed" and name in IMAGE_METHODS))
    if isinstance(model, ImageMethod):
        assert bool(model.scores) == ("score" in model.capabilities)


@for_each("name", IMAGE_METHODS)
@for_each(
    ("capability", "key", "value"),
    [
        *(("score", "outliers", "noise"), ("decode", "reconstructions", True), ("decode", "samples_per_class", 2)),
        ("density", "density", "own"),
    ],
)
def test_an_evaluation_that_a_method_is_not_capable_of_is_refused_by_name(
    name: str, capability: Capability, key: str, value: Value
) -> None:
    values: dict[str, Value] = {"method": name, "epochs": 0, "decoder": "relu_mlp", key: value}
    capable = capability in ALL[name].capabilities
    if capability == "density":  # of what the loss is of, which without a projector is the representation
        values |= {"adhoc_epochs": 1, **({"projector_width": 0} if capable else {})}
    if capable:
        resolve(values)
        return
    able = ", ".join(other for other in METHODS if capability in METHODS[other].capabilities)
    with pytest.raises(ValueError, match=rf"^{name} has no .*: {able}(; for others set adhoc_epochs .*)?$"):
        resolve(values)


@pytest.mark.parametrize("name", UNTRAINED)
def test_methods_that_do_not_train_refuse_epochs(name: str) -> None:
    model, step = model_of(name), step_of(name)
    assert not model.fusible and not model.loss_parts and not model.per_example
    with pytest.raises(NotImplementedError):
        learn(model, step.batch, step.noise)
    with pytest.raises(ValueError, match="does not train, so epochs must be 0, but got epochs=3"):
        config_of(name, epochs=3)


@pytest.mark.parametrize("name", FITTED)
def test_methods_that_are_fitted_have_no_learning_rate(name: str) -> None:
    with pytest.raises(ValueError, match=r"^no key 'lr'[;( ]"):
        config_of(name, lr=0.1)
    assert "lr" not in fusible_keys(name) and "seed" in fusible_keys(name)


EVERY = [
    (name, capability)
    for name, method in ALL.items()
    for capability in sorted(method.capabilities)
    if capability != "density"  # which is of no example
]
every_capability = for_each(("name", "capability"), EVERY)


def _used(name: str) -> Method:
    """A model after a step, so that its buffers, such as BatchNorm's statistics, are not the initial ones."""
    model, step = model_of(name), step_of(name)
    if model.trains():
        learn(model.train(), step.batch, step.noise)
    return model.eval()


def _image_method(name: str) -> ImageMethod:
    model = _used(name)
    assert isinstance(model, ImageMethod)
    return model


@pytest.mark.slow
@every_capability
def test_an_example_is_evaluated_alone_and_leaves_no_trace(name: str, capability: Capability) -> None:
    model, (examples, *noise) = _used(name), arguments_of(name)[capability]
    before = {key: buffer.clone() for key, buffer in model.named_buffers()}
    third = torch.tensor([2])
    noises = model.score_noise(B) if isinstance(model, ImageMethod) else {}
    together = outputs(model, capability, (examples, *noise))
    of_third = (each[third] if isinstance(each, Tensor) else noise_rows(noises, each, third) for each in noise)
    alone = outputs(model, capability, (examples[third], *of_third))
    assert together.keys() == alone.keys()
    for key, output in together.items():
        assert len(output) == B and output.isfinite().all()
        torch.testing.assert_close(alone[key], output[third], rtol=1e-4, atol=1e-5)
    values = torch.cat([output.reshape(B, -1) for output in together.values()], dim=1)
    assert (values - values[third]).abs().amax(1).gt(1e-5).sum() == B - 1  # examples are told apart
    assert all(torch.equal(before[key], buffer) for key, buffer in model.named_buffers())


@pytest.mark.slow
@for_each(("name", "capability"), [(name, verb) for name, verb in EVERY if name not in FITTED])
def test_in_bfloat16_outputs_are_float32_and_near_the_exact_ones(name: str, capability: Capability) -> None:
    model, arguments = _used(name), arguments_of(name)[capability]
    exact = outputs(model, capability, arguments)
    with torch.autocast("cpu", torch.bfloat16):
        rough = outputs(model, capability, arguments)
    for key, values in exact.items():
        assert values.dtype == rough[key].dtype == torch.float32, key
        torch.testing.assert_close(rough[key], values, rtol=0.1, atol=0.1)


@for_each("name", IMAGE_METHODS)
def test_embed_gives_every_declared_vector(name: str) -> None:
    """z is what `forward` returns, of the declared size."""
    model, images = _image_method(name), images_of_tests()[:B]
    vectors = outputs(model, "embed", (images,))
    declared = {*model.representations, *([model.variance] if model.variance else [])}
    assert set(vectors) >= declared >= {"z"}
    assert torch.equal(vectors["z"], model(images)) and vectors["z"].shape == (B, model.features)
    assert all(vector.shape[0] == B and vector.dim() == 2 for vector in vectors.values())
    for key, vector in vectors.items():
        spread = (vector - vector[2:3]).abs().amax(1)
        assert spread.gt(1e-3).sum() == B - 1, key  # images are told apart
    if model.variance:
        assert (vectors[model.variance] > 0).all()


@for_each("name", [name for name, capability in EVERY if capability == "score"])
def test_score_gives_exactly_the_declared_scores_one_an_image(name: str) -> None:
    model = _image_method(name)
    scores = outputs(model, "score", arguments_of(name, 7)["score"])
    assert tuple(scores) == model.scores and set(model.score_means.values()) <= set(model.scores)
    assert all(score.shape == (7,) for score in scores.values())


@pytest.mark.parametrize("name", [name for name, capability in EVERY if capability == "decode"])
def test_decode_gives_images_with_pixels_from_0_to_1(name: str) -> None:
    model = _image_method(name)
    (images,) = outputs(model, "decode", arguments_of(name)["decode"]).values()
    assert images.shape == (B, *model.image_shape) and 0 <= images.min() < images.max() <= 1


@pytest.mark.parametrize("name", [name for name, method in ALL.items() if "density" in method.capabilities])
def test_density_is_a_mixture_whose_covariances_are_positive_definite(name: str) -> None:
    mixture = outputs(_used(name), "density", ())
    count, size = mixture["means"].shape
    assert mixture["logits"].shape == (count,) and mixture["covariances"].shape == (count, size, size)
    assert all(part.dtype == torch.float32 and part.isfinite().all() for part in mixture.values())
    assert (torch.linalg.eigvalsh(mixture["covariances"].double()) > 0).all()


every_trained = for_each("name", TRAINED)


def _losses(name: str, noise_seed: int = 0) -> Losses:
    return learn(model_of(name), step_of(name).batch, step_of(name, noise_seed).noise)


def _buffers(model: Method) -> dict[str, Tensor]:
    return {key: buffer.clone() for key, buffer in model.named_buffers()}


def _equal(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(tensor, second[key]) for key, tensor in first.items())


@pytest.mark.slow
@for_each("name", ALL)
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


@pytest.mark.slow
@for_each("name", BY_GRADIENTS)
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


@pytest.mark.slow
@every_trained
def test_noise_is_the_only_source_of_chance(name: str) -> None:
    noise, size = step_of(name).noise, step_of(name).size
    declared = model_of(name).noise(size)
    assert {key: values.shape for key, values in noise.items()} == {key: each.shape for key, each in declared.items()}
    first, again, other = (_learned(name, noise_seed) for noise_seed in (0, 0, 1))
    assert _equal(first, again)
    if noise:
        assert not _equal(first, other)


@pytest.mark.slow
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


@pytest.mark.slow
@for_each("name", BY_GRADIENTS)
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
