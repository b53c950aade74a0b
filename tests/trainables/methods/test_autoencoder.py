"""What all methods with an encoder and a decoder have in common: their representation, their images, their learning.

Shapes: K members, B images, J views, L latent dimensions; C channels, H by W pixels.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from scipy import special
from torch import Tensor

from tests.trainables.awkward import STACKED
from tests.trainables.methods import autoencoders
from tests.trainables.training.judged import float64
from trainables.catalog import METHODS
from trainables.config import resolve
from trainables.contract import Batch
from trainables.learners.data_parallel import draw_noise
from trainables.learners.optimisers import Rates
from trainables.learners.stack import Stack
from trainables.methods.variational.autoencoder import VariationalAutoencoder, sample
from trainables.methods.variational.simvae import SimVAE, SimVAEConfig
from trainables.sections import TrialConfig, Value
from trainables.training.stacks import build_models

AUTOENCODERS = [name for name, method in METHODS.items() if issubclass(method, VariationalAutoencoder)]
each_method = pytest.mark.parametrize("name", AUTOENCODERS)
L, SHAPE = 5, (3, 8, 8)


def _config(name: str, **changes: Value) -> TrialConfig:
    views: dict[str, Value] = {"views": 3} if name == "simvae" else {}
    given: dict[str, Value] = {
        "method": name, "encoder": "relu_mlp", "features": L, "hidden": "32", "decoder_hidden": "32", **views,
    }  # fmt: skip
    return resolve({**given, **changes})


def _model(config: TrialConfig, shape: tuple[int, ...] = SHAPE) -> VariationalAutoencoder:
    (model,) = build_models([config], {"views": shape})
    assert isinstance(model, VariationalAutoencoder)
    return model


def _images(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed)).to(torch.get_default_dtype())


def _batch(config: TrialConfig, images: int, shape: tuple[int, ...] = SHAPE, seed: int = 0) -> Batch:
    """Random images in every entry that the method reads; prepared images are pixels around 0."""
    views = config.options.views if isinstance(config.options, SimVAEConfig) else 1
    plain, *augmented = _images(1 + views, images, *shape, seed=seed)
    pixels = {"view_pixels": torch.stack(augmented), "plain_pixels": plain[None]}
    prepared = {"views": pixels["view_pixels"] - 0.5, "plain": pixels["plain_pixels"] - 0.5}
    method = METHODS[config.method]
    assert issubclass(method, VariationalAutoencoder)
    return {name: tuple(values) for name, values in {**pixels, **prepared}.items() if name in method.reads}


def test_there_are_four() -> None:
    assert AUTOENCODERS == ["beta_vae", "cr_vae", "simvae", "vae"]


@each_method
def test_the_representation_is_the_mean_of_the_posterior(name: str) -> None:
    """The encoder returns twice as many values: means, then log-variances."""
    model, images = _model(_config(name)).eval(), _images(4, *SHAPE)
    with torch.no_grad():
        outputs, vectors, z_BL = model.encoder(images), model.embed(images), model(images)
    assert outputs.shape == (4, 2 * L) and model.features == L and model.variance == "var"
    assert torch.equal(vectors["z"], outputs[:, :L]) and torch.equal(z_BL, outputs[:, :L])
    torch.testing.assert_close(vectors["var"].log(), outputs[:, L:], rtol=1e-4, atol=1e-6)


@each_method
def test_images_are_decoded_from_representations_into_the_unit_interval(name: str) -> None:
    model, z_BL = _model(_config(name)).eval(), 50 * torch.randn(6, L, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        images, logits = model.decode(z_BL), model.decoder.logits(z_BL)
    assert images.shape == (6, *SHAPE) and images.min() >= 0 and images.max() <= 1 and images.std() > 0.1
    torch.testing.assert_close(images.numpy(), special.expit(logits.numpy()), rtol=1e-4, atol=1e-6)


@each_method
@pytest.mark.parametrize("likelihood", ["gaussian", "bernoulli"])
def test_scores_are_the_terms_of_the_negative_elbo_of_an_image_alone(name: str, likelihood: str) -> None:
    """Against scipy, up to a constant; SimVAE's prior of one view has the variance of its centre, too."""
    own: dict[str, dict[str, Value]] = {"simvae": {"centre_precision": 0.5}, "beta_vae": {"beta": 3.0}}
    method, config = METHODS[name], resolve({"method": name, "likelihood": likelihood, **own.get(name, {})})
    assert issubclass(method, VariationalAutoencoder)
    model = autoencoders.built(method, config.options)
    (view,), (pixels,) = autoencoders.indices([3, 0, 7, 7]), autoencoders.pixels(1, 4)
    mu_BL, sd_BL = autoencoders.posterior_of(model, view)
    means_BCHW, scale = autoencoders.decoded(model, mu_BL), model.sigma_x2.item()
    nll = autoencoders.bernoulli_nll if likelihood == "bernoulli" else autoencoders.gaussian_nll
    rows = [slice(row, row + 1) for row in range(4)]
    reconstruction_B = np.array([nll(pixels[row], means_BCHW[row], scale) for row in rows])
    prior_sd = (1 / 0.5 + model.sigma2.item()) ** 0.5 if isinstance(model, SimVAE) else 1.0
    kl_B = autoencoders.kl(mu_BL, sd_BL, prior_sd_BL=prior_sd) - autoencoders.L * np.log(prior_sd)
    kl_B -= autoencoders.L / 2 * np.log(2 * np.pi) if isinstance(model, SimVAE) else 0
    with torch.no_grad():
        scores = {key: score_B.numpy() for key, score_B in model.score(view, {}, pixels).items()}
    np.testing.assert_allclose(scores["reconstruction"], reconstruction_B, rtol=1e-4)
    np.testing.assert_allclose(scores["kl"], kl_B, rtol=1e-4, atol=1e-5)
    weight = 3.0 if name == "beta_vae" else 1.0
    np.testing.assert_allclose(scores["elbo"], reconstruction_B + weight * kl_B, rtol=1e-4)


