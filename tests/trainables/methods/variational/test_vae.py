"""The VAE against Eq. 6 of SimVAE in float64, and its collapse on the digits.

Shapes: B images, L latent dimensions.
"""

from typing import Any

import pytest
import torch

from tests.trainables.methods.autoencoders import (
    L,
    bernoulli_nll,
    built,
    decoded,
    drawn,
    gaussian_nll,
    indices,
    kl,
    pixels,
    posterior_of,
)
from tests.trainables.small import HERE
from trainables.config.trial import resolve
from trainables.contract import Batch, Noise
from trainables.methods.variational.vae import VAE
from trainables.methods.variational.vae import VAEConfig as Config
from trainables.training.cohort import Cohort

B = 6
NOISE = {"posterior": drawn(B, L)}
BATCH: Batch = {"views": indices([5, 1, 9, 20, 0, 7]), "view_pixels": pixels(1, B)}


@pytest.mark.parametrize(("likelihood", "nll"), [("gaussian", gaussian_nll), ("bernoulli", bernoulli_nll)])
@pytest.mark.parametrize("sigma_x2", [1.0, 0.1, 0.01005])
def test_loss_is_the_negative_elbo(likelihood: str, nll: Any, sigma_x2: float) -> None:
    model = built(VAE, Config(sigma_x2, likelihood))
    total, parts = model.losses(BATCH, NOISE)
    (view_BCHW,), (pixels_BCHW,) = BATCH["views"], BATCH["view_pixels"]
    mu_BL, sd_BL = posterior_of(model, view_BCHW)
    mean_BCHW = decoded(model, mu_BL + sd_BL * NOISE["posterior"].double().numpy())
    expected = {"reconstruction": nll(pixels_BCHW, mean_BCHW, sigma_x2), "kl": kl(mu_BL, sd_BL).mean()}
    assert {name: part.item() for name, part in parts.items()} == pytest.approx(expected, rel=1e-5)
    assert total.item() == pytest.approx(sum(expected.values()), rel=1e-5) and total.shape == ()


def test_it_takes_one_view_and_noise_of_each_image() -> None:
    model = built(VAE, Config())
    assert VAE.view_count(model.config) == VAE.encoded_count(model.config) == 1
    assert model.noise(B) == {"posterior": Noise((B, L), batch_dim=0)}


def test_the_digits_collapse_with_a_variance_of_1_but_not_of_one_tenth() -> None:
    """The posterior of a collapsed VAE is the prior, whatever the image. Members of one cohort, alike but for the
    variance."""
    shared: dict[str, Any] = {
        "method": "vae", "encoder": "relu_mlp", "hidden": "64", "decoder_hidden": "64", "features": 4, "epochs": 8,
        "batch_size": 60, "optimiser": "adam", "lr": 0.01, "normalise": False,
    }  # fmt: skip
    configs = [resolve({**shared, "sigma_x2": sigma_x2}) for sigma_x2 in (1.0, 0.1)]
    cohort = Cohort(configs, HERE, torch.device("cpu"), None)
    history = [cohort.epoch(epoch) for epoch in range(8)]
    collapsed_kl, sound_kl = history[-1]["loss_kl"]
    collapsed_variance, sound_variance = cohort.evaluate(last=True)["var_mean"]
    assert collapsed_kl < 0.02 and abs(collapsed_variance - 1) < 0.02
    assert sound_kl > 1 and sound_variance < 0.8


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("sigma_x2", 0.0, "`sigma_x2 > 0` must hold, but got sigma_x2=0.0"),
        ("likelihood", "normal", "no likelihood 'normal'; there are: gaussian, bernoulli"),
    ],
)
def test_config_states_the_law_and_the_offender(field: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError) as error:
        Config(**{field: value})
    assert str(error.value) == message
