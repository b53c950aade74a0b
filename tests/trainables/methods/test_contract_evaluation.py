"""What every method promises (`trainables.contract`) of its capabilities: embed, score, decode, density and predict.

Shapes: B examples, D features.
"""

import pytest
import torch

from tests.trainables.methods.method_configs import (
    ALL,
    FITTED,
    IMAGE_METHODS,
    B,
    arguments_of,
    images_of_tests,
    learn,
    model_of,
    noise_rows,
    outputs,
    step_of,
)
from trainables.contract import Capability, ImageMethod, Method

pytestmark = pytest.mark.usefixtures("pairs")

EVERY = [
    (name, capability)
    for name, method in ALL.items()
    for capability in sorted(method.capabilities)
    if capability != "density"  # which is of no example
]
every_capability = pytest.mark.parametrize(("name", "capability"), EVERY)


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


@every_capability
def test_an_example_is_evaluated_alone_and_leaves_no_trace(name: str, capability: Capability) -> None:
    model, (examples, *noise) = _used(name), arguments_of(name)[capability]
    before = {key: buffer.clone() for key, buffer in model.named_buffers()}
    third = torch.tensor([2])
    noises = model.score_noise(B) if isinstance(model, ImageMethod) else {}
    together = outputs(model, capability, (examples, *noise))
    alone = outputs(model, capability, (examples[third], *(noise_rows(noises, each, third) for each in noise)))
    assert together.keys() == alone.keys()
    for key, output in together.items():
        assert len(output) == B and output.isfinite().all()
        torch.testing.assert_close(alone[key], output[third], rtol=1e-4, atol=1e-5)
    values = torch.cat([output.reshape(B, -1) for output in together.values()], dim=1)
    assert (values - values[third]).abs().amax(1).gt(1e-4).sum() == B - 1  # examples are told apart
    assert all(torch.equal(before[key], buffer) for key, buffer in model.named_buffers())


@pytest.mark.parametrize(("name", "capability"), [(name, verb) for name, verb in EVERY if name not in FITTED])
def test_in_bfloat16_outputs_are_float32_and_near_the_exact_ones(name: str, capability: Capability) -> None:
    model, arguments = _used(name), arguments_of(name)[capability]
    exact = outputs(model, capability, arguments)
    with torch.autocast("cpu", torch.bfloat16):
        rough = outputs(model, capability, arguments)
    for key, values in exact.items():
        assert values.dtype == rough[key].dtype == torch.float32, key
        torch.testing.assert_close(rough[key], values, rtol=0.1, atol=0.1)


@pytest.mark.parametrize("name", IMAGE_METHODS)
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


@pytest.mark.parametrize("name", [name for name, capability in EVERY if capability == "score"])
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