def test_a_uniform_centre_leaves_the_entropy_alone() -> None:
    model, images = _model(_config("simvae")).eval(), _images(4, *SHAPE)
    assert isinstance(model, SimVAE)
    with torch.no_grad():
        mu_BL, logvar_BL = model.posterior(images)
        entropy_B = torch.distributions.Normal(mu_BL, (logvar_BL / 2).exp()).entropy().sum(-1)
        torch.testing.assert_close(model.divergence(mu_BL, logvar_BL), -entropy_B)


def test_samples_have_the_moments_of_the_posterior() -> None:
    """And are differentiable in them: the slope in the log-variance is half the deviation."""
    mu, logvar = torch.tensor([1.0, -2.0], requires_grad=True), torch.tensor([0.0, -3.0], requires_grad=True)
    noise = torch.randn(200_000, 2, generator=torch.Generator().manual_seed(0))
    z_NL = sample(mu, logvar, noise)
    torch.testing.assert_close(z_NL.mean(0), mu, rtol=0, atol=0.01)
    torch.testing.assert_close(z_NL.var(0), logvar.exp(), rtol=0.02, atol=0)
    slopes = torch.autograd.grad(z_NL[0].sum(), (mu, logvar))
    torch.testing.assert_close(slopes[0], torch.ones(2))
    torch.testing.assert_close(slopes[1], (z_NL[0] - mu) / 2)


@each_method
@pytest.mark.parametrize("likelihood", ["gaussian", "bernoulli"])
def test_gradients_reach_every_weight_of_encoder_and_decoder(name: str, likelihood: str) -> None:
    config = _config(name, likelihood=likelihood)
    model = _model(config)
    loss = model.losses(_batch(config, 6), draw_noise(model.noise(6), "noise")).total
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    networks = {key.split(".")[0] for key, _ in model.named_parameters()}
    assert networks == {"encoder", "decoder"} and all(gradient.abs().max() > 1e-6 for gradient in gradients)


@each_method
@pytest.mark.parametrize("likelihood", ["gaussian", "bernoulli"])
def test_losses_are_finite_and_fall_within_50_steps_on_random_images(name: str, likelihood: str) -> None:
    config = _config(name, likelihood=likelihood)
    model, batch, losses = _model(config), _batch(config, 12), []
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(50):
        loss = model.losses(batch, draw_noise(model.noise(12), "noise", step)).total
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.detach())
    course = torch.stack(losses)
    assert course.isfinite().all() and course[-5:].mean() < course[:5].mean() - 0.05 * course[:5].mean().abs()


CONVOLUTIONAL: dict[str, Value] = {"dataset": "digits32", "encoder": "simvae_resnet", "decoder": "simvae_deconv"}
LR, DECAY = (0.01, 0.003), (0.0, 0.1)


def _trained(models: Sequence[Any], batches: Sequence[Batch], members: Sequence[int], name: str) -> dict[str, Tensor]:
    """Losses of two steps of Adam, and the weights and buffers after them, `[K, ...]`."""
    stack = Stack(
        [models[member] for member in members],
        streams=list(range(len(members))),
        rates=Rates([LR[member] for member in members], [DECAY[member] for member in members]),
        make_optimiser=STACKED["adam"],
    )
    tensors: dict[str, Tensor] = {}
    for step in range(2):
        noise = [draw_noise(stack.method.noise(2), name, step, member) for member in members]
        losses = stack.step([batches[member] for member in members], noise, [{} for _ in members], 1.0)
        tensors |= {f"loss {step}": losses.total, **{f"{part} {step}": loss for part, loss in losses.parts.items()}}
    return {**tensors, **stack.parameters, **stack.buffers}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["simvae", "vae"])
def test_stacked_convolutions_equal_each_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In float64, with the residual encoder and the transposed convolutions of the paper at 32 by 32 pixels: two
    members with their own weights, hyperparameters and images, with one view and with several. Small networks of all
    methods are in `test_contract_fused`."""
    shape = (3, 32, 32)
    with float64(monkeypatch):
        configs = [
            _config(name, **CONVOLUTIONAL, sigma_x2=sigma_x2, seed=seed) for sigma_x2, seed in ((0.02, 0), (1.0, 1))
        ]
        batches = [_batch(config, 2, shape, seed) for seed, config in enumerate(configs)]
        stacked = _trained(build_models(configs, {"views": shape}), batches, (0, 1), name)
        alone = [_trained(build_models(configs, {"views": shape}), batches, (member,), name) for member in (0, 1)]
        for key, values_K in stacked.items():
            expected_K = torch.cat([tensors[key] for tensors in alone])
            assert torch.allclose(values_K, expected_K, rtol=1e-8, atol=1e-9), key
    assert not torch.allclose(alone[0]["loss 1"], alone[1]["loss 1"], rtol=1e-2)
