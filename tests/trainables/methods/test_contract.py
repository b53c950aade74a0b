"""What every method declares (`trainables.contract`), once, over every entry of METHODS and two methods without images.

What it does with a batch is in `test_contract_losses`, with other examples in `test_contract_evaluation`, and in a
training in `test_contract_fused`.
"""

import ast
import dataclasses
import inspect
import textwrap
from collections.abc import Callable

import pytest
import torch

from tests.trainables.methods.method_configs import (
    ALL,
    BY_GRADIENTS,
    FITTED,
    IMAGE_METHODS,
    UNTRAINED,
    B,
    config_of,
    images_of_tests,
    learn,
    model_of,
    step_of,
)
from trainables.catalog import METHODS
from trainables.config import fusible_keys, keys, resolve, sections
from trainables.contract import Capability, ImageMethod, Noises, PairsMethod
from trainables.methods.projected import ProjectedMethod
from trainables.sections import Value
from trainables.training.stacks import build_models

pytestmark = pytest.mark.usefixtures("pairs")
every_method = pytest.mark.parametrize("name", ALL)


def test_every_method_trains_but_the_pixels_and_the_random_encoder() -> None:
    assert UNTRAINED == ["pixels", "random"]
    assert FITTED == ["bayesian_regression", "gaussian_process", "gmje_em", "gmje_gng"]
    assert set(ALL) >= set(METHODS) and len(BY_GRADIENTS) == len(ALL) - 6


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


@pytest.mark.parametrize(("name", "width"), [*((name, None) for name in IMAGE_METHODS), *WITHOUT_PROJECTOR])
def test_the_loss_compares_representations_unless_the_method_projects(name: str, width: int | None) -> None:
    config, images = config_of(name, **({} if width is None else {"projector_width": width})), images_of_tests()[:4]
    model = build_models([config], {"views": (1, 8, 8)})[0].eval()
    assert isinstance(model, ImageMethod)
    compared, z = model.project(images), model(images)
    assert model.projects(config.options) == (compared.shape != z.shape or not torch.equal(compared, z))


CAPABILITIES: tuple[Capability, ...] = ("embed", "score", "decode", "density", "predict")


@every_method
@pytest.mark.parametrize("capability", CAPABILITIES)
def test_a_method_has_the_capabilities_that_it_declares(name: str, capability: Capability) -> None:
    """It defines the function of that name, and only those can be called."""
    method, model = ALL[name], model_of(name)
    undefined = (None, *(getattr(base, capability, None) for base in (ImageMethod, PairsMethod)))
    defines = getattr(method, capability, None) not in undefined
    assert (capability in method.capabilities) == (defines or (capability == "embed" and name in IMAGE_METHODS))
    if isinstance(model, ImageMethod):
        assert bool(model.scores) == ("score" in model.capabilities)


@pytest.mark.parametrize("name", IMAGE_METHODS)
@pytest.mark.parametrize(
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
    with pytest.raises(ValueError, match=rf"^{name} has no .*: {able}(; with adhoc_epochs .*)?$"):
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
    with pytest.raises(ValueError, match=rf"^no key 'lr'.*; {name} has: "):
        config_of(name, lr=0.1)
    assert "lr" not in fusible_keys(name) and "seed" in fusible_keys(name)
